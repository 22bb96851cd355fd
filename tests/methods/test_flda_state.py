"""The server's part of F-LDA by hand: which topics are one, which go on, which are gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.flda.method import FLDA, global_topics, optimal_topics
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import (
    FLDAState,
    GlobalTopic,
    LocalTopics,
    go_on,
    read_replies,
    what_happened,
)
from fedtopics.methods.flda.topic_lists import Place, pack_topics
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits

FRUIT = {"apple": 0.6, "pear": 0.4}
BERRY = {"apple": 0.4, "pear": 0.4, "plum": 0.2}
ROADS = {"car": 0.7, "lorry": 0.3}
SEA = {"boat": 1.0}
SETTINGS = FLDASettings()


def sent(
    *topics: dict[str, float], documents: int = 50, seeds: list[int] | None = None
) -> LocalTopics:
    numbers = [-1] * len(topics) if seeds is None else seeds
    return LocalTopics(list(topics), numbers, [100.0] * len(topics), documents)


def known(
    number: int, words: dict[str, float], clients: str = "ab", occurrences: float = 100.0
) -> GlobalTopic:
    return GlobalTopic(number, words, list(clients), occurrences)


# Algorithm 1


def test_topics_that_are_alike_are_merged() -> None:
    local = {"b": sent(ROADS, BERRY), "a": sent(FRUIT, SEA)}
    (fruit, fruit_of), *rest = global_topics(local, 0.5, SETTINGS)
    assert fruit == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.1})
    assert list(fruit) == ["apple", "pear", "plum"]
    assert fruit_of == [("a", 0), ("b", 1)]
    assert rest == [(SEA, [("a", 1)]), (ROADS, [("b", 0)])]


def test_what_has_no_partner_may_go() -> None:
    local = {"b": sent(ROADS, BERRY), "a": sent(FRUIT, SEA)}
    paper = SETTINGS.model_copy(update={"keep_unmatched": False, "absent_words": "ignored"})
    (fruit, places), *rest = global_topics(local, 0.5, paper)
    assert fruit == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.2})
    assert places == [("a", 0), ("b", 1)]
    assert rest == []
    assert len(global_topics({"a": local["a"]}, 0.5, paper)) == 2, "there is nobody else"


def test_a_mean_by_numbers_of_documents() -> None:
    local = {"a": sent(FRUIT, documents=30), "b": sent(BERRY, documents=10)}
    weighted = SETTINGS.model_copy(update={"weighting": "documents"})
    found = global_topics(local, 0.5, weighted)[0][0]
    assert found == pytest.approx({"apple": 0.55, "pear": 0.4, "plum": 0.05})


# Algorithm 2


def test_the_topics_of_a_client() -> None:
    topics = [known(5, SEA), known(2, FRUIT), known(9, ROADS)]
    assert optimal_topics([ROADS, FRUIT], topics, 0.5) == [2, 9], "in the server's order"
    assert optimal_topics([BERRY, FRUIT], topics, 0.5) == [2], "each once"
    alike = (0.6 * 0.4 + 0.4 * 0.4) / np.linalg.norm([0.6, 0.4]) / np.linalg.norm([0.4, 0.4, 0.2])
    assert optimal_topics([BERRY], topics, alike - 1e-9) == [2]
    assert optimal_topics([BERRY], topics, alike + 1e-9) == []
    assert optimal_topics([], topics, 0.5) == optimal_topics([BERRY], [], 0.5) == []


def test_of_several_that_are_alike_the_most_alike_is_taken() -> None:
    topics = [known(0, BERRY), known(1, FRUIT), known(2, dict(FRUIT))]
    assert optimal_topics([FRUIT], topics, 0.5) == [1]


# From round to round

Merged = list[tuple[dict[str, float], list[Place]]]


def after(
    before: list[GlobalTopic], local: dict[str, LocalTopics], merged: Merged, **settings: Any
) -> tuple[list[GlobalTopic], int]:
    changed = SETTINGS.model_copy(update=settings)
    return go_on(FLDAState(before, next_id=10), local, merged, 0.5, changed)


def test_first_topics_are_ordered_by_size_and_numbered_as_they_come() -> None:
    local = {"a": LocalTopics([FRUIT, SEA], [-1, -1], [30.0, 80.0], 50), "b": sent(ROADS, FRUIT)}
    merged: Merged = [(FRUIT, [("a", 0), ("b", 1)]), (SEA, [("a", 1)]), (ROADS, [("b", 0)])]
    topics, next_id = after([], local, merged)
    assert next_id == 13
    assert topics == [
        GlobalTopic(10, FRUIT, ["a", "b"], 130.0),
        GlobalTopic(12, ROADS, ["b"], 100.0),
        GlobalTopic(11, SEA, ["a"], 80.0),
    ]


def test_a_topic_keeps_its_number_and_what_it_was_counts() -> None:
    topics, next_id = after(
        [known(4, FRUIT, occurrences=200.0)], {"a": sent(BERRY)}, [(BERRY, [("a", 0)])], memory=0.5
    )
    assert (next_id, [topic.id for topic in topics]) == (10, [4])
    assert topics[0].words == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.1})
    assert (topics[0].occurrences, topics[0].clients) == (200.0, ["a"])


def test_without_memory_only_this_round_counts() -> None:
    merged: Merged = [(FRUIT, [("a", 0)])]
    topics, _ = after([known(4, BERRY, "a")], {"a": sent(FRUIT)}, merged, memory=0.0)
    assert topics == [GlobalTopic(4, FRUIT, ["a"], 100.0)]
    assert "plum" not in topics[0].words


def test_what_nobody_has_any_more_is_gone_unless_who_had_it_was_not_heard() -> None:
    before = [known(1, FRUIT), known(2, SEA, "a"), known(3, {"sun": 1.0}, "ac")]
    local = {"a": sent(FRUIT), "b": sent(FRUIT)}
    merged: Merged = [(FRUIT, [("a", 0), ("b", 0)])]
    topics, _ = after(before, local, merged, memory=0.5)
    assert [topic.id for topic in topics] == [1, 3]
    assert topics[1] == known(3, {"sun": 1.0}, "ac", 50.0)


def test_two_topics_do_not_take_the_same_number() -> None:
    # Of what is like number 1, the most alike takes it on.
    merged: Merged = [(BERRY, [("a", 0)]), (FRUIT, [("a", 1)])]
    topics, next_id = after([known(1, FRUIT)], {"a": sent(BERRY, FRUIT)}, merged)
    assert {topic.id: list(topic.words) for topic in topics} == {1: list(FRUIT), 10: list(BERRY)}
    assert next_id == 11


def test_given_topics_come_first_and_stay() -> None:
    given = [
        GlobalTopic(0, {"snow": 0.5, "ice": 0.5}, [], 0.0, seed=True),
        GlobalTopic(1, {"tax": 1.0}, [], 0.0, seed=True),
    ]
    local = {"a": sent(FRUIT, SEA, seeds=[-1, 1])}
    merged: Merged = [(FRUIT, [("a", 0)]), (SEA, [("a", 1)])]
    topics, _ = after([*given, known(2, FRUIT, "a")], local, merged)
    assert [(topic.id, topic.seed) for topic in topics] == [(0, True), (1, True), (2, False)]
    assert topics[0] == given[0]
    assert topics[1].words == SEA, "what it was before has no occurrence"


def test_what_a_round_tells() -> None:
    old, new = known(1, FRUIT), GlobalTopic(10, ROADS, ["a"], 30.0)
    before = FLDAState([old, known(2, SEA)], round=3)
    later = FLDAState([old, new, known(11, BERRY)], round=4, threshold=0.25)
    told = what_happened(before, later, {"b": sent(documents=0), "a": sent(ROADS, FRUIT)}, 2)
    fruit = {"id": 1, "words": ["apple", "pear"], "occurrences": 100.0, "clients": ["a", "b"]}
    roads = {"id": 10, "words": ["car", "lorry"], "occurrences": 30.0, "clients": ["a"]}
    assert told == {
        "round": 4,
        "documents": 50,
        "arrived": {"a": 50, "b": 0},
        "threshold": 0.25,
        "topics": [fruit, roads],
        "new": [10],
        "vanished": [{"id": 2, "words": ["boat"], "occurrences": 100.0, "clients": ["a", "b"]}],
    }


# What clients send


def reply(**other: Any) -> dict[str, Any]:
    usual = {"seeds": np.array([4]), "occurrences": np.array([9.0]), "documents": 50}
    return pack_topics([FRUIT]) | usual | other


@pytest.mark.parametrize(
    "spoil",
    [
        {"index": np.array([[0, 2]])},
        {"index": np.array([[0.0, 1.0]])},
        {"index": Rows(np.array([0]), np.array([[0, 1]]), 1)},
        {"weights": Rows(np.array([0]), np.array([[0.5, 0.5]]), 1)},
        {"weights": np.array([[2.0, -1.0]])},
        {"words": ["apple", "apple"]},
        {"seeds": np.array([0.5])},
        {"occurrences": np.array([-1.0])},
    ],
)
def test_a_reply_that_makes_no_sense_is_one_without_documents(spoil: dict[str, Any]) -> None:
    assert read_replies({"a": reply(**spoil)}) == {"a": LocalTopics([], [], [], 0)}


def test_given_words_guide_whatever_was_learned() -> None:
    settings = FLDASettings(seed_topics=(("apple", "plum"),))
    server = FLDA(Plan(settings, TextRules(), VocabularyLimits(), 0))
    learned = GlobalTopic(0, {"apple": 0.5, "pear": 0.5}, ["a"], 100.0, seed=True)
    assert server._guide(learned) == pytest.approx({"apple": 0.5, "pear": 0.25, "plum": 0.25})
    assert server._guide(known(1, FRUIT)) == FRUIT
    assert server._guide(GlobalTopic(1, FRUIT, ["a"], 1.0, seed=True)) == FRUIT, "of another study"
