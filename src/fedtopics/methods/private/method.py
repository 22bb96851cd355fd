"""Topics with a bound for each document: a few sums with noise, and the most made of each.

Of what a topic model needs much is public: words, and what an encoder makes of them. Documents say
which of the words occur, where their embeddings spread, and which words a cluster has; from words
alone, which of them occur together. Each is one exchange of sums that a document changes by at most
1, with noise; all of them share one budget. What follows from a sum costs nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedtopics.errors import StudyError
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.bounded import Mode
from fedtopics.methods.events import Chosen
from fedtopics.methods.plan import Plan
from fedtopics.methods.private.modes import inferred, stages_of
from fedtopics.methods.private.stages import Stage, noisy
from fedtopics.methods.replies import Template, counts
from fedtopics.methods.settings import TopicSettings
from fedtopics.methods.training import Arrays, Program, Step
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import Budget
from fedtopics.text.vocabulary import Vocabulary

OF_WORDS = "counts", "topics", "weights"  # rows of a state
EVERYBODY = "all"  # in place of clients, none of which says something alone


class Private(Program[TopicSettings, Arrays]):
    """The program of the method, and of all methods that have a recipe in a study with [privacy].

    Raise StudyError if the plan starts from a model: what it says has no part of the budget.
    """

    saves_every_round = True  # there are few, and each has cost a part of the budget

    def __init__(self, plan: Plan[TopicSettings]) -> None:
        super().__init__(plan)
        if plan.start is not None:
            raise StudyError(
                "A study with privacy begins with public words alone, not with a model; leave out "
                "one of both."
            )
        self.recipe = plan.settings.recipe
        self._stages: list[Stage] = []

    @property
    def last_round(self) -> int:
        return len(self._stages)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Choose what documents are seen by, from their number with noise; words are public."""
        words = self.recipe.public_words(self.plan.text)
        agreed = run.recall("agreement")
        if agreed is None:
            size = noisy(self.plan.privacy)
            extent: Template = {"embedded": counts(), "clients": counts(), "size": size}
            found, _ = clients.round(0, partial(clients.sum, "extent", extent))
            embedded = found["embedded"] == found["clients"]
            mode, why = self.recipe.choose(found["size"], embedded, self.plan.privacy)
            agreed = {"mode": mode, "documents": max(round(found["size"]), 1)}
            if self.recipe.own is None:  # else the study's method says it
                run.event(Chosen(mode, why))
            run.keep("agreement", agreed)
        mode, documents = agreed["mode"], agreed["documents"]
        self._mode: Mode = mode
        clients.tell("take", mode=mode, words=words)
        budget = Budget(self.plan.privacy, self.recipe.shares(mode))
        self._stages = stages_of(mode, self.plan, budget)
        nothing = np.zeros(len(words), np.int64)
        vocabulary = Vocabulary(tuple(words), nothing, nothing)
        return Agreement(clients, vocabulary, documents, documents, length=1.0)

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        return {}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> dict[str, Any]:
        return self._stages[round_ - 1].exchange(agreement, state)

    def step(
        self, agreement: Agreement, state: Arrays, reply: dict[str, Any], round_: int
    ) -> Step[Arrays]:
        found = self._stages[round_ - 1].step(agreement, state, reply)
        return Step({**state, **found}, {"documents": agreement.documents})

    def model(self, agreement: Agreement, state: Arrays, rounds: int, run: Run) -> TopicModel:
        """Make the model; all that it says was in sums with noise."""
        occurrences = np.maximum(np.rint(state["frequency"]), 0).astype(np.int64)
        order = np.argsort(-occurrences, kind="stable")
        names = tuple(agreement.vocabulary.words[state["kept"][i]] for i in order)
        vocabulary = Vocabulary(names, occurrences[order], occurrences[order])
        state = {**state, **{name: state[name][order] for name in OF_WORDS if name in state}}
        found = np.ascontiguousarray(state["counts"].T)
        sizes = found.sum(1)
        return TopicModel(
            **inferred(self._mode, self.recipe, state, found),
            shared={},
            vocabulary=vocabulary,
            text=self.plan.text,
            shares={EVERYBODY: sizes / sizes.sum()},
            documents={EVERYBODY: agreement.documents},
            word_sums=found,
            reading=self.recipe.reading,
            info={"method": self.settings.method_name, "rounds": rounds, "seed": self.plan.seed},
        )
