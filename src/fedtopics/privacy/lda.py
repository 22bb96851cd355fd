"""LDA with differential privacy, from noisy sums of documents' words by topic."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import published
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.lda.client import LDASettings
from fedtopics.privacy import contributions, estimates
from fedtopics.privacy.client import NOISE, ByWords, calls
from fedtopics.privacy.recipe import Recipe
from fedtopics.privacy.stages import Releases, sketch, sum_occurrences

SMOOTHING = 1e-2  # added to each word in each topic


def alpha_of(settings: LDASettings) -> float:
    """Return the prior of theta; with a smaller prior, documents would add nothing."""
    return max(settings.theta_prior, TINY)


class NoisyLDAClient(ByWords[LDASettings]):
    """The client-side code of LDA with differential privacy."""

    @staticmethod
    def rounds(settings: LDASettings) -> dict[str, str]:
        return calls(ByWords.FIRST, settings, "noisy_topic_words")

    @published(
        "For each word and topic, the topic's share of the word, summed over documents. In the "
        f"sum, a document is a matrix of length 1. The sum is sent {NOISE}."
    )
    def noisy_topic_words(
        self, vocabulary: str, number: int, columns: NDArray[np.int64], topics: Numbers
    ) -> dict[str, Any]:
        """Divide the words of documents among topics (n_words, n_topics), and sum them."""
        shaped = topics, (len(columns), self.settings.n_components)
        self._check_request(
            "noisy_topic_words", vocabulary, columns, shaped, number=number, above=0.0
        )
        bag = self._of(columns)
        alpha = alpha_of(self.settings)
        counts = contributions.expected_words(bag, topics, alpha, self._weights)
        return {"counts": self._noisy(f"topics {number}", counts)}


def topic_words(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find each topic's share of each word: a variational round."""
    template = {"counts": state["topics"].shape}
    payload = {"columns": state["kept"], "topics": state["topics"], "number": releases.number}
    summed = releases.ask(agreement, "noisy_topic_words", template, **payload)["counts"]
    expected = state["topics"] * np.maximum(summed.sum(0), 1)
    sigma = releases.budget.sigma(f"topics {releases.number}")
    counts = estimates.shrunk(summed, expected, sigma)
    topics = estimates.smoothed_topics(counts, SMOOTHING)
    return {"frequency": counts.sum(1), "counts": counts, "topics": topics}


def lda_inferred(settings: LDASettings, state: Arrays, counts: Numbers) -> dict[str, Any]:
    """Return the inference for new documents; see `Recipe`."""
    prior = LDAPrior(n_components=settings.n_components, alpha=alpha_of(settings))
    pseudo_counts = np.ascontiguousarray((counts.T + SMOOTHING) / SMOOTHING)
    inference = VariationalLDA(counts.shape[1], prior)
    return {"inference": inference, "weights": {"pseudo_counts": pseudo_counts}}


def why_unsupported(settings: LDASettings) -> str:
    """Return why these settings have no sums with noise; see `Recipe`."""
    if settings.learning == "stochastic":
        return (
            "minibatches need hundreds of rounds with noise, each over few documents: "
            'set learning = "batch"'
        )
    if settings.initialisation != "anchors":
        return 'first topics come from sums with noise: leave initialisation at "anchors"'
    return ""


RECIPE = Recipe(
    NoisyLDAClient,
    first=(sum_occurrences, sketch),
    repeated=topic_words,
    inferred=lda_inferred,
    once={"words": 0.05, "sketch": 0.7},
    shares={"topics": 0.25},
    defaults={"learning": "batch", "coherence": "nothing", "max_rounds": 4},
    why_unsupported=why_unsupported,
)
