"""FSCCL: contrastive learning of short texts with cluster centres, averaged over clients.

In each round, a client minimises eta * NT-Xent + KL(p || q) on its own documents.

References
----------
Zhang et al., Supporting Clustering with Contrastive Learning (SCCL), NAACL 2021. McMahan et al.,
Communication-Efficient Learning of Deep Networks from Decentralized Data (FedAvg), AISTATS 2017.
Here the encoder is frozen and followed by an adapter. Views are texts without some words (`views`),
and embeddings without some numbers; in SCCL, a language model replaces words. Eta is the weight of
the contrastive loss, as in the authors' code.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fedtopics.contract.interfaces import Run
from fedtopics.contract.published import EACH_ROUND, Reply, of_method, published
from fedtopics.contract.replies import LONGEST, Bounds
from fedtopics.inference.trained_clusters import LENGTH, Contrastive, log_student_t
from fedtopics.methods.clusters.augmented_texts import embedded_views
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.program import ClusterProgram
from fedtopics.methods.clusters.settings import ClusterSettings, NetworkTraining
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Plan, Secret
from fedtopics.methods.core.training import Arrays, RoundResult
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.registry import Method
from fedtopics.networks.base import Tensors
from fedtopics.networks.trained_encoder import Adapter, represent, score


class FSCCLSettings(ClusterSettings):
    longest_point: ClassVar[float] = LENGTH

    name: Literal["fsccl"] = Field("fsccl", description="the method")
    max_rounds: int = Field(40, ge=1, description="rounds")
    network: NetworkTraining = Field(
        NetworkTraining(deletion=0.2),
        description="how clients train the network; with deletion = 0, only dropout makes views",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="share of an embedding's numbers that a view sets to zero"
    )
    contrast_temperature: float = Field(
        0.5,
        gt=0,
        description="temperature of views' similarity; lower values give near views more weight",
    )
    contrastive_weight: float = Field(
        10.0,
        ge=0,
        description="weight of the contrastive loss, relative to the clustering loss (eta)",
    )

    @property
    def inference(self) -> type[Contrastive]:
        return Contrastive


FEATURES = 128  # dimensions in which views are compared


def first_network(settings: FSCCLSettings, seed: int) -> Arrays:
    """Draw the adapter; the weights of its head are both layers of the contrastive head."""
    dimension = settings.embedding.dimension
    adapter = Adapter(dimension, settings.network.hidden, dimension + FEATURES)
    weights = adapter.initial_weights(seed, torch.float64)
    return {
        "centres": np.zeros((settings.n_components, dimension)),
        **{name: weight.numpy() for name, weight in weights.items()},
    }


def train_on_pairs(
    weights: Tensors,
    points: Tensor,
    views: Sequence[Tensor],
    settings: FSCCLSettings,
    secret: Secret,
    round_: int,
    attempt: int = 1,
) -> float:
    """Train weights in place on a round's minibatches; return the mean loss.

    Points of a client's texts, and of each of two views of them, have shape (n, n_dimensions).
    """
    optimizer = torch.optim.Adam(
        [weight.requires_grad_() for weight in weights.values()], lr=settings.network.learning_rate
    )
    batches = Minibatches(np.arange(len(points)), secret, settings.network.batch_size)
    generator = torch.Generator().manual_seed(secret.seed("dropout", round_, attempt))
    total = 0.0
    steps = settings.network.local_steps
    for number in range((round_ - 1) * steps, round_ * steps):
        rows = torch.from_numpy(batches.draw(number + 1, attempt))
        both = torch.cat([view[rows] for view in views])
        features = contrast(weights, represent(weights, drop(both, settings.dropout, generator)))
        scores = log_student_t(represent(weights, points[rows]), weights["centres"])
        contrastive = contrastive_loss(features, settings.contrast_temperature)
        loss = settings.contrastive_weight * contrastive + clustering_loss(scores)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += float(loss.detach())
    return total / steps


def drop(points: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Apply dropout with a generator, which torch's own dropout does not support."""
    return points * (torch.rand(points.shape, generator=generator) >= share) / (1 - share)


