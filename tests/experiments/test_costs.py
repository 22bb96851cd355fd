"""What a training cost stands in its row, and what all of them cost in a table."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from experiments.costs import measured, table


def test_a_row_says_its_cost_and_its_versions() -> None:
    def work(megabytes: int) -> dict[str, object]:
        return {"sum": float(np.ones(megabytes << 17).sum()), "versions": {"of": "before"}}

    small, large = (measured(work, ["numpy"])(size) for size in (1, 300))
    assert (small["sum"], large["sum"]) == (1 << 17, 300 << 17)
    assert small["versions"] == {"of": "before"}, "what the work says itself stands"
    assert measured(lambda _: {}, ["numpy"])(0)["versions"] == {"numpy": np.__version__}
    assert 0 <= small["cost"]["core_seconds"] < 60
    if sys.platform == "linux":
        assert large["cost"]["megabytes"] - small["cost"]["megabytes"] == pytest.approx(299, abs=60)
        again = measured(work, [])(1)
        assert again["cost"]["megabytes"] < large["cost"]["megabytes"] - 200, "its own peak"


def test_the_whole_at_the_rate_of_what_was_measured() -> None:
    def row(hours: float, megabytes: int | None) -> dict[str, object]:
        return {"cost": {"core_seconds": 3600 * hours, "megabytes": megabytes}}

    there = {"lda": (10, [row(0.5, 400), row(1.5, 1400), {}]), "nmf": (4, [row(2, None)])}
    assert table(there).rows == (
        ("lda", "3", "10", "2", "2.00", "10.00", "1,400"),
        ("nmf", "1", "4", "1", "2.00", "8.00", "-"),
        ("all", "4", "14", "3", "4.00", "18.00", "1,400"),
    )
    assert table(there | {"flda": (2, [{}])}).rows[2:] == (
        ("flda", "1", "2", "0", "0.00", "-", "-"),
        ("all", "5", "16", "3", "4.00", "-", "1,400"),
    )
