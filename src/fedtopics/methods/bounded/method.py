"""The program by which methods keep differential privacy: few sums with noise.

Of what a topic model needs much is public: words, and what an encoder makes of them. Documents say
which of the words occur, and where their embeddings spread or which words occur together; then
which words a topic or a cluster has. Each is one exchange of sums that a document changes by at
most 1, with noise; all of them share one budget. What follows from a sum costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedtopics.errors import StudyError
from fedtopics.inference.clusters import ClusterInference, ClusterShape
from fedtopics.inference.points import Numbers
from fedtopics.methods.bounded.settings import Bounded
from fedtopics.methods.bounded.stages import (
    Releases,
    Stage,
    key_words,
    noisy,
    word_vectors,
    words_of_clusters,
)
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.interfaces import Clients, Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import Template
from fedtopics.methods.core.training import Arrays, Program, Step
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import Budget
from fedtopics.text.vocabulary import Vocabulary

OF_WORDS = "counts", "topics", "weights"  # rows of a state
EVERYBODY = "all"  # in place of clients, none of which says something alone


class BoundedProgram(Program[Bounded, Arrays]):
    """The program of a study with [privacy]: the stages of a method, of which one is repeated.

    `inferred` returns what finds the topics of new documents, and its weights, by the model's
    names, of the settings, the state, and how often words are of topics, (n_topics, n_words).
    Where the state is by words, they are in the order of these counts. Raise StudyError if the plan
    starts from a model: what it says has no part of the budget.
    """

    saves_every_round = True  # there are few, and each has cost a part of the budget

    def __init__(
        self, plan: Plan[Any], first: Sequence[Stage], repeated: Stage,
        inferred: Callable[[Any, Arrays, Numbers], dict[str, Any]], last: Sequence[Stage] = (),
    ) -> None:  # fmt: skip
        super().__init__(plan)
        if plan.start is not None:
            raise StudyError(
                "A study with privacy begins with public words alone, not with a model; leave out "
                "one of both."
            )
        self._inferred = inferred
        budget, repeats = Budget(plan.privacy, plan.settings.shares), plan.settings.repeats
        usual = plan.settings, budget, plan.seed, plan.limits.max_words
        numbers = [*(1 for _ in first), *range(1, repeats + 1), *(1 for _ in last)]
        stages = zip([*first, *[repeated] * repeats, *last], numbers, strict=True)
        self.stages = [partial(stage, Releases(*usual, number)) for stage, number in stages]

    @property
    def last_round(self) -> int:
        return len(self.stages)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Ask for the number of documents, which has noise; words are public."""
        words = self.settings.public_words(self.plan.text)
        agreed = run.recall("agreement")
        if agreed is None:
            size: Template = {"size": noisy(self.plan.privacy)}
            found, _ = clients.round(0, partial(clients.sum, "extent", size))
            agreed = {"documents": max(round(found["size"]), 1)}
            run.keep("agreement", agreed)
        documents = agreed["documents"]
        clients.tell("take", words=words)
        nothing = np.zeros(len(words), np.int64)
        vocabulary = Vocabulary(tuple(words), nothing, nothing)
        return Agreement(clients, vocabulary, documents, documents, length=1.0)

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        return {}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> Arrays:
        return self.stages[round_ - 1](agreement, state)

    def step(self, agreement: Agreement, state: Arrays, reply: Arrays, round_: int) -> Step[Arrays]:
        return Step({**state, **reply}, {"documents": agreement.documents})

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
            **self._inferred(self.settings, state, found),
            shared={},
            vocabulary=vocabulary,
            text=self.plan.text,
            shares={EVERYBODY: sizes / sizes.sum()},
            documents={EVERYBODY: agreement.documents},
            word_sums=found,
            reading=self.settings.reading,
            info={"method": self.settings.method_name, "rounds": rounds, "seed": self.plan.seed},
        )


def bounded_clustering(
    plan: Plan[Any], repeated: Stage, function: str,
    clusters: Callable[[Arrays], dict[str, Numbers]], kind: type[ClusterInference],
) -> BoundedProgram:  # fmt: skip
    """Return the program of a method that finds clusters of embeddings; see `words_of_clusters`."""

    def inferred(settings: Any, state: Arrays, found: Numbers) -> dict[str, Any]:
        shape = ClusterShape(**settings.model_dump(include=set(ClusterShape.model_fields)))
        inference = kind(found.shape[1], shape)
        return {"inference": inference, "weights": inference.with_words(clusters(state), found)}

    last = partial(words_of_clusters, function=function, clusters=clusters)
    return BoundedProgram(plan, (key_words, word_vectors), repeated, inferred, (last,))
