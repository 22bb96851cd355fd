"""Clients that are lost in a masked sum, or restarted: what the sum is, and what was opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtopics.engines import adder
from fedtopics.secure import said
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED, RECOVERED
from tests.helpers.background import KilledError, until
from tests.helpers.masked import NAMES, Clients, assert_total, half_of, masked, opened

DRAWN, WHOLE = (COMMITTED, ADDED, CHECKED), (PREPARED, ADDED, AGREED, OPENED)
COUNTED = OPENED, RECOVERED  # who is lost then is in the sum


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose connection breaks is given up at once."""
    monkeypatch.setattr(adder, "GRACE", 0.0)


def lost_cases() -> Iterator[tuple[str, dict[str, str]]]:
    for function, stages in ("drawn", DRAWN), ("whole", WHOLE):
        for stage in stages:
            yield function, {"b": stage}
            yield function, {"b": stage, "d": stage}
    yield "drawn", {"b": COMMITTED, "d": ADDED}
    yield "drawn", {"e": ADDED, "a": CHECKED}
    for one, other in (PREPARED, ADDED), (PREPARED, OPENED), (ADDED, AGREED), (ADDED, OPENED):
        yield "whole", {"b": one, "d": other}
        yield "whole", {"d": one, "b": other}
    yield "whole", {"a": AGREED, "e": OPENED}
    yield "whole", {"b": OPENED, "d": RECOVERED}


def named(case: object) -> str:
    return case if isinstance(case, str) else "-".join(
        f"{name}.{stage.removeprefix('secure.')}" for name, stage in dict(case).items()  # type: ignore[call-overload]
    )


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize(("function", "deaths"), list(lost_cases()), ids=named)
def test_who_is_lost(function: str, deaths: dict[str, str]) -> None:
    """Twice a round of a sum; in the second nobody is lost any more."""
    odd = {name: {"dies": stage} for name, stage in deaths.items()}
    with masked(NAMES, function, rounds=2, odd=odd) as (f, clients, members):
        work = f.lead(f.program)
        (first, _), (second, report) = work.result()
        left = [name for name in NAMES if name not in deaths]
        late = [name for name, stage in deaths.items() if stage in COUNTED]
        counted = sorted(left + late)
        assert_total(first[0], counted)
        assert_total(second[0], left)
        assert report["clients"] == left
        for name in deaths:
            assert isinstance(members[name].work.error(), KilledError)
        for name in left:
            assert_total(members[name].work.result()[0][0][0], counted)
        check_opened(clients, set(deaths) - set(late))


def check_opened(clients: Clients, lost: set[str]) -> None:
    """Of nobody both seeds are told in one sum, and of the living none of pairs."""
    for (_, name), kinds in opened(clients.everything).items():
        assert len(kinds) == 1
        assert kinds == {"own"} or name in lost
