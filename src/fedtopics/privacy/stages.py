"""The stages of recipes of differential privacy; each stage adds one noisy sum to the state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.replies import Bounds, Template, counts
from fedtopics.errors import StudyError
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.privacy import BOUND, Budget, Privacy, contributions, estimates

LEAST_PER_TOPIC = 10  # least number of words per topic
OTHERS_SHARE = 0.02  # share of a word's count with which its other topics start
LEAST_WORD_COUNT = 1e-3  # minimum count of a word in a topic
RARE = 1e-6  # minimum share of a word in a topic


@dataclass(frozen=True)
class Releases:
    """A study's settings, and the budget that all its stages share."""

    settings: Any  # those of the method
    budget: Budget
    seed: int
    most_words: int
    number: int = 1  # which repetition of the stage it is

    def ask(
        self, agreement: Agreement, function: str, template: Template, **payload: Any
    ) -> dict[str, Any]:
        """Request a sum over the public words; a field given only by its shape has noise."""
        agreed = agreement.vocabulary.fingerprint
        bound = self.budget.privacy
        fields = {
            n: noisy(bound, of) if isinstance(of, tuple) else of for n, of in template.items()
        }
        return agreement.clients.sum(function, fields, vocabulary=agreed, **payload)

    @property
    def n_topics(self) -> int:
        return int(self.settings.n_components)

    @property
    def dimension(self) -> int:
        return int(self.settings.embedding.dimension)

    def known_words(self, counts: Numbers) -> NDArray[np.int64]:
        """Return the columns of words that surely occur; StudyError if they are too few."""
        sigma = self.budget.sigma("words")
        columns = estimates.surely_there(counts, sigma, self.most_words)
        if len(columns) < LEAST_PER_TOPIC * self.n_topics:
            raise self.refusal(
                f"only {len(columns)} words surely occur, fewer than {LEAST_PER_TOPIC} words for "
                f"each of {self.n_topics} topics"
            )
        return columns

    def refusal(self, what: str) -> StudyError:
        """Return the error for results hidden by noise."""
        what = f"{what[0].upper()}{what[1:]}"
        bound = self.budget.privacy
        if bound is None:
            return StudyError(f"{what}; ask for fewer topics, or give more documents.")
        return StudyError(
            f"{what}; at epsilon {bound.epsilon:g} noise hides the rest. Ask for fewer topics or "
            "give more documents. A larger epsilon also helps, but protects less."
        )


Stage = Callable[[Releases, Agreement, Arrays], Arrays]
"""Requests all clients' parts of a sum, and returns additions to the state."""


def key_words(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words that occur, and the directions in which embeddings spread."""
    n = releases.dimension
    sizes = {"words": len(agreement.vocabulary), "mean": n, "products": n * (n + 1) // 2}
    template = {name: (size,) for name, size in sizes.items()}
    reply = releases.ask(agreement, "key_words", template)
    columns = releases.known_words(reply["words"])
    products = contributions.unpacked(reply["products"], n)
    number = max(float(np.trace(products)), 1.0)
    origin = reply["mean"] / number
    sigma = releases.budget.sigma("products")
    directions = estimates.find_directions(origin, products, number, sigma)
    scatter = products / number - np.outer(origin, origin)  # of points; then of unit points
    along = directions.T @ scatter @ directions / max(np.trace(scatter), TINY)
    return {
        "kept": columns,
        "frequency": reply["words"][columns],
        "origin": origin,
        "directions": directions,
        "scatter": along,
    }


def word_vectors(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Place public words among the embeddings, by their public vectors, and cluster them."""
    shape = (len(state["kept"]), releases.dimension)
    frequency = state["frequency"]
    template: Template = {"vectors": Bounds(shape, dtype="float32"), "clients": counts()}
    reply = releases.ask(agreement, "word_vectors", template, columns=state["kept"])
    vectors = reply["vectors"].astype(np.float64) / reply["clients"]
    centred = unit_rows(vectors - np.average(vectors, axis=0, weights=frequency))
    projected = centred @ state["directions"]
    centres = estimates.first_centres(projected, frequency, releases.n_topics, releases.seed)
    return {"vectors": centred, "centres": centres}


def words_of_clusters(
    releases: Releases,
    agreement: Agreement,
    state: Arrays,
    function: str,
    clusters: Callable[[Arrays], dict[str, Numbers]],
) -> Arrays:
    """Find the words of the clusters that `clusters` derives from the state."""
    template = {"counts": (len(state["kept"]), releases.n_topics)}
    payload = {"columns": state["kept"], **clusters(state)}
    summed = releases.ask(agreement, function, template, **payload)["counts"]
    sigma = releases.budget.sigma("histogram")
    of_words = releases.budget.sigma("words")
    chance = estimates.expected_by_chance(summed, sigma, state["frequency"], of_words)
    close = state["vectors"] @ unit_rows(state["sums"]).T
    expected = estimates.by_closeness(summed, chance, close)
    counts = estimates.shrunk(summed, expected, sigma)
    others = OTHERS_SHARE / releases.n_topics * counts.sum(1, keepdims=True)
    topics = estimates.smoothed_topics(counts + others, LEAST_WORD_COUNT)
    return {"frequency": chance.sum(1), "counts": counts, "topics": topics}


def sum_occurrences(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the words that occur, for documents without embeddings."""
    template = {"words": (len(agreement.vocabulary),)}
    counts = releases.ask(agreement, "occurrences", template)["words"]
    columns = releases.known_words(counts)
    # Each of a document's n words counted 1 / sqrt(n), so the document added sqrt(n).
    frequency = counts[columns] * max(counts.sum() / agreement.documents, 1)
    rarity = np.sqrt(counts.max() / counts[columns])
    return {"kept": columns, "frequency": frequency, "rarity": rarity}


def sketch(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find first topics from the words that occur together."""
    template = {"sketch": (len(state["kept"]), estimates.WIDTH)}
    payload = {"columns": state["kept"], "rarity": state["rarity"]}
    reply = releases.ask(agreement, "sketch", template, **payload)
    sigma = releases.budget.sigma("sketch")
    shares = estimates.estimate_topics(reply["sketch"], sigma, releases.n_topics)
    of_words = shares / state["rarity"][:, None]
    return {"topics": estimates.smoothed_topics(of_words / np.maximum(of_words.sum(0), TINY), RARE)}


def noisy(privacy: Privacy | None, shape: tuple[int, ...] = ()) -> Bounds:
    """Return the template of sums with noise, in a format that does not depend on the numbers."""
    return Bounds(shape) if privacy is None else Bounds(shape, BOUND, -BOUND)
