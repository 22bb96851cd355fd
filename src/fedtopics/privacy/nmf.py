"""NMF with differential privacy, from noisy sums of documents' weighted words by topic.

A document with shares w of topics has weight 1 / |w|; otherwise most would add less than noise.
"""

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.published import Reply, published, unknown
from fedtopics.inference.nmf import Factors, NMFShape, rarities, weigh
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.nmf.method import (
    Factorisation,
    NMFState,
    replace_alike,
    seed_vectors,
)
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.privacy import contributions, estimates
from fedtopics.privacy.client import (
    NOISE,
    WHOSE,
    ByWords,
    PrivatePlan,
    n_pairs,
    noisy,
    relative,
    repeated,
)
from fedtopics.privacy.recipe import Recipe
from fedtopics.privacy.stages import sketch, sum_occurrences


class NoisyNMFClient(ByWords[NMFSettings]):
    """The client-side code of NMF with differential privacy."""

    @published(
        "For each word and topic, the word's weight in a document times the document's share of "
        "the topic, and for each two topics the product of their shares, summed over documents. In "
        f"each sum, {WHOSE} a matrix of at most length 1. The sums are sent {NOISE}.",
        "weights of words by topic",
        often=repeated(2),
        reply=lambda topics: noisy(factors=topics.shape, products=(n_pairs(topics.shape[1]),)),
        largest=lambda s, n_words: {"topics": unknown(n_words, s.n_components)},
        has_documents=False,
    )
    def noisy_factors(
        self,
        number: int,
        columns: NDArray[np.int64],
        rarity: Numbers,
        topics: Numbers,
    ) -> Reply:
        """Fit topics (n_words, n_topics) to documents; return the sums X' W and `packed` W' W."""
        self._check_request(
            "noisy_factors",
            columns,
            (rarity, columns.shape),
            (topics, (len(columns), self.settings.n_components)),
            number=number,
        )
        points = weigh(self._of(columns), relative(rarity), self.settings.term_weight)
        sums, products = contributions.factored(points, topics, self._weights)
        return {
            "factors": self._noisy(f"factors {number}", sums),
            "products": self._noisy(f"products {number}", products),
        }


def first_factors(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find first topics, as directions of weighted words; topics with seed words come first."""
    topics = sketch(plan, agreement, state)["topics"]
    settings: NMFSettings = plan.settings
    rarity = rarities(state["frequency"], agreement.documents, settings.rarity)
    first = unit_rows((topics * rarity[:, None]).T).T
    if (seeds := _seed_directions(settings, agreement, state)) is not None:
        first = replace_alike(first, seeds[:, : len(settings.seed_topics)])
    return {"topics": np.ascontiguousarray(first), "weights": rarity}


def factor_sums(plan: PrivatePlan, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the shares of words in topics and the products of topics: a round of NMF."""
    topics = state["topics"]
    reply = agreement.ask(
        NoisyNMFClient.noisy_factors,
        number=plan.number,
        columns=state["kept"],
        rarity=state["weights"],
        topics=topics,
    )
    products = contributions.unpacked(reply["products"], plan.settings.n_components)
    factors = estimates.shrunk(
        reply["factors"],
        topics @ np.maximum(products, 0),
        plan.budget.sigma(f"factors {plan.number}"),
    )
    settings: NMFSettings = plan.settings
    rounds = Factorisation(
        rarity=state["weights"],
        seed_vectors=_seed_directions(settings, agreement, state),
        pull=settings.strength,
    )
    sums = {"sums": factors, "products": products, "documents": agreement.documents}
    after = rounds.step(
        agreement, NMFState(topics, factors, products, np.zeros(())), sums, plan.number
    )
    counts = factors / np.maximum(state["weights"], TINY)[:, None]
    return {"topics": after.state.topics, "counts": counts, "frequency": counts.sum(1)}


def nmf_inferred(settings: NMFSettings, state: Arrays, counts: Numbers) -> Reply:
    """Return the inference for new documents; see `Recipe`."""
    return {
        "inference": Factors(counts.shape[1], settings.shape(NMFShape)),
        "weights": {"topics": state["topics"], "rarity": state["weights"]},
    }


def _seed_directions(settings: NMFSettings, agreement: Agreement, state: Arrays) -> Numbers | None:
    return seed_vectors(
        settings, {agreement.vocabulary.words[column]: i for i, column in enumerate(state["kept"])}
    )


RECIPE = Recipe(
    NoisyNMFClient,
    first=(sum_occurrences, first_factors),
    repeated=factor_sums,
    inferred=nmf_inferred,
    once={"words": 0.05, "sketch": 0.5},
    shares={"factors": 0.4, "products": 0.05},
    defaults={"coherence": "nothing", "max_rounds": 8},
)
