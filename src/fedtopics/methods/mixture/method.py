"""A mixture of topics by embeddings and words: expectation-maximisation, whose sums are exact.

Titles and questions have too few words to find topics by, and of clusters of embeddings no words
are learned. Here each document is of one topic, and its embedding and its words say together of
which. In each round the clients sum their documents by how probably they are of each topic, and
all compute the topics from these sums: those of pooled documents, however they are spread.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.mixture import Evidence, Mixture, MixtureShape
from fedtopics.methods.clusters.program import find_origin
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final import describe
from fedtopics.methods.core.interfaces import Run
from fedtopics.methods.core.plan import Plan, WarmStart
from fedtopics.methods.core.training import Arrays, Program, Step
from fedtopics.methods.mixture.rounds import Expectation, Sums, first_sums
from fedtopics.methods.mixture.settings import MixtureSettings
from fedtopics.model.topic_model import TopicModel


class MixtureProgram(Program[MixtureSettings, Sums]):
    """The method's program.

    Raise StudyError if the plan starts from another number of topics.
    """

    def __init__(self, plan: Plan[MixtureSettings]) -> None:
        super().__init__(plan)
        start = plan.start
        if start is not None:
            start.check_number(plan.settings.n_components)
        known = start is None or start.continued is None
        adds = start is not None and start.added is not None
        self._rounds = Expectation(self.settings, known, adds)

    def first_state(self, agreement: Agreement, run: Run) -> Sums:
        """Begin with k-means of embeddings, or with a model or topics."""
        start = self.plan.start
        if start is None:
            return first_sums(agreement, self.settings, self.plan.seed)
        if start.continued is not None:
            return dict(start.continued.weights)
        return self._sums_of(start, agreement)

    def _sums_of(self, start: WarmStart, agreement: Agreement) -> Sums:
        """Return the sums that topics stand for; of directions nothing is known yet."""
        topics = start.on(agreement.vocabulary.words)
        dimension = self.settings.embedding.dimension
        return {
            "origin": find_origin(agreement, dimension),
            "directions": np.zeros((len(topics), dimension)),
            "words": topics * agreement.documents * agreement.length,
            "weights": topics.sum(1) * agreement.documents,
        }

    def exchange(self, agreement: Agreement, state: Sums, round_: int) -> dict[str, Any]:
        return self._rounds.exchange(agreement, state, round_)

    def step(
        self, agreement: Agreement, state: Sums, reply: dict[str, Any], round_: int
    ) -> Step[Sums]:
        return self._rounds.step(agreement, state, reply, round_)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return Mixture(n_words, shape_of(settings)).beta(dict(arrays), {})

    def model(self, agreement: Agreement, state: Sums, rounds: int, run: Run) -> TopicModel:
        shape = shape_of(self.settings)
        make = partial(
            TopicModel, inference=Mixture(len(agreement.vocabulary), shape),
            weights=dict(state), shared={}, text=self.plan.text,
            info={"method": "mixture", "rounds": rounds, "seed": self.plan.seed},
        )  # fmt: skip
        trained = {"evidence": vars(Evidence.of(state, shape))}
        return describe(agreement, self.settings, trained, make, self.plan.start)


def shape_of(settings: MixtureSettings) -> MixtureShape:
    """Return the part of the settings that a model has."""
    return MixtureShape(**settings.model_dump(include=set(MixtureShape.model_fields)))
