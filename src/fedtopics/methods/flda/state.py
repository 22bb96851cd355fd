"""The state of F-LDA's program between rounds: its topics, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

import numpy as np

from fedtopics.contract.events import RoundFacts
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.topic_lists import Place, mean_topic, unpack_topics
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import heaviest
from fedtopics.model.topics import Topics, TrainingInfo

NAMED = 5  # number of words that name a topic in events


class FLDAInfo(TrainingInfo):
    """Training state in a model of F-LDA; all of it is needed to continue."""

    threshold: float
    """The threshold of the last round: the least cosine of two topics that are the same."""
    optimal: dict[str, list[int]]
    """Each client's topics M* (Algorithm 2)."""
    clients: list[list[str]]
    """For each topic, the clients that last sent it."""
    eta: float
    """Pseudo-count of each word, which the weights contain in addition to the topics' words."""
    seeds: int
    """Number of topics that began with words of the study; they come first."""
    next_id: int
    """The id of the next new topic."""


@dataclass(frozen=True)
class GlobalTopic:
    """A topic of the set M of all clients' topics."""

    id: int  # constant over rounds
    words: dict[str, float]  # with their weights, the largest first
    clients: list[str]  # clients that last sent a topic that was merged into it
    occurrences: float  # occurrences of its words in documents; earlier rounds have less weight
    seed: bool = False  # whether it is from seed_topics and therefore never vanishes


@dataclass
class FLDAState:
    topics: list[GlobalTopic]
    round: int = 0
    optimal: dict[str, list[int]] = field(default_factory=dict)  # ids by client: M*
    next_id: int = 0
    idle: int = 0
    coherence: float = -1.0
    threshold: float = 0.0
    seen: int = 0
    history: list[RoundFacts] = field(default_factory=list)


@dataclass(frozen=True)
class LocalTopics:
    """A client's reply: its topics, the ids that guided them or -1, and their occurrences."""

    topics: list[dict[str, float]]
    seeds: list[int]
    occurrences: list[float]
    documents: int


def state_of_model(model: Topics) -> FLDAState:
    info = cast("FLDAInfo", model.info)
    counts = np.maximum(model.weights["pseudo_counts"] - info["eta"], 0)
    topics = []
    for number, id_ in enumerate(info["ids"]):
        column = counts[:, number]
        total = float(column.sum())
        topics.append(
            GlobalTopic(
                id_,
                {
                    word: weight / total
                    for word, weight in heaviest(column, model.vocabulary.words).items()
                },
                clients=list(info["clients"][number]),
                occurrences=total,
                seed=number < info["seeds"],
            )
        )
    ids = info["ids"]
    return FLDAState(
        topics,
        round=info["rounds"],
        optimal={name: [ids[k] for k in numbers] for name, numbers in info["optimal"].items()},
        next_id=info["next_id"],
        threshold=info["threshold"],
        seen=info["seen"],
        history=list(info["history"]),
    )


def info_of(state: FLDAState, topics: Sequence[GlobalTopic], eta: float) -> FLDAInfo:
    numbers = {topic.id: number for number, topic in enumerate(topics)}
    return {
        "seen": state.seen,
        "threshold": state.threshold,
        "optimal": {
            name: [numbers[id_] for id_ in ids if id_ in numbers]
            for name, ids in sorted(state.optimal.items())
        },
        "ids": [topic.id for topic in topics],
        "clients": [topic.clients for topic in topics],
        "eta": eta,
        "seeds": sum(topic.seed for topic in topics),
        "next_id": state.next_id,
        "history": state.history,
    }


def read_reply(reply: Mapping[str, Any]) -> LocalTopics:
    """Convert a reply; an invalid one counts as one without documents."""
    topics = unpack_topics(reply)
    sizes = reply["occurrences"]
    if topics is None or not (sizes >= 0).all() or reply["documents"] < 0:
        return LocalTopics([], [], [], 0)
    return LocalTopics(topics, reply["seeds"].tolist(), sizes.tolist(), reply["documents"])


