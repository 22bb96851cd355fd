"""A run is followed by its folder, while another process works with it and afterwards."""

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Study, files, train, waiting
from fedtopics.contract.events import Finished, WaitsFor
from fedtopics.errors import FederationError, RunError
from fedtopics.federation.progress import recording
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.run_status import (
    NONE_YET,
    ClientStatus,
    RunStatus,
    read_run,
)
from fedtopics.model.shown_words import DEFAULT_RANKING, LINE_WORDS
from tests.helpers.federation import embedded, subjects, train_until_killed
from tests.helpers.methods import POLICIES, SIZES, planned
from tests.helpers.recipes import planned as with_noise
from tests.helpers.recipes import themed

CORPORA = embedded(subjects(SIZES))


def cut(plan: Study, rounds: int) -> Study:
    method = plan.method.model_copy(update={"max_rounds": rounds})
    return plan.model_copy(update={"method": method, "checkpoint_every": 1})


def killed(case: str, folder: Path) -> RunStatus:
    """A run that ended in round 4, behind the checkpoint of round 3."""
    train_until_killed(4, cut(planned(case, None), 6), CORPORA, out=folder, policies=POLICIES)
    return read_run(folder)


@pytest.mark.parametrize("case", ["lda", "nmf", "gfedntm", "mixture"])
def test_topics_as_they_form(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the newest state, as of a model with that state, but for a model's rounding."""
    for place in ("lda.method.rounded_by_word", "mixture.method.without_exact_sums"):
        monkeypatch.setattr(f"fedtopics.methods.{place}", lambda sums, _: sums)
    run = killed(case, tmp_path)
    model = train(cut(planned(case, None), 3), CORPORA, policies=POLICIES)
    expected = model.words_by(DEFAULT_RANKING, LINE_WORDS)
    assert (run.topics, run.title) == (expected, "Topics after round 3, not final yet")
    shown = run.plain()
    assert shown["clients"].keys() == SIZES.keys()
    of_state = {"state": "training", "round": 4, "rounds": 6, "running": False}
    assert shown == shown | of_state | {"topics": expected, "topics_of_round": 3}


def test_clusters_have_none_until_the_end(tmp_path: Path) -> None:
    run = killed("discriminative", tmp_path / "half")
    assert run.topics == ()
    assert "they come with the model" in run.title
    model = train(
        cut(planned("kmeans", None), 3), CORPORA, out=tmp_path / "whole", policies=POLICIES
    )
    ended = read_run(tmp_path / "whole")
    assert (ended.state, ended.plain()["topics_of_round"]) == ("finished", None)
    assert ended.topics == [row["words"][:LINE_WORDS] for row in model.get_topic_info()]


def test_sums_with_noise_are_no_topics_until_the_end(tmp_path: Path) -> None:
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    train_until_killed(
        4, with_noise("nmf", 8).model_copy(update={"checkpoint_every": 1}), corpora, out=tmp_path
    )
    reading = read_run(tmp_path)
    assert reading.topics == ()
    assert "they come with the model" in reading.title


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    with closing(RunFolder(tmp_path, "study1")) as run:
        next(run.rounds(0, 3))
    line = json.dumps({"event": "round", "round": 2, "seconds": 1.0, "documents": 1}).encode()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line[:20])
        file.flush()
        assert read_run(tmp_path).round == 0
        file.write(line[20:] + b"\n")
    assert read_run(tmp_path).round == 2


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no run in .*nowhere; name the folder of"):
        read_run(tmp_path / "nowhere")
    for damaged in (b"[]\n", b"{}\n", b'{"event": "round"}\n', b"\xff\n", b"1\n"):
        refused(tmp_path, damaged)


@pytest.mark.parametrize(
    "told",
    [
        {"event": "round", "time": "yesterday", "round": 1, "seconds": 1.0},
        {"event": "round", "round": 1, "seconds": float("nan")},
        {"event": "round", "round": 10**400, "seconds": 1.0},
        {"event": "training", "done": "a", "rounds": "b"},
        {"event": "listening", "clients": [5, None]},
        {"event": "waiting", "round": 1, "clients": [], "missing": {"north": 5}},
        {"event": "round", "round": 1, "seconds": 1.0, "topics": [{"words": [1]}]},
        {"event": "study", "name": ["months"], "settings": {}},
    ],
)
def test_events_that_nobody_can_show(told: dict[str, Any], tmp_path: Path) -> None:
    """Else the terminal, the page or JSON would fail over them, later."""
    refused(tmp_path, json.dumps(told).encode() + b"\n")


def refused(folder: Path, events: bytes) -> None:
    (folder / "events.jsonl").write_bytes(events)
    with pytest.raises(RunError, match=r"events\.jsonl is damaged; correct it"):
        read_run(folder)


