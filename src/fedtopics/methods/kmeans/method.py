"""Federated k-means: exact, with sums in each round, or k-FED, with one reply per client."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtopics.inference.clusters import Centres
from fedtopics.inference.points import Numbers
from fedtopics.methods.clusters.program import ClusterProgram, find_moments, find_origin
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.interfaces import EVERYONE, Clients, Run
from fedtopics.methods.core.training import Arrays, RoundResult
from fedtopics.methods.kmeans.client import KMeansClient, KMeansSettings
from fedtopics.methods.kmeans.kfed import merge_centres, own_centres
from fedtopics.methods.kmeans.lloyd import AT_REST, TRIAL, Lloyd, Partition, arrays_of, draw_centres
from fedtopics.methods.registry import Method


@dataclass(frozen=True)
class KMeansState:
    origin: Numbers
    partition: Partition


class KMeans(ClusterProgram[KMeansSettings, KMeansState]):
    inference = Centres

    @property
    def _once(self) -> bool:
        return self.settings.algorithm == "k-fed"

    @property
    def stops(self) -> Mapping[str, float]:
        return {"tolerance": AT_REST, **super().stops}

    @property
    def last_round(self) -> int:
        return 1 if self._once else super().last_round

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on a vocabulary; if there is only one round, all clients take part in it."""
        agreement = super().agree(clients, run)
        return replace(agreement, draw=EVERYONE) if self._once else agreement

    def first_state(self, agreement: Agreement, run: Run) -> KMeansState:
        """Return origin and first centres, from moments of embeddings or from a k-FED exchange."""
        settings = self.settings
        if settings.representation != "embedding":
            frequency = agreement.vocabulary.document_frequency
            is_bow = settings.representation == "bow"  # else by inverse document frequency
            rarity: Numbers = np.log((1 + agreement.documents) / (1 + frequency)) + 1
            origin = np.ones(len(frequency)) if is_bow else rarity
        elif self._once:
            origin = find_origin(agreement, settings.embedding.dimension)
        else:
            origin, moments = find_moments(agreement, settings.embedding.dimension)
            centres = draw_centres(settings.start, settings.n_components, moments, self.plan.seed)
            return KMeansState(origin, Partition.first(centres))
        if self._once:  # the only round computes the centres
            return KMeansState(origin, Partition.first(np.zeros((1, 0, len(origin)))))
        return KMeansState(origin, self._merged(own_centres(agreement, settings, origin)))

    def exchange(self, agreement: Agreement, state: KMeansState, round_: int) -> dict[str, Any]:
        if self._once:
            return own_centres(agreement, self.settings, state.origin)
        # Measured from the origin, embeddings have unit length.
        length = np.inf if self.settings.needed_embedding is None else 1.0
        return Lloyd(state.origin, length=length).exchange(agreement, state.partition, round_)

    def step(
        self, agreement: Agreement, state: KMeansState, reply: dict[str, Any], round_: int
    ) -> RoundResult[KMeansState]:
        if self._once:
            documents = sum(each["documents"] for each in reply.values())
            after = replace(state, partition=self._merged(reply))
            return RoundResult(after, {"documents": documents})
        step = Lloyd(state.origin).step(agreement, state.partition, reply, round_)
        return RoundResult(KMeansState(state.origin, step.state), step.facts, step.change)

    def save(self, state: KMeansState) -> Arrays | None:
        """Return the arrays; while several starts remain, a run cannot be resumed."""
        if len(state.partition.centres) > 1:
            return None
        return {"origin": state.origin, **arrays_of(state.partition)}

    def load(self, agreement: Agreement, arrays: Arrays) -> KMeansState:
        partition = {name: array for name, array in arrays.items() if name != "origin"}
        return KMeansState(arrays["origin"], Partition(**partition, rounds=TRIAL))

    def weights(self, agreement: Agreement, state: KMeansState, rounds: int) -> Arrays:
        return {"origin": state.origin, "centres": state.partition.best(1).centres[0]}

    def _merged(self, replies: Mapping[str, Mapping[str, Any]]) -> Partition:
        return Partition.first(merge_centres(replies, self.settings.n_components)[None])


METHOD = Method(
    "kmeans", "k-means", KMeansSettings, KMeans, KMeansClient, shows="clusters",
    inferences=(Centres,),
)  # fmt: skip