def link_topics(
    new: Sequence[GlobalTopic],
    before: Sequence[GlobalTopic],
    threshold: float,
    local: Mapping[str, LocalTopics],
    merged: Sequence[tuple[Any, list[Place]]],
) -> list[GlobalTopic | None]:
    """Return which previous topic each topic continues, if any; seeds are linked by guidance."""
    seeds = {topic.id: topic for topic in before if topic.seed}
    guides = ({local[name].seeds[number] for name, number in group} for _, group in merged)
    links = [next((seeds[id_] for id_ in sorted(ids & seeds.keys())), None) for ids in guides]
    free = [number for number, link in enumerate(links) if link is None]
    others = [topic for topic in before if not topic.seed]
    if free and others:
        from scipy.optimize import linear_sum_assignment  # slow to import; servers need it

        alike = cosines([new[k].words for k in free], [topic.words for topic in others])
        for row, column in zip(*linear_sum_assignment(-alike), strict=True):
            if alike[row, column] >= threshold:
                links[free[row]] = others[column]
    return links


def link_rounds(
    state: FLDAState,
    local: Mapping[str, LocalTopics],
    merged: Sequence[tuple[dict[str, float], list[Place]]],
    threshold: float,
    settings: FLDASettings,
) -> tuple[list[GlobalTopic], int]:
    """Return the topics after a round (seeds first, then by size), and the next id."""
    new = [
        GlobalTopic(
            id=-1,
            words=words,
            clients=sorted({name for name, _ in group}),
            occurrences=sum(local[name].occurrences[number] for name, number in group),
        )
        for words, group in merged
    ]
    links = link_topics(new, state.topics, threshold, local=local, merged=merged)
    ids = count(state.next_id)
    topics = [
        replace(topic, id=next(ids)) if old is None else _continued(old, topic, settings.memory)
        for topic, old in zip(new, links, strict=True)
    ]
    # Of the others, seeds stay, and topics whose clients were absent.
    linked = {old.id for old in links if old is not None}
    topics += [
        replace(old, occurrences=settings.memory * old.occurrences)
        for old in state.topics
        if old.id not in linked and (old.seed or not local.keys() >= set(old.clients))
    ]
    topics = [
        replace(topic, words=dict([*topic.words.items()][: settings.n_words])) for topic in topics
    ]
    topics.sort(key=lambda t: (not t.seed, t.id if t.seed else -t.occurrences, t.id))
    return topics, next(ids)


def _continued(old: GlobalTopic, new: GlobalTopic, memory: float) -> GlobalTopic:
    """Return a topic after a round; the earlier rounds' part counts less, by `memory`."""
    before = memory * old.occurrences
    both = new.occurrences + before
    shares = [new.occurrences, before] if both > 0 else None
    words = mean_topic([new.words, old.words], "zero", shares)
    return GlobalTopic(old.id, words, new.clients, both, old.seed)


def round_facts(
    before: FLDAState, after: FLDAState, local: Mapping[str, LocalTopics], n_topics: int
) -> RoundFacts:
    """Return facts about a round's largest topics, for its event and the model's history."""
    old, new = ({topic.id for topic in state.topics} for state in (before, after))
    largest = after.topics[:n_topics]
    return {
        "round": after.round,
        "documents": sum(sent.documents for sent in local.values()),
        "arrived": {name: sent.documents for name, sent in sorted(local.items())},
        "threshold": after.threshold,
        "topics": [_named(topic) for topic in largest],
        "new": [topic.id for topic in largest if topic.id not in old],
        "vanished": [_named(topic) for topic in before.topics[:n_topics] if topic.id not in new],
    }


def _named(topic: GlobalTopic) -> dict[str, Any]:
    return {
        "id": topic.id,
        "words": list(topic.words)[:NAMED],
        "occurrences": topic.occurrences,
        "clients": topic.clients,
    }
