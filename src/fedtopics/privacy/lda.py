"""LDA with differential privacy, from noisy sums of documents' words by topic."""

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.published import Reply, published, unknown
from fedtopics.errors import first_problem
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.lda.method import LDASettings
from fedtopics.privacy import contributions, estimates
from fedtopics.privacy.client import NOISE, WHOSE, ByWords, PrivatePlan, noisy, repeated
from fedtopics.privacy.recipe import Recipe
from fedtopics.privacy.stages import sketch, sum_occurrences

SMOOTHING = 1e-2  # added to each word in each topic


def alpha_of(settings: LDASettings) -> float:
    """Return the prior of theta; with a smaller prior, documents would add nothing."""
    return max(settings.theta_prior, TINY)


class NoisyLDAClient(ByWords[LDASettings]):
    """The client-side code of LDA with differential privacy."""

    @published(
        "For each word and topic, the topic's share of the word, summed over documents. In the "
        f"sum, {WHOSE} a matrix of length 1. The sum is sent {NOISE}.",
        "words by topic",
        often=repeated(2),
        reply=lambda topics: noisy(counts=topics.shape),
        largest=lambda s, n_words: {"topics": unknown(n_words, s.n_components)},
        has_documents=False,
    )
    def noisy_topic_words(self, number: int, columns: NDArray[np.int64], topics: Numbers) -> Reply:
        """Divide the words of documents among topics (n_words, n_topics), and sum them."""
        self._check_request(
            "noisy_topic_words",
            columns,
            (topics, (len(columns), self.settings.n_components)),
            number=number,
            above=0.0,
        )
        counts = contributions.expected_words(
            self._of(columns), topics, alpha_of(self.settings), self._weights
        )
        return {"counts": self._noisy(f"topics {number}", counts)}


def topic_words(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find each topic's share of each word: a variational round."""
    summed = agreement.ask(
        NoisyLDAClient.noisy_topic_words,
        number=plan.number,
        columns=state["kept"],
        topics=state["topics"],
    )["counts"]
    counts = estimates.shrunk(
        summed,
        state["topics"] * np.maximum(summed.sum(0), 1),
        plan.budget.sigma(f"topics {plan.number}"),
    )
    return {
        "frequency": counts.sum(1),
        "counts": counts,
        "topics": estimates.smoothed_topics(counts, SMOOTHING),
    }


def lda_inferred(settings: LDASettings, state: Arrays, counts: Numbers) -> Reply:
    """Return the inference for new documents; see `Recipe`."""
    return {
        "inference": VariationalLDA(
            counts.shape[1], LDAPrior(n_components=settings.n_components, alpha=alpha_of(settings))
        ),
        "weights": {"pseudo_counts": np.ascontiguousarray((counts.T + SMOOTHING) / SMOOTHING)},
    }


def why_unsupported(settings: LDASettings) -> str:
    """Return why these settings have no sums with noise; see `Recipe`."""
    return first_problem(
        {
            "minibatches need hundreds of rounds with noise, each over few documents: "
            'set learning = "batch"': settings.learning == "stochastic",
            "first topics come from sums with noise: leave out initialisation": (
                settings.initialisation != "nmf"
            ),
        }
    )


RECIPE = Recipe(
    NoisyLDAClient,
    first=(sum_occurrences, sketch),
    repeated=topic_words,
    inferred=lda_inferred,
    once={"words": 0.05, "sketch": 0.7},
    shares={"topics": 0.25},
    defaults={"coherence": "nothing", "max_rounds": 4},
    why_unsupported=why_unsupported,
)
