"""What a study asks round by round, and what the program makes of the totals.

A stage is one exchange of sums with noise. Its step keeps what later stages need in the state,
arrays by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.points import TINY, Numbers, unit_rows
from fedtopics.methods.bounded import contributions, estimates
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.replies import Field, Template, counts
from fedtopics.methods.core.training import Arrays
from fedtopics.privacy import BOUND, Budget, Privacy

WORDS_OF_TOPIC = 10  # that have to be left
BESIDE = 0.02  # of a word's count, that its other topics begin with
LITTLE, RARE = 1e-3, 1e-6  # of each word in each topic, of counts and of shares


@dataclass(frozen=True)
class Stage(ABC):
    """An exchange, and what follows from it."""

    settings: Any  # of the method
    budget: Budget
    seed: int
    most_words: int
    number: int = 1  # among those of its kind

    @abstractmethod
    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        """Ask all clients for their parts of a sum."""

    @abstractmethod
    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        """Return what is added to the state."""

    def ask(
        self, agreement: Agreement, function: str, template: Template, **payload: Any
    ) -> dict[str, Any]:
        """Ask for a sum, for the public words; a field that is a shape alone has noise."""
        agreed, bound = agreement.vocabulary.fingerprint, self.budget.privacy
        fields = {
            n: noisy(bound, of) if isinstance(of, tuple) else of for n, of in template.items()
        }
        return agreement.clients.sum(function, fields, vocabulary=agreed, **payload)

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return int(self.settings.n_components)

    @property
    def dimension(self) -> int:
        """Of embeddings."""
        return int(self.settings.embedding.dimension)

    def known_words(self, counts: Numbers) -> NDArray[np.int64]:
        """Return the columns of words that surely occur; StudyError if they are too few."""
        sigma = self.budget.sigma("words")
        kept = estimates.surely_there(counts, sigma, self.most_words)
        if len(kept) < WORDS_OF_TOPIC * self.n_topics:
            raise self.refusal(
                f"{len(kept)} words surely occur, fewer than {WORDS_OF_TOPIC} for each of "
                f"{self.n_topics} topics"
            )
        return kept

    def refusal(self, what: str) -> StudyError:
        """Return the error that noise hides too much."""
        what, bound = f"{what[0].upper()}{what[1:]}", self.budget.privacy
        if bound is None:
            return StudyError(f"{what}; ask for fewer topics, or give more documents.")
        return StudyError(
            f"{what}; at epsilon {bound.epsilon:g} noise hides the rest. Ask for fewer topics, "
            "give more documents, or agree on a larger epsilon."
        )


class KeyWords(Stage):
    """Which words occur, and where embeddings spread."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        n = self.dimension
        shapes = {"words": len(agreement.vocabulary), "mean": n, "products": n * (n + 1) // 2}
        return self.ask(agreement, "key_words", {name: (size,) for name, size in shapes.items()})

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        kept = self.known_words(reply["words"])
        products = contributions.unpacked(reply["products"], self.dimension)
        number = max(float(np.trace(products)), 1.0)
        origin = reply["mean"] / number
        sigma = self.budget.sigma("products")
        directions = estimates.find_directions(origin, products, number, sigma)
        return {
            "kept": kept,
            "frequency": reply["words"][kept],
            "origin": origin,
            "directions": directions,
            "scatter": estimates.scatter_along(directions, origin, products, number),
        }


class WordVectors(Stage):
    """Where words are among embeddings, which is public; clusters of words to begin with."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        shape = len(state["kept"]), self.dimension
        template: Template = {"vectors": Field(shape, dtype="float32"), "clients": counts()}
        return self.ask(agreement, "word_vectors", template, columns=state["kept"])

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        frequency = state["frequency"]
        vectors = reply["vectors"].astype(np.float64) / reply["clients"]
        centred = estimates.centred_words(vectors, frequency)
        projected = centred @ state["directions"]
        centres = estimates.first_centres(projected, frequency, self.n_topics, self.seed)
        return {"vectors": centred, "centres": centres}


class WordsOfClusters(Stage):
    """Which words clusters have; a method says by which function, and what tells its clusters."""

    function: ClassVar[str]

    @staticmethod
    @abstractmethod
    def clusters(state: Arrays) -> dict[str, Numbers]:
        """Return what tells the cluster of an embedding, by the names of a model's weights."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        template = {"counts": (len(state["kept"]), self.n_topics)}
        payload = {"columns": state["kept"], **self.clusters(state)}
        return self.ask(agreement, self.function, template, **payload)

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        sigma, of_words = self.budget.sigma("histogram"), self.budget.sigma("words")
        summed = reply["counts"]
        chance = estimates.expected_by_chance(summed, sigma, state["frequency"], of_words)
        close = state["vectors"] @ unit_rows(state["sums"]).T
        expected = estimates.by_closeness(summed, chance, close)
        found = estimates.shrunk(summed, expected, sigma)
        beside = BESIDE / self.n_topics * found.sum(1, keepdims=True)
        return {
            "frequency": chance.sum(1),
            "counts": found,
            "topics": estimates.normalised(found + beside, LITTLE),
        }


class Occurrences(Stage):
    """Which words occur, of documents that are seen by words alone."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        return self.ask(agreement, "occurrences", {"words": (len(agreement.vocabulary),)})

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        kept, counts = self.known_words(reply["words"]), reply["words"]
        # Of a document with n words each counted 1 / sqrt(n), so that it added sqrt(n).
        frequency = counts[kept] * max(counts.sum() / agreement.documents, 1)
        rarity = np.sqrt(counts.max() / counts[kept])
        return {"kept": kept, "frequency": frequency, "rarity": rarity}


class Sketch(Stage):
    """Which words occur together: topics to begin with, from words alone."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        template = {"sketch": (len(state["kept"]), estimates.WIDTH)}
        payload = {"columns": state["kept"], "rarity": state["rarity"]}
        return self.ask(agreement, "sketch", template, **payload)

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        sigma = self.budget.sigma("sketch")
        shares = estimates.first_topics(reply["sketch"], sigma, self.n_topics)
        of_words = shares / state["rarity"][:, None]
        return {"topics": estimates.normalised(of_words / np.maximum(of_words.sum(0), TINY), RARE)}


def noisy(privacy: Privacy | None, shape: tuple[int, ...] = ()) -> Field:
    """Return the template of sums with noise, whose numbers are written alike whatever they are."""
    return Field(shape) if privacy is None else Field(shape, BOUND, -BOUND)
