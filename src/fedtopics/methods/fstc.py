"""FSTC: federated short-text clustering by pseudo-labels and shared cluster centres.

Each client trains a network of its own on pseudo-labels that it finds by optimal transport, and
pulls its cluster centres towards those of all clients: the only thing that travels round after
round. The model is the mean of the clients' networks at the end. `FSTC` is what the server
executes, `FSTCClient` what a client does, `fstc_training` how it trains.

The paper pools every embedding at the server for the first labels; an embedding can be turned back
into much of its text, so that is not offered. First labels are those of discriminative clustering,
or of k-means, both from sums. Centres are those of what the adapter makes of embeddings: of a
frozen encoder's they would never change.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering: Algorithms 1 to 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.aggregation import Template
from fedtopics.cluster_inference import Adapted, AdapterShape, Centres, Discriminants
from fedtopics.clustering import Numbers
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import FSTCSettings
from fedtopics.methods.clusters import ClusterServer, Found, find_moments
from fedtopics.methods.discriminative import DiscriminativeClient, before_rounds, begin, separate
from fedtopics.methods.fstc_training import FixedInputs, Told, Trainer
from fedtopics.methods.kmeans import begin_with_kmeans
from fedtopics.methods.server import Agreement
from fedtopics.networks import Adapter

START_ROUNDS = 100  # most rounds of discriminative clustering before the first
KEPT = 3  # rounds whose state a client keeps
Arrays = dict[str, NDArray[Any]]


class FSTC(ClusterServer[FSTCSettings]):
    """The server's half."""

    inference = Adapted

    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Alternate: local training at the clients, mean centres at the server (Algorithm 2)."""
        saved = run.restore()
        done = 0 if saved is None else saved.round
        state = self._first(agreement) if saved is None else dict(saved.arrays)
        first = self._labelled(agreement, state)
        state = {**first, **state}
        if saved is None:
            run.checkpoint(Checkpoint(0, state, {}))
        last = done
        for last in run.rounds(done, self.settings.max_rounds):
            work = partial(self._round, agreement, state, last)
            (state, told), report = agreement.clients.round(last, work)
            run.event("round", round=last, **told, **report)
            run.checkpoint(Checkpoint(last, state, {}))  # the clients are as far as that
        mean = partial(self._mean_network, agreement, last)
        network = agreement.clients.round(last + 1, mean)[0]
        return Found({"origin": state["origin"], **network}, last)

    def shape(self, settings: FSTCSettings) -> AdapterShape:
        """Return what a model keeps of the settings."""
        kept = settings.model_dump(include=set(AdapterShape.model_fields))
        return AdapterShape(**{**kept, "temperature": settings.epsilon})

    def _first(self, agreement: Agreement) -> Arrays:
        """Find what gives the first labels."""
        settings = self.settings
        if settings.start == "kmeans":
            origin, moments = find_moments(agreement, settings.embedding.dimension)
            clusters = begin_with_kmeans(agreement, settings, origin, moments, self.seed, 1)
            return {"origin": origin, "start/centres": clusters.centres[0]}
        start = begin(agreement, settings, self.seed)
        given = agreement, start.origin, start.moments, start.split, settings
        _, directed = separate(*given, repeat(0, START_ROUNDS))
        found = {f"start/{name}": array for name, array in directed.weights().items()}
        return {"origin": start.origin, **found}

    def _labelled(self, agreement: Agreement, state: Arrays) -> Arrays:
        """Let the clients label their documents; return the global centres."""
        start = {n.removeprefix("start/"): a for n, a in state.items() if n.startswith("start/")}
        vocabulary = agreement.vocabulary.fingerprint
        given = {"vocabulary": vocabulary, "origin": state["origin"], "start": start}
        template = {**self._template, "documents": ()}
        return _centres(agreement.clients.prepare("first_labels", template, **given))

    @property
    def _template(self) -> Template:
        k, n = self.settings.n_components, self.settings.embedding.dimension
        return {"sums": (k, n), "counts": (k,)}

    def _round(
        self, agreement: Agreement, state: Arrays, round_: int
    ) -> tuple[Arrays, dict[str, Any]]:
        """Let the clients train; return what the next round begins with, and what it cost."""
        network = {n.removeprefix("network/"): a for n, a in state.items() if "network/" in n}
        reply = agreement.sum(
            "train_locally",
            {**self._template, "loss": ()},
            round=round_,
            centres=state["centres"],
            counts=state["counts"],
            network=network,
        )
        kept = {n: a for n, a in state.items() if n == "origin" or n.startswith("start/")}
        after = kept | _centres(reply)
        if self.settings.average_every and round_ % self.settings.average_every == 0:
            mean = self._mean_network(agreement, round_)
            after |= {f"network/{name}": array for name, array in mean.items()}
        documents = reply["documents"]
        return after, {"loss": reply["loss"] / documents, "documents": documents}

    def _mean_network(self, agreement: Agreement, round_: int) -> Arrays:
        """Return the mean of the clients' networks, by their documents."""
        settings = self.settings
        shapes = Adapter(
            settings.embedding.dimension, settings.hidden, settings.n_components
        ).shapes
        reply = agreement.sum("network", {"weights": shapes}, round=round_)
        return {name: total / reply["documents"] for name, total in reply["weights"].items()}


