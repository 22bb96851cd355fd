"""How methods keep differential privacy: each has a recipe of few sums with noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedtopics.contract.interfaces import Clients, Run
from fedtopics.errors import FedTopicsError, StudyError, first_problem
from fedtopics.extras import Registry
from fedtopics.files import read_text
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.model.shown_words import WordRanking
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import Budget, Privacy, stages
from fedtopics.privacy.client import NoisyClient, PrivatePlan, why_too_few
from fedtopics.text.embeddings import EmbeddingSettings, sentence_encoder
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary

COUNT = 0.005  # share of the budget for the number of documents
SHORTEST = 3  # letters of a public word; shorter pieces are hardly ever words
MOST_ROUNDS = 50  # most rounds that share a budget
RELEVANCE = 0.5  # default relevance with which words of topics are shown


@dataclass(frozen=True)
class Recipe:
    """How a method keeps differential privacy: few sums with noise replace its own exchanges.

    `first`, `repeated` and `last` are the stages. `inferred` takes the settings, the state and the
    counts (n_topics, n_words), and returns the inference for new documents and its weights, with
    words in this order. `once` and `shares` are the shares of the budget for single and for all
    repeated releases. They add up to 1, and were chosen by hand on 20ng and synthetic documents.
    `defaults` are default settings. `why_unsupported` returns why settings lack sums with noise, ""
    if they have such sums.
    """

    client: type[NoisyClient[Any]]
    first: Sequence[stages.Stage]
    repeated: stages.Stage
    inferred: Callable[[Any, Arrays, Numbers], dict[str, Any]]
    once: Mapping[str, float]
    shares: Mapping[str, float]
    defaults: Mapping[str, Any]
    why_unsupported: Callable[[Any], str] = lambda _: ""
    last: Sequence[stages.Stage] = ()

    @property
    def rounds_once(self) -> int:
        return len(self.first) + len(self.last)

    def repeats(self, settings: TopicSettings) -> int:
        return settings.max_rounds - self.rounds_once

    def budget(self, privacy: Privacy, settings: TopicSettings) -> Budget:
        rounds = self.repeats(settings)
        of_rounds = {
            f"{name} {number + 1}": share / rounds
            for number in range(rounds)
            for name, share in self.shares.items()
        }
        released = {n: share * (1 - COUNT) for n, share in {**self.once, **of_rounds}.items()}
        return Budget(privacy, {"documents": COUNT} | released)

    def why_not(self, settings: Any) -> str:
        """Return why these settings need sums without noise, or endless sums; "" if not."""
        once = self.rounds_once
        return self.why_unsupported(settings) or first_problem(
            {
                "sums to choose the number of topics have no noise: set n_components to a number": (
                    bool(getattr(settings, "candidates", ()))
                ),
                'counts of pairs of words have no noise: set coherence = "nothing"': (
                    settings.coherence != "nothing"
                ),
                "sums by group have no noise: leave out over_time and by": bool(settings.compared),
                "rounds are few and fixed in advance: leave out stop_when and tolerance": (
                    bool(settings.stop_when or settings.stops.get("tolerance"))
                ),
                "each round uses a part of the budget: set max_rounds between "
                f"{once + 1} and {MOST_ROUNDS}; the first {once} find words and initial topics": (
                    not once < settings.max_rounds <= MOST_ROUNDS
                ),
            }
        )

    def program(self, plan: PrivatePlan) -> PrivateProgram:
        return PrivateProgram(self, plan)

    def public_words(
        self, words: Sequence[str], settings: TopicSettings, text: TextRules
    ) -> list[str]:
        """Return the words that are known without any document; StudyError if there are none."""
        if words:
            forms = text.forms_of_words()(words)[0]
            if why := why_too_few(len(forms), settings.n_components):
                raise StudyError(
                    f"[differential_privacy] lists {len(forms)} public words, {why}; list more "
                    "words, or ask for fewer topics."
                )
            return forms
        name = (settings.needed_embedding or EmbeddingSettings()).model
        try:
            encoder = sentence_encoder(name)
        except FedTopicsError as error:
            raise StudyError(
                "Differential privacy needs public words, since words of documents are secret; "
                "list words of the language or the field as words in [differential_privacy], or "
                f"install the study's embedding model at all participants. {error}"
            ) from None
        model = json.loads(read_text(encoder.folder / "tokenizer.json"))["model"]
        if model.get("type", "WordPiece") != "WordPiece":
            raise StudyError(
                f"The model {name!r} has no tokens that are whole words; give a public list as "
                "words in [differential_privacy]."
            )
        split = text.analyser()
        return [
            piece
            for piece in model["vocab"]
            if len(piece) >= SHORTEST and piece.isalpha() and split(piece) == [piece]
        ]


RECIPES: Registry[Recipe] = Registry(
    "recipe of differential privacy",
    "fedtopics.privacy",
    {name: f"fedtopics.privacy.{name}:RECIPE" for name in ("lda", "nmf", "kmeans")},
)
"""Recipes by the names of their methods."""
WITHOUT = {
    "discriminative": "its sums with noise had no advantage over those of kmeans at epsilon 3",
    "flda": "each client sends its own topics, which Gibbs sampling finds in all its documents "
    "together",
    "fsccl": "its network is trained on pairs of documents",
    "fstc": "its network is trained on clusters of documents, which affect each other",
    "gfedntm": "documents of a minibatch affect each other's update (batch norm), and there are "
    "thousands of minibatches",
}
"""Why other methods have no recipe."""


def why_not(settings: TopicSettings) -> str:
    """Return why a method with these settings cannot keep differential privacy; "" if it can."""
    name = settings.method_name
    return (
        RECIPES.find(name).why_not(settings)
        if name in RECIPES.names
        else WITHOUT.get(name, "nothing limits what a document adds to its sums")
    )


OF_WORDS = "counts", "topics", "weights"  # parts of a state with one row per word
EVERYBODY = "all"  # in place of clients' names, as no client sends anything without noise


class PrivateProgram(Program[Any, Arrays]):
    """The program of a study with [differential_privacy], which cannot start from a model."""

    saves_every_round = True  # rounds are few, and each has used a part of the budget

    def __init__(self, recipe: Recipe, plan: PrivatePlan) -> None:
        if plan.start is not None:
            raise StudyError(
                "A study with [differential_privacy] starts from public words, so it cannot start "
                "from a model; leave out [differential_privacy] or the model."
            )
        super().__init__(plan)
        self._recipe = recipe
        self._words = plan.privacy.words
        self.stages = [
            *(partial(stage, plan) for stage in recipe.first),
            *(
                partial(recipe.repeated, replace(plan, number=number + 1))
                for number in range(recipe.repeats(plan.settings))
            ),
            *(partial(stage, plan) for stage in recipe.last),
        ]

    @property
    def last_round(self) -> int:
        return len(self.stages)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Request the number of documents, which has noise; the words are public."""
        words = self._recipe.public_words(self._words, self.settings, self.plan.text)
        if (agreed := run.recall("agreement")) is None:
            reply = Agreement(clients, self.settings).ask_once(NoisyClient.noisy_document_count)
            agreed = {"documents": max(round(reply["size"]), 1)}
            run.keep("agreement", agreed)
        documents = agreed["documents"]
        clients.tell(NoisyClient.take.__name__, words=words)
        nothing = np.zeros(len(words), np.int64)
        return Agreement(
            clients,
            self.settings,
            Vocabulary(tuple(words), nothing, nothing),
            documents=documents,
            training=documents,
        )

    def first_state(self, agreement: Agreement, run: Run) -> Arrays:
        return {}

    def exchange(self, agreement: Agreement, state: Arrays, round_: int) -> Arrays:
        return self.stages[round_ - 1](agreement, state)

    def step(
        self, agreement: Agreement, state: Arrays, reply: Arrays, round_: int
    ) -> RoundResult[Arrays]:
        return RoundResult({**state, **reply}, {"documents": agreement.documents})

    def model(self, agreement: Agreement, state: Arrays, rounds: int, run: Run) -> TopicModel:
        """Make the model; all of its numbers come from sums with noise."""
        occurrences = np.maximum(np.rint(state["frequency"]), 0).astype(np.int64)
        order = np.argsort(-occurrences, kind="stable")
        names = tuple(agreement.vocabulary.words[state["kept"][i]] for i in order)
        state = {**state, **{name: state[name][order] for name in OF_WORDS if name in state}}
        word_sums = np.ascontiguousarray(state["counts"].T)
        sizes = word_sums.sum(1)
        return TopicModel(
            **self._recipe.inferred(self.settings, state, word_sums),
            shared={},
            vocabulary=Vocabulary(names, occurrences[order], occurrences[order]),
            text=self.plan.text,
            shares={EVERYBODY: sizes / sizes.sum()},
            documents={EVERYBODY: agreement.documents},
            word_sums=word_sums,
            word_ranking=WordRanking(
                RELEVANCE if self.settings.relevance is None else self.settings.relevance
            ),  # no budget to choose
            info={"method": self.settings.method_name, "rounds": rounds, "seed": self.plan.seed},
        )
