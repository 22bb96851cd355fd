"""A run is followed by its folder, while another process works with it and afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import RunError
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.run_status import SHOWN, RunReading, read_run
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.model.shown_words import USUAL
from tests.helpers.bounded import planned as with_noise
from tests.helpers.bounded import themed
from tests.helpers.federation import KilledError, embedded, subjects
from tests.helpers.methods import POLICIES, SIZES, planned

CORPORA = embedded(subjects(SIZES))


def cut(plan: Study, rounds: int) -> Study:
    method = plan.method.model_copy(update={"max_rounds": rounds})
    return plan.model_copy(update={"method": method, "checkpoint_every": 1})


def kill(event: dict[str, Any]) -> None:
    if event["event"] == "round" and event["round"] == 4:
        raise KilledError


def killed(case: str, folder: Path) -> RunReading:
    """A run that ended in round 4, behind the checkpoint of round 3."""

    with pytest.raises(KilledError):
        train(cut(planned(case, None), 6), CORPORA, out=folder, policies=POLICIES, on_event=kill)
    return read_run(folder)


@pytest.mark.parametrize("case", ["lda", "nmf", "gfedntm", "mixture"])
def test_topics_as_they_form(case: str, tmp_path: Path) -> None:
    """Those of the newest state, read as topics of a model with that state would be."""
    run = killed(case, tmp_path)
    model = train(cut(planned(case, None), 3), CORPORA, policies=POLICIES)
    expected = model.read(USUAL, SHOWN)
    assert run.topics == expected
    assert run.title == "Topics after round 3, as they form"
    found = run.plain()
    assert (found["topics"], found["topics_of_round"]) == (expected, 3)
    assert (found["state"], found["round"], found["rounds"]) == ("training", 4, 6)
    assert found["clients"].keys() == SIZES.keys()
    assert found["running"] is False


def test_clusters_have_none_until_the_end(tmp_path: Path) -> None:
    run = killed("discriminative", tmp_path / "half")
    assert run.topics == ()
    assert "they come with the model" in run.title
    whole = cut(planned("kmeans", None), 3)
    model = train(whole, CORPORA, out=tmp_path / "whole", policies=POLICIES)
    ended = read_run(tmp_path / "whole")
    assert ended.status.state == "finished"
    by_size = [row["words"][:SHOWN] for row in model.get_topic_info()]
    assert ended.topics == by_size
    assert ended.plain()["topics_of_round"] is None


def test_sums_with_noise_are_no_topics_until_the_end(tmp_path: Path) -> None:
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    plan = with_noise("nmf", 8).model_copy(update={"checkpoint_every": 1})
    with pytest.raises(KilledError):
        train(plan, corpora, out=tmp_path, on_event=kill)
    found = read_run(tmp_path)
    assert found.topics == ()
    assert "they come with the model" in found.title


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "study1")
    next(run.rounds(0, 3))
    run.close()
    line = json.dumps({"event": "round", "round": 2, "seconds": 1.0, "documents": 1}).encode()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line[:20])
        file.flush()
        found = read_run(tmp_path)
        assert found.status.round == 0
        file.write(line[20:] + b"\n")
    assert read_run(tmp_path).status.round == 2


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no run in .*nowhere; name the folder of one"):
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
    with pytest.raises(RunError, match=r"events\.jsonl cannot be read as a run's events"):
        read_run(folder)
