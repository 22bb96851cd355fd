"""FSTC: federated short-text clustering by pseudo-labels and shared cluster centres.

Each client trains a network of its own on pseudo-labels that it finds by optimal transport, and
pulls its cluster centres towards those of all clients: the only thing that travels round after
round. The model is the mean of the clients' networks at the end. `FSTC` is what the server
executes; `client` has what a client does, `training` how it trains.

The paper pools every embedding at the server for the first labels; an embedding can be turned back
into much of its text, so that is not offered. First labels are those of discriminative clustering,
or of k-means, both from sums. Centres are those of what the adapter makes of embeddings: of a
frozen encoder's they would never change. With `fine_tune` the encoder is trained as well, as in the
paper: each client begins with the same one, and the model has the mean of theirs.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering: Algorithms 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.clusters import Adapted, AdapterShape
from fedtopics.inference.points import Numbers
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Run
from fedtopics.methods.clusters import ClusterProgram, check_enough, find_moments
from fedtopics.methods.discriminative.cluster_number import with_number
from fedtopics.methods.discriminative.method import start_separation
from fedtopics.methods.events import RoundFacts
from fedtopics.methods.fstc.client import DIMENSIONS, START_ROUNDS
from fedtopics.methods.fstc.network import network_of, shape_of
from fedtopics.methods.fstc.settings import FSTCSettings
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.training import Step, iterate
from fedtopics.networks import Adapter
from fedtopics.networks.trained_encoder import Shapes

PROTOTYPES = "start/centres", "start/directions"  # have a row a cluster
Arrays = dict[str, NDArray[Any]]


class FSTC(ClusterProgram[FSTCSettings, Arrays]):
    """The server's half.

    Its state are arrays by name: ``origin``, what gives the first labels (``start/...``), the
    global centres and the documents they are of (``centres``, ``counts``), and the mean network
    where there is one (``network/...``).
    """

    saves_every_round = True  # the clients keep what they are after a round as well
    _encoder: Shapes = {}  # noqa: RUF012 - of what is trained of it: nothing, if it is frozen

    @property
    def inference(self) -> type[Adapted]:  # type: ignore[override]
        """What finds the clusters of new documents."""
        return network_of(self.settings)

    def shape(self, settings: FSTCSettings) -> AdapterShape:
        """Return what a model keeps of the settings."""
        return shape_of(settings, self._encoder)

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        """Find the first labels, and the global centres by them (Algorithm 2, steps 1 to 3)."""
        self._encoder = self._same_encoder(agreement)
        return self._labelled(agreement, self._start(agreement, run))

    def load(self, agreement: Agreement, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Turn back; clients that were restarted label their documents again."""
        self._encoder = self._same_encoder(agreement)
        return {**self._labelled(agreement, dict(arrays)), **arrays}

    def save(self, state: Arrays) -> Arrays:
        """Return the arrays."""
        return state

    def exchange(
        self, agreement: Agreement, state: Arrays, round_: int
    ) -> tuple[Arrays, RoundFacts]:
        """Let the clients train (Algorithm 2, steps 4 to 9); return what the next round needs."""
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

    def step(
        self,
        agreement: Agreement,
        state: Arrays,
        found: tuple[Arrays, RoundFacts],
        round_: int,
    ) -> Step[Arrays]:
        """Take the mean centres."""
        return Step(*found)

    def weights(self, agreement: Agreement, state: Arrays, rounds: int) -> Arrays:
        """Return the mean of the clients' networks: the model (Algorithm 2, step 10)."""
        return {"origin": state["origin"], **self._mean_network(agreement, rounds)}

    def _same_encoder(self, agreement: Agreement) -> Shapes:
        """Make sure that all clients begin with one encoder; return the shapes of its weights."""
        if not self.settings.fine_tune:
            return {}
        template = {"names": ["weights"], "shapes": ("weights", DIMENSIONS), "digest": [1]}
        (first, reply), *others = agreement.call("encoder", template).items()
        different = [name for name, other in others if other["digest"] != reply["digest"]]
        if different:
            raise StudyError(
                f"The encoders of {', '.join(different)} have other weights than that of {first}; "
                f"give all clients the same files of the model {self.settings.embedding.model!r}."
            )
        shapes = (tuple(int(n) for n in row if n) for row in reply["shapes"])
        return dict(zip(reply["names"], shapes, strict=True))

    def _start(self, agreement: Agreement, run: Run) -> Arrays:
        """Find what gives the first labels."""
        settings, seed = self.settings, self.plan.seed
        if settings.start == "kmeans":
            origin, moments = find_moments(agreement, settings.embedding.dimension)
            settings = with_number(agreement, settings, origin, seed, run.event)
            clusters = start_with_kmeans(agreement, settings, origin, moments, seed, 1)
            return {"origin": origin, "start/centres": clusters.centres[0]}
        state = start_separation(agreement, settings, seed, run.event)
        numbers = repeat(0, START_ROUNDS)
        split = iterate(agreement, state.separation, state.split, numbers).best()
        weights = state.separation.direct(split).weights()
        found = {f"start/{name}": array for name, array in weights.items()}
        return {"origin": state.separation.origin, **found}

    def _labelled(self, agreement: Agreement, state: Arrays) -> Arrays:
        """Let the clients label their documents; add the global centres."""
        number = next(len(state[name]) for name in PROTOTYPES if name in state)
        self.settings = self.settings.model_copy(update={"n_components": number})
        start = {n.removeprefix("start/"): a for n, a in state.items() if n.startswith("start/")}
        vocabulary = agreement.vocabulary.fingerprint
        payload = {"vocabulary": vocabulary, "origin": state["origin"], "start": start}
        template = {**self._template, "documents": ()}
        return state | _centres(agreement.clients.prepare("first_labels", template, **payload))

    @property
    def _template(self) -> Template:
        k, n = self.settings.n_components, self.settings.embedding.dimension
        return {"sums": (k, n), "counts": (k,)}

    def _mean_network(self, agreement: Agreement, round_: int) -> Arrays:
        """Return the mean of the clients' networks, by their documents."""
        settings = self.settings
        shapes = Adapter(
            settings.embedding.dimension, settings.hidden, settings.n_components
        ).shapes
        template = {"weights": shapes | self._encoder}
        reply = agreement.sum("network", template, round=round_)
        mean = {name: total / reply["documents"] for name, total in reply["weights"].items()}
        return mean | {name: mean[name].astype(np.float32) for name in self._encoder}


def _centres(reply: Mapping[str, Any]) -> Arrays:
    """Return the global centres (equation 16), and how many documents each is of."""
    counts: Numbers = reply["counts"]
    check_enough(counts)
    return {"centres": reply["sums"] / np.maximum(counts, 1)[:, None], "counts": counts}
