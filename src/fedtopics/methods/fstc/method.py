"""FSTC: federated short-text clustering by pseudo-labels and shared cluster centres.

``preset="paper"`` has the published training. The defaults have no Gaussian-uniform
mixture (`mixture_from`) and no augmentation, and freeze the encoder (`fine_tune` trains it).

The paper sends all embeddings to the server for the first labels. As texts can largely be restored
from embeddings, our labels come from sums, by discriminative clustering or k-means. Centres are
means of the adapter's outputs; means of a frozen encoder's would never change. The paper augments
texts, but no term of its loss uses the views; with `deletion`, views have the text's pseudo-label.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering: Algorithms 1 to 3.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import Run
from fedtopics.inference.clusters import ClusterInference
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.clusters.program import ClusterProgram, check_enough, find_moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult, with_prefix, without_prefix
from fedtopics.methods.discriminative.method import start_separation
from fedtopics.methods.discriminative.number import with_number
from fedtopics.methods.fstc.client import FSTCClient, same_encoder
from fedtopics.methods.fstc.settings import START_ROUNDS, FSTCSettings
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.registry import Method
from fedtopics.networks.base import Shapes

PROTOTYPES = "start/centres", "start/directions"  # arrays with one row per cluster
CONSTANT = "origin", "start/", "encoder/"  # arrays that rounds do not change


class FSTC(ClusterProgram[FSTCSettings, Arrays]):
    """The method's program; its state is arrays by name."""

    saves_every_round = True  # because clients keep states too
    _encoder_shapes: Shapes = {}  # noqa: RUF012 - of its trained weights: none, if it is frozen

    @property
    def trains_encoder(self) -> bool:  # type: ignore[override]
        return self.settings.fine_tune

    def build(self, settings: FSTCSettings, n_words: int) -> ClusterInference:
        return settings.build(n_words, encoder=self._encoder_shapes)

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        """Compute the first labels and their global centres (Algorithm 2, steps 1 to 3)."""
        self._encoder_shapes = same_encoder(agreement, self.settings)
        state = self._start(agreement, run) | with_prefix(
            "encoder", {name: np.array(shape) for name, shape in self._encoder_shapes.items()}
        )
        self._label_documents(agreement, state)
        return state | _centres(self._with_clusters(agreement).ask_once(FSTCClient.first_centres))

    def load(self, agreement: Agreement, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return the state; clients label their documents again, as they may have restarted."""
        self._encoder_shapes = {
            name: tuple(shape.tolist()) for name, shape in without_prefix("encoder", arrays).items()
        }
        self._label_documents(agreement, arrays)
        return dict(arrays)

    def exchange(
        self, agreement: Agreement, state: Arrays, round_: int
    ) -> tuple[Arrays, dict[str, Any]]:
        """Let the clients train (Algorithm 2, steps 4 to 9); some rounds also average networks."""
        reply = self._with_clusters(agreement).ask(
            FSTCClient.adapter_sums,
            round=round_,
            centres=state["centres"],
            counts=state["counts"],
            network=without_prefix("network", state),
        )
        average = self.settings.average_every and round_ % self.settings.average_every == 0
        return self._mean_network(agreement, round_) if average else {}, reply

    def step(
        self, agreement: Agreement, state: Arrays, reply: tuple[Arrays, dict[str, Any]], round_: int
    ) -> RoundResult[Arrays]:
        """Compute the global centres from the clients' sums."""
        network, sums = reply
        constant = {n: a for n, a in state.items() if n.startswith(CONSTANT)}
        return RoundResult(
            constant | _centres(sums) | with_prefix("network", network),
            {"loss": sums["loss"] / sums["documents"], "documents": sums["documents"]},
        )

    def weights(self, agreement: Agreement, state: Arrays, rounds: int) -> Arrays:
        """Return the mean of the clients' networks: the model (Algorithm 2, step 10)."""
        return {"origin": state["origin"], **self._mean_network(agreement, rounds)}

    def _start(self, agreement: Agreement, run: Run) -> Arrays:
        if self.settings.first_labels == "kmeans":
            origin = np.zeros(self.settings.embedding.dimension)
            moments = find_moments(agreement, origin)
            k = with_number(
                agreement,
                self.settings.first_clusters,
                origin=origin,
                moments=moments,
                seed=self.plan.seed,
                notify=partial(self.note, run),
            ).n_components
            clusters = start_with_kmeans(
                agreement,
                self.settings.start,
                k,
                origin=origin,
                moments=moments,
                seed=self.plan.seed,
            )
            return {"origin": origin, "start/centres": clusters.centres[0]}
        state = start_separation(
            agreement, self.settings.first_clusters, self.plan.seed, partial(self.note, run)
        )
        split = state.separation.iterate(agreement, state.split, START_ROUNDS)
        return {
            "origin": state.separation.origin,
            **with_prefix("start", state.separation.direct(split).weights()),
        }

    def _label_documents(self, agreement: Agreement, state: Mapping[str, NDArray[Any]]) -> None:
        number = next(len(state[name]) for name in PROTOTYPES if name in state)
        self.settings = self.settings.model_copy(update={"n_components": number})
        agreement.tell(
            FSTCClient.first_labels, origin=state["origin"], start=without_prefix("start", state)
        )

    def _with_clusters(self, agreement: Agreement) -> Agreement:
        """Return the agreement with settings that have the number of clusters found first."""
        return replace(agreement, settings=self.settings)

    def _mean_network(self, agreement: Agreement, round_: int) -> Arrays:
        shapes = {name: np.array(shape) for name, shape in self._encoder_shapes.items()}
        reply = self._with_clusters(agreement).ask(
            FSTCClient.network_weights, round=round_, encoder=shapes
        )
        mean = {name: total / reply["documents"] for name, total in reply["weights"].items()}
        return mean | {name: mean[name].astype(np.float32) for name in shapes}


def _centres(reply: Mapping[str, Any]) -> Arrays:
    """Return the global centres (equation 16), and their numbers of documents."""
    counts: Numbers = reply["counts"]
    check_enough(counts)
    return {"centres": reply["sums"] / np.maximum(counts, 1)[:, None], "counts": counts}


METHOD = Method("fstc", "FSTC", FSTCSettings, FSTC, FSTCClient, version=4, shows="clusters")
