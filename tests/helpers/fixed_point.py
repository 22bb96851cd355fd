"""Sums as they are under masks: replies as residues, added up modulo the prime, and decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from fedtopics.methods.core.aggregation import Payload, Rows
from fedtopics.methods.core.outliers import Robust
from fedtopics.methods.core.replies import Template, WordCounts, find_fault
from fedtopics.secure.field import PRIME
from fedtopics.secure.fixed import Layout
from tests.helpers.sums import add_up

FINEST = 2.0**-33  # what a number's rounding to 32 bits of fraction adds at most


def add_encoded(
    template: Template, replies: Mapping[str, Payload], members: Sequence[str] = ()
) -> tuple[dict[str, Any], float]:
    """The sum of the replies of some members, by default of all, and the smallest factor."""
    layout = Layout.of(template, members or list(replies))
    total, smallest = np.zeros(layout.size, np.uint64), 1.0
    for reply in replies.values():
        residues, factor = layout.encode(reply)
        assert residues.dtype == np.uint64
        assert (residues < PRIME).all()
        total, smallest = (total + residues) % np.uint64(PRIME), min(smallest, factor)
    return layout.decode(total, len(replies)), smallest


def assert_close(found: Any, expected: Any, n: int) -> None:
    """Hold a decoded sum of n replies against `RunningSum`: types, shapes, numbers."""
    assert type(found) is type(expected)
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_close(found[name], expected[name], n)
        return
    if isinstance(expected, Rows):
        assert found.n_rows == expected.n_rows
        assert (np.diff(found.index) > 0).all()
        assert set(found.index) <= set(expected.index)
        found, expected = found.dense(), expected.dense()
    one, other = np.asarray(found), np.asarray(expected)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    if one.dtype == np.int64:
        np.testing.assert_array_equal(one, other)
    else:
        rounding = float(np.finfo(one.dtype).eps)
        finest = 8 * FINEST  # where a document can add a million, fewer bits are left
        np.testing.assert_allclose(one, other, rtol=2 * rounding, atol=(n + 1) * finest)


class EncodedSums:
    """What clients are to a method, with sums by residues, held against plain ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.encoded: set[str] = set()  # functions
        self.plain: set[str] = set()  # functions whose replies are no numbers

        def sum_(_: Robust, function: str, template: Template, *__: int) -> _Total:
            return _Total(self, function, template)

        monkeypatch.setattr(Robust, "sum", sum_)


class _Total:
    def __init__(self, sums: EncodedSums, function: str, template: Template) -> None:
        self._sums, self._function, self._template = sums, function, template
        self._replies: dict[str, Payload] = {}

    def add(self, name: str, reply: Payload) -> None:
        self._replies[name] = reply

    def total(self) -> dict[str, Any]:
        expected = add_up(self._replies)
        if any(isinstance(field, WordCounts) for field in self._template.values()):
            self._sums.plain.add(self._function)
            return expected
        found, factor = add_encoded(self._template, self._replies)
        assert factor == 1
        assert_close(found, expected, len(self._replies))
        assert find_fault(found, self._template, list(self._replies)) == ""
        self._sums.encoded.add(self._function)
        return found
