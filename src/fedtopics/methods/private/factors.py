"""Topics of a matrix factorisation, from sums with noise: the stages of NMF.

A document's weighted words have length 1, and so have its shares w of topics at most. It weighs
1 / |w|, so that it adds 1 in length to X' W, and 1 at most to W' W, whatever it is of; without that
most documents would add much less than what noise is measured by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtopics.inference.nmf import rarities
from fedtopics.inference.points import TINY, Numbers, unit_rows
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.nmf.factorisation import Factorisation, NMFState, pulls, put_first
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.methods.private import contributions, words
from fedtopics.methods.private.stages import Sketch, Stage
from fedtopics.methods.training import Arrays


class FirstFactors(Sketch):
    """First topics, as directions of weighted words; given words come first."""

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        topics = super().step(agreement, state, reply)["topics"]
        own: NMFSettings = self.recipe.own
        rarity = rarities(state["frequency"], agreement.documents, own.rarity)
        first = unit_rows((topics * rarity[:, None]).T).T
        given = _given(own, agreement, state)
        if given is not None:
            first = put_first(first, given[:, : len(own.seed_topics)])
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
        found = words.shrunk(
            reply["factors"], expected, self.budget.sigma(f"factors {self.number}")
        )
        own: NMFSettings = self.recipe.own
        held = _given(own, agreement, state), own.strength
        nothing = np.zeros(())
        before = NMFState(state["topics"], found, products, nothing)
        sums = {"sums": found, "products": products, "documents": agreement.documents}
        after = Factorisation(state["weights"], *held).step(agreement, before, sums, self.number)
        counts = found / np.maximum(state["weights"], TINY)[:, None]
        return {"topics": after.state.topics, "counts": counts, "frequency": counts.sum(1)}


def _given(own: NMFSettings, agreement: Agreement, state: Arrays) -> Numbers | None:
    """Return directions of the words that topics are held to, if there are such."""
    if not own.seed_topics:
        return None
    known = [agreement.vocabulary.words[column] for column in state["kept"]]
    index = {word: i for i, word in enumerate(known)}
    return pulls(own.seed_topics, index, own.n_components)