def _centres(reply: Mapping[str, Any]) -> Arrays:
    """Return the global centres (equation 16), and how many documents each is of."""
    counts: Numbers = reply["counts"]
    return {"centres": reply["sums"] / np.maximum(counts, 1)[:, None], "counts": counts}


class FSTCClient(DiscriminativeClient[FSTCSettings]):
    """The client's half.

    What it is after each of the last rounds is kept in its workplace: a client that is begun anew
    goes on from there, to the same bits.
    """

    method = "fstc"
    version = 1
    inference = Adapted  # type: ignore[assignment]
    published = (
        "vocabulary", "adopt", "means", "moments", "cluster_sums", "class_sums", "first_labels",
        "train_locally", "network", "sizes", "shares", "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: Any) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        calls = before_rounds(settings)
        if settings.start == "discriminative":
            calls["class_sums"] = f"at most {START_ROUNDS} times, before the first round"
        calls |= {"first_labels": "once, before the first round", "train_locally": "each round"}
        every = f"every {settings.average_every} rounds, and " if settings.average_every else ""
        return calls | {"network": f"{every}once, at the end"}

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

        Leaves the client
            Of each cluster with enough of the documents, the sum of their points and their number;
            the number of all.
        """
        self.check(vocabulary)
        kind = Centres if "centres" in start else Discriminants
        weights = self.checked({"origin": origin, **start}, kind)
        self._origin = origin
        points = self.points(origin)
        given = kind(self.bag.shape[1], self.settings).memberships(weights, points)
        shares = np.concatenate([members for _, members in given])
        self._labels_given = (
            np.eye(shares.shape[1])[shares.argmax(1)] if kind is Centres else shares
        )
        self._own_masses = self._labels_given.sum(0)
        digest = hashlib.sha256(b"".join(array.tobytes() for _, array in sorted(weights.items())))
        self._file = f"fstc-{digest.hexdigest()[:16]}"
        self._trainer = self._new_trainer()
        return self._reply()

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

        Leaves the client
            Of each cluster with enough of the documents, the sum of what the adapter makes of
            them and their number; the loss, summed over documents; the number of all.
        """
        self.check(vocabulary)
        self.expect(centres, (self.settings.n_components, self.n_dimensions), round)
        self.expect(counts, (self.settings.n_components,), round)
        self._go_to(round - 1)
        if network:
            self._trainer.take(self.checked({"origin": self._origin, **network}))
        masses = {"even": np.ones(len(counts)), "global": counts, "own": self._own_masses}
        told = Told(round, centres, counts > 0, masses[self.settings.masses])
        loss = self._trainer.train(told)
        self._keep()
        return self._reply() | {"loss": loss * len(self.known)}

    def network(self, vocabulary: str, round: int) -> dict[str, Any]:  # noqa: A002
        """Return the client's network as it is after a round.

        Leaves the client
            The weights of the network it trained on its documents, times their number; that.
        """
        self.check(vocabulary)
        self._go_to(round)
        n = len(self.known)
        weights = {
            name: weight.detach().cpu().numpy() * np.float64(n)
            for name, weight in self._trainer.weights.items()
        }
        return {"weights": weights, "documents": n}

    def _reply(self) -> dict[str, Any]:
        sums, counts = self.told(*self._trainer.centres())
        return {"sums": sums, "counts": counts, "documents": len(self.known)}

    def _new_trainer(self) -> Trainer:
        settings = self.settings
        network = Adapter(self.n_dimensions, settings.hidden, settings.n_components)
        inputs = FixedInputs(self._points[1])
        weights = network.initial_weights(self._seed[0])
        return Trainer(settings, inputs, weights, self._labels_given, self._seed)

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
        folder = self.workplace.folder
        if folder is not None:
            self._trainer.save(folder / f"{self._file}-{self._trainer.round:05d}.safetensors")
            for old in sorted(self._kept())[:-KEPT]:
                self._kept()[old].unlink()

    def _kept(self) -> dict[int, Path]:
        folder = self.workplace.folder
        files = [] if folder is None else folder.glob(f"{self._file}-*.safetensors")
        return {int(file.stem.rpartition("-")[2]): file for file in files}
