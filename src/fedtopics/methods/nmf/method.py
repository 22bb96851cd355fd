"""Federated NMF: X is approximated by W H'; H needs only the sums X' W and W' W over documents."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import Run
from fedtopics.errors import StudyError
from fedtopics.inference.nmf import Factors, NMFShape, rarities
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.training import Arrays, Program
from fedtopics.methods.nmf.client import NMFClient, NMFSettings
from fedtopics.methods.nmf.factorisation import (
    Factorisation,
    NMFState,
    best_number,
    nndsvd_topics,
    replace_alike,
    seed_vectors,
)
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics


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
        settings = self.settings
        vocabulary = agreement.vocabulary
        if self.continued is not None:
            rarity = self.continued.weights["rarity"]
        else:
            frequency = vocabulary.document_frequency
            rarity = rarities(frequency, agreement.documents, settings.rarity)
        if not settings.seed_topics:
            return Factorisation(rarity, known_words=self.continued is None)
        held = seed_vectors(settings.seed_topics, vocabulary.index, settings.n_components)
        return Factorisation(rarity, held, settings.strength)

    def first_state(self, agreement: Agreement, run: Run) -> NMFState:
        settings = self.settings
        start = self.plan.start
        rounds = self.rounds(agreement)
        if self.continued is not None:
            return NMFState.first(self.continued.weights["topics"])
        if start is None:
            n_topics = settings.n_components
            if settings.candidates:
                n_topics = best_number(
                    agreement,
                    candidates=settings.candidates,
                    rarity=rounds.rarity,
                    seed=self.plan.seed,
                    notify=partial(self.note, run),
                )
            topics = nndsvd_topics(agreement, rounds.rarity, n_topics, self.plan.seed)
        else:
            topics = unit_rows(start.on(agreement.vocabulary.words) * rounds.rarity).T
        if rounds.seed_vectors is not None:
            topics = replace_alike(topics, rounds.seed_vectors[:, : len(settings.seed_topics)])
        return NMFState.first(np.ascontiguousarray(topics))

    def save(self, state: NMFState) -> Arrays:
        return vars(state)

    def load(self, agreement: Agreement, arrays: Arrays) -> NMFState:
        return NMFState(**arrays)

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return arrays["topics"].T

    def model(self, agreement: Agreement, state: NMFState, rounds: int, run: Run) -> Topics:
        settings = self.settings.model_copy(update={"n_components": state.topics.shape[1]})
        shape = settings.shape(NMFShape)
        weights = {"topics": state.topics, "rarity": self.rounds(agreement).rarity}
        make = self.made(Factors(len(agreement.vocabulary), shape), weights, rounds)
        return assemble_model(agreement, settings, {"weights": weights}, make)


METHOD = Method("nmf", "federated NMF", NMFSettings, NMF, NMFClient, starts_from_models=True)
