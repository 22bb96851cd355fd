"""States that participants sign: who drifted takes most others', who differs stops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.states import EVERY, digest_of, is_near, read, written
from fedtopics.errors import FederationError
from fedtopics.methods.core.interfaces import Checkpoint
from tests.helpers.programs import RULES, Federation, federation

WEIGHTS = np.linspace(-1.0, 2.0, 7)
EVERYBODY = "server", "a", "b", "c"


def state(weights: Any, loss: float = 1.5) -> Checkpoint:
    return Checkpoint(EVERY, {"weights": np.asarray(weights), "seen": np.arange(3)}, {"loss": loss})


def settled(f: Federation, states: Mapping[str, Checkpoint], round_: int = EVERY) -> dict[str, Any]:
    """Let everybody compare states; return what each goes on from, or the error it stops with."""

    def program(name: str) -> Any:
        def work(clients: Any) -> Checkpoint | None:
            clients.round(1, lambda: None)
            return clients.settle(round_, lambda: states[name])  # type: ignore[no-any-return]

        return work

    works = {"server": f.lead(program("server"))}
    works |= {name: f.member(name, None, program(name)).work for name in "abc"}
    found: dict[str, Any] = {}
    for name, work in works.items():
        try:
            found[name] = work.result()
        except FederationError as error:
            found[name] = str(error)
    return found


def test_who_has_the_same_state_goes_on() -> None:
    with federation() as f:
        assert settled(f, dict.fromkeys(EVERYBODY, state(WEIGHTS))) == dict.fromkeys(EVERYBODY)


def test_states_are_compared_every_so_many_rounds() -> None:
    with federation() as f:
        states = {name: state(WEIGHTS * number) for number, name in enumerate(EVERYBODY)}
        assert settled(f, states, EVERY + 1) == dict.fromkeys(EVERYBODY)


@pytest.mark.parametrize("odd", EVERYBODY)
def test_who_differs_in_the_last_bits_takes_most_others_state(odd: str) -> None:
    states = dict.fromkeys(EVERYBODY, state(WEIGHTS))
    states[odd] = state(np.nextafter(WEIGHTS, 9))
    with federation() as f:
        found = settled(f, states)
        drifted = f.notes.of("drifted")
    assert {name for name, taken in found.items() if taken is not None} == {odd}
    assert np.array_equal(found[odd].arrays["weights"], WEIGHTS)
    assert found[odd].numbers == {"loss": 1.5}
    assert len(drifted) == (odd == "server")


def test_who_has_another_state_stops() -> None:
    states = dict.fromkeys(EVERYBODY, state(WEIGHTS))
    states["b"] = state(WEIGHTS * 1.01)
    with federation() as f:
        found = settled(f, states)
    assert [found[name] for name in ("server", "a", "c")] == [None] * 3
    assert f"stops in round {EVERY}: most others have signed another state" in found["b"]


@pytest.mark.parametrize(
    "other",
    [
        state(WEIGHTS + 1e-3),
        state(WEIGHTS[:-1]),
        state(WEIGHTS.astype(np.float32)),
        Checkpoint(EVERY, {"weights": WEIGHTS, "seen": np.arange(3) + 1}, {}),
        Checkpoint(EVERY, {"weights": WEIGHTS}, {}),
        Checkpoint(EVERY + 1, state(WEIGHTS).arrays, {}),
        state(np.where(WEIGHTS > 1, np.nan, WEIGHTS)),
    ],
)
def test_what_is_not_near(other: Checkpoint) -> None:
    assert not is_near(state(WEIGHTS), other)


def test_a_state_is_read_as_it_was_written() -> None:
    again = read(written(state(WEIGHTS)))
    assert digest_of(again, b"words", 1) == digest_of(state(WEIGHTS), b"words", 1)
    assert digest_of(again, b"words", 1) != digest_of(again, b"others", 1)
    assert digest_of(again, b"words", 1) != digest_of(again, b"words", 2)
    assert digest_of(state(WEIGHTS, 1.0), b"", 1) != digest_of(state(WEIGHTS, 2.0), b"", 1)


def test_who_is_lost_while_states_are_compared_is_named() -> None:
    with federation(rules=replace(RULES, gather=1.0)) as f:

        def program(clients: Any) -> None:
            clients.round(1, lambda: None)
            clients.settle(EVERY, lambda: state(WEIGHTS))
            clients.round(2, lambda: None)

        works = [f.lead(program), *(f.member(name, None, program).work for name in "ac")]
        b = f.hand("b")
        b.begun(1)
        b.node.stop()
        for work in works:
            work.result()
        assert [event["client"] for event in f.notes.of("lost")] == ["b"]
