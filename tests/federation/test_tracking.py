"""Trackers: which numbers of a run's events they write, and that a run does without them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedtopics.errors import FedTopicsError
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.federation.tracking import MLflow, TensorBoard, Tracker, numbers, tell_all
from tests.helpers.federation import KilledError, study, subjects

SIZES = {"east": 40, "north": 30}
CANARY = "zanzibarfigs"
Event = dict[str, Any]


class Noted(Tracker):
    """One that keeps what it would write."""

    title = "Notes"
    extra = "notes"
    packages = ()

    def __init__(self, fails: bool = False, **given: Any) -> None:
        super().__init__(**given)
        self.begun: list[tuple[str, dict[str, Any], int]] = []
        self.written: list[tuple[int, dict[str, float]]] = []
        self.ended: list[bool] = []
        self._fails = fails

    def _begin(self, name: str, settings: Mapping[str, Any], done: int) -> None:
        self.begun.append((name, dict(settings), done))

    def _write(self, values: Mapping[str, float], step: int, when: float) -> None:
        assert when > 1.7e9
        if self._fails:
            raise OSError("no room\nfor anything")
        self.written.append((step, dict(values)))

    def _end(self, failed: bool) -> None:
        self.ended.append(failed)


# Which numbers


def test_numbers_of_an_event() -> None:
    event = {
        "event": "round", "time": 1.0, "round": 7, "seconds": 0.5, "loss": math.nan, "documents": 3,
        "clients": ["east"], "missing": {"north": "is late"}, "reason": CANARY, "best": True,
        "topics": [{"words": [CANARY]}] * 4, "threshold": None,
    }  # fmt: skip
    assert dict(numbers(event)) == {
        "round/seconds": 0.5, "round/documents": 3.0, "round/clients": 1.0, "round/missing": 1.0,
        "round/best": 1.0, "round/topics": 4.0,
    }  # fmt: skip


def test_a_run_and_its_settings() -> None:
    events: list[Event] = []
    given = {"max_rounds": 4, "validation_share": 0.25, "validate_every": 2}
    plan = study(**given).model_copy(update={"name": "mine"})
    with Noted() as notes:
        train(plan, subjects(SIZES), on_event=tell_all(events.append, notes))
        assert notes.ended == [False], "the run is over"
    assert notes.ended == [False]
    (name, settings, done) = notes.begun[0]
    assert (name, done) == ("mine", 0)
    assert settings["method.n_components"] == 6
    assert settings["method.network"] == "prodlda"
    assert settings["method.hidden"] == "16, 12"
    assert settings["method.embedding.dimension"] == 7
    assert (settings["seed"], settings["clients"]) == (0, 2)
    assert settings["vocabulary.min_document_frequency"] == 1
    losses = [event["loss"] for event in events if event["event"] == "round"]
    by_name = {
        name: [(step, values[name]) for step, values in notes.written if name in values]
        for _, values in notes.written
        for name in values
    }
    assert by_name["round/loss"] == list(zip(range(1, 5), losses, strict=True))
    assert [step for step, _ in by_name["validation/loss"]] == [2, 4]
    assert by_name["round/clients"] == [(step, 2) for step in range(1, 5)]
    assert [step for step, _ in by_name["vocabulary/words"]] == [0]
    assert [step for step, _ in by_name["finished/seconds"]] == [4]


def test_no_list_of_words_is_a_setting() -> None:
    text = {"own_stop_words": [CANARY]}
    method = {"name": "flda", "seed_topics": [[CANARY]]}
    settings = Study.make(method=method, text=text).described["settings"]
    assert CANARY not in str(settings)
    assert settings["method.name"] == "flda"
    assert settings["text.ngrams"] == [1, 1]


def test_numbers_of_clusters_that_are_tried() -> None:
    notes = Noted()
    for number, score in ((3, 0.5), (5, 0.75)):
        notes({"event": "candidate", "time": 2e9, "n_components": number, "agreement": score})
    notes({"event": "training", "time": 2e9, "done": 0, "rounds": 2})
    tried = [(step, values["candidate/agreement"]) for step, values in notes.written]
    assert tried == [(3, 0.5), (5, 0.75)]


def test_a_model_that_goes_on_goes_on_in_its_rounds() -> None:
    plan, corpora = study(max_rounds=3), subjects(SIZES)
    model = train(plan, corpora)
    notes = Noted()
    train(plan, corpora, start=model, vocabulary="keep", on_event=notes)
    assert notes.begun[0][2] == 3
    assert [step for step, values in notes.written if "round/loss" in values] == [4, 5, 6]


def killed_and_resumed(folder: Path, *trackers: Tracker) -> tuple[Study, dict[str, Any]]:
    """A run that is killed in round 6, after the checkpoint of round 4."""
    plan, corpora = study(max_rounds=7).model_copy(update={"checkpoint_every": 4}), subjects(SIZES)

    def kill(event: Event) -> None:
        if event["event"] == "round" and event["round"] == 6:
            raise KilledError

    with pytest.raises(KilledError), trackers[0]:
        train(plan, corpora, out=folder, on_event=tell_all(trackers[0], kill))
    with trackers[1]:
        train(plan, corpora, out=folder, resume=True, on_event=trackers[1])
    return plan, corpora


def test_a_resumed_run_goes_on(tmp_path: Path) -> None:
    first, second = Noted(), Noted()
    killed_and_resumed(tmp_path, first, second)
    assert (first.ended, second.ended) == ([True], [False])
    assert [begun[2] for begun in first.begun + second.begun] == [0, 4]
    steps = [[s for s, v in n.written if "round/loss" in v] for n in (first, second)]
    assert steps == [[1, 2, 3, 4, 5, 6], [5, 6, 7]]
    assert not any("vocabulary/words" in values for _, values in second.written)


# Failures


def test_a_run_does_without_a_tracker_that_fails() -> None:
    told: list[str] = []
    notes = Noted(fails=True, on_failure=told.append)
    with notes:
        model = train(study(max_rounds=3), subjects(SIZES), on_event=notes)
    assert model.info["rounds"] == 3
    assert told == ["Notes is not written any more (OSError: no room); the run goes on."]
    assert notes.ended == [], "what failed is left alone"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(study(max_rounds=1), subjects(SIZES), on_event=Noted(fails=True))
    assert [
        str(warning.message) for warning in caught if warning.category is RuntimeWarning
    ] == told


def test_others_text_is_a_line(tmp_path: Path) -> None:
    """A study's settings, and what a tracker says: it goes to a page, and to the terminal."""
    text, told = "<script>\x1b[2J\u202e\n" + 500 * "x", list[str]()
    notes = Noted(on_failure=told.append)
    settings = {"text.token_pattern": text, "text.ngrams": [1, 2], "seed": 3, "method.x": True}
    notes({"event": "study", "name": text, "settings": settings})
    notes({"event": "training", "done": 0, "rounds": 1})
    (name, given, _) = notes.begun[0]
    line = r"<script>\x1b[2J\u202e xxx"
    assert name.startswith(line)
    assert given.pop("text.token_pattern").startswith(line)
    assert given == {"text.ngrams": "1, 2", "seed": 3, "method.x": True}
    notes._fail(OSError(text.replace("\n", "")))
    assert told[0].startswith(r"Notes is not written any more (OSError: <script>\x1b[2J\u202exxx")
    assert told[0].isprintable()


