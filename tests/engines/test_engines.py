"""One contract for all engines: the same method gives the same result through each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.local import LocalClients
from fedtopics.engines.values import DTYPES
from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.methods.aggregation import Rows, RunningSum
from fedtopics.methods.base import Clients
from tests.helpers.carriers import carried
from tests.helpers.federation import assert_same, assert_same_bits, embedded, study, subjects
from tests.helpers.grpc_federation import Half, answering, door, federated
from tests.helpers.sums import add_up

Connect = Callable[[Mapping[str, Half]], Clients]
NAMES = ("b", "a", "c")  # not in their order


@pytest.fixture(params=["local", "grpc", "messages"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Return what brings clients together, whichever engine it is."""
    with ExitStack() as stack:

        def local(halves: Mapping[str, Half]) -> Clients:
            return LocalClients({name: door(name, half) for name, half in halves.items()})

        def grpc(halves: Mapping[str, Half]) -> Clients:
            return stack.enter_context(answering(halves)).clients

        def messages(halves: Mapping[str, Half]) -> Clients:
            return stack.enter_context(carried(halves))

        yield {"local": local, "grpc": grpc, "messages": messages}[request.param]


def halves(**functions: Callable[..., dict[str, Any]]) -> dict[str, Half]:
    return {name: Half(functions) for name in NAMES}


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
        "map": {"deep": {"y": np.array(rng.normal())}},
        "sparse": np.where(np.arange(5000)[:, None] % 99 == ord(name), rng.normal(), 0.0),
    }


def test_names_are_sorted(connect: Connect) -> None:
    assert list(connect(of_each(numbers)).names) == ["a", "b", "c"]


def test_call_gives_each_ones_reply_by_name(connect: Connect) -> None:
    replies = connect(of_each(numbers)).call("ask")
    assert list(replies) == ["a", "b", "c"]
    for name, reply in replies.items():
        assert_same(reply, numbers(name))


def test_sum_is_that_of_all_replies_to_the_bit(connect: Connect) -> None:
    clients = connect(of_each(numbers))
    expected = add_up({name: numbers(name) for name in NAMES})
    for _ in range(2):
        assert_same(clients.sum("ask"), expected)
    assert_same(clients.prepare("ask"), expected)


def test_a_single_client(connect: Connect) -> None:
    clients = connect({"a": of_each(numbers)["a"]})
    assert list(clients.names) == ["a"]
    assert_same(clients.sum("ask"), numbers("a"))
    assert_same(clients.call("ask"), {"a": numbers("a")})


PAYLOADS = {
    "nothing": None,
    "truths": [True, False],
    "integers": [0, -1, 2**31, -(2**40), 2**63 - 1, -(2**63)],
    "numbers": [1 / 3, -0.0, 5e-324, 1e308],
    "texts": ["Größe", "naïve", "日本", "🦆🌳", ""],
    "empty": [],
    "mixed": [1, "two", None, [3.0, []]],
    "map": {"z": 1, "a": {"y": [], "b": {}}, "ä": None},
    **{f"array of {d}": np.arange(6).reshape(2, 3).astype(d) for d in DTYPES},
    "number array": np.array(2.5),
    "empty array": np.zeros((0, 3), np.float32),
    "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "some rows": Rows(np.array([1, 4]), np.ones((2, 3), np.float32), 6),
    "no rows": Rows(np.zeros(0, np.int64), np.zeros((0, 3), np.float32), 6),
    "mostly zeros": np.where(np.arange(3000)[:, None] % 500 == 0, 1.5, [0.0, 0.0]),
    "long": np.arange(700_000, dtype=np.float64),  # several chunks
}


def test_payloads_arrive_as_sent(connect: Connect) -> None:
    seen: list[dict[str, Any]] = []

    def echo(**payload: Any) -> dict[str, Any]:
        seen.append(payload)
        return {**payload, "documents": 1}

    replies = connect(halves(echo=echo)).call("echo", **PAYLOADS)
    assert len(seen) == 3
    for payload in seen:
        assert_same(payload, PAYLOADS)
    for reply in replies.values():
        assert_same(reply, {**PAYLOADS, "documents": 1})


def test_every_client_hears_every_call_once_and_in_order(connect: Connect) -> None:
    heard: dict[str, list[Any]] = {name: [] for name in NAMES}

    def hearing(name: str) -> Half:
        def hear(n: int, round: int = 0) -> dict[str, Any]:  # noqa: A002
            heard[name].append((n, round))
            return {"n": n, "documents": 1}

        return Half({"hear": hear})

    clients = connect({name: hearing(name) for name in NAMES})
    clients.prepare("hear", n=0)
    clients.sum("hear", n=1, round=1)
    clients.call("hear", {"n": (), "documents": ()}, n=2, round=1)
    clients.round(2, lambda: [clients.sum("hear", n=n, round=2) for n in (3, 4)])
    assert heard == {name: [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2)] for name in NAMES}


def test_a_round_returns_its_result_and_whose_replies_counted(connect: Connect) -> None:
    clients = connect(of_each(numbers))

    def work() -> tuple[Any, Any]:
        return clients.sum("ask", round=3)["documents"], list(clients.call("ask", round=3))

    result, report = clients.round(3, work)
    assert result == (sum(numbers(name)["documents"] for name in NAMES), ["a", "b", "c"])
    assert report["clients"] == ["a", "b", "c"]
    assert not report.get("missing")


