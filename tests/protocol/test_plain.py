"""Plain aggregation over a loopback: totals, absent clients, kills, refusals."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import waiting
from fedtopics.errors import FederationError, PolicyError, RunError
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.outliers import Rule
from fedtopics.protocol.plain import PlainAnswer, PlainAsk, PlainReply
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_rounds import Rounds
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.values import dumps, loads
from tests.helpers.background import until
from tests.protocol.plain_scene import NAMES, ROUNDS, Scene, here, rules_of

LATE = "it was away, or too late"


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name, seconds in {"ASK_HELD": 0.2, "NO_NEWS": 0.01, "FIRST_RETRY": 0.02}.items():
        monkeypatch.setattr(waiting, name, seconds)
    made = Scene(tmp_path, rules_of(3, 20, 20, 20))
    yield made
    made.close()


def models(scene: Scene, names: Sequence[str] = NAMES) -> list[Any]:
    return [background.result(30) for background in [scene.serve(), *map(scene.join, names)]]


def assert_bits(found: Sequence[Any], expected: Any) -> None:
    assert [model.tobytes() for model in found] == [expected.tobytes()] * len(found)


def members(scene: Scene) -> list[list[str]]:
    return [report["clients"] for report in scene.reports]


def slowly(seconds: float, when: Callable[[str], bool] = lambda function: True) -> Any:
    def change(function: str, reply: Any) -> Any:
        if when(function):
            time.sleep(seconds)
        return reply

    return change


@pytest.mark.parametrize("rule", ["none", "clip", "median"])
def test_the_model_has_the_bits_of_one_process(scene: Scene, rule: Rule) -> None:
    scene.rules = rules_of(3, 20, 20, 20, rule)
    assert_bits(models(scene), here(NAMES, rule=rule))
    assert members(scene) == [list(NAMES)] * ROUNDS
    assert not any(report["missing"] for report in scene.reports)
    assert (rule == "none") == (here(NAMES).tobytes() == here(NAMES, rule=rule).tobytes())


def test_a_round_goes_on_without_a_client_that_is_away(scene: Scene) -> None:
    scene.rules = rules_of(2, 0.3, 20, 20)
    assert_bits(models(scene, NAMES[:2]), here(NAMES[:2]))
    assert {report["missing"]["south"] for report in scene.reports} == {"not connected"}
    assert "waiting" in scene.kinds()


@pytest.mark.parametrize("function", ["first", "second"])
def test_a_client_that_is_late_is_lost_and_comes_back(scene: Scene, function: str) -> None:
    scene.rules = rules_of(2, 20, 20, 0.5)
    may_go_on = threading.Event()

    def late(called: str, reply: Any) -> Any:
        if called == function and len(scene.doors["south"].calls) in (4, 5):  # round 2
            may_go_on.wait(20)
        return reply

    def slow(called: str, reply: Any) -> Any:
        if len(scene.reports) == 3:
            may_go_on.set()
            time.sleep(0.2)
        return reply

    scene.doors["south"].change = late
    scene.doors["north"].change = slow
    trained = models(scene)
    two = list(NAMES[:2])
    is_repeated = function == "second"
    assert ("repeated" in scene.kinds()) == is_repeated
    assert [report["attempts"] for report in scene.reports[:2]] == [1, 1 + is_repeated]
    assert members(scene) == [list(NAMES), two, two, two, list(NAMES)]
    assert scene.reports[1]["missing"] == {"south": LATE}
    assert_bits(trained, here(NAMES, two, two, two, NAMES))


def test_a_lost_client_is_taken_back_if_the_quorum_needs_it(scene: Scene) -> None:
    scene.rules = rules_of(3, 20, 20, 0.4)
    once = iter([True])
    scene.doors["south"].change = slowly(0.8, lambda name: name == "second" and next(once, False))
    assert_bits(models(scene), here(NAMES))
    assert [report["attempts"] for report in scene.reports] == [2, 1, 1, 1, 1]
    assert not scene.reports[0]["missing"]


def test_a_client_that_is_always_late_ends_a_run_that_needs_it(scene: Scene) -> None:
    scene.rules = rules_of(3, 20, 0.3, 0.1)
    scene.doors["south"].change = slowly(0.15)
    server = scene.serve()
    assert all(map(scene.join, NAMES))
    with pytest.raises(FederationError, match=r"Round \d has fewer than quorum = 3 clients \(east"):
        server.result(20)


def test_too_few_clients_end_the_server_with_a_sentence(scene: Scene) -> None:
    scene.rules = rules_of(3, 0.1, 0.1, 20)
    scene.timeout = 0.1
    server = scene.serve()
    client = scene.join("east")
    states = "east: connected; north: not connected; south: not connected"
    with pytest.raises(FederationError, match=states):
        server.result(20)
    with pytest.raises(FederationError, match=r"answer for 0 seconds: It is away; start the same"):
        client.result(20)


def test_clients_that_compute_are_not_away(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AWAY", -1.0)
    monkeypatch.setattr(scene.doors["south"], "write_total", lambda *what: time.sleep(0.05))
    scene.rules = rules_of(2, 20, 20, 20)
    assert_bits(models(scene), here(NAMES))


def test_a_client_says_for_whom_it_waits(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "UNSAID_WAIT", 0.3)
    running = [scene.serve(), scene.join("east")]
    until(lambda: "waits for" in scene.kinds())
    event = next(e for e in map(vars, scene.events) if "seconds" in e and "clients" in e)
    assert event["clients"] == {"north": "not connected", "south": "not connected"}
    assert event["seconds"] > 0.3
    assert scene.service is not None
    assert scene.service.there() == ["east"]
    running += map(scene.join, NAMES[1:])
    assert_bits([background.result(20) for background in running], here(NAMES))


def test_a_client_with_bad_replies_is_excluded(scene: Scene) -> None:
    scene.rules = rules_of(2, 20, 20, 20)
    bad = {"x": np.full(3, math.nan)}
    scene.doors["south"].change = lambda called, reply: reply | bad if "x" in reply else reply
    server, east, _, south = scene.serve(), *map(scene.join, NAMES)
    with pytest.raises(FederationError, match="excluded south: 3 bad replies, the last: sent a ba"):
        south.result(20)
    assert_bits([server.result(20), east.result(20)], here(NAMES[:2]))
    assert [report["attempts"] for report in scene.reports] == [2, 2, 2, 1, 1]
    assert "NaN" in scene.reports[0]["missing"]["south"]
    assert {"bad reply", "excluded"} < scene.kinds()


@pytest.mark.parametrize(
    ("failure", "reason", "error"),
    [
        (PolicyError("The policy says no."), "its policy refuses", "The policy says no"),
        (ValueError("a text"), "its software has a defect", r"a defect \(ValueError in round 0\)"),
    ],
)
def test_nobody_waits_for_who_ends(
    scene: Scene, failure: Exception, reason: str, error: str
) -> None:
    scene.rules = rules_of(2, 20, 20, 20)

    def change(called: str, reply: Any) -> Any:
        raise failure

    scene.doors["south"].change = change
    server, east, _, south = scene.serve(), *map(scene.join, NAMES)
    with pytest.raises((FederationError, PolicyError), match=error):
        south.result(10)
    assert_bits([east.result(20), server.result(20)], here(NAMES[:2]))
    assert {report["missing"]["south"] for report in scene.reports} == {reason}


def ask(scene: Scene, step: int = 0, run: bytes = b"", phase: Any = "begin", least: int = 1) -> Any:
    assert scene.service is not None
    return decode(
        scene.service.ask("south", encode(PlainAsk("tiny", run, step, phase, least))), PlainAnswer
    )


def test_a_policy_that_requires_more_clients_leaves_a_client_out(scene: Scene) -> None:
    scene.rules = rules_of(2, 20, 20, 20)
    server = scene.serve()
    ask(scene, least=4)
    others = map(scene.join, NAMES[:2])
    assert_bits([background.result(20) for background in (server, *others)], here(NAMES[:2]))
    assert scene.reports[0]["missing"] == {"south": "its policy requires 4 clients"}


def test_another_study_is_refused(scene: Scene) -> None:
    scene.serve()
    with pytest.raises(FederationError, match="This member has large, the server has tiny; use th"):
        scene.join("east", "large").result(20)


@pytest.mark.parametrize(("step", "run"), [(0, b"another"), (3, b""), (99, None)])
def test_another_or_older_run_is_noticed(scene: Scene, step: int, run: bytes | None) -> None:
    scene.serve()
    assert scene.service is not None
    with pytest.raises(FederationError, match="folder belongs to another run"):
        ask(scene, step, scene.service.log.run if run is None else run)


def test_two_different_updates_are_refused(scene: Scene) -> None:
    running = [scene.serve(), *map(scene.join, NAMES[:2])]
    run = ask(scene).run
    scene.doors["north"].change = slowly(0.1)
    until(lambda: ask(scene, 1, run, "reply").what == "reply")
    assert scene.service is not None
    for _ in range(2):  # the same bytes again change nothing
        scene.service.say("south", encode(PlainReply(1, dumps({"documents": 50}))))
    with pytest.raises(FederationError, match="south sent two different updates of step 1"):
        scene.service.say("south", encode(PlainReply(1, dumps({"documents": 51}))))
    running.append(scene.join("south"))
    assert_bits([background.result(20) for background in running], here(NAMES))


def test_programs_that_differ_are_noticed(scene: Scene) -> None:
    scene.serve()
    scene.saved["south"].round = 1  # so it begins with a round, the others with a call
    *_, south = map(scene.join, NAMES)
    with pytest.raises(FederationError, match="At step 0, south expects 'round 2, attempt 1', and"):
        south.result(20)


@pytest.mark.parametrize("written", [0, 1, 50, 1 << 40], ids=["none", "head", "half", "all"])
def test_a_killed_server_resumes(scene: Scene, written: int) -> None:
    scene.kill_at = dict.fromkeys((0, 1, 3, 7, 8, 9, 13, 1 + 3 * ROUNDS), written)
    assert_bits(models(scene), here(NAMES))
    assert not scene.kill_at
    assert not any(report["missing"] for report in scene.reports)


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("first", range(4))
def test_killed_clients_resume(scene: Scene, first: int, arrives: bool) -> None:
    for number, link in enumerate(scene.links.values()):
        numbers = (first + 4 * number + call for call in (0, 9, 17, 25, 41, 62, 83))
        link.kill_at = dict.fromkeys(numbers, arrives)
    scene.kill_at = {4: 60, 11: 1 << 40}
    assert_bits(models(scene), here(NAMES))
    assert sum(len(door.calls) for door in scene.doors.values()) > 3 * (1 + 2 * ROUNDS)
    assert not any(report["missing"] for report in scene.reports)


def test_a_client_that_was_away_for_long_gets_the_checkpoint(scene: Scene) -> None:
    scene.rules = rules_of(2, 0.2, 20, 20)
    may_end = threading.Event()
    scene.doors["east"].change = lambda called, reply: (
        may_end.wait(20) if len(scene.doors["east"].calls) == 10 else None,
        reply,
    )[1]
    running = [scene.serve(), *map(scene.join, NAMES[:2])]
    until(lambda: len(scene.doors["east"].calls) == 10)  # in the last round
    running.append(scene.join("south"))
    until(lambda: scene.saved["south"].round == 4)
    may_end.set()
    assert_bits([background.result(20) for background in running], here(NAMES[:2]))
    assert not scene.doors["south"].calls


def test_a_server_that_lost_a_log_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.kill_at = {8: 0}
    server = scene.server

    def without_log() -> Any:
        if scene.saved["server"].round:
            scene.folder = scene.folder / "another"
            scene.folder.mkdir()
        return server()

    monkeypatch.setattr(scene, "server", without_log)
    scene.serve()
    for client in [scene.join(name) for name in NAMES]:
        with pytest.raises(FederationError, match="folder belongs to another run"):
            client.result(20)


def entries(log: Log, steps: range) -> list[bytes | None]:
    return [log.get(step) for step in steps]


def test_a_log_forgets_what_is_before_the_last_checkpoint(tmp_path: Path) -> None:
    log = Log(tmp_path, 0)
    for number in range(6):
        log.append(b"%d" % number)
        if number in (1, 3, 5):
            log.cut()
    log.cut()
    assert (log.next, entries(log, range(7))) == (6, [None] * 4 + [b"4", b"5", None])
    run = log.run
    for number in (6, 7):
        log = Log(tmp_path, 6)
        assert (log.run, log.next, log.get(5)) == (run, number, b"5")
        log.append(b"more")
    assert entries(log, range(4, 9)) == [b"4", b"5", b"more", b"more", None]
    assert Log(tmp_path, 99).next == 99
    server = PlainServer(
        names=NAMES, software="", log=log, largest=1, state=bytes, notify=lambda _: None
    )
    with pytest.raises(RunError, match="The log lacks step 2 of this run; restore the whole"):
        Rounds(server, rules_of(1, 1, 1, 1), 1, lambda _: None)._written(2)


@pytest.mark.parametrize("damage", ["cut", "changed", "more"])
def test_the_damaged_end_of_a_log_is_cut_off(tmp_path: Path, damage: str) -> None:
    log = Log(tmp_path, 0)
    for number in range(3):
        log.append(b"entry %d" % number)
    path = max(tmp_path.glob("*.entry"))
    content = path.read_bytes()
    path.write_bytes(
        {"cut": content[:-1], "changed": content[:-1] + b"x", "more": content + b"x" * 50}[damage]
    )
    log = Log(tmp_path, 0)
    assert log.next == 2
    log.append(b"further")
    assert entries(Log(tmp_path, 0), range(1, 4)) == [b"entry 1", b"further", None]


def test_totals_may_be_larger_than_a_structure(tmp_path: Path) -> None:
    server = PlainServer(
        names=NAMES,
        software="",
        log=Log(tmp_path, 0),
        largest=1,
        state=bytes,
        notify=lambda _: None,
    )
    content = server.publish({"name": "sum", "result": {"x": np.ones(3_000_000)}})
    assert loads(server.fetch("east", b"entry 0"))["result"]["x"].sum() == 3_000_000
    assert server.fetch("east", b"entry 0") == content
