"""The stages of recipes of differential privacy; each stage adds one noisy sum to the state."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.privacy import estimates
from fedtopics.privacy.client import ByWords, PrivatePlan

LEAST_PER_TOPIC = 10  # least number of words per topic
RARE = 1e-6  # minimum share of a word in a topic


@dataclass(frozen=True)
class Releases:
    """The plan of a study, with the budget that all its stages share."""

    plan: PrivatePlan
    number: int = 1  # which repetition of the stage it is

    def known_words(self, counts: Numbers) -> NDArray[np.int64]:
        """Return the columns of words that surely occur; StudyError if they are too few."""
        columns = estimates.surely_there(
            counts, self.plan.budget.sigma("words"), self.plan.limits.max_words
        )
        if why := why_too_few(len(columns), self.plan.settings.n_components):
            raise self.refusal(f"only {len(columns)} words surely occur, {why}")
        return columns

    def refusal(self, what: str) -> StudyError:
        """Return the error for results hidden by noise."""
        return StudyError(
            f"{what[0].upper()}{what[1:]}; at epsilon {self.plan.budget.privacy.epsilon:g} noise "
            "hides the rest. Ask for fewer topics or give more documents. A larger epsilon also "
            "helps, but protects less."
        )


def why_too_few(n_words: int, n_topics: int) -> str:
    """Return why topics cannot come from so few words; "" if they can."""
    return (
        ""
        if n_words >= LEAST_PER_TOPIC * n_topics
        else f"fewer than {LEAST_PER_TOPIC} words for each of {n_topics} topics"
    )


Stage = Callable[[Releases, Agreement, Arrays], Arrays]
"""Requests all clients' parts of a sum, and returns additions to the state."""


def sum_occurrences(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words that occur, for documents without embeddings."""
    counts = agreement.ask(ByWords.noisy_word_counts)["words"]
    columns = releases.known_words(counts)
    return {
        "kept": columns,
        # Each of a document's n words counted 1 / sqrt(n), so the document added sqrt(n).
        "frequency": counts[columns] * max(counts.sum() / agreement.documents, 1),
        "rarity": np.sqrt(counts.max() / counts[columns]),
    }


def sketch(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find first topics from the words that occur together."""
    reply = agreement.ask(
        ByWords.noisy_word_products, columns=state["kept"], rarity=state["rarity"]
    )
    shares = estimates.estimate_topics(
        reply["sketch"], releases.plan.budget.sigma("sketch"), releases.plan.settings.n_components
    )
    of_words = shares / state["rarity"][:, None]
    return {"topics": estimates.smoothed_topics(of_words / np.maximum(of_words.sum(0), TINY), RARE)}
