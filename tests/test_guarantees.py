"""The table of promises: each row names tests that are there."""

from pathlib import Path

import pytest

from fedtopics.guarantees import PLAIN, SECURE, promises

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("aggregation", [SECURE, PLAIN])
def test_rows_name_tests_that_are_there(aggregation: str) -> None:
    for promise in promises(aggregation, 5):
        # What a thief of a disk has under plain aggregation is all that was on it.
        assert promise.tests or (aggregation == PLAIN and "thief" in promise.adversary)
        assert all((ROOT / test).is_file() for test in promise.tests)


@pytest.mark.parametrize(
    ("members", "colluders", "seen"),
    [(3, 1, "the other 2 members"), (3, 2, "the updates of the last member")],
)
def test_colluding_members_see_the_rest(members: int, colluders: int, seen: str) -> None:
    (row,) = (
        promise
        for promise in promises(SECURE, members, colluders)
        if promise.adversary.endswith("without the relay")
    )
    assert seen in row.sees
