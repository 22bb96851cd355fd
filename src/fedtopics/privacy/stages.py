"""The stages of recipes of differential privacy; each stage adds one noisy sum to the state."""

from collections.abc import Callable

import numpy as np

from fedtopics.inference.vectors import TINY
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.privacy import estimates
from fedtopics.privacy.client import ByWords, PrivatePlan

RARE = 1e-6  # minimum share of a word in a topic


Stage = Callable[[PrivatePlan, Agreement, Arrays], Arrays]
"""Requests all clients' parts of a sum, and returns additions to the state."""


def sum_occurrences(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words that occur, for documents without embeddings."""
    counts = agreement.ask(ByWords.noisy_word_counts)["words"]
    columns = plan.known_words(counts)
    return {
        "kept": columns,
        # Each of a document's n words counted 1 / sqrt(n), so the document added sqrt(n).
        "frequency": counts[columns] * max(counts.sum() / agreement.documents, 1),
        "rarity": np.sqrt(counts.max() / counts[columns]),
    }


def sketch(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find first topics from the words that occur together."""
    reply = agreement.ask(
        ByWords.noisy_word_products, columns=state["kept"], rarity=state["rarity"]
    )
    shares = estimates.estimate_topics(
        reply["sketch"], plan.budget.sigma("sketch"), plan.settings.n_components
    )
    of_words = shares / state["rarity"][:, None]
    return {"topics": estimates.smoothed_topics(of_words / np.maximum(of_words.sum(0), TINY), RARE)}
