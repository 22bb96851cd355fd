"""Topics as lists of words: how they travel, how alike they are, how they are merged."""

from typing import Any

import numpy as np
import pytest

from fedtopics.contract.payload import SparseRows
from fedtopics.contract.replies import find_fault
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.flda.method import FLDA, global_topics, optimal_topics
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import (
    FLDAState,
    GlobalTopic,
    LocalTopics,
    link_rounds,
    read_reply,
    round_facts,
)
from fedtopics.methods.flda.topic_lists import (
    Linkage,
    Place,
    group_topics,
    mean_topic,
    pack_topics,
    topic_lists,
    unpack_topics,
)
from fedtopics.metrics import cosines, usual_threshold
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits

TOPICS = {name: topic_lists(3, 3)[name] for name in ("words", "index", "weights")}
FRUIT = {"apple": 0.6, "pear": 0.4}
ROADS = {"car": 0.7, "lorry": 0.3}
LINKAGES: list[Linkage] = ["average", "single"]


def turned(degrees: float) -> dict[str, float]:
    """A topic of two words: the cosine of two of them is that of the angle between them."""
    angle = np.radians(degrees)
    return {"east": float(np.cos(angle)), "north": float(np.sin(angle))}


def test_what_is_packed_is_unpacked() -> None:
    topics = [{"pear": 0.5, "apple": 0.25, "fig": 0.125}, {"fig": 1.0}, {"car": 0.5, "apple": 0.5}]
    packed = pack_topics(topics)
    assert packed["words"] == ["apple", "car", "fig", "pear"]
    np.testing.assert_array_equal(packed["index"], [[3, 0, 2], [2, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(packed["weights"], [[0.5, 0.25, 0.125], [1, 0, 0], [0.5, 0.5, 0]])
    assert find_fault(packed, TOPICS) == ""
    in_order = [[*topic.items()] for topic in topics]
    assert [[*topic.items()] for topic in unpack_topics(packed)] == in_order


def test_a_client_sends_no_more_topics_than_it_has() -> None:
    """Four thousand took a quarter of a minute to merge."""
    four = pack_topics([FRUIT, ROADS, FRUIT, ROADS])
    fault = "its field 'index' has the shape (4, 2) instead of ('up to 3 topics', 'up to 3 shown')"
    assert find_fault(four, TOPICS) == fault
    assert "its field 'index' has the shape (1, 4)" in find_fault(
        pack_topics([{"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}]), TOPICS
    )
    assert "its field 'words' has the shape (10,)" in find_fault(
        pack_topics([FRUIT]) | {"words": [f"w{n}" for n in range(10)]}, TOPICS
    )


def test_cosines() -> None:
    rows = [{"a": 0.6, "b": 0.8}, {"b": 2.0}, {}]
    columns = [{"a": 1.0}, {"b": 0.5, "a": 0.0}, {"c": 1.0}, {"b": 4.0, "c": 3.0}]
    np.testing.assert_allclose(
        cosines(rows, columns), [[0.6, 0.8, 0, 0.64], [0, 1, 0, 0.8], [0, 0, 0, 0]]
    )
    assert cosines([], columns).shape == (0, 4)


def test_the_usual_threshold_is_what_few_pairs_of_one_client_reach() -> None:
    # Of a, the cosines 0.6, 0.8 and 0.48; of b, 0. Topics of different clients are no pair.
    a = [{"x": 1.0}, {"x": 0.6, "y": 0.8}, {"x": 0.8, "z": 0.6}]
    b = [{"x": 1.0}, {"z": 1.0}]
    expected = 0.6 + 0.97 * (0.8 - 0.6)  # of four sorted pairs, the place 0.99 * 3
    assert usual_threshold({"a": a, "b": b}) == pytest.approx(expected)
    assert usual_threshold({"b": b, "a": a}) == usual_threshold({"a": a, "b": b})


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("absent_words", ["zero", "ignored"])
def test_the_papers_example(linkage: Any, absent_words: Any) -> None:
    local = {"one": [{"old": 0.031, "house": 0.02}], "two": [ROADS, {"old": 0.027, "house": 0.01}]}
    groups = group_topics(local, 0.6, linkage)
    assert groups == [[("one", 0), ("two", 1)], [("two", 0)]]
    merged = mean_topic([local[name][number] for name, number in groups[0]], absent_words)
    assert merged == pytest.approx({"old": 0.029, "house": 0.015})


def test_a_chain_of_pairs() -> None:
    # cos 40 = 0.77, cos 80 = 0.17: a and c are alike only by way of b.
    local = {"a": [turned(0)], "b": [turned(40)], "c": [turned(81)]}
    every = [("a", 0), ("b", 0), ("c", 0)]
    assert group_topics(local, 0.7, "single") == [every]
    assert group_topics(local, 0.7, "average") == [every[:2], every[2:]]
    mean = (np.cos(np.radians(81)) + np.cos(np.radians(41))) / 2
    assert group_topics(local, mean + 1e-6, "average") == [every[:2], every[2:]]
    assert group_topics(local, mean - 1e-6, "average") == [every]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_the_threshold_itself_is_enough(linkage: Any) -> None:
    local = {"a": [{"x": 1.0}], "b": [{"x": 0.6, "y": 0.8}]}
    alike = float(cosines(local["a"], local["b"])[0, 0])
    assert len(group_topics(local, alike, linkage)) == 1
    assert len(group_topics(local, np.nextafter(alike, 1), linkage)) == 2


@pytest.mark.parametrize("linkage", LINKAGES)
def test_clients_without_topics_and_with_different_numbers(linkage: Any) -> None:
    local = {"b": [ROADS], "empty": [], "a": [FRUIT, {"sea": 1.0}, ROADS]}
    assert group_topics(local, 0.5, linkage) == [[("a", 0)], [("a", 1)], [("a", 2), ("b", 0)]]
    assert group_topics({"a": [], "b": []}, 0.5, linkage) == []
    assert group_topics({}, 0.5, linkage) == []
    assert group_topics({"a": [FRUIT]}, 0.5, linkage) == [[("a", 0)]]


def random_topics(seed: int, sizes: dict[str, int]) -> dict[str, list[dict[str, float]]]:
    rng = np.random.default_rng(seed)

    def topic() -> dict[str, float]:
        weights = rng.dirichlet(np.full(12, 0.3)).tolist()
        return {f"w{i}": weight for i, weight in enumerate(weights)}

    return {name: [topic() for _ in range(size)] for name, size in sizes.items()}


@pytest.mark.parametrize("seed", range(3))
def test_average_linkage_has_one_topic_of_a_client_at_most(seed: int) -> None:
    local = random_topics(seed, {"a": 5, "b": 3, "c": 4, "d": 0, "e": 1})
    groups = group_topics(local, 0.2, "average")
    assert all(len({name for name, _ in group}) == len(group) for group in groups)
    assert max(map(len, groups)) > 1
    every = [(name, number) for name in local for number in range(len(local[name]))]
    assert sorted(place for group in groups for place in group) == every


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("seed", range(2))
def test_names_and_order_of_clients_do_not_matter(linkage: Any, seed: int) -> None:
    local = random_topics(seed, {"a": 4, "b": 3, "c": 4})
    groups = group_topics(local, 0.4, linkage)
    assert group_topics(dict(reversed(local.items())), 0.4, linkage) == groups
    renamed = {"a": "z", "b": "a", "c": "m"}
    again = group_topics({renamed[name]: topics for name, topics in local.items()}, 0.4, linkage)
    assert again == sorted(sorted((renamed[name], n) for name, n in group) for group in groups)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_what_belongs_together_anyway(linkage: Any) -> None:
    local = {"a": [FRUIT, ROADS], "b": [ROADS, {"sea": 1.0}], "c": [{"sea": 1.0}]}
    together = [[("a", 0), ("b", 1)]]
    expected = [[("a", 0), ("b", 1), ("c", 0)], [("a", 1), ("b", 0)]]
    assert group_topics(local, 0.5, linkage, together) == expected
    assert group_topics(local, 0.99, linkage, [[("c", 0)]]) == group_topics(local, 0.99, linkage)
    apart = [[("a", 0), ("b", 1)], [("a", 1), ("b", 0)], [("c", 0)]]
    if linkage == "average":  # (1 + 0) / 2
        assert group_topics(local, 0.51, linkage, together) == apart


def test_a_weighted_mean() -> None:
    topics = [{"old": 0.4, "only": 0.2}, {"old": 0.2, "new": 0.5}]
    assert mean_topic(topics, "zero", [3.0, 1.0]) == pytest.approx(
        {"old": 0.35, "only": 0.15, "new": 0.125}
    )
    assert mean_topic(topics, "ignored", [3.0, 1.0]) == pytest.approx(
        {"old": 0.35, "only": 0.2, "new": 0.5}
    )


def test_the_largest_words_come_first_and_ties_by_the_alphabet() -> None:
    topics = [{"c": 0.25, "b": 0.25, "a": 0.125, "d": 0.5}, {"d": 0.5, "a": 0.125, "b": 0.25}]
    assert list(mean_topic(topics, "zero")) == ["d", "b", "a", "c"]
    assert list(mean_topic(topics, "ignored")) == ["d", "b", "c", "a"]
    assert list(mean_topic(topics[:1], "zero")) == ["d", "b", "c", "a"]


def test_pair_by_pair_a_topic_is_in_as_many_groups_as_it_has_partners() -> None:
    local = {"a": [turned(0), turned(90)], "b": [turned(20)], "c": [turned(-20), turned(40)]}
    groups = group_topics(local, float(np.cos(np.radians(25))), "pairs")
    pairs = [[("a", 0), ("b", 0)], [("a", 0), ("c", 0)], [("b", 0), ("c", 1)]]
    assert groups == [*pairs[:2], [("a", 1)], pairs[2]]
    assert group_topics({"a": [turned(0), turned(5)]}, 0.5, "pairs") == [[("a", 0)], [("a", 1)]]


def test_pair_by_pair_what_belongs_together_is_in_no_other_group() -> None:
    local = {"a": [turned(0)], "b": [turned(10)], "c": [turned(20)]}
    together = [[("a", 0), ("c", 0)]]
    assert group_topics(local, 0.5, "pairs", together) == [[("a", 0), ("c", 0)], [("b", 0)]]


BERRY = {"apple": 0.4, "pear": 0.4, "plum": 0.2}
SEA = {"boat": 1.0}
SETTINGS = FLDASettings()


def sent(*topics: dict[str, float], documents: int = 50, seeds: Any = None) -> LocalTopics:
    numbers = [-1] * len(topics) if seeds is None else seeds
    return LocalTopics(list(topics), numbers, [100.0] * len(topics), documents)


def merged_topic(
    n: int, words: dict[str, float], clients: str = "ab", times: float = 100.0
) -> GlobalTopic:
    return GlobalTopic(n, words, list(clients), times)


def test_topics_that_are_alike_are_merged_and_the_others_may_go() -> None:
    local = {"b": sent(ROADS, BERRY), "a": sent(FRUIT, SEA)}
    (fruit, fruit_of), *rest = global_topics(local, 0.5, SETTINGS)
    assert fruit == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.1})
    assert list(fruit) == ["apple", "pear", "plum"]
    assert fruit_of == [("a", 0), ("b", 1)]
    assert rest == [(SEA, [("a", 1)]), (ROADS, [("b", 0)])]
    paper = SETTINGS.model_copy(update={"keep_unmatched": False, "absent_words": "ignored"})
    (fruit, places), *rest = global_topics(local, 0.5, paper)
    assert fruit == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.2})
    assert places == [("a", 0), ("b", 1)]
    assert rest == []
    assert len(global_topics({"a": local["a"]}, 0.5, paper)) == 2, "there is nobody else"


def test_a_mean_by_numbers_of_documents() -> None:
    local = {"a": sent(FRUIT, documents=30), "b": sent(BERRY, documents=10)}
    mean = global_topics(local, 0.5, SETTINGS.model_copy(update={"weighting": "documents"}))[0][0]
    assert mean == pytest.approx({"apple": 0.55, "pear": 0.4, "plum": 0.05})


def test_the_topics_of_a_client() -> None:
    topics = [merged_topic(5, SEA), merged_topic(2, FRUIT), merged_topic(9, ROADS)]
    assert optimal_topics([ROADS, FRUIT], topics, 0.5) == [2, 9], "in the server's order"
    assert optimal_topics([BERRY, FRUIT], topics, 0.5) == [2], "each once"
    several = [merged_topic(0, BERRY), merged_topic(1, FRUIT), merged_topic(2, dict(FRUIT))]
    assert optimal_topics([FRUIT], several, 0.5) == [1], "the most alike"
    alike = (0.6 * 0.4 + 0.4 * 0.4) / np.linalg.norm([0.6, 0.4]) / np.linalg.norm([0.4, 0.4, 0.2])
    assert optimal_topics([BERRY], topics, alike - 1e-9) == [2]
    assert optimal_topics([BERRY], topics, alike + 1e-9) == []
    assert optimal_topics([], topics, 0.5) == optimal_topics([BERRY], [], 0.5) == []


Merged = list[tuple[dict[str, float], list[Place]]]


def after(
    before: list[GlobalTopic], local: dict[str, LocalTopics], merged: Merged, **settings: Any
) -> tuple[list[GlobalTopic], int]:
    changed = SETTINGS.model_copy(update=settings)
    return link_rounds(
        FLDAState(before, next_id=10), local, merged, threshold=0.5, settings=changed
    )


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
        [merged_topic(4, FRUIT, times=200.0)], {"a": sent(BERRY)}, [(BERRY, [("a", 0)])], memory=0.5
    )
    assert (next_id, [topic.id for topic in topics]) == (10, [4])
    assert topics[0].words == pytest.approx({"apple": 0.5, "pear": 0.4, "plum": 0.1})
    assert (topics[0].occurrences, topics[0].clients) == (200.0, ["a"])
    topics, _ = after(
        [merged_topic(4, BERRY, "a")], {"a": sent(FRUIT)}, [(FRUIT, [("a", 0)])], memory=0.0
    )
    assert topics == [GlobalTopic(4, FRUIT, ["a"], 100.0)]


def test_what_nobody_has_any_more_is_gone_unless_who_had_it_was_not_heard() -> None:
    before = [
        merged_topic(1, FRUIT),
        merged_topic(2, SEA, "a"),
        merged_topic(3, {"sun": 1.0}, "ac"),
    ]
    local = {"a": sent(FRUIT), "b": sent(FRUIT)}
    merged: Merged = [(FRUIT, [("a", 0), ("b", 0)])]
    topics, _ = after(before, local, merged, memory=0.5)
    assert [topic.id for topic in topics] == [1, 3]
    assert topics[1] == merged_topic(3, {"sun": 1.0}, "ac", 50.0)


def test_two_topics_do_not_take_the_same_number() -> None:
    # Of what is like number 1, the most alike takes it on.
    merged: Merged = [(BERRY, [("a", 0)]), (FRUIT, [("a", 1)])]
    topics, next_id = after([merged_topic(1, FRUIT)], {"a": sent(BERRY, FRUIT)}, merged)
    assert {topic.id: list(topic.words) for topic in topics} == {1: list(FRUIT), 10: list(BERRY)}
    assert next_id == 11


def test_what_a_round_tells() -> None:
    old = merged_topic(1, FRUIT)
    new = GlobalTopic(10, ROADS, ["a"], 30.0)
    before = FLDAState([old, merged_topic(2, SEA)], round=3)
    later = FLDAState([old, new, merged_topic(11, BERRY)], round=4, threshold=0.25)
    told = round_facts(before, later, {"b": sent(documents=0), "a": sent(ROADS, FRUIT)}, 2)
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


def reply(**other: Any) -> dict[str, Any]:
    return {
        **pack_topics([FRUIT]),
        "seeds": np.array([4]),
        "occurrences": np.array([9.0]),
        "documents": 50,
        **other,
    }


@pytest.mark.parametrize(
    "spoil",
    [
        {"index": np.array([[0, 2]])},
        {"index": np.array([[0.0, 1.0]])},
        {"index": SparseRows(np.array([0]), np.array([[0, 1]]), 1)},
        {"weights": SparseRows(np.array([0]), np.array([[0.5, 0.5]]), 1)},
        {"weights": np.array([[2.0, -1.0]])},
        {"weights": np.array([[0.6, np.nan]])},
        {"words": ["apple", "apple"]},
        {"words": ["apple"]},
        {"words": ["apple", "\x1b[2J"]},
        {"words": ["apple", "x" * 101]},
        {"occurrences": np.array([-1.0])},
        {"documents": -1},
    ],
)
def test_a_reply_that_makes_no_sense_is_one_without_documents(spoil: dict[str, Any]) -> None:
    assert read_reply(reply()) == LocalTopics([FRUIT], [4], [9.0], 50)
    assert read_reply(reply(**spoil)) == LocalTopics([], [], [], 0)


def test_given_words_guide_whatever_was_learned() -> None:
    settings = FLDASettings(seed_topics=(("apple", "plum"),))
    server = FLDA(Plan(settings=settings, text=TextRules(), limits=VocabularyLimits(), seed=0))
    learned = GlobalTopic(0, {"apple": 0.5, "pear": 0.5}, ["a"], 100.0, seed=True)
    assert server._guide(learned) == pytest.approx({"apple": 0.5, "pear": 0.25, "plum": 0.25})
    assert server._guide(merged_topic(1, FRUIT)) == FRUIT
    assert server._guide(GlobalTopic(1, FRUIT, ["a"], 1.0, seed=True)) == FRUIT, "of another study"
