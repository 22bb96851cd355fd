"""The client side of FSTC: a client trains its own network on its own pseudo-labels."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.published import (
    EACH_ROUND,
    FIRST,
    NEVER,
    Often,
    Reply,
    of_method,
    published,
)
from fedtopics.contract.replies import LONGEST, Bounds, Template, UpTo, counts, sums
from fedtopics.errors import DataError, FedTopicsError, StudyError
from fedtopics.inference.clusters import Centres, ClusterInference, Discriminants, centred
from fedtopics.inference.vectors import Numbers, Points
from fedtopics.methods.clusters.augmented_texts import embedded_views, text_views
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    as_many,
    clients_in,
    is_count,
    persons_by_label,
)
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.fstc import training
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.networks import trained_encoder
from fedtopics.networks.base import Shapes
from fedtopics.text.embeddings import document_embeddings

STORED_ROUNDS = 3  # number of last rounds whose state a client stores
DIMENSIONS = 4  # maximum number of axes of a weight
MOST_WEIGHTS = 10_000  # largest number of an encoder's weight arrays


def centre_bounds(settings: FSTCSettings) -> Template:
    return {
        "sums": (settings.n_components, settings.embedding.dimension),
        "counts": sums(settings.n_components, per_document=1),
    }


def network_bounds(settings: FSTCSettings, encoder: Mapping[str, NDArray[np.int64]]) -> Template:
    adapter = trained_encoder.Adapter(
        settings.embedding.dimension, settings.network.hidden, settings.n_components
    )
    shapes = {name: tuple(shape.tolist()) for name, shape in encoder.items()}
    narrow = {name: Bounds(shape, dtype="float32") for name, shape in shapes.items()}
    return {"weights": adapter.shapes | narrow}


def encoder_of_size(settings: FSTCSettings, n_words: int) -> Reply:
    """Return the shapes of the encoder's weights if it is trained; unknown if it is not here."""
    shapes: Mapping[str, tuple[Any, ...]] = {}
    if settings.fine_tune:
        shapes = {"encoder": ("unknown",)}
        with suppress(FedTopicsError):
            shapes = trained_encoder.encoder_network(
                settings.embedding.model, settings.max_length
            ).shapes
    return {"encoder": {name: np.array(shape) for name, shape in shapes.items()}}


