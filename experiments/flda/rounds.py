"""What each round of F-LDA merged: M and M*, what they take on the wire, how far they moved.

The server's half is done again from the topics that clients sent, which the run's folder keeps.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.methods.flda.method import global_topics, optimal_topics
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import FLDAState, GlobalTopic, LocalTopics, link_rounds
from fedtopics.methods.flda.topic_lists import pack_topics
from fedtopics.metrics import coherence_of, cosines, usual_threshold
from fedtopics.metrics.similarity import Topic
from fedtopics.protocol.values import dumps

SHOWN = 10  # words of a topic that are scored


@dataclass(frozen=True)
class Round:
    """A round's topics: those that clients sent, M, and the ids of each client's M*."""

    sent: dict[str, list[Topic]]
    state: FLDAState
    seconds: float  # of the server, for merging

    def own(self, client: str) -> list[GlobalTopic]:
        """Return a client's M*."""
        ids = set(self.state.optimal[client])
        return [topic for topic in self.state.topics if topic.id in ids]


def merge_again(settings: FLDASettings, out: Path) -> list[Round]:
    """Merge what clients sent in a run, round by round, as its server did."""
    state = FLDAState([])
    rounds = []
    for path in sorted(out.glob("topics-*.json")):
        replies = json.loads(path.read_text("utf-8"))
        local = {name: LocalTopics(**reply) for name, reply in replies.items()}
        sent: dict[str, list[Topic]] = {name: [*reply.topics] for name, reply in local.items()}
        begun = time.process_time()
        threshold = settings.threshold or usual_threshold(sent)
        merged = global_topics(local, threshold, settings)
        topics, next_id = link_rounds(state, local, merged, threshold, settings)
        optimal = {
            name: optimal_topics(topics_sent, topics, threshold)
            for name, topics_sent in sent.items()
        }
        seconds = time.process_time() - begun
        state = replace(state, topics=topics, next_id=next_id, optimal=optimal)
        rounds.append(Round(sent, state, seconds))
    return rounds


def trajectory(
    rounds: Sequence[Round], n_topics: int, documents: Sequence[Any]
) -> list[dict[str, float | None]]:
    """Return what can be said of each round; coherence is that of all texts of the set.

    M and M* have numbers of topics, c_v (of M, that of its largest ones, which are the model), and
    bytes as a message. "alike": the mean cosine of the model's topics with what is most similar to
    them in the round before's M; "sent_alike" the same of each client's own topics. None in the
    first round.
    """
    words = [[list(first(topic)) for topic in round_.state.topics] for round_ in rounds]
    every = [topic for of_round in words for topic in of_round]
    c_v = coherence_of(every, documents, "c_v") if every else np.zeros(0)
    ends = np.cumsum([len(of_round) for of_round in words])[:-1]
    summaries: list[dict[str, float | None]] = []
    before: Round | None = None
    for round_, scores in zip(rounds, np.split(c_v, ends), strict=True):
        summaries.append(_of_round(round_, before, n_topics, scores))
        before = round_
    return summaries


def _of_round(
    round_: Round, before: Round | None, n_topics: int, c_v: Any
) -> dict[str, float | None]:
    topics = round_.state.topics
    score = {topic.id: float(value) for topic, value in zip(topics, c_v, strict=True)}
    optimal = [round_.own(client) for client in round_.sent]
    own_scores = [np.mean([score[topic.id] for topic in mine]) for mine in optimal if mine]
    alike = sent_alike = None
    if before is not None:
        alike = closest(_words(topics[:n_topics]), _words(before.state.topics))
        pairs = ((mine, before.sent[client]) for client, mine in round_.sent.items())
        sent_alike = float(np.mean([closest(*pair) for pair in pairs]))
    return {
        "m": float(len(topics)),
        "own": float(np.mean([len(mine) for mine in optimal])),
        "c_v": float(np.mean(c_v[:n_topics])) if len(topics) else None,
        "own_c_v": float(np.mean(own_scores)) if own_scores else None,
        "alike": alike,
        "sent_alike": sent_alike,
        "m_bytes": message_bytes(topics),
        "own_bytes": float(np.mean([message_bytes(mine) for mine in optimal])),
        "seconds": round_.seconds,
    }


def closest(topics: Sequence[Topic], others: Sequence[Topic]) -> float:
    """Return the mean cosine of topics with what is most similar to each of them; 0 of none.

    Examples
    --------
    >>> closest([{"tea": 1.0}, {"sea": 1.0}], [{"tea": 2.0}])
    0.5
    """
    if not topics or not others:
        return 0.0
    return float(cosines(topics, others).max(1).mean())


def first(topic: GlobalTopic) -> Topic:
    """Return a topic's first words, which are scored."""
    return dict(list(topic.words.items())[:SHOWN])


def message_bytes(topics: Sequence[GlobalTopic]) -> float:
    """Return how many bytes topics with their ids are in a message to a client."""
    ids = [topic.id for topic in topics]
    return float(len(dumps({"ids": ids, **pack_topics(_words(topics))})))


def _words(topics: Sequence[GlobalTopic]) -> list[Mapping[str, float]]:
    return [topic.words for topic in topics]
