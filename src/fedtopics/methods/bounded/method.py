"""The program by which methods keep differential privacy: few sums with noise.

Of what a topic model needs much is public: words, and what an encoder makes of them. Documents say
which of the words occur, and where their embeddings spread or which words occur together; then
which words a topic or a cluster has. Each is one exchange of sums that a document changes by at
most 1, with noise; all of them share one budget. What follows from a sum costs nothing.

A stage is one exchange, and what is kept of it for later stages in the state, arrays by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.clusters import ClusterInference, ClusterShape
from fedtopics.inference.points import TINY, Numbers, unit_rows
from fedtopics.methods.bounded import contributions, estimates
from fedtopics.methods.bounded.settings import Bounded
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.interfaces import Clients, Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import Field, Template, counts
from fedtopics.methods.core.training import Arrays, Program, Step
from fedtopics.model.topic_model import TopicModel
from fedtopics.privacy import BOUND, Budget, Privacy
from fedtopics.text.vocabulary import Vocabulary

WORDS_OF_TOPIC = 10  # that have to be left
BESIDE = 0.02  # of a word's count, that its other topics begin with
LITTLE, RARE = 1e-3, 1e-6  # of each word in each topic, of counts and of shares


@dataclass(frozen=True)
class Releases:
    """What the stages of a study have: its settings, and the budget that all of them share."""

    settings: Any  # of the method
    budget: Budget
    seed: int
    most_words: int
    number: int = 1  # of a stage among those of its kind

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


Stage = Callable[[Releases, Agreement, Arrays], Arrays]
"""Asks all clients for their parts of a sum; returns what is added to the state."""


def key_words(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find which words occur, and where embeddings spread."""
    n, budget = releases.dimension, releases.budget
    shapes = {"words": len(agreement.vocabulary), "mean": n, "products": n * (n + 1) // 2}
    template = {name: (size,) for name, size in shapes.items()}
    reply = releases.ask(agreement, "key_words", template)
    kept = releases.known_words(reply["words"])
    products = contributions.unpacked(reply["products"], n)
    number = max(float(np.trace(products)), 1.0)
    origin = reply["mean"] / number
    directions = estimates.find_directions(origin, products, number, budget.sigma("products"))
    scatter = products / number - np.outer(origin, origin)  # of points; then, of length 1
    along = directions.T @ scatter @ directions / max(np.trace(scatter), TINY)
    found = {"kept": kept, "frequency": reply["words"][kept], "origin": origin}
    return {**found, "directions": directions, "scatter": along}


def word_vectors(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find where words are among embeddings, which is public; cluster them to begin with."""
    shape, frequency = (len(state["kept"]), releases.dimension), state["frequency"]
    template: Template = {"vectors": Field(shape, dtype="float32"), "clients": counts()}
    reply = releases.ask(agreement, "word_vectors", template, columns=state["kept"])
    vectors = reply["vectors"].astype(np.float64) / reply["clients"]
    centred = estimates.centred_words(vectors, frequency)
    projected = centred @ state["directions"]
    n_topics, seed = releases.n_topics, releases.seed
    centres = estimates.first_centres(projected, frequency, n_topics, seed)
    return {"vectors": centred, "centres": centres}


def words_of_clusters(
    releases: Releases, agreement: Agreement, state: Arrays, function: str,
    clusters: Callable[[Arrays], dict[str, Numbers]],
) -> Arrays:  # fmt: skip
    """Find which words clusters have, by a client's function, of what tells its clusters."""
    template = {"counts": (len(state["kept"]), releases.n_topics)}
    payload = {"columns": state["kept"], **clusters(state)}
    summed = releases.ask(agreement, function, template, **payload)["counts"]
    sigma, of_words = releases.budget.sigma("histogram"), releases.budget.sigma("words")
    chance = estimates.expected_by_chance(summed, sigma, state["frequency"], of_words)
    close = state["vectors"] @ unit_rows(state["sums"]).T
    expected = estimates.by_closeness(summed, chance, close)
    found = estimates.shrunk(summed, expected, sigma)
    beside = BESIDE / releases.n_topics * found.sum(1, keepdims=True)
    topics = estimates.normalised(found + beside, LITTLE)
    return {"frequency": chance.sum(1), "counts": found, "topics": topics}


def occurrences(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find which words occur, of documents that are seen by words alone."""
    template = {"words": (len(agreement.vocabulary),)}
    counts = releases.ask(agreement, "occurrences", template)["words"]
    kept = releases.known_words(counts)
    # Of a document with n words each counted 1 / sqrt(n), so that it added sqrt(n).
    frequency = counts[kept] * max(counts.sum() / agreement.documents, 1)
    rarity = np.sqrt(counts.max() / counts[kept])
    return {"kept": kept, "frequency": frequency, "rarity": rarity}


def sketch(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find which words occur together: topics to begin with, from words alone."""
    template = {"sketch": (len(state["kept"]), estimates.WIDTH)}
    payload = {"columns": state["kept"], "rarity": state["rarity"]}
    reply = releases.ask(agreement, "sketch", template, **payload)
    sigma = releases.budget.sigma("sketch")
    shares = estimates.first_topics(reply["sketch"], sigma, releases.n_topics)
    of_words = shares / state["rarity"][:, None]
    return {"topics": estimates.normalised(of_words / np.maximum(of_words.sum(0), TINY), RARE)}


def noisy(privacy: Privacy | None, shape: tuple[int, ...] = ()) -> Field:
    """Return the template of sums with noise, whose numbers are written alike whatever they are."""
    return Field(shape) if privacy is None else Field(shape, BOUND, -BOUND)


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
