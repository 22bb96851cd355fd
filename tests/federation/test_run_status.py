"""How a run stands, by its events."""

from __future__ import annotations

from typing import Any

from fedtopics.federation.run_status import RunStatus, Standing

NAMES = "north", "south"
ROUND = {
    "event": "round", "clients": ["north"], "missing": {"south": "was late"}, "seconds": 2.0,
    "documents": 5, "bytes_sent": 100, "bytes_received": 10,
}  # fmt: skip


def status(*events: dict[str, Any]) -> RunStatus:
    found = RunStatus({name: Standing() for name in NAMES})
    for event in events:
        found.take(event)
    return found


def here(found: RunStatus) -> list[str]:
    return [name for name, client in found.clients.items() if client.here]


BEGUN = (
    {"event": "started", "study": "f", "time": 100.0},
    {"event": "study", "name": "trees", "settings": {"method.name": "lda"}, "time": 100.0},
)
TRAINING = {"event": "training", "done": 0, "rounds": 10, "time": 100.0}


def test_rounds_seconds_and_bytes() -> None:
    found = status(
        *BEGUN, TRAINING, ROUND | {"round": 1, "time": 102.0}, ROUND | {"round": 2, "time": 106.0}
    )
    assert found.plain() == {
        "study": "trees", "method": "lda", "state": "training", "trouble": "", "round": 2,
        "rounds": 10, "seconds_a_round": 2.0, "seconds_left": 16.0, "bytes_sent": 200,
        "bytes_received": 20, "voided": 0, "repeated": 0, "updated": 106.0,
        "clients": {
            "north": {"here": True, "state": "in the last round", "rounds": 2, "refused": 0},
            "south": {
                "here": False, "state": "not in the last round: was late", "rounds": 0, "refused": 0
            },
        },
    }  # fmt: skip
    assert found.lines(True, 112.0) == [
        "trees: training", "round 2 of 10, 2.00 s a round, at most 16 s left",
        "the last news is 6 s old",
    ]  # fmt: skip
    assert found.lines(False, 112.0)[1:] == [
        "round 2 of 10, 2.00 s a round", "the last news is 6 s old",
        "no process works with it now; the same command goes on, a server's with --resume",
    ]  # fmt: skip


def test_who_is_there() -> None:
    found = status(*BEGUN, {"event": "waiting", "round": 0, "clients": [], "missing": {
        "north": "not connected", "south": "not connected"}})  # fmt: skip
    assert here(found) == []
    assert found.trouble == "round 0 waits for north, south"
    for client in NAMES:
        found.take({"event": "joined", "client": client, "reason": ""})
        found.take({"event": "ready", "client": client, "reason": ""})
    assert (here(found), found.trouble) == (["north", "south"], "")
    found.take({"event": "lost", "client": "north", "reason": ""})
    found.take({"event": "declined", "client": "south", "reason": "too few clients"})
    assert {name: c.state for name, c in found.clients.items()} == {
        "north": "not connected", "south": "declined: too few clients",
    }  # fmt: skip
    found.take({"event": "bad reply", "client": "north", "round": 1, "reason": "x"})
    found.take({"event": "excluded", "client": "north", "round": 1, "reason": "x"})
    assert found.clients["north"].refused == 2
    assert here(found) == []


def test_strangers_are_not_named() -> None:
    """What others call themselves, to be let in, is no client of the study."""
    found = status(*BEGUN)
    for kind in ("joined", "ready", "refused", "bad reply", "lost"):
        found.take({"event": kind, "client": "evil{}", "reason": "no such client", "round": 1})
    found.take(ROUND | {"round": 1, "clients": ["evil{}"], "missing": {"evil{}": "x"}})
    assert found.clients.keys() == {*NAMES}
    assert "evil" not in str(found.plain())


def test_what_goes_wrong_is_counted() -> None:
    found = status(
        {"event": "voided", "round": 1, "reason": "x"},
        {"event": "repeated", "round": 1, "missing": {}},
        {"event": "repeated", "round": 2, "missing": {}},
    )
    assert (found.voided, found.repeated) == (1, 2)


def test_a_client_that_lost_its_server() -> None:
    client = RunStatus()
    client.take({"event": "reconnecting", "reason": "The server is away", "seconds": 1.0})
    assert client.trouble == "The server is away"


def test_the_end() -> None:
    found = status(*BEGUN, TRAINING, ROUND | {"round": 1, "time": 102.0})
    found.take({"event": "stopped", "round": 1, "reason": "tolerance", "time": 102.0})
    assert found.plain()["seconds_left"] is None
    assert "stopped after round 1: tolerance" in found.lines(True, 102.0)
    found.take({"event": "finished", "time": 103.0})
    assert found.lines(False, 103.0)[0] == "trees: finished: the model is there"
    found.take({"event": "resumed", "study": "f", "begun": 100.0, "time": 104.0})
    assert (found.state, here(found), found.round) == ("waiting", [], 0)
