"""FSCCL: contrastive learning of short texts with cluster centres, averaged over clients.

Each round a client trains the network on its own documents: two views of a text are to be alike
and unlike those of other texts, and documents are to be sure of their cluster. The server takes
the mean of the clients' networks, weighted by their documents. It is what FSTC is compared with.
`FSCCL` is what the server executes, `FSCCLClient` what a client does.

A client keeps nothing from round to round: its reply is a function of what it is sent.

References
----------
Zhang et al., Supporting Clustering with Contrastive Learning (SCCL), NAACL 2021. McMahan et al.,
Communication-Efficient Learning of Deep Networks from Decentralized Data (FedAvg), AISTATS 2017.
Here the encoder is frozen, with an adapter behind it; views are of texts without some words and
of embeddings without some numbers, where SCCL has a language model replace words. Its eta is the
weight of the contrastive loss, as in the authors' code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.inference.clusters import AdapterShape, Contrastive, log_student_t
from fedtopics.inference.points import Numbers
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import FSCCLSettings
from fedtopics.methods.clusters import ClusterClient, ClusterServer, Found, find_moments
from fedtopics.methods.kmeans.method import before_rounds, begin_with_kmeans
from fedtopics.methods.minibatches import Minibatches
from fedtopics.networks import Adapter, Tensors, represent, score
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings, require_texts

FEATURES = 128  # by which two views are alike
DROPOUT = 3  # of what is drawn, besides the study's seed and the client's
Arrays = dict[str, NDArray[Any]]


def network(dimension: int, hidden: int) -> Adapter:
    """Return the adapter, and below each other the two layers of the contrastive head.

    Both layers see `dimension` numbers: the first makes as many of them, the second FEATURES.
    """
    return Adapter(dimension, hidden, dimension + FEATURES)


class Trained(Contrastive):
    """What is trained: what clusters are found by, and the contrastive head."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights that travel."""
        return super().shapes() | network(self.n_dimensions, self.settings.hidden).shapes


class FSCCL(ClusterServer[FSCCLSettings]):
    """The server's half."""

    inference = Contrastive

    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Alternate: local training at the clients, the mean of their networks at the server."""
        saved = run.restore()
        weights = self._first(agreement) if saved is None else dict(saved.arrays)
        last = done = 0 if saved is None else saved.round
        for last in run.rounds(done, self.settings.max_rounds):
            work = partial(self._round, agreement, weights, last)
            (weights, told), report = agreement.round(last, work)
            run.event("round", round=last, **told, **report)
            if run.due(last):
                run.checkpoint(Checkpoint(last, weights, {}))
        kept = Contrastive(0, self.settings).shapes()
        return Found({name: weights[name] for name in kept}, last)

    def shape(self, settings: FSCCLSettings) -> AdapterShape:
        """Return what a model keeps of the settings."""
        return AdapterShape(**settings.model_dump(include=set(AdapterShape.model_fields)))

    def _first(self, agreement: Agreement) -> Arrays:
        """Draw the network, and find its first centres by k-means."""
        settings = self.settings
        dimension = settings.embedding.dimension
        origin, moments = find_moments(agreement, dimension)
        clusters = begin_with_kmeans(agreement, settings, origin, moments, self.seed, 1)
        drawn = network(dimension, settings.hidden).initial_weights(self.seed, torch.float64)
        first = {name: weight.numpy() for name, weight in drawn.items()}
        return {"origin": origin, "centres": clusters.centres[0], **first}

    def _round(
        self, agreement: Agreement, weights: Arrays, round_: int
    ) -> tuple[Arrays, dict[str, Any]]:
        """Let the clients train; return the mean of their networks, and what it cost."""
        shapes = Trained(0, self.settings).shapes()
        template = {"weights": {n: shapes[n] for n in shapes if n != "origin"}, "loss": ()}
        reply = agreement.sum("train_locally", template, round=round_, weights=weights)
        documents = reply["documents"]
        mean = {name: total / documents for name, total in reply["weights"].items()}
        told = {"loss": reply["loss"] / documents, "documents": documents}
        return {"origin": weights["origin"], **mean}, told


class FSCCLClient(ClusterClient[FSCCLSettings]):
    """The client's half."""

    method = "fsccl"
    version = 1
    inference = Contrastive
    published = (
        "vocabulary", "adopt", "means", "moments", "cluster_sums", "train_locally", "sizes",
        "shares", "word_sums", "pairs",
    )  # fmt: skip

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # At once: what takes minutes, or cannot be done, comes before the first round.
        deletes = self.settings.deletion > 0
        self._views = [self._shortened(view) for view in (0, 1)] if deletes else None

    @staticmethod
    def rounds(settings: FSCCLSettings) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        return before_rounds(settings) | {"train_locally": "each round"}

    def train_locally(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        weights: Arrays,
    ) -> dict[str, Any]:
        """Train the network on the documents here for a round.

        Parameters
        ----------
        vocabulary : str
        round : int
        weights : mapping of name to array
            The network, its centres, and the mean embedding; as `Trained.shapes` says.

        Leaves the client
            The weights of the network and its centres, trained on the documents, times their
            number; the loss, summed over documents; their number.
        """
        self.check(vocabulary)
        given = self.checked(weights, Trained)
        n = len(self.known)
        trained = {
            name: torch.tensor(array, dtype=torch.float32)
            for name, array in given.items()
            if name != "origin"
        }
        texts = self._texts(given["origin"])
        loss = train(trained, texts, self.settings, self._seed, round) if n else 0.0
        sums = {name: weight.detach().numpy() * np.float64(n) for name, weight in trained.items()}
        return {"weights": sums, "loss": loss * n, "documents": n}

    def _texts(self, origin: Numbers) -> Texts:
        points = self.points(origin)
        views = [points, points]
        if self._views is not None:
            known = (view[self.known] for view in self._views)
            views = [self._inference().points(origin, None, view) for view in known]
        return Texts(*map(torch.from_numpy, (points, *views)))

    def _shortened(self, view: int) -> NDArray[np.float32]:
        """Return the embeddings of all texts without some of their words."""

        def tell(done: int, documents: int) -> None:
            told = {"event": "embedding", "client": self.name, "done": done}
            self.workplace.tell({**told, "documents": documents})

        texts = chain.from_iterable(self._corpus.texts())
        try:
            require_texts(self._corpus, "that views of them are made of")
            return document_embeddings(
                Corpus.of(list(shorten(texts, self.settings.deletion, view))),
                self.settings.embedding,
                own_model=self.workplace.embedding_model,
                on_progress=tell,
            )
        except FedTopicsError as error:
            raise StudyError(
                f"Client {self.name!r} cannot embed texts without some of their words: {error} "
                "Or set deletion = 0 in the study, for dropout alone."
            ) from None


