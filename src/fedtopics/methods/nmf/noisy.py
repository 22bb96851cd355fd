"""NMF with differential privacy: weighted words by topic, in sums with noise.

A document's weighted words have length 1, and so have its shares w of topics at most. It weighs
1 / |w|, so that it adds 1 in length to X' W, and 1 at most to W' W, whatever it is of; without that
most documents would add much less than what noise is measured by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.nmf import Factors, NMFShape, rarities, weigh
from fedtopics.inference.points import TINY, Numbers, unit_rows
from fedtopics.methods.bounded import contributions, estimates
from fedtopics.methods.bounded.client import NOISE, ByWords, relative, times
from fedtopics.methods.bounded.method import BoundedProgram
from fedtopics.methods.bounded.stages import Occurrences, Sketch, Stage
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import leaves
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.nmf.factorisation import Factorisation, NMFState, pulls, put_first
from fedtopics.methods.nmf.settings import NMFSettings


class NoisyNMFClient(ByWords[NMFSettings]):
    """The client-side code of NMF with differential privacy."""

    @staticmethod
    def rounds(settings: NMFSettings) -> dict[str, str]:
        return ByWords.FIRST | {"noisy_factors": times(settings.repeats)}

    @leaves(
        "For each word and topic, the weights of the word in documents by how much of the topic "
        "they have, and for two topics how much documents have of both; a document counts as two "
        f"matrices of length 1 at most; {NOISE}."
    )
    def noisy_factors(
        self, vocabulary: str, number: int, columns: NDArray[np.int64], rarity: Numbers,
        topics: Numbers,
    ) -> dict[str, Any]:  # fmt: skip
        """Fit documents by topics (n_words, n_topics); sum X' W, and W' W as `packed`."""
        of_words = topics, (len(columns), self.settings.n_components)
        self._check_request(
            "noisy_factors", vocabulary, columns, (rarity, columns.shape), of_words, number=number
        )
        points = weigh(self._of(columns), relative(rarity), self.settings.term_weight)
        sums, products = contributions.factored(points, topics, self._weights)
        return {
            "factors": self._noisy(f"factors {number}", sums),
            "products": self._noisy(f"products {number}", products),
        }


class FirstFactors(Sketch):
    """First topics, as directions of weighted words; given words come first."""

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        topics = super().step(agreement, state, reply)["topics"]
        settings: NMFSettings = self.settings
        rarity = rarities(state["frequency"], agreement.documents, settings.rarity)
        first = unit_rows((topics * rarity[:, None]).T).T
        given = _given(settings, agreement, state)
        if given is not None:
            first = put_first(first, given[:, : len(settings.seed_topics)])
        return {"topics": np.ascontiguousarray(first), "weights": rarity}


class FactorSums(Stage):
    """How much of each word is of each topic, and of each topic with each: a round of NMF."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        k = self.n_topics
        template = {"factors": state["topics"].shape, "products": (k * (k + 1) // 2,)}
        payload = {"columns": state["kept"], "rarity": state["weights"], "topics": state["topics"]}
        return self.ask(agreement, "noisy_factors", template, number=self.number, **payload)

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        products = contributions.unpacked(reply["products"], self.n_topics)
        expected = state["topics"] @ np.maximum(products, 0)
        sigma = self.budget.sigma(f"factors {self.number}")
        found = estimates.shrunk(reply["factors"], expected, sigma)
        settings: NMFSettings = self.settings
        held = _given(settings, agreement, state), settings.strength
        nothing = np.zeros(())
        before = NMFState(state["topics"], found, products, nothing)
        sums = {"sums": found, "products": products, "documents": agreement.documents}
        after = Factorisation(state["weights"], *held).step(agreement, before, sums, self.number)
        counts = found / np.maximum(state["weights"], TINY)[:, None]
        return {"topics": after.state.topics, "counts": counts, "frequency": counts.sum(1)}


class NoisyNMF(BoundedProgram):
    """NMF with differential privacy."""

    FIRST = Occurrences, FirstFactors
    REPEATED = FactorSums

    def inferred(self, state: Arrays, found: Numbers) -> dict[str, Any]:
        shape = NMFShape(**self.settings.model_dump(include=set(NMFShape.model_fields)))
        weights = {"topics": state["topics"], "rarity": state["weights"]}
        return {"inference": Factors(found.shape[1], shape), "weights": weights}


def _given(settings: NMFSettings, agreement: Agreement, state: Arrays) -> Numbers | None:
    """Return directions of the words that topics are held to, if there are such."""
    if not settings.seed_topics:
        return None
    known = [agreement.vocabulary.words[column] for column in state["kept"]]
    index = {word: i for i, word in enumerate(known)}
    return pulls(settings.seed_topics, index, settings.n_components)
