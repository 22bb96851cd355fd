"""One contract for all engines: the same program gives the same result through each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics.federation.local import LocalClients
from fedtopics.protocol.values import DTYPES
from fedtopics.errors import DataError, FedTopicsError, PolicyError
from fedtopics.methods.core.aggregation import Named, Rows
from fedtopics.methods.core.replies import COUNT
from tests.helpers.federation import assert_same
from tests.helpers.programs import Half, Program, door, federation
from tests.helpers.sockets import together
from tests.helpers.sums import add_up

Execute = Callable[[Mapping[str, Half], Program], Any]
NAMES = ("b", "a", "c")  # not in their order


@pytest.fixture(params=["local", "hub", "grpc"])
def execute(request: pytest.FixtureRequest) -> Execute:
    """Return what executes a program with clients, whichever engine it is."""

    def local(halves: Mapping[str, Half], program: Program) -> Any:
        return program(LocalClients({name: door(name, half) for name, half in halves.items()}))

    if request.param == "local":
        return local
    return lambda halves, program: together(halves, program, request.param)


def of_each(function: Callable[[str], dict[str, Any]]) -> dict[str, Half]:
    """Clients whose function `ask` returns what belongs to their name."""

    def asking(name: str) -> Half:
        return Half({"ask": lambda **_: function(name)})

    return {name: asking(name) for name in NAMES}


def numbers(name: str) -> dict[str, Any]:
    """A reply of all that can be added up, of other numbers for each name."""
    rng = np.random.default_rng(ord(name))
    index = np.flatnonzero(rng.random(9) < 0.5)
    return {
        "documents": int(rng.integers(1, 2**40)),
        "loss": float(rng.normal() * 1e9),
        "x": rng.normal(size=(3, 2)).astype(np.float32),
        "exact": rng.normal(size=4) * 10.0 ** rng.integers(-9, 9),
        "counts": rng.integers(0, 2**50, 3),
        "rows": Rows(index, rng.normal(size=(len(index), 3)).astype(np.float32), 9),
        "words": Named(sorted({name, "oak"}), np.ones((2, 3), np.int64)),
        "map": {"deep": {"y": np.array(rng.normal())}},
        "sparse": np.where(np.arange(5000)[:, None] % 99 == ord(name), rng.normal(), 0.0),
    }


def test_call_gives_each_ones_reply_by_name(execute: Execute) -> None:
    replies = execute(of_each(numbers), lambda clients: clients.call("ask"))
    assert list(replies) == ["a", "b", "c"]
    for name, reply in replies.items():
        assert_same(reply, numbers(name))


def test_sum_is_that_of_all_replies_to_the_bit(execute: Execute) -> None:
    expected = add_up({name: numbers(name) for name in NAMES})
    for found in execute(of_each(numbers), lambda clients: [clients.sum("ask") for _ in range(2)]):
        assert_same(found, expected)


PAYLOADS = {
    "nothing": None,
    "truths": [True, False],
    "integers": [0, -1, 2**31, -(2**40), 2**63 - 1, -(2**63)],
    "numbers": [1 / 3, -0.0, 5e-324, 1e308],
    "texts": ["Größe", "naïve", "日本", "oak"],
    "empty": [],
    "mixed": [1, "two", None, [3.0, []]],
    "map": {"z": 1, "a": {"y": [], "b": {}}, "ä": None},
    **{f"array of {d}": np.arange(6).reshape(2, 3).astype(d) for d in DTYPES},
    "number array": np.array(2.5),
    "empty array": np.zeros((0, 3), np.float32),
    "some rows": Rows(np.array([1, 4]), np.ones((2, 3), np.float32), 6),
    "no rows": Rows(np.zeros(0, np.int64), np.zeros((0, 3), np.float32), 6),
    "mostly zeros": np.where(np.arange(3000)[:, None] % 500 == 0, 1.5, [0.0, 0.0]),
    "long": np.arange(700_000, dtype=np.float64),  # several chunks
}


def test_replies_arrive_as_sent(execute: Execute) -> None:
    """And payloads, which do not travel, are those of the program."""
    halves = {name: Half({"echo": lambda **p: {**p, "documents": 1}}) for name in NAMES}
    replies = execute(halves, lambda clients: clients.call("echo", **PAYLOADS))
    for reply in replies.values():
        assert_same(reply, {**PAYLOADS, "documents": 1})


def test_every_half_hears_everything_once_and_in_order(execute: Execute) -> None:
    heard: dict[str, list[Any]] = {name: [] for name in NAMES}

    def hearing(name: str) -> Half:
        def hear(n: int, round: int = 0) -> dict[str, Any]:  # noqa: A002
            heard[name].append((n, round))
            return {"n": n, "documents": 1}

        return Half({"hear": hear})

    def program(clients: Any) -> None:
        clients.tell("hear", n=0)
        clients.sum("hear", n=1, round=1)
        clients.call("hear", {"n": COUNT, "documents": COUNT}, n=2, round=1)
        clients.round(2, lambda: [clients.sum("hear", n=n, round=2) for n in (3, 4)])

    execute({name: hearing(name) for name in NAMES}, program)
    assert heard == {name: [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2)] for name in NAMES}


def test_a_round_returns_its_result_and_whose_replies_counted(execute: Execute) -> None:
    def program(clients: Any) -> Any:
        def work() -> list[Any]:
            total = clients.sum("ask", round=3)
            return [total["documents"], list(clients.call("ask", round=3))]

        return clients.round(3, work)

    result, report = execute(of_each(numbers), program)
    assert result == [sum(numbers(name)["documents"] for name in NAMES), ["a", "b", "c"]]
    assert report["clients"] == ["a", "b", "c"]
    assert not report.get("missing")


def test_the_methods_own_errors_pass(execute: Execute) -> None:
    def program(clients: Any) -> Any:
        def work() -> None:
            clients.sum("ask", round=1)
            raise KeyError("the method's own")

        with pytest.raises(KeyError, match="the method's own"):
            clients.round(1, work)
        return clients.round(2, lambda: clients.sum("ask", round=2))[0]

    expected = add_up({name: numbers(name) for name in NAMES})
    assert_same(execute(of_each(numbers), program), expected)


@pytest.mark.parametrize(
    "error", [DataError("no document is left."), PolicyError("not allowed."), OSError("north.csv")]
)
@pytest.mark.parametrize("engine", ["local", "hub"])
def test_what_a_client_refuses_is_not_added_up(engine: str, error: Exception) -> None:
    """In one process the error is everyone's; over a network the others go on without it."""

    def refuse(**_: Any) -> dict[str, Any]:
        raise error

    asked = of_each(numbers) | {"b": Half({"ask": refuse})}
    if engine == "local":
        with pytest.raises(type(error), match=str(error)):
            LocalClients({name: door(name, half) for name, half in asked.items()}).sum("ask")
        return

    def program(clients: Any) -> Any:
        return clients.round(1, lambda: clients.sum("ask", round=1))

    with federation() as f:
        work = f.lead(program)
        members = {name: f.member(name, half, program) for name, half in asked.items()}
        result, report = work.result()
        assert_same(result, add_up({name: numbers(name) for name in ("a", "c")}))
        assert report["clients"] == ["a", "c"]
        assert list(report["missing"]) == ["b"]
        assert str(error) not in report["missing"]["b"]
        assert isinstance(members["b"].work.error(), FedTopicsError)


# gFedNTM, in one process
