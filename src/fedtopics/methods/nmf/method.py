"""Federated NMF: X is approximated by W H'; H needs only the sums X' W and W' W over documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedtopics.contract.events import NumberChosen
from fedtopics.contract.interfaces import Run
from fedtopics.contract.published import Reply
from fedtopics.errors import StudyError
from fedtopics.inference.nmf import Factors, NMFShape, rarities
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.settings import best_of, check_known
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.methods.nmf.client import FactorSums, NMFClient
from fedtopics.methods.nmf.number import about_as_good, score_numbers
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.methods.nmf.sketch import factorise, improve_rows, sketch_of
from fedtopics.methods.registry import Method
from fedtopics.model.card import why_number
from fedtopics.model.topics import Topics

SWEEPS = 2  # sweeps over the topics, per round


@dataclass(frozen=True)
class NMFState:
    """Topics of length 1, (n_words, n_topics), and the sums from which they were computed."""

    topics: Numbers
    sums: Numbers  # X' W, (n_words, n_topics)
    products: Numbers  # W' W, (n_topics, n_topics)
    documents: Numbers  # their number

    @classmethod
    def first(cls, topics: Numbers) -> NMFState:
        n = topics.shape[1]
        return cls(topics, np.zeros_like(topics), np.zeros((n, n)), np.zeros(()))


@dataclass(frozen=True)
class Factorisation:
    """Rounds of NMF, with words weighted by rarity and topics kept near `seed_vectors`."""

    rarity: Numbers
    seed_vectors: Numbers | None = None
    pull: float = 0.0

    def exchange(self, agreement: Agreement, state: NMFState, round_: int) -> Reply:
        return agreement.ask(
            FactorSums.factor_sums,
            round=round_,
            rarity=self.rarity,
            topics=state.topics,
        )

    def step(
        self, agreement: Agreement, state: NMFState, reply: dict[str, Any], round_: int
    ) -> RoundResult[NMFState]:
        """Update each topic with the others fixed (HALS), then scale it to length 1."""
        earlier = agreement.weight_of_earlier_sums(round_)
        n = reply["documents"] + earlier * state.documents
        sums = reply["sums"] + earlier * state.sums
        products = reply["products"] + earlier * state.products
        loss = 1 - 2 * (sums * state.topics).sum() / n
        loss += (products * (state.topics.T @ state.topics)).sum() / n
        wanted = sums
        weights = products
        if self.seed_vectors is not None:  # add documents of only these words
            wanted = sums + self.pull * n * self.seed_vectors
            weights = products + self.pull * n * np.diag(np.square(self.seed_vectors).sum(0))
        topics = _descend(wanted, weights, state.topics)
        moved = np.linalg.norm(topics - state.topics)
        return RoundResult(
            NMFState(topics, sums, products, np.asarray(n, np.float64)),
            {"loss": float(loss), "documents": reply["documents"]},
            float(moved) / max(float(np.linalg.norm(topics)), TINY),
        )


def _descend(sums: Numbers, products: Numbers, topics: Numbers) -> Numbers:
    """Do a round's steps; a topic without enough documents at any client does not change."""
    rows = np.array(topics.T, order="C")
    for _ in range(SWEEPS):
        improve_rows(rows, np.ascontiguousarray(sums.T), products)
    return np.ascontiguousarray(unit_rows(rows).T)


def seed_vectors(settings: NMFSettings, words: Mapping[str, int]) -> Numbers | None:
    """Return the directions of the topics with seed words, (n_words, n_topics), if there are any.

    `words` are the words' rows.
    """
    if not settings.seed_topics:
        return None
    vectors = np.zeros((len(words), settings.n_components))
    check_known(dict(enumerate(settings.seed_topics)), words)
    for number, seed in enumerate(settings.seed_topics):
        rows = [words[word] for word in seed if word in words]
        vectors[rows, number] = 1 / np.sqrt(len(rows))
    return vectors


def replace_alike(topics: Numbers, seeds: Numbers) -> Numbers:
    """Put given directions first, and drop the topics that are most similar to them."""
    _, alike = linear_sum_assignment(-seeds.T @ topics)
    return np.hstack([seeds, np.delete(topics, alike, axis=1)])


class NMF(Program[NMFSettings, NMFState]):
    def __init__(self, plan: Plan[NMFSettings]) -> None:
        super().__init__(plan)
        if self.continued is not None and plan.settings.seed_topics:
            raise StudyError(
                "A model that is trained further keeps its topics, so seed_topics cannot be used; "
                'leave seed_topics out, or set vocabulary to "agree".'
            )

    def rounds(self, agreement: Agreement) -> Factorisation:
        """Return a `Factorisation` with words weighted by rarity and with seed topics."""
        rarity = (
            rarities(
                agreement.vocabulary.document_frequency, agreement.documents, self.settings.rarity
            )
            if self.continued is None
            else self.continued.weights["rarity"]
        )
        return Factorisation(
            rarity, seed_vectors(self.settings, agreement.vocabulary.index), self.settings.strength
        )

    def first_state(self, agreement: Agreement, run: Run) -> NMFState:
        rounds = self.rounds(agreement)
        if self.continued is not None:
            return NMFState.first(self.continued.weights["topics"])
        if self.plan.start is None:
            n_topics = (
                self._choose(agreement, rounds.rarity, run)
                if self.settings.candidates
                else self.settings.n_components
            )
            topics = factorise(
                sketch_of(agreement, rounds.rarity, n_topics, self.plan.seed),
                n_topics,
                self.plan.seed,
            )
        else:
            topics = unit_rows(self.plan.start.on(agreement.vocabulary.words) * rounds.rarity).T
        if rounds.seed_vectors is not None:
            topics = replace_alike(topics, rounds.seed_vectors[:, : len(self.settings.seed_topics)])
        return NMFState.first(np.ascontiguousarray(topics))

    def _choose(self, agreement: Agreement, rarity: Numbers, run: Run) -> int:
        """Return the number of topics with the best score, and report those about as good."""
        scores = score_numbers(
            agreement,
            candidates=self.settings.candidates,
            rarity=rarity,
            seed=self.plan.seed,
            notify=partial(self.note, run),
        )
        good = about_as_good(scores)
        best = best_of(scores, self.settings.candidates, good)
        run.event(NumberChosen(best, why_number(best, good)))
        return best

    def save(self, state: NMFState) -> Arrays:
        return vars(state)

    def load(self, agreement: Agreement, arrays: Arrays) -> NMFState:
        return NMFState(**arrays)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return arrays["topics"].T

    def model(self, agreement: Agreement, state: NMFState, rounds: int, run: Run) -> Topics:
        settings = self.settings.model_copy(update={"n_components": state.topics.shape[1]})
        weights = {"topics": state.topics, "rarity": self.rounds(agreement).rarity}
        scores = {int(number): score for number, score in self.numbers.items()}
        chosen = {"range": about_as_good(scores)} if scores else {}
        return assemble_model(
            agreement,
            settings,
            {"weights": weights},
            self.made(
                Factors(len(agreement.vocabulary), settings.shape(NMFShape)),
                weights,
                rounds,
                **chosen,
            ),
        )


METHOD = Method("nmf", "federated NMF", NMFSettings, NMF, NMFClient, starts_from_models=True)
