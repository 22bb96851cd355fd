"""The client side of FSTC: a client trains its own network on its own pseudo-labels."""

import hashlib
from collections import Counter
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.interfaces import published
from fedtopics.contract.replies import UpTo, counts
from fedtopics.errors import DataError, FedTopicsError, StudyError
from fedtopics.inference.clusters import Centres, ClusterInference, Discriminants, centred
from fedtopics.inference.vectors import Numbers, Points
from fedtopics.methods.clusters.augmented_texts import embedded_views, text_views
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums, of_enough
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import SEEN, Enough, Grouped, GroupRequest, as_many, is_count
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.discriminative.client import calls_before_separation, with_call
from fedtopics.methods.fstc import training
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.networks import trained_encoder
from fedtopics.networks.base import Shapes
from fedtopics.text.embeddings import document_embeddings

START_ROUNDS = 100  # maximum number of rounds of discriminative clustering before the first round
STORED_ROUNDS = 3  # number of last rounds whose state a client stores
DIMENSIONS = 4  # maximum number of axes of a weight
MOST_WEIGHTS = 10_000  # largest number of an encoder's weight arrays


class FSTCClient(ClusterClient[FSTCSettings]):
    """A client's network; its last states are stored, in case the client is restarted."""

    def __init__(self, plan: Plan[FSTCSettings], site: ClientContext) -> None:
        super().__init__(plan, site)
        self.inference = self.settings.inference  # type: ignore[misc]
        self._tuned: tuple[Any, NDArray[np.float32]] = (None, np.zeros((0, 0), np.float32))
        self._encoder: trained_encoder.EncoderNetwork | None = None
        if self.settings.fine_tune:
            try:
                self._encoder = training.encoder_to_train(
                    self.corpus, self.settings, site.embedding_model
                )
            except FedTopicsError as error:
                raise type(error)(f"Client {self.name!r} cannot fine-tune: {error}") from None
        # If the encoder is trained, it embeds views in each step.
        self._views = (
            []
            if self._encoder
            else embedded_views(self.corpus, self.settings.network, self.settings.embedding, site)
        )

    @staticmethod
    def rounds(settings: Any) -> dict[str, str]:
        calls = calls_before_separation(settings.first_clusters)
        if settings.first_labels == "discriminative":
            often = f"at most {START_ROUNDS} times, before the first round"
            calls = with_call(calls, "class_sums", often)
        if settings.fine_tune:
            calls["encoder"] = "once, before the first round"
        calls |= {"first_centres": "once, before the first round", "train_locally": "each round"}
        every = f"every {settings.average_every} rounds, and " if settings.average_every else ""
        return calls | {"network": f"{every}once, at the end"}

    @published(
        "The names, shapes and a digest of the encoder's weights before training; the number of "
        "documents. All participants see and compare each client's values.",
        seen_by_all=True,
    )
    def encoder(self, vocabulary: str) -> dict[str, Any]:
        """Identify the encoder to train: all clients need the same one."""
        self.check(vocabulary)
        first = {} if self._encoder is None else self._encoder.first
        shapes = np.zeros((len(first), DIMENSIONS), np.int64)
        for row, weight in zip(shapes, first.values(), strict=True):
            row[: weight.ndim] = weight.shape
        names = {
            "names": list(first),
            "shapes": shapes,
            "digest": [trained_encoder.digest_of_encoder(first)],
        }
        return names | {"documents": len(self.usable)}

    def first_labels(
        self, vocabulary: str, origin: Numbers, start: dict[str, NDArray[Any]]
    ) -> None:
        """Label the documents by the clusters of the start; no data is sent."""
        self.check(vocabulary)
        if len(self.usable) == 0:
            raise DataError("no document has an embedding; give texts, or leave the client out.")
        kind = Centres if "centres" in start else Discriminants
        weights = {"origin": origin, **start}
        self._origin = origin
        parts = kind(self.bag.shape[1], self.settings).memberships(
            weights, self.part(ClusterSums).points(origin)
        )
        shares = np.concatenate([members for _, members in parts])
        n = shares.shape[1]
        self.settings = self.settings.model_copy(update={"n_components": n})
        self._clusters = shares.argmax(1)
        self._first_labels = np.eye(n)[self._clusters] if kind is Centres else shares
        digest = hashlib.sha256(b"".join(array.tobytes() for _, array in sorted(weights.items())))
        self._file = f"fstc-{digest.hexdigest()}"
        self._trainer = self._new_trainer()

    @published(
        "For each cluster with enough of the documents, the sum of their embeddings and their "
        "number; the number of all documents. With secure aggregation, first: for each cluster of "
        "the last reply, how many of its documents are now in each cluster."
    )
    def first_centres(self, vocabulary: str, groups: GroupRequest = SEEN) -> dict[str, Any]:
        self.check(vocabulary)
        labels = self._clusters
        n = self.settings.n_components
        # Others have the last sums of k-means: from its labels, too, documents move only in groups.
        part = self.part(ClusterSums)
        released = part.released.of_whole(n)
        before = max(released, key=lambda last: int((last == labels).sum()), default=labels)
        labels, enough, moves = part.moved(groups, 0, before, labels, n)
        if is_count(groups):
            return {"moves": moves[None], "documents": len(self.usable)}
        all_sums, all_counts = sums_by_label(part.points(self._origin), labels, n)
        sums, counts = of_enough(enough, all_sums, all_counts)
        return {"sums": sums, "counts": counts, "documents": len(self.usable)}

    @published(
        "For each cluster with enough of the documents, the sum of the adapter's outputs for them "
        "and their number; the loss, summed over documents; the number of all documents. With "
        "secure aggregation, first: the number of documents in each cluster."
    )
    def train_locally(
        self,
        vocabulary: str,
        round: int,
        centres: Numbers,
        counts: Numbers,
        network: dict[str, NDArray[Any]],
        groups: GroupRequest = SEEN,
    ) -> dict[str, Any]:
        """Train the client's network for a round (Algorithm 3)."""
        self.check(vocabulary)
        request: dict[str, Any] = {
            "round": round,
            "centres": centres,
            "counts": counts,
            "network": network,
        }
        reply = self.guard.sums(groups, request, as_many, partial(self._trained, **request))
        return reply | {"documents": len(self.usable)}

    def _trained(self, round: int, centres: Numbers, counts: Numbers, network: Arrays) -> Grouped:
        self._go_to(round - 1)
        if network:
            self._trainer.take(network)
        masses = {"even": np.ones(len(counts)), "global": counts, "own": self._first_labels.sum(0)}
        mass = masses[self.settings.masses]
        loss = self._trainer.train(round, centres, counts > 0, mass, self.attempt)
        self._store()
        sums, sizes = self._trainer.cluster_sums()

        def summed(enough: Enough) -> dict[str, Any]:
            sent_sums, sent_sizes = of_enough(enough, sums, sizes)
            return {"sums": sent_sums, "counts": sent_sizes, "loss": loss * len(self.usable)}

        return {"counts": sizes}, summed

    @published(
        "The weights of the network that the client trained, times its number of documents; that "
        "number. With fine_tune also the encoder's weights. Zeros, if the client has not trained."
    )
    def network(self, vocabulary: str, round: int) -> dict[str, Any]:
        self.check(vocabulary)
        self._go_to(round)
        # A client that was never sampled has not trained.
        n = len(self.usable) if self._trainer.round else 0
        weights = {
            name: weight.detach().cpu().numpy() * np.float64(n)
            for name, weight in self._trainer.weights.items()
        }
        encoder = self._encoder_shapes  # many weights
        narrow = {name: weights[name].astype(np.float32) for name in encoder}
        return {"weights": weights | narrow, "documents": n}

    def last_points(self, weights: Arrays) -> Points:
        """Return embeddings; if the encoder was trained, by its last weights."""
        if self._encoder is None:
            return super().last_points(weights)
        settings = self.settings
        trained = {name: torch.from_numpy(weights[name]) for name in self._encoder.shapes}
        model = self.site.embedding_model or settings.embedding.model
        encoder = trained_encoder.TunedEncoder(model, settings.max_length, trained)
        key = encoder.fingerprint, weights["origin"].tobytes()
        if self._tuned[0] != key:
            texts = replace(self.corpus, embeddings=None)
            embedded = document_embeddings(
                texts,
                settings.embedding,
                embedding_model=self.site.embedding_model,
                encoder=encoder,
            )
            self._tuned = key, centred(embedded[self.usable], weights["origin"])
        return self._tuned[1]

    @property
    def _encoder_shapes(self) -> Shapes:
        return {} if self._encoder is None else self._encoder.shapes

    def inference_of(self, n_clusters: int | None = None) -> ClusterInference:
        number = {"n_components": n_clusters or self.settings.n_components}
        shape = self.settings.model_copy(update=number).trained_shape(self._encoder_shapes)
        return self.inference(self.bag.shape[1], shape)

    def _new_trainer(self) -> training.EncoderTrainer:
        settings = self.settings
        n_views = settings.network.n_views
        network = trained_encoder.Adapter(
            self.inference_of().n_dimensions, settings.network.hidden, settings.n_components
        )
        if self._encoder is not None:
            inputs: training.FixedInputs = training.EncodedInputs(
                self._encoder, self._tokens, self._origin, self.secret, n_views
            )
        else:
            views = self.points_of(self._origin, self._views)
            inputs = training.FixedInputs(
                np.concatenate([self.part(ClusterSums).points(self._origin), *views]), n_views
            )
        weights = network.initial_weights(self.public_seed)
        return training.EncoderTrainer(settings, inputs, weights, self._first_labels, self.secret)

    @cached_property
    def _tokens(self) -> trained_encoder.Tokens:
        if self._encoder is None:
            return {}
        texts = [text for batch in self.corpus.texts() for text in batch]
        views = text_views(self.corpus, self.settings.network)
        return self._encoder.tokens([one[row] for one in (texts, *views) for row in self.usable])

    def _go_to(self, round_: int) -> None:
        """Restore the state after a round, or the last stored one before it."""
        stored = self._stored()
        present = self._trainer.round
        best = max([*(r for r in stored if r <= round_), present if present <= round_ else 0])
        if best == present:
            return
        self._trainer = self._new_trainer()
        if best:
            self._trainer.restore(stored[best], best)

    def _store(self) -> None:
        folder = self.site.folder
        if folder is not None:
            present = self._trainer.round
            self._trainer.save(folder / f"{self._file}-{present:05d}.safetensors")
            stored = self._stored()
            recent = sorted(n for n in stored if n <= present)[-STORED_ROUNDS:]
            # Other states come from earlier rounds, an earlier run, or another start.
            for old in {*folder.glob("fstc-*.safetensors")} - {stored[n] for n in recent}:
                old.unlink()

    def _stored(self) -> dict[int, Path]:
        folder = self.site.folder
        files = [] if folder is None else folder.glob(f"{self._file}-*.safetensors")
        return {int(file.stem.rpartition("-")[2]): file for file in files}


def same_encoder(agreement: Agreement, settings: FSTCSettings) -> Shapes:
    """Check that all clients train the same encoder; return the shapes of its weights, if any."""
    if not settings.fine_tune:
        return {}
    weights = UpTo("weights", MOST_WEIGHTS)
    template = {"names": [weights], "shapes": counts(weights, DIMENSIONS), "digest": [1]}
    replies = agreement.call("encoder", template)
    digests = {
        name: (*reply["digest"], *reply["names"], reply["shapes"].tobytes())
        for name, reply in replies.items()
    }
    most_common, n_clients = Counter(digests.values()).most_common(1)[0]
    different = [name for name in digests if digests[name] != most_common]
    if different:
        most = n_clients > len(digests) / 2
        whose = "those of most clients" if most else "those of the other clients"
        raise StudyError(
            f"The encoders of {', '.join(different if most else digests)} have weights other than "
            f"{whose}; give all clients the same files of the model {settings.embedding.model!r}."
        )
    reply = next(iter(replies.values()))
    shapes = (tuple(int(n) for n in row if n) for row in reply["shapes"])
    return dict(zip(reply["names"], shapes, strict=True))
