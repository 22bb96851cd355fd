"""Numbers without a bound: fine ones where all are small, coarser ones where one is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtopics.methods.core.aggregation import Rows
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED
from tests.helpers import masked as helper
from tests.helpers.masked import NAMES, left_of, masked, reply_of

SMALL, LARGE = 2.0**20 / 5, 2.0**28 / 5  # what five clients' numbers are below


def rows_of(first: float) -> Rows:
    return Rows(np.array([0]), np.array([[first, 2.0**-38]], np.float32), 6)


def total_of(
    monkeypatch: pytest.MonkeyPatch, function: str, largest: float
) -> tuple[Rows, list[str]]:
    """Sum rows of which the first client's has one such number; return the sum, and what left."""

    def changed(name: str) -> dict[str, Any]:
        return reply_of(name) | {"rows": rows_of(largest if name == "a" else 1.0)}

    monkeypatch.setattr(helper, "reply_of", changed)
    with masked(NAMES, function) as (f, clients, _):
        total = f.lead(f.program).result()[0][0][0]["rows"]
        return total, left_of(clients, "a")


@pytest.mark.parametrize(
    ("function", "stages"),
    [
        ("drawn", [COMMITTED, COMMITTED, ADDED, CHECKED]),
        ("whole", [PREPARED, ADDED, AGREED, OPENED]),
    ],
)
def test_one_client_with_a_larger_one_makes_those_of_all_coarser(
    monkeypatch: pytest.MonkeyPatch, function: str, stages: list[str]
) -> None:
    """It is not made smaller, and nothing has left in fine numbers."""
    largest = float(np.nextafter(np.float32(SMALL), np.float32(LARGE)))
    total, left = total_of(monkeypatch, function, largest)
    assert left == stages
    assert total.values[0].tolist() == [np.float32(largest + 4), 0.0]