class FSTCClient(ClusterClient[FSTCSettings]):
    """A client's network; its last states are stored, in case the client is restarted."""

    def __init__(self, plan: Plan[FSTCSettings], site: ClientContext) -> None:
        super().__init__(plan, site)
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

    @published(
        "The names, shapes and a digest of the encoder's weights before training; the number of "
        "documents. All participants see and compare each client's values.",
        "names and shapes of the encoder's weights",
        often=of_method(FSTCSettings, lambda s: FIRST if s.fine_tune else NEVER),
        reply=lambda: {
            "names": [UpTo("weights", MOST_WEIGHTS)],
            "shapes": counts(UpTo("weights", MOST_WEIGHTS), DIMENSIONS),
            "digest": [1],
        },
        seen_by_all=True,
    )
    def encoder_shapes(self) -> Reply:
        """Identify the encoder to train: all clients need the same one."""
        first = {} if self._encoder is None else self._encoder.first
        shapes = np.zeros((len(first), DIMENSIONS), np.int64)
        for row, weight in zip(shapes, first.values(), strict=True):
            row[: weight.ndim] = weight.shape
        return {
            "names": list(first),
            "shapes": shapes,
            "digest": [trained_encoder.digest_of_encoder(first)],
            "documents": self.over(self.usable),
        }

    def first_labels(self, origin: Numbers, start: dict[str, NDArray[Any]]) -> None:
        """Label the documents by the clusters of the start; no data is sent."""
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
        "For each cluster with documents of enough persons, the sum of their embeddings and their "
        "number; the number of all documents. With secure aggregation, first: for each cluster of "
        "the last reply, how many of its documents are now in each cluster.",
        "sums of embeddings by cluster",
        often=of_method(FSTCSettings, FIRST),
        reply=centre_bounds,
        counts_first=lambda settings: {
            "moves": sums(1, settings.n_components, settings.n_components, per_document=1)
        },
    )
    def first_centres(self, groups: GroupRequest = SEEN) -> Reply:
        labels = self._clusters
        n = self.settings.n_components
        # Others have the last sums of k-means: from its labels, too, documents move only in groups.
        part = self.part(ClusterSums)
        before = max(
            part.released.of_whole(n), key=lambda last: int((last == labels).sum()), default=labels
        )
        labels, enough, moves = part.moved(
            groups, 0, before, labels, n, self.corpus.owners_of(self.usable)
        )
        documents = self.over(self.usable)
        if is_count(groups):
            moves = moves[None]
            return {"moves": moves, "documents": documents, **clients_in(groups, moves.sum(-2))}
        all_sums, all_counts = sums_by_label(part.points(self._origin), labels, n)
        return {
            "sums": all_sums * enough[:, None],
            "counts": all_counts * enough,
            "documents": documents,
        }

    @published(
        "For each cluster with documents of enough persons, the sum of the adapter's outputs for "
        "them and their number; the loss, summed over documents; the number of all documents. With "
        "secure aggregation, first: the number of documents in each cluster.",
        "sums of the adapter's outputs by cluster",
        often=of_method(FSTCSettings, EACH_ROUND),
        reply=lambda settings: {**centre_bounds(settings), "loss": Bounds(per_document=LONGEST)},
        counts_first=lambda settings: {"counts": sums(settings.n_components, per_document=1)},
    )
    def adapter_sums(
        self,
        round: int,
        centres: Numbers,
        counts: Numbers,
        network: dict[str, NDArray[Any]],
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Train the client's network for a round (Algorithm 3)."""
        request: dict[str, Any] = {
            "round": round,
            "centres": centres,
            "counts": counts,
            "network": network,
        }
        return self.sums_by_group(
            groups, request, partial(self._trained, **request), self.usable, as_many
        )

    def _trained(self, round: int, centres: Numbers, counts: Numbers, network: Arrays) -> Grouped:
        self._go_to(round - 1)
        if network:
            self._trainer.take(network)
        masses = {"even": np.ones(len(counts)), "global": counts, "own": self._first_labels.sum(0)}
        loss = self._trainer.train(
            round, centres, counts > 0, masses[self.settings.masses], self.attempt
        )
        self._store()
        totals, labels = self._trainer.cluster_sums()
        sizes = np.bincount(labels, minlength=len(totals)).astype(np.float64)
        persons = persons_by_label(labels, len(totals), self.corpus.owners_of(self.usable))
        return {"counts": persons.astype(np.float64)}, lambda enough: {
            "sums": totals * enough[:, None],
            "counts": sizes * enough,
            "loss": loss * len(self.usable),
        }

    @published(
        "The weights of the network that the client trained, times its number of documents; that "
        "number. With fine_tune also the encoder's weights. Zeros, if the client has not trained.",
        "weights of the network",
        often=of_method(
            FSTCSettings,
            lambda s: Often(per_round=1 / s.average_every if s.average_every else 0, at_end=1),
        ),
        reply=network_bounds,
        largest=encoder_of_size,
    )
    def network_weights(self, round: int, encoder: Mapping[str, NDArray[np.int64]]) -> Reply:
        self._go_to(round)
        # A client that was never sampled has not trained.
        n = len(self.usable) if self._trainer.round else 0
        weights = {
            name: weight.detach().cpu().numpy() * np.float64(n)
            for name, weight in self._trainer.weights.items()
        }
        # The encoder has many weights.
        narrow = {name: weights[name].astype(np.float32) for name in weights if name in encoder}
        return {"weights": weights | narrow, "documents": self.over(self.usable[:n])}

    def last_points(self, weights: Arrays) -> Points:
        """Return embeddings; if the encoder was trained, by its last weights."""
        if self._encoder is None:
            return super().last_points(weights)
        trained = {name: torch.from_numpy(weights[name]) for name in self._encoder.shapes}
        model = self.site.embedding_model or self.settings.embedding.model
        encoder = trained_encoder.TunedEncoder(model, self.settings.max_length, trained)
        key = encoder.fingerprint, weights["origin"].tobytes()
        if self._tuned[0] != key:
            embedded = document_embeddings(
                replace(self.corpus, embeddings=None),
                self.settings.embedding,
                embedding_model=self.site.embedding_model,
                encoder=encoder,
            )
            self._tuned = key, centred(embedded[self.usable], weights["origin"])
        return self._tuned[1]

    def inference_of(self, n_clusters: int | None = None) -> ClusterInference:
        return self.settings.build(
            self.bag.shape[1],
            n_components=n_clusters or self.settings.n_components,
            encoder={} if self._encoder is None else self._encoder.shapes,
        )

    def _new_trainer(self) -> training.EncoderTrainer:
        network = trained_encoder.Adapter(
            self.inference_of().n_dimensions,
            self.settings.network.hidden,
            self.settings.n_components,
        )
        if self._encoder is not None:
            inputs: training.FixedInputs = training.EncodedInputs(
                self._encoder,
                self._tokens,
                self._origin,
                self.secret,
                self.settings.network.n_views,
            )
        else:
            views = self.points_of(self._origin, self._views)
            inputs = training.FixedInputs(
                np.concatenate([self.part(ClusterSums).points(self._origin), *views]),
                self.settings.network.n_views,
            )
        return training.EncoderTrainer(
            self.settings,
            inputs,
            network.initial_weights(self.public_seed),
            self._first_labels,
            self.secret,
        )

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
        if best != present:
            self._trainer = self._new_trainer()
        if best not in (present, 0):
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
    replies = agreement.ask(FSTCClient.encoder_shapes)
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
