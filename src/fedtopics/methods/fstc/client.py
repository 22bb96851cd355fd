"""The client's half of FSTC: a network of its own, trained on its own pseudo-labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.errors import DataError, FedTopicsError
from fedtopics.inference.clusters import (
    Adapted,
    Centres,
    ClusterInference,
    Discriminants,
    centred,
)
from fedtopics.inference.points import Numbers, move_together, sums_by_label
from fedtopics.methods.client import Documents, leaves
from fedtopics.methods.cluster_client import ALL, ClusterClient
from fedtopics.methods.discriminative.client import also, calls_before_separating
from fedtopics.methods.fstc.network import network_of, shape_of
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.fstc.training import (
    Broadcast,
    EncodedInputs,
    FixedInputs,
    Inputs,
    Trainer,
    encoder_to_train,
)
from fedtopics.methods.plan import Plan, Site
from fedtopics.networks import Adapter
from fedtopics.networks.trained_encoder import (
    EncoderNetwork,
    Shapes,
    Tokens,
    TunedEncoder,
    digest,
)
from fedtopics.text.embeddings import document_embeddings

START_ROUNDS = 100  # most rounds of discriminative clustering before the first
KEPT = 3  # rounds whose state a client keeps
DIMENSIONS = 4  # most of a weight
Arrays = dict[str, NDArray[Any]]


class FSTCClient(ClusterClient[FSTCSettings]):
    """The client's half.

    What it is after each of the last rounds is kept in its workplace: a client that is begun anew
    goes on from there, to the same bits; with an encoder on a GPU, but for its rounding.
    """

    def __init__(self, plan: Plan[FSTCSettings], site: Site) -> None:
        super().__init__(plan, site)
        self._tuned: tuple[Any, NDArray[np.float32]] = (None, np.zeros((0, 0), np.float32))
        self._encoder: EncoderNetwork | None = None
        if self.settings.fine_tune:
            try:
                self._encoder = encoder_to_train(self._corpus, self.settings, self._embedding_model)
            except FedTopicsError as error:
                raise type(error)(f"Client {self.name!r} cannot fine-tune: {error}") from None

    @property
    def inference(self) -> type[Adapted]:  # type: ignore[override]
        """What finds the clusters of documents, once there is a model."""
        return network_of(self.settings)

    @staticmethod
    def rounds(settings: Any) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        calls = calls_before_separating(settings)
        if settings.start == "discriminative":
            often = f"at most {START_ROUNDS} times, before the first round"
            calls = also(calls, "class_sums", often)
        if settings.fine_tune:
            calls["encoder"] = "once, before the first round"
        calls |= {"first_labels": "once, before the first round", "train_locally": "each round"}
        every = f"every {settings.average_every} rounds, and " if settings.average_every else ""
        return calls | {"network": f"{every}once, at the end"}

    @leaves(
        "The names and shapes of the encoder's weights and a digest of them, before any "
        "training; the number of documents."
    )
    def encoder(self, vocabulary: str) -> dict[str, Any]:
        """Say which encoder is about to be trained: all clients' have to be the same."""
        self.check(vocabulary)
        first = {} if self._encoder is None else self._encoder.first
        shapes = np.zeros((len(first), DIMENSIONS), np.int64)
        for row, weight in zip(shapes, first.values(), strict=True):
            row[: weight.ndim] = weight.shape
        names = {"names": list(first), "shapes": shapes, "digest": [digest(first)]}
        return names | {"documents": len(self.known)}

    @leaves(
        "Of each cluster with enough of the documents, the sum of their points and their "
        "number; the number of all."
    )
    def first_labels(
        self, vocabulary: str, origin: Numbers, start: dict[str, NDArray[Any]]
    ) -> dict[str, Any]:
        """Label the documents by the clusters there are, and sum each label's points.

        Parameters
        ----------
        vocabulary : str
        origin : float64 array of shape (n_dimensions,)
        start : mapping of name to array
            Centres, or what discriminates clusters.
        """
        self.check(vocabulary)
        if len(self.known) == 0:
            raise DataError("no document has an embedding; give texts, or leave the client out.")
        kind = Centres if "centres" in start else Discriminants
        weights = self.checked({"origin": origin, **start}, kind)
        self._origin = origin
        points = self.points(origin)
        given = kind(self.bag.shape[1], self.settings).memberships(weights, points)
        shares = np.concatenate([members for _, members in given])
        chosen = {"n_components": shares.shape[1]}
        self.settings = self.settings.model_copy(update=chosen)
        self._labels_given = (
            np.eye(shares.shape[1])[shares.argmax(1)] if kind is Centres else shares
        )
        self._own_masses = self._labels_given.sum(0)
        digest = hashlib.sha256(b"".join(array.tobytes() for _, array in sorted(weights.items())))
        self._file = f"fstc-{digest.hexdigest()[:16]}"
        self._trainer = self._new_trainer()
        return self._first_reply(points, shares.argmax(1), shares.shape[1])

    @leaves(
        "Of each cluster with enough of the documents, the sum of what the adapter makes of "
        "them and their number; the loss, summed over documents; the number of all."
    )
    def train_locally(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        centres: Numbers,
        counts: Numbers,
        network: dict[str, NDArray[Any]],
    ) -> dict[str, Any]:
        """Train the client's own network for a round (Algorithm 3).

        Parameters
        ----------
        vocabulary : str
        round : int
        centres : float64 array of shape (n_clusters, n_dimensions)
            Of all clients' clusters.
        counts : float64 array of shape (n_clusters,)
            Of how many documents each is.
        network : mapping of name to array
            The mean of all clients' networks, if it was asked for; else nothing.
        """
        self.check(vocabulary)
        self.expect(centres, (self.settings.n_components, self.n_dimensions), round)
        self.expect(counts, (self.settings.n_components,), round)
        self._go_to(round - 1)
        if network:
            self._trainer.take(self.checked({"origin": self._origin, **network}))
        masses = {"even": np.ones(len(counts)), "global": counts, "own": self._own_masses}
        broadcast = Broadcast(round, centres, counts > 0, masses[self.settings.masses])
        loss = self._trainer.train(broadcast)
        self._keep()
        return self._reply() | {"loss": loss * len(self.known)}

    @leaves(
        "The weights of the network it trained on its documents, times their number; that. "
        "With fine_tune, the encoder's are among them. Zeros, if it has trained nothing."
    )
    def network(self, vocabulary: str, round: int) -> dict[str, Any]:  # noqa: A002
        """Return the client's network as it is after a round."""
        self.check(vocabulary)
        self._go_to(round)
        # Who was never drawn, or never there, has trained nothing.
        n = len(self.known) if self._trainer.round else 0
        weights = {
            name: weight.detach().cpu().numpy() * np.float64(n)
            for name, weight in self._trainer.weights.items()
        }
        encoder = () if self._encoder is None else self._encoder.first
        narrow = {name: weights[name].astype(np.float32) for name in encoder}  # they are many
        return {"weights": weights | narrow, "documents": n}

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        """Find the probabilities of all documents, some at a time."""
        if self._encoder is None:
            yield from super().thetas(**model)
            return
        weights = self.checked(model["weights"])
        inference = self._inference(self.n_topics(**model))
        for rows, theta in inference.memberships(weights, self._tuned_points(weights)):
            yield self.known[rows], theta

    def _tuned_points(self, weights: Arrays) -> NDArray[np.float32]:
        """Return what represents documents to the server's model; the last are kept."""
        settings = self.settings
        own = {name: torch.from_numpy(weights[name]) for name in self._encoder_shapes}
        model = self._embedding_model or settings.embedding.model
        encoder = TunedEncoder(model, settings.max_length, own)
        key = encoder.fingerprint, weights["origin"].tobytes()
        if self._tuned[0] != key:
            texts = replace(self._corpus, embeddings=None)
            embedded = document_embeddings(
                texts, settings.embedding, embedding_model=self._embedding_model, encoder=encoder
            )
            self._tuned = key, centred(embedded[self.known], weights["origin"])
        return self._tuned[1]

    @property
    def _embedding_model(self) -> str | None:
        return self.site.embedding_model

    @property
    def _encoder_shapes(self) -> Shapes:
        return {} if self._encoder is None else self._encoder.shapes

    def _inference(
        self, n_clusters: int | None = None, kind: type[ClusterInference] | None = None
    ) -> ClusterInference:
        if kind not in (None, self.inference):
            return super()._inference(n_clusters, kind)
        number = {"n_components": n_clusters or self.settings.n_components}
        shape = shape_of(self.settings.model_copy(update=number), self._encoder_shapes)
        return self.inference(self.bag.shape[1], shape)

    def _first_reply(
        self, points: NDArray[np.float32], labels: NDArray[np.int64], n: int
    ) -> dict[str, Any]:
        """As `_reply`; between k-means' last sums and these, documents move in groups as well."""
        last = self._released.of(n, ALL)
        if last:
            alike = max(last, key=lambda released: int((released == labels).sum()))
            labels = move_together(alike, labels, n, self.min_documents)
        sums, counts = self.enough(*sums_by_label(points, labels, n))
        return {"sums": sums, "counts": counts, "documents": len(self.known)}

    def _reply(self) -> dict[str, Any]:
        sums, counts = self.enough(*self._trainer.centres())
        return {"sums": sums, "counts": counts, "documents": len(self.known)}

    def _new_trainer(self) -> Trainer:
        settings = self.settings
        network = Adapter(self.n_dimensions, settings.hidden, settings.n_components)
        inputs: Inputs = FixedInputs(self._points[1])
        if self._encoder is not None:
            inputs = EncodedInputs(self._encoder, self._tokens, self._origin, self._seed)
        weights = network.initial_weights(self._seed[0])
        return Trainer(settings, inputs, weights, self._labels_given, self._seed)

    @cached_property
    def _tokens(self) -> Tokens:
        if self._encoder is None:
            return {}
        texts = [text for batch in self._corpus.texts() for text in batch]
        return self._encoder.tokens([texts[row] for row in self.known])

    def _go_to(self, round_: int) -> None:
        """Be as after a round, or as near to it as there is a state kept."""
        known = [r for r in self._kept() if r <= round_]
        here = self._trainer.round
        best = max([*known, here if here <= round_ else 0])
        if best == here:
            return
        self._trainer = self._new_trainer()
        if best:
            self._trainer.restore(self._kept()[best], best)

    def _keep(self) -> None:
        folder = self.site.folder
        if folder is not None:
            self._trainer.save(folder / f"{self._file}-{self._trainer.round:05d}.safetensors")
            known, now = self._kept(), self._trainer.round
            recent = sorted(n for n in known if n <= now)[-KEPT:]
            # The rest is of earlier rounds, of a run before this one, or of another start.
            for old in {*folder.glob("fstc-*.safetensors")} - {known[n] for n in recent}:
                old.unlink()

    def _kept(self) -> dict[int, Path]:
        folder = self.site.folder
        files = [] if folder is None else folder.glob(f"{self._file}-*.safetensors")
        return {int(file.stem.rpartition("-")[2]): file for file in files}
