"""What a client can move a sum by, and the median over clients."""

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedtopics import Study, train
from fedtopics.contract.events import Event
from fedtopics.contract.payload import SparseRows
from fedtopics.contract.replies import Bounds
from fedtopics.errors import RunError
from fedtopics.protocol.outliers import ABSURD, FAR_TIMES, Robust, Rule, weight
from tests.helpers.federation import assert_same, subjects
from tests.helpers.sums import add_up

VECTORS = np.array([[1.0, 0, 3], [2, 1, 4], [3, 5, 0], [2, 2, 2], [100, -50, 7]])
USUAL = {"a": [3.0, 4.0], "b": [4.0, 3.0], "c": [5.0, 0.0], "d": [0.0, 5.0]}


class Sums:
    """Sums of replies by a rule, round after round, with what is told of clients."""

    def __init__(self, rule: Rule = "clip", template: Any = None) -> None:
        self.told: list[Event] = []
        self.rounds = 0
        self._robust = Robust(rule, self.told.append)
        self._template = template or {}

    def __call__(self, replies: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        self.rounds += 1
        total = self._robust.sum("ask", self._template, 1, self.rounds)
        for name in sorted(replies):
            total.add(replies[name], name)
        return total.total()


def reply(x: Any, documents: int = 10) -> dict[str, Any]:
    return {"x": np.asarray(x, np.float64), "loss": 1.0, "documents": documents}


def usual(**more: Any) -> dict[str, dict[str, Any]]:
    """Replies of four clients, each with a vector of length 5, and others' besides."""
    return {name: reply(x) for name, x in USUAL.items()} | more


def varied(name: str, scale: float = 1.0) -> dict[str, Any]:
    """A reply of all that there is in methods' replies."""
    rng = np.random.default_rng(ord(name))
    index = np.flatnonzero(rng.random(30) < 0.7)
    rows = SparseRows(index, (scale * rng.normal(size=(len(index), 4))).astype(np.float32), 30)
    return {
        "weights": {"rows": rows, "bias": (scale * rng.normal(size=7)).astype(np.float32)},
        "sums": scale * rng.random((3, 5)),
        "counts": rng.integers(0, 9, 6),
        "loss": scale * float(rng.random()),
        "documents": int(rng.integers(20, 30)),
    }


def test_who_is_as_usual_is_added_up_to_the_bit() -> None:
    sums = Sums()
    for round_ in range(4):
        replies = {name: varied(name, 1 + 0.2 * round_) for name in "abcde"}
        assert_same(sums(replies), add_up(replies))
    assert sums.told == []


@pytest.mark.parametrize("grown", [0.001, 1000.0])
def test_where_all_change_nobody_goes_far(grown: float) -> None:
    sums = Sums()
    for scale in (1.0, grown, 1.0):
        replies = {name: varied(name, scale) for name in "abcde"}
        total = sums(replies)
        added = add_up(replies)
        # Who goes further than was usual is added behind the others: float64 rounds otherwise.
        assert_allclose(total["sums"], added["sums"], rtol=1e-14)
        assert_allclose(total["weights"]["bias"], added["weights"]["bias"], rtol=1e-6)
    assert sums.told == []


@pytest.mark.parametrize("rounds_before", [0, 1])
def test_who_goes_further_moves_the_sum_by_three_times_the_usual(rounds_before: int) -> None:
    sums = Sums()
    for _ in range(rounds_before):
        sums(usual(e=reply([3.0, 4.0])))
    total = sums(usual(e=reply([-12.0, -16.0])))  # 4 times as far
    assert_allclose(total["x"], [12 - 9, 12 - 12])
    assert total["loss"] == 5.0, "a sum, as counts are"
    assert total["documents"] == 50


def test_who_goes_absurdly_far_moves_nothing() -> None:
    assert [weight(times) for times in (0, 1, 3, 6, 30)] == [1, 1, 1, 0.5, 0.1]
    assert weight(300) * 300 == pytest.approx(FAR_TIMES * ABSURD / 300)
    for x in ([1e30, 0.0], [np.inf, 1.0], [np.nan, 1.0], [-1e200, 1e200]):
        assert_allclose(Sums()(usual(e=reply(x)))["x"], [12, 12], rtol=1e-12)


@pytest.mark.parametrize("documents", [0, 1, 3, 10])
def test_who_says_it_has_few_documents_gains_nothing(documents: int) -> None:
    exaggerated = Sums()(usual(e=reply([-7e2, 0.0], documents)))
    assert exaggerated["x"][0] >= Sums()(usual(e=reply([-15.0, 0.0], 10)))["x"][0]


def test_few_documents_move_a_sum_as_far_as_they_do_where_nothing_cancels_out() -> None:
    # 3 times as far a document as ten that cancel out.
    assert_array_equal(Sums()(usual(e=reply([1.5, 0.0], 1)))["x"], [13.5, 12.0])


@pytest.mark.parametrize("rule", ["clip", "median"])
def test_of_two_clients_nobody_knows_which_goes_far(rule: Rule) -> None:
    replies = {"a": reply([1.0, 0.0]), "b": reply([1e9, 5.0])}
    assert_same(Sums(rule)(replies), add_up(replies))


def test_what_documents_can_move_a_sum_by_is_not_far() -> None:
    """One client differs from all others, which cancel out: sums of points of length 1."""
    replies = {name: reply([0.01, 0.1]) for name in "abcd"} | {"e": reply([0.0, -10.0])}
    assert_allclose(Sums(template={"x": Bounds((2,), length=1.0)})(replies)["x"], [0.04, 0.4 - 10])
    assert Sums()(replies)["x"][1] > 0.0, "without the template"


def test_counts_are_added_up() -> None:
    replies = {name: {"n": np.array([1, 2]), "documents": 1} for name in "abc"}
    replies["d"] = {"n": np.array([10**9, 0]), "documents": 1}
    assert_array_equal(Sums()(replies)["n"], [10**9 + 3, 6])


def test_who_is_as_usual_does_not_wait_for_the_others() -> None:
    robust = Robust("clip", lambda _: None)
    for round_ in (1, 2):
        total = robust.sum("ask", {}, 1, round_)
        references = []
        for name in "abcde":
            x = np.array(USUAL.get(name, [3.0, 4.0]))
            references.append(weakref.ref(x))
            total.add({"x": x, "documents": 10}, name)
            del x
        assert [ref() is None for ref in references[1:]] == [round_ == 2] * 4
        total.total()


def test_who_goes_far_is_told_of_once_and_when_it_goes_twice_as_far() -> None:
    sums = Sums()
    for length in (5.0, 205.0, 205.0, 205.0, 205.0, 205.0, 205.0, 205.0, 205.0, 500.0):
        sums(usual(west=reply([length, 0.0])))
    told = [event.plain() for event in sums.told]
    assert [event["client"] for event in told] == ["west", "west"]
    assert [event["times"] for event in told] == pytest.approx([41, 100])
    assert [event["round"] for event in told] == [3, 10]


def test_a_reply_far_off_now_and_then_is_no_news() -> None:
    sums = Sums()
    for round_ in range(40):
        sums(usual(west=reply([60.0 if round_ % 3 else 5.0, 0.0])))
    assert sums.told == []
    sums(usual(west=reply([1e30, 0.0])))
    assert [vars(event)["round"] for event in sums.told] == [41], "an absurd one is, at any time"


def test_the_median_of_each_number() -> None:
    total = Sums("median")({n: reply(x, 1) for n, x in zip("abcde", VECTORS, strict=True)})
    assert_array_equal(total["x"], [10, 5, 15])
    assert (total["loss"], total["documents"]) == (5.0, 5)


def test_the_median_is_by_client_of_what_a_document_adds() -> None:
    sizes = dict(zip("abcde", (1, 20, 30, 40, 9), strict=True))
    replies = {n: reply(VECTORS[0] * size, size) for n, size in sizes.items()}
    replies["e"] = reply([1e30, -1e30, 1e30], 9)
    replies["f"] = reply([0.0, 0.0, 0.0], 0)  # does not count
    total = Sums("median")(replies)
    assert total["documents"] == 100
    assert_allclose(total["x"], VECTORS[0] * 100, rtol=1e-12)


def test_the_median_of_rows_is_of_all_rows_that_somebody_has() -> None:
    def rows(*index: int) -> dict[str, Any]:
        present = np.array(index)
        values = np.ones((len(present), 2), np.float32)
        return {"x": {"rows": SparseRows(present, values, 9)}, "documents": 1}

    median = Sums("median")({"a": rows(0, 3), "b": rows(3, 5), "c": rows(1, 3)})["x"]["rows"]
    assert_array_equal(median.index, [0, 1, 3, 5])
    assert_array_equal(median.values, [[0, 0], [0, 0], [3, 3], [0, 0]])
    assert median.values.dtype == np.float32


def test_the_median_is_within_the_bounds_of_a_sum() -> None:
    """A word that most have often, and all together not as often as that would be."""
    template = {"x": Bounds((3,), np.array([8.0, 2.0, 9.0]), 0)}
    replies = {name: reply([1.0, 1.0, 1.0], 3) for name in "abc"}
    assert_allclose(Sums("median", template)(replies)["x"], [3, 2, 3])


def test_nobody_is_clipped_in_an_honest_study_whatever_clients_write_about() -> None:
    corpora = subjects({"east": 60, "north": 40, "south": 25})
    method = {
        "name": "lda",
        "n_components": 4,
        "max_rounds": 5,
        "coherence": "nothing",
        "learning": "stochastic",
    }
    models = [
        train(Study.make(method=method, federation={"outliers": rule}), corpora)
        for rule in ("none", "clip")
    ]
    assert_array_equal(models[0].beta, models[1].beta)


def test_the_median_needs_replies() -> None:
    study = Study.make(federation={"outliers": "median"})
    with pytest.raises(RunError, match="at_once has only sums; leave out one"):
        train(study, [["oak elm"], ["oak ash"]], at_once=True)


def test_what_is_told_of_who_goes_infinitely_far_is_finite() -> None:
    """Squares of 1e200 are infinite: JSON has no such number, and events are written as JSON."""
    sums = Sums()
    sums(usual(e=reply([1e200, 0.0])))
    (told,) = sums.told
    assert told.plain() == {"event": "clipped", "client": "e", "round": 1, "times": 1e12}
