"""Sums that do not depend on the order of arrival, and the server's optimisers."""

from functools import reduce
from itertools import permutations
from operator import add
from typing import Any

import numpy as np
import pytest

from fedtopics.contract.payload import (
    CountsByWord,
    RunningSum,
    SparseRows,
)
from fedtopics.errors import FedTopicsError
from tests.helpers.federation import assert_same
from tests.helpers.sums import add_up


def rows(index: list[int], values: list[list[float]], n_rows: int = 4) -> SparseRows:
    return SparseRows(np.array(index, np.int64), np.array(values, np.float32), n_rows)


def test_totals_of_single_precision_are_rounded_once() -> None:
    """In float32, one added to 2 ** 24 is lost, and so is the second one."""
    for order in permutations([2.0**24, 1.0, 1.0]):
        total = RunningSum()
        for value in order:
            array = np.array([value], np.float32)
            total.add({"x": array, "m": {"rows": rows([2], [[value]]), "y": array}})
        update = total.total()
        expected = np.array([2.0**24 + 2], np.float32)
        assert_same(update["x"], expected)
        assert_same(update["m"], {"rows": rows([2], [[2.0**24 + 2]]), "y": expected})
    parts = [2.0**24, 1.0, 2.0**-9]
    exact = {name: {"x": np.array([value])} for name, value in zip("abc", parts, strict=True)}
    assert add_up(exact)["x"] == 2.0**24 + 1 + 2.0**-9, "no float32 was there to round to"


SHAPES = "different shapes"
STUDY = "check that all run the same study|cannot be added up"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (np.zeros(2), np.zeros(3), SHAPES),
        (np.zeros((1, 2)), np.zeros(2), SHAPES),
        (np.zeros(1), np.zeros(3), SHAPES),
        (rows([0], [[1, 2]]), rows([1], [[1, 2, 3]]), SHAPES),
        (rows([0], [[1]], n_rows=4), rows([1], [[1]], n_rows=5), SHAPES),
        (rows([0], [[1]], n_rows=4), rows([4], [[1]], n_rows=5), SHAPES),
        ({"y": 1, "z": 1}, {"y": 1}, STUDY),
        ({"y": 1}, {"y": 1, "z": 1}, STUDY),
        ({"y": 1}, {"z": 1}, STUDY),
        (np.zeros(2), 1.0, STUDY),
        (np.zeros(2, np.int64), np.zeros(2), STUDY),
        ("one", "two", STUDY),
    ],
)
def test_shapes_and_fields_must_agree(first: Any, second: Any, says: str) -> None:
    with pytest.raises(FedTopicsError, match=says):
        add_up({"a": {"x": first}, "b": {"x": second}})
    if isinstance(first, dict):
        with pytest.raises(FedTopicsError, match=says):
            add_up({"a": first, "b": second})


def named(**counts: list[int]) -> CountsByWord:
    return CountsByWord(
        sorted(counts), np.array([counts[name] for name in sorted(counts)], np.int64)
    )


def test_counts_by_word() -> None:
    replies = {
        "a": {"words": named(oak=[3, 4], elm=[1, 2])},
        "b": {"words": named(oak=[1, 1], yew=[5, 2**53], ash=[2, 2])},
        "c": {"words": CountsByWord.columns(2)},
    }
    expected = named(ash=[2, 2], elm=[1, 2], oak=[4, 5], yew=[5, 2**53])
    for order in permutations("abc"):
        total = RunningSum()
        for name in order:
            total.add(replies[name])
        assert_same(total.total()["words"], expected)
    assert_same(replies["a"]["words"], named(oak=[3, 4], elm=[1, 2]))
    with pytest.raises(FedTopicsError, match="check that all run the same study"):
        add_up({"a": {"words": named(oak=[1, 2])}, "b": {"words": named(oak=[1])}})


def many_replies(clients: int) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(0)

    def some_rows() -> SparseRows:
        index = np.flatnonzero(rng.random(9) < 0.4)
        return SparseRows(index, rng.normal(size=(len(index), 2)).astype(np.float32), 9)

    return {
        f"client{i:02}": {
            "n": int(rng.integers(1, 50)),
            "loss": float(rng.normal() * 10.0 ** rng.integers(-9, 9)),
            "single": rng.normal(size=(3, 2)).astype(np.float32),
            "double": rng.normal(size=4) * 10.0 ** rng.integers(-9, 9),
            "counts": rng.integers(0, 2**40, 5),
            "bytes": rng.integers(0, 250, 3).astype(np.uint8),
            "unsigned": rng.integers(0, 2**40, 3).astype(np.uint64),
            "flags": rng.random(3) < 0.5,
            "scalar": np.array(rng.normal()),
            "nothing": np.zeros((0, 3)),
            "map": {"rows": some_rows(), "deeper": {"x": rng.normal(size=2)}},
            "no rows": SparseRows(np.zeros(0, np.int64), np.zeros((0, 2), np.float32), 9),
            "whole rows": SparseRows(np.array([1]), np.array([[int(rng.integers(9))]]), 3),
        }
        for i in range(clients)
    }


def summed(values: list[Any]) -> Any:
    """The sum of whole lists of values, in float64 or int64, then in float32 if they were."""
    first = values[0]
    if isinstance(first, dict):
        return {key: summed([value[key] for value in values]) for key in first}
    if isinstance(first, SparseRows):
        index = np.unique(np.concatenate([value.index for value in values]))
        dense = summed([value.dense().astype(np.float64) for value in values])[index]
        single = first.values.dtype == np.float32
        return SparseRows(index, dense.astype(np.float32) if single else dense, first.n_rows)
    if isinstance(first, np.ndarray):
        kind = np.int64 if first.dtype.kind in "biu" else np.float64
        total = np.asarray(reduce(add, [value.astype(kind) for value in values]))
        return total.astype(np.float32) if first.dtype == np.float32 else total
    return reduce(add, values)


@pytest.mark.parametrize("clients", [2, 3, 17])
def test_a_running_sum_is_the_sum_of_all(clients: int) -> None:
    replies = many_replies(clients)
    assert_same(add_up(replies), summed([*replies.values()]))
    assert_same(replies, many_replies(clients))  # nothing that came was changed