def test_a_result_may_be_any_object(connect: Connect) -> None:
    result = object()
    assert connect(of_each(numbers)).round(1, lambda: result)[0] is result


def test_the_methods_own_errors_pass(connect: Connect) -> None:
    clients = connect(of_each(numbers))

    def work() -> None:
        clients.sum("ask", round=1)
        raise KeyError("the method's own")

    with pytest.raises(KeyError, match="the method's own"):
        clients.round(1, work)
    assert clients.round(2, lambda: clients.sum("ask", round=2)["loss"])[0] == pytest.approx(
        sum(numbers(name)["loss"] for name in NAMES)
    )


@pytest.mark.parametrize(
    "error", [DataError("no document is left."), PolicyError("not allowed."), OSError("north.csv")]
)
def test_what_a_client_refuses_is_not_added_up(connect: Connect, error: Exception) -> None:
    """In one process the error is everyone's; over a network the others go on without it."""

    def refuse(**_: Any) -> dict[str, Any]:
        raise error

    asked = of_each(numbers)
    asked["b"] = Half({"ask": refuse})
    clients = connect(asked)
    if isinstance(clients, LocalClients):
        with pytest.raises(type(error)) as found:
            clients.sum("ask")
        assert str(error) in str(found.value)
        return
    expected = add_up({name: numbers(name) for name in ("a", "c")})
    result, report = clients.round(1, lambda: clients.sum("ask", round=1))
    assert_same(result, expected)
    assert report["clients"] == ["a", "c"]
    assert list(report["missing"]) == ["b"]
    assert str(error) not in report["missing"]["b"]


# gFedNTM through both

SIZES = {"east": 60, "north": 40, "south": 25}

METHODS = {
    "sync": {"norm": "sync"},
    "sync, float64": {"norm": "sync", "precision": "float64"},
    "sync, validated": {"norm": "sync", "validation_share": 0.25, "validate_every": 4},
    "server": {"norm": "server"},
    "server, float64": {"norm": "server", "precision": "float64"},
    "local": {"norm": "local"},
    "local steps": {"norm": "server", "optimizer": "fedadam", "local_steps": 3},
    "local steps and norms": {"norm": "local", "optimizer": "fedavg", "local_steps": 2},
    "neurallda": {"network": "neurallda"},
    "neurallda, server": {"network": "neurallda", "norm": "server"},
    "combinedtm": {"network": "combinedtm"},
    "zeroshottm": {"network": "zeroshottm"},
    "zeroshottm, no coherence": {"network": "zeroshottm", "coherence": "nothing"},
}


@pytest.mark.parametrize("case", ["sync, float64", "server, float64"])
def test_the_place_of_numbers_in_memory_changes_no_bit(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matrix products depend on it; over a network arrays lie elsewhere than in one process."""
    plan, corpora = study(max_rounds=5, **METHODS[case]), subjects(SIZES)
    models = []
    for shift in (0, 8, 48):

        def moved(value: Any, by: int = shift) -> Any:
            if isinstance(value, dict):
                return {name: moved(entry) for name, entry in value.items()}
            if not isinstance(value, np.ndarray) or not value.size:
                return value
            room = np.zeros(value.nbytes + 128, np.uint8)
            start = -room.ctypes.data % 64 + by
            there = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
            there[...] = value
            return there

        def call(
            self: Door, function: str, payload: Any, move: Any = moved, ask: Any = Door.call
        ) -> Any:
            return ask(self, function, move(payload))

        def total(self: RunningSum, move: Any = moved, add: Any = RunningSum.total) -> Any:
            return move(add(self))

        with monkeypatch.context() as patch:
            patch.setattr(Door, "call", call)
            patch.setattr(RunningSum, "total", total)
            models.append(train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY)))
    for model in models[1:]:
        assert_same_bits(model, models[0])


@pytest.mark.parametrize("case", METHODS)
def test_gfedntm_has_the_same_bits(case: str, tmp_path: Any) -> None:
    plan, corpora = study(max_rounds=10, **METHODS[case]), embedded(subjects(SIZES))
    events: list[dict[str, Any]] = []
    policies = dict.fromkeys(SIZES, OPEN_POLICY)
    here = train(plan, corpora, policies=policies, on_event=events.append)
    there = federated(plan, corpora, tmp_path)

    assert there.model.weights.keys() == here.weights.keys()
    assert_same_bits(there.model, here)
    assert there.model.topics() == here.topics()
    assert there.model.info == here.info
    for name, shares in here.shares.items():
        assert_same(there.model.shares[name], shares)
    for kind, fields in (("round", ("loss", "documents")), ("validation", ("loss",))):
        assert [[e[f] for f in fields] for e in there.events if e["event"] == kind] == [
            [e[f] for f in fields] for e in events if e["event"] == kind
        ]
    assert all(
        event["clients"] == sorted(SIZES) and event["attempts"] == 1
        for event in there.events
        if event["event"] == "round"
    )