def test_a_run_that_never_began_leaves_nothing() -> None:
    with pytest.raises(FedTopicsError), Noted() as notes:
        train(study(), {"east": []}, on_event=notes)
    assert notes.begun == notes.ended == []


@pytest.mark.parametrize("tracker", [TensorBoard, MLflow])
def test_what_is_not_installed(tracker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda module: None)
    extra = tracker.title.lower()
    with pytest.raises(FedTopicsError, match=rf"pip install 'fedtopics\[{extra}\]'"):
        TensorBoard("x") if tracker is TensorBoard else MLflow()


def test_the_command_line_does_without_them_until_asked() -> None:
    code = (
        "import sys, fedtopics.cli, fedtopics.federation.tracking\n"
        "print({'torch', 'tensorboard', 'mlflow'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# MLflow as it is asked, without it


@dataclass
class Store:
    """What MLflow's client was asked to write."""

    uri: str | None = None
    experiments: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, SimpleNamespace] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if name in self.experiments else None

    def create_experiment(self, name: str, **where: Any) -> str:
        self.experiments[name] = where
        return name

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        made = SimpleNamespace(
            info=SimpleNamespace(run_id=f"run{len(self.runs)}"), name=run_name, tags=tags,
            experiment=experiment, status="RUNNING", metrics=[], params={},
        )  # fmt: skip
        self.runs[made.info.run_id] = made
        return made

    def search_runs(self, experiments: list[str], wanted: str, max_results: int) -> list[Any]:
        began = wanted.split("'")[1]
        found = [run for run in self.runs.values() if run.tags.get("fedtopics.began") == began]
        return found[:max_results]

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id].status = status

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) <= 1000, "MLflow's limit"
        self.runs[run_id].metrics += metrics
        self.runs[run_id].params |= dict(params)
        self.batches.append(len(metrics))

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs[run_id].status = status


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    kept = Store()

    def client(tracking_uri: str | None) -> Store:
        kept.uri = tracking_uri
        return kept

    def module(name: str, **content: Any) -> None:
        made = ModuleType(name)
        made.__spec__ = ModuleSpec(name, None)
        made.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, made)

    module("mlflow", MlflowClient=client)
    pair, four = (lambda *values: values), (lambda *values: values)
    module("mlflow.entities", Param=pair, Metric=four)
    module("sqlalchemy")
    module("alembic")
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI"):
        monkeypatch.setenv(name, "")  # so that what is set is taken back
        monkeypatch.delenv(name)
    return kept