def test_a_check_for_monitoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Working, waiting for too long, frozen, killed, failed, finished."""
    monkeypatch.setattr(waiting, "HEARTBEAT", 0.1)

    def checked() -> tuple[int, str]:
        return read_run(tmp_path).check(900.0, time.time())

    run = RunFolder(tmp_path, "study1")
    next(run.rounds(0, 3))
    with files.hold(tmp_path):
        assert checked() == (0, "OK: training; round 0 of 3; last event 0 s ago")
        run.event(WaitsFor({"south": "no call for 50 s"}, 1000.0, None))
        assert checked()[1].startswith("LATE: training; round 0 of 3; waits for south: the run")
        with monkeypatch.context() as frozen:
            frozen.setattr(waiting, "SILENT", -1.0)
            assert "its process is frozen: no sign of life for 0 s; end it" in checked()[1]
        run.event(WaitsFor({}, 0.0, None))
        assert checked()[0] == 0
        run.close()  # as other machines see a network folder that does not show them the lock
        assert checked()[0] == 0
    assert checked()[1].endswith(
        "; no process works on the run; start the same command again to resume it"
    )
    run = RunFolder(tmp_path, "study1", resume=True)
    with closing(run), pytest.raises(FederationError), recording(run.event):
        raise FederationError("The server is away; start it.")
    assert checked()[1].startswith(
        "DOWN: failed; The server is away; start it. After that, the same command resumes the run.;"
    )
    with closing(RunFolder(tmp_path, "study1", resume=True)) as run:
        run.event(Finished())
    assert checked()[0] == 0


NAMES = "north", "south"
ROUND = {
    "event": "round",
    "clients": ["north"],
    "missing": {"south": "was late"},
    "seconds": 2.0,
    "documents": 5,
    "bytes_sent": 100,
    "bytes_received": 10,
}


def status(*events: dict[str, Any]) -> RunStatus:
    current = RunStatus({name: ClientStatus() for name in NAMES})
    for event in events:
        current.take(event)
    return current


def here(found: RunStatus) -> list[str]:
    return [name for name, client in found.clients.items() if client.here]


BEGUN = (
    {"event": "started", "study": "f", "time": 100.0},
    {"event": "study", "name": "trees", "settings": {"method.name": "lda"}, "time": 100.0},
)
TRAINING = {"event": "training", "done": 0, "rounds": 10, "time": 100.0}


def test_rounds_seconds_and_bytes() -> None:
    current = status(
        *BEGUN, TRAINING, ROUND | {"round": 1, "time": 102.0}, ROUND | {"round": 2, "time": 106.0}
    )
    assert current.plain() == {
        "study": "trees",
        "method": "lda",
        "state": "training",
        "trouble": "",
        "round": 2,
        "rounds": 10,
        "seconds_a_round": 2.0,
        "seconds_left": 16.0,
        "bytes_sent": 200,
        "bytes_received": 20,
        "repeated": 0,
        "refusals": 0,
        "updated": 106.0,
        "clients": {
            "north": {"here": True, "state": "in the last round", "rounds": 2, "bad": 0},
            "south": {
                "here": False,
                "state": "not in the last round: was late",
                "rounds": 0,
                "bad": 0,
            },
        },
        "running": None,
        "silent": None,
        "topics": (),
        "topics_of_round": None,
        "no_topics": NONE_YET,
    }
    assert replace(current, running=True).lines(112.0) == [
        "trees: training",
        "round 2 of 10, 2.00 s per round, at most 16 s left",
        "last event 6 s ago",
    ]
    assert replace(current, running=False).lines(112.0)[1:] == [
        "round 2 of 10, 2.00 s per round",
        "last event 6 s ago",
        "no process works on the run; start the same command again to resume it",
    ]


def test_who_is_there() -> None:
    current = status(
        *BEGUN,
        {
            "event": "waiting",
            "round": 0,
            "clients": [],
            "missing": {"north": "not connected", "south": "not connected"},
            "left": 90.0,
        },
    )
    assert here(current) == []
    assert current.trouble == (
        "round 0 waits for north, south: after 90 s a quorum continues without them"
    )
    for client in NAMES:
        current.take({"event": "joined", "client": client, "reason": ""})
    assert (here(current), current.trouble) == (["north", "south"], "")
    current.take({"event": "lost", "client": "north", "reason": ""})
    current.take({"event": "declined", "client": "south", "reason": "too few clients"})
    assert {name: c.state for name, c in current.clients.items()} == {
        "north": "not connected",
        "south": "declined: too few clients",
    }
    current.take({"event": "bad reply", "client": "north", "round": 1, "reason": "x"})
    current.take({"event": "excluded", "client": "north", "round": 1, "reason": "x"})
    assert (here(current), current.clients["north"].bad) == ([], 2)


def test_strangers_are_not_named() -> None:
    """What others call themselves, to be let in, is no client of the study."""
    current = status(*BEGUN)
    for kind in ("joined", "declined", "bad reply", "lost"):
        current.take({"event": kind, "client": "evil{}", "reason": "no such client", "round": 1})
    current.take(ROUND | {"round": 1, "clients": ["evil{}"], "missing": {"evil{}": "x"}})
    assert current.clients.keys() == {*NAMES}
    assert "evil" not in str(current.plain())


def test_what_goes_wrong() -> None:
    current = status(
        {"event": "repeated", "round": 1, "missing": {}},
        {"event": "repeated", "round": 2, "missing": {}},
        {"event": "reconnecting", "reason": "The server is away", "seconds": 1.0},
    )
    assert (current.repeated, current.trouble) == (2, "The server is away")


def test_the_end() -> None:
    current = status(*BEGUN, TRAINING, ROUND | {"round": 1, "time": 102.0})
    current.take({"event": "stopped", "round": 1, "reason": "tolerance", "time": 102.0})
    assert current.plain()["seconds_left"] is None
    assert "stopped after round 1: tolerance" in replace(current, running=True).lines(102.0)
    current.take({"event": "finished", "time": 103.0})
    assert replace(current, running=False).lines(103.0)[0] == "trees: finished: the model is there"
    current.take({"event": "resumed", "study": "f", "begun": 100.0, "time": 104.0})
    assert (current.state, here(current), current.round) == ("finished", ["north"], 1)