def contrast(weights: Tensors, represented: Tensor) -> Tensor:
    n = represented.shape[1]
    first = {name: weights[name][:n] for name in ("head", "head_bias")}
    second = {name: weights[name][n:] for name in ("head", "head_bias")}
    return score(second, torch.relu(score(first, represented)))


def contrastive_loss(features: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of a text's two views against all other views (NT-Xent, nats)."""
    unit = normalize(features)
    itself = torch.eye(len(unit), dtype=torch.bool)
    likeness = (unit @ unit.T / temperature).masked_fill(itself, -torch.inf)
    return cross_entropy(likeness, torch.arange(len(unit)).roll(len(unit) // 2))


def clustering_loss(near: Tensor) -> Tensor:
    """Return KL(p || q) / n in nats, with q the softmax of `near` and p a sharper, more even q.

    References
    ----------
    Xie et al., Unsupervised Deep Embedding for Clustering Analysis, ICML 2016, equations 2 and 3.
    """
    log_q = near.log_softmax(1)
    fixed = log_q.detach()
    log_p = (2 * fixed - fixed.logsumexp(0)).log_softmax(1)
    return (log_p.exp() * (log_p - log_q)).sum(1).mean()


class FSCCLClient(ClusterClient[FSCCLSettings]):
    def __init__(self, plan: Plan[FSCCLSettings], site: ClientContext) -> None:
        super().__init__(plan, site)
        self._views = embedded_views(
            self.corpus, self.settings.network, self.settings.embedding, site
        )

    @published(
        "The change of the network's weights and centres by training on the documents, times the "
        "number of documents; the loss, summed over documents; the number of documents.",
        "change of the network's weights",
        often=of_method(FSCCLSettings, EACH_ROUND),
        reply=lambda weights: {
            "changes": {name: array.shape for name, array in weights.items() if name != "origin"},
            "loss": Bounds(per_document=LONGEST),
        },
        largest=lambda settings, n_words: {"weights": first_network(settings, 0)},
    )
    def network_changes(self, round: int, weights: Arrays) -> Reply:
        arrays = dict(weights)
        n = len(self.usable)
        origin = arrays.pop("origin")
        points = self.part(ClusterSums).points(origin)
        views = self.points_of(origin, self._views) or [points, points]
        trained = {name: torch.tensor(array, dtype=torch.float32) for name, array in arrays.items()}
        loss = (
            train_on_pairs(
                trained,
                torch.from_numpy(points),
                [*map(torch.from_numpy, views)],
                settings=self.settings,
                secret=self.secret,
                round_=round,
                attempt=self.attempt,
            )
            if n
            else 0.0
        )
        # The change is sent because a bound on its length limits how far a client moves the
        # network.
        sums = {
            name: (weight.detach().numpy() - arrays[name]) * np.float64(n)
            for name, weight in trained.items()
        }
        return {"changes": sums, "loss": loss * n, "documents": self.over(self.usable)}


class FSCCL(ClusterProgram[FSCCLSettings, Arrays]):
    """The method's program; its state is the network's weights, centres and the mean embedding."""

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        origin = np.zeros(self.settings.embedding.dimension)
        clusters = start_with_kmeans(
            agreement,
            self.settings.start,
            self.settings.n_components,
            origin=origin,
            seed=self.plan.seed,
        )
        return {
            "origin": origin,
            **first_network(self.settings, self.plan.seed),
            "centres": clusters.centres[0],
        }

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> Reply:
        return agreement.ask(FSCCLClient.network_changes, round=round_, weights=dict(state))

    def step(
        self, agreement: Agreement, state: Arrays, reply: dict[str, Any], round_: int
    ) -> RoundResult[Arrays]:
        documents = reply["documents"]
        mean = {name: state[name] + total / documents for name, total in reply["changes"].items()}
        return RoundResult(
            {"origin": state["origin"], **mean},
            {"loss": reply["loss"] / documents, "documents": documents},
        )

    def weights(self, agreement: Agreement, state: Arrays, rounds: int) -> Arrays:
        """Return the weights for inference: all except the contrastive head's."""
        return {name: state[name] for name in self.settings.build(0).shapes()}


METHOD = Method("fsccl", "FSCCL", FSCCLSettings, FSCCL, FSCCLClient, version=3, shows="clusters")