def test_what_mlflow_is_asked_to_write(store: Store, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    with MLflow("topics", uri, "first") as tracker:
        train(study(max_rounds=3), subjects(SIZES), on_event=tracker)
    assert store.uri == uri
    assert (tmp_path / "new").is_dir()
    assert store.experiments == {
        "topics": {"artifact_location": (tmp_path / "new" / "artifacts").as_uri()}
    }
    (run,) = store.runs.values()
    assert (run.name, run.experiment, run.status) == ("first", "topics", "FINISHED")
    assert run.params["method.n_components"] == "6"
    losses = [(step, value) for key, value, when, step in run.metrics if key == "round/loss"]
    assert [step for step, _ in losses] == [1, 2, 3]
    assert all(when > 1.7e12 for _, _, when, _ in run.metrics), "milliseconds"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_names_by_default(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for expected in ("fedtopics", "ours"):
        train(study(max_rounds=1), subjects(SIZES), on_event=MLflow())
        assert [*store.runs.values()][-1].experiment == expected
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    assert {run.name for run in store.runs.values()} == {"study"}
    assert store.uri is None


def test_a_resumed_run_is_the_same_in_mlflow(store: Store, tmp_path: Path) -> None:
    killed_and_resumed(tmp_path / "a", MLflow(), MLflow())
    (run,) = store.runs.values()
    assert run.status == "FINISHED"
    steps = [step for key, _, _, step in run.metrics if key == "round/loss"]
    assert steps == [1, 2, 3, 4, 5, 6, 5, 6, 7]
    # Another run of the same study is not it.
    killed_and_resumed(tmp_path / "b", MLflow(), MLflow())
    assert len(store.runs) == 2


def test_a_run_that_fails_is_failed_in_mlflow(store: Store) -> None:
    def kill(event: Event) -> None:
        if event["event"] == "round" and event["round"] == 2:
            raise KilledError

    with pytest.raises(KilledError), MLflow() as tracker:
        train(study(), subjects(SIZES), on_event=tell_all(tracker, kill))
    (run,) = store.runs.values()
    assert run.status == "FAILED"
    assert [step for key, _, _, step in run.metrics if key == "round/loss"] == [1, 2]


def test_rounds_go_to_mlflow_many_at_a_time(store: Store) -> None:
    train(study(max_rounds=200, n_components=2), subjects(SIZES), on_event=MLflow())
    assert len(store.batches) < 20
    (run,) = store.runs.values()
    assert len([1 for key, *_ in run.metrics if key == "round/loss"]) == 200


# As they are


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        name: [(event.step, event.value) for event in read.Scalars(name)]
        for name in read.Tags()["scalars"]
    }


def test_tensorboard_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    events: list[Event] = []
    with TensorBoard(tmp_path) as tracker:
        train(study(max_rounds=5), subjects(SIZES), on_event=tell_all(tracker, events.append))
    found = scalars(tmp_path)
    losses = [(e["round"], e["loss"]) for e in events if e["event"] == "round"]
    assert found["round/loss"] == [(step, pytest.approx(loss)) for step, loss in losses]
    assert found["vocabulary/words"][0][0] == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert "_hparams_/session_start_info" in read.summary_metadata
    content = read.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"method.n_components" in content


def test_tensorboard_leaves_out_rounds_that_were_worked_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    where = tmp_path / "board"
    killed_and_resumed(tmp_path / "run", TensorBoard(where), TensorBoard(where))
    found = scalars(where)
    assert [step for step, _ in found["round/loss"]] == [1, 2, 3, 4, 5, 6, 7]
    assert [step for step, _ in found["vocabulary/words"]] == [0]


def test_mlflow_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    killed_and_resumed(tmp_path / "run", MLflow(tracking_uri=uri), MLflow(tracking_uri=uri))
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name("fedtopics")
    (run,) = client.search_runs([known.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["method.network"] == "prodlda"
    steps = sorted(
        metric.step for metric in client.get_metric_history(run.info.run_id, "round/loss")
    )
    assert steps == [1, 2, 3, 4, 5, 5, 6, 6, 7]
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "run"}, "nothing else"
