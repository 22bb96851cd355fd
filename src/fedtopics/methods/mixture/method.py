"""A mixture model of embeddings and words, by expectation-maximisation with exact sums.

Titles and questions have too few words for LDA or NMF, and clusters of embeddings ignore words.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.mixture import Evidence, Mixture, MixtureShape
from fedtopics.methods.clusters.program import find_origin
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final import describe
from fedtopics.methods.core.interfaces import Run
from fedtopics.methods.core.training import Arrays, Program
from fedtopics.methods.mixture.client import MixtureClient, MixtureSettings
from fedtopics.methods.mixture.expectation import EMRounds, Sums, first_sums
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics


class MixtureProgram(Program[MixtureSettings, Sums]):
    def first_state(self, agreement: Agreement, run: Run) -> Sums:
        """Begin with k-means of embeddings, or with a model or topics."""
        start = self.plan.start
        if start is None:
            return first_sums(agreement, self.settings, self.plan.seed)
        if start.continued is not None:
            return dict(start.continued.weights)
        topics = start.on(agreement.vocabulary.words)  # round 1 adds the sums of embeddings
        dimension = self.settings.embedding.dimension
        return {
            "origin": find_origin(agreement, dimension),
            "directions": np.zeros((len(topics), dimension)),
            "words": topics * agreement.documents * agreement.length,
            "weights": topics.sum(1) * agreement.documents,
        }

    def rounds(self, agreement: Agreement) -> EMRounds:
        return EMRounds(self.settings, self.continued is None, self.added is not None)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return Mixture(n_words, settings.shape(MixtureShape)).beta(dict(arrays), {})

    def model(self, agreement: Agreement, state: Sums, rounds: int, run: Run) -> Topics:
        shape = self.settings.shape(MixtureShape)
        make = self.made(Mixture(len(agreement.vocabulary), shape), dict(state), rounds)
        trained = {"evidence": vars(Evidence.of(state, shape))}
        return describe(agreement, self.settings, trained, make, self.plan.start)


METHOD = Method(
    "mixture", "mixture of embeddings and words", MixtureSettings, MixtureProgram, MixtureClient,
    starts_from_models=True, inferences=(Mixture,),
)  # fmt: skip