def shorten(texts: Iterable[str], share: float, view: int) -> Iterator[str]:
    """Leave out each word with a probability of `share`, but never all words of a text.

    Which follows from the text and the number of the view alone: the same text is shortened in the
    same way wherever it is and whatever the seed, so that it is embedded once.

    Examples
    --------
    >>> list(shorten(["oak and beech", "fir", ""], 0.5, view=0))
    ['and', 'fir', '']
    """
    for text in texts:
        words = text.split()
        digest = hashlib.sha256(text.encode()).digest()
        rng = np.random.default_rng([view, int.from_bytes(digest[:8])])
        kept = rng.random(len(words)) >= share
        if words and not kept.any():
            kept[rng.integers(len(words))] = True
        yield " ".join(word for word, stays in zip(words, kept, strict=True) if stays)


@dataclass(frozen=True)
class Texts:
    """A client's texts as the network sees them.

    Parameters
    ----------
    points, first, second : float32 tensors of shape (n, n_dimensions)
        Texts as they are, and two views of them before dropout.
    """

    points: Tensor
    first: Tensor
    second: Tensor


def train(
    weights: Tensors, texts: Texts, settings: FSCCLSettings, seed: Sequence[int], round_: int
) -> float:
    """Change the weights by a round's minibatches; return the mean loss.

    Parameters
    ----------
    weights : tensors
        Of the network, and its centres; without gradients.
    texts : Texts
        At least one.
    settings : FSCCLSettings
    seed : sequence of int
        The study's and the client's.
    round_ : int
        From 1; minibatches and dropout follow from it and the seed.
    """
    parameters = [weight.requires_grad_() for weight in weights.values()]
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate)
    batches = Minibatches(np.arange(len(texts.points)), seed, 0.0, 1)
    size = batches.size(settings.batch_size)
    own_seed = np.random.default_rng([*seed, DROPOUT, round_]).integers(2**63)
    noise = torch.Generator().manual_seed(int(own_seed))
    total, steps = 0.0, settings.local_steps
    for number in range((round_ - 1) * steps, round_ * steps):
        rows = torch.from_numpy(batches.draw(number + 1, size))
        views = torch.cat([texts.first[rows], texts.second[rows]])
        features = contrast(weights, represent(weights, drop(views, settings.dropout, noise)))
        near = log_student_t(represent(weights, texts.points[rows]), weights["centres"])
        apart = contrastive_loss(features, settings.contrast_temperature)
        loss = settings.contrastive_weight * apart + clustering_loss(near)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += float(loss.detach())
    return total / steps


def drop(points: Tensor, share: float, noise: torch.Generator) -> Tensor:
    """Set each number to 0 with a probability of `share`, and enlarge the rest to make up for it.

    As torch's dropout, which cannot be told where its random numbers come from. Shapes stay.
    """
    kept = torch.rand(points.shape, generator=noise) >= share
    return points * kept / (1 - share)


def contrast(weights: Tensors, represented: Tensor) -> Tensor:
    """Return what views are compared by, shape (n, FEATURES): two layers on (n, n_dimensions)."""
    n = represented.shape[1]
    first = {name: weights[name][:n] for name in ("head", "head_bias")}
    second = {name: weights[name][n:] for name in ("head", "head_bias")}
    return score(second, torch.relu(score(first, represented)))


def contrastive_loss(features: Tensor, temperature: float) -> Tensor:
    """Return how hard it is to tell a text's other view from all other views (NT-Xent).

    Parameters
    ----------
    features : float tensor of shape (2 n, n_features)
        One view of each text, then the other, in the same order.
    temperature : float

    Returns
    -------
    scalar tensor
        Mean cross-entropy in nats; log(2 n - 1) where all views are alike.
    """
    unit = normalize(features)
    itself = torch.eye(len(unit), dtype=torch.bool)
    likeness = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(likeness, torch.arange(len(unit)).roll(len(unit) // 2))


def clustering_loss(near: Tensor) -> Tensor:
    """Return how far memberships are from surer ones of clusters more alike in size.

    Parameters
    ----------
    near : float tensor of shape (n, n_clusters)
        As of `log_student_t`; q is its softmax.

    Returns
    -------
    scalar tensor
        KL(p || q) / n in nats, where p = q^2 / f with rows that sum to 1 has no gradient, and f
        sums q over the documents.

    References
    ----------
    Xie et al., Unsupervised Deep Embedding for Clustering Analysis, ICML 2016, equations 2 and 3.
    """
    log_q = near.log_softmax(1)
    fixed = log_q.detach()
    log_p = (2 * fixed - fixed.logsumexp(0)).log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()
