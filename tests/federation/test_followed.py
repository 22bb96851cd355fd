"""A run is followed by its folder, while another process works with it and afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import RunError
from fedtopics.federation.followed import NONE_YET, SHOWN, FollowedRun
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import is_used
from fedtopics.methods.events import RoundEnded, TrainingStarted
from fedtopics.model.shown_words import USUAL
from tests.helpers.bounded import planned as with_noise
from tests.helpers.bounded import themed
from tests.helpers.federation import KilledError, embedded, subjects
from tests.helpers.methods import POLICIES, SIZES, planned

CORPORA = embedded(subjects(SIZES))


def cut(plan: Study, rounds: int) -> Study:
    method = plan.method.model_copy(update={"max_rounds": rounds})
    return plan.model_copy(update={"method": method, "checkpoint_every": 1})


def killed(case: str, folder: Path) -> FollowedRun:
    """A run that ended in round 4, behind the checkpoint of round 3."""

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 4:
            raise KilledError

    with pytest.raises(KilledError):
        train(cut(planned(case, None), 6), CORPORA, out=folder, policies=POLICIES, on_event=kill)
    return FollowedRun(folder)


@pytest.mark.parametrize("case", ["lda", "nmf", "gfedntm", "mixture"])
def test_topics_as_they_form(case: str, tmp_path: Path) -> None:
    """Those of the newest state, read as topics of a model with that state would be."""
    run = killed(case, tmp_path)
    model = train(cut(planned(case, None), 3), CORPORA, policies=POLICIES)
    expected = model.read(USUAL, SHOWN)
    assert [list(words) for words in run.forming().words] == expected
    assert run.forming().title == "Topics after round 3, as they form"
    found = run.plain()
    assert (found["topics"], found["topics_of_round"]) == (expected, 3)
    assert (found["state"], found["round"], found["rounds"]) == ("training", 4, 6)
    assert found["clients"].keys() == SIZES.keys()
    assert found["running"] is False


def test_clusters_have_none_until_the_end(tmp_path: Path) -> None:
    run = killed("discriminative", tmp_path / "half")
    assert run.forming().words == ()
    assert "they come with the model" in run.forming().title
    whole = cut(planned("kmeans", None), 3)
    model = train(whole, CORPORA, out=tmp_path / "whole", policies=POLICIES)
    ended = FollowedRun(tmp_path / "whole")
    assert ended.status.state == "finished"
    by_size = [row["words"][:SHOWN] for row in model.get_topic_info()]
    assert [list(words) for words in ended.forming().words] == by_size
    assert ended.plain()["topics_of_round"] is None


def test_sums_with_noise_are_no_topics_until_the_end(tmp_path: Path) -> None:
    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 4:
            raise KilledError

    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    plan = with_noise("nmf", 8).model_copy(update={"checkpoint_every": 1})
    with pytest.raises(KilledError):
        train(plan, corpora, out=tmp_path, on_event=kill)
    forming = FollowedRun(tmp_path).forming()
    assert forming.words == ()
    assert "they come with the model" in forming.title


def test_before_training_and_while_it_is_worked_with(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "study1")
    followed = FollowedRun(tmp_path)
    assert not (tmp_path / "events.jsonl").exists(), "it is no run yet"
    assert (followed.status.state, followed.running) == ("waiting", True)
    assert followed.forming().title == NONE_YET
    numbers = run.rounds(0, 3)
    next(numbers)
    run.event(RoundEnded(1, {"documents": 3}, {"clients": ["a"]}))
    assert followed.update().round == 1
    assert followed.running is True
    assert not (tmp_path / "before.jsonl").exists()
    run.close()
    assert followed.running is False
    assert is_used(tmp_path / "events.jsonl") is False


def test_a_line_that_is_being_written_waits(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "study1")
    next(run.rounds(0, 3))
    run.close()
    line = json.dumps({"event": "round", "round": 2, "seconds": 1.0, "documents": 1}).encode()
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(line[:20])
        file.flush()
        followed = FollowedRun(tmp_path)
        assert followed.status.round == 0
        file.write(line[20:] + b"\n")
    assert followed.update().round == 2


def test_another_run_in_the_same_folder(tmp_path: Path) -> None:
    first = RunFolder(tmp_path, "study1")
    next(first.rounds(4, 9))
    followed = FollowedRun(tmp_path)
    assert followed.status.round == 4
    (tmp_path / "events.jsonl").rename(tmp_path / "away")
    second = RunFolder(tmp_path, "study1")
    assert followed.update().state == "waiting"
    second.open_events()
    second.event(TrainingStarted(0, 7))
    assert (followed.update().round, followed.status.rounds) == (0, 7)
    first.close()
    second.close()


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no run in .*nowhere; name the folder of one"):
        FollowedRun(tmp_path / "nowhere")
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


def test_events_that_are_nested_without_end(tmp_path: Path) -> None:
    refused(tmp_path, 100_000 * b"[" + b"\n")


def refused(folder: Path, events: bytes) -> None:
    (folder / "events.jsonl").write_bytes(events)
    with pytest.raises(RunError, match=r"events\.jsonl cannot be read as a run's events"):
        FollowedRun(folder)
