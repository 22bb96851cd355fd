"""Through Flower: the same results as in one process, and what happens when parts of it fail.

Needs flwr, in an environment of its own (make test SUITE=flower), and is skipped without it unless
FEDTOPICS_ENGINE is flower.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from fedtopics import Study, TopicModel
from fedtopics.errors import FederationError
from fedtopics.federation.participant import SIGNED
from fedtopics.integrations.resident_process import ask, end
from fedtopics.protocol.roster import Key
from tests.helpers.command_line import one_line
from tests.helpers.federation import assert_same_bits
from tests.helpers.grpc_federation import Background
from tests.helpers.ledgers import left
from tests.helpers.private import open_to_others
from tests.integrations.flower_federation import (
    METHODS,
    NAMES,
    FakeGrid,
    Machine,
    documented,
    expected,
    study_text,
    write_documents,
)

GONE = 75.0  # seconds after which Flower has noticed that a SuperNode died
if not importlib.util.find_spec("flwr") and os.environ.get("FEDTOPICS_ENGINE") != "flower":
    pytest.skip("flwr is not installed; see make test SUITE=flower", allow_module_level=True)

from fedtopics.integrations.flower import client_app, server_app  # noqa: E402
from fedtopics.integrations.flower_carrier import GridCarrier  # noqa: E402


def needs(method: str) -> None:
    if method == "flda":
        pytest.importorskip("tomotopy")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    for name in NAMES:
        Key.create(folder / name, name)
    (folder / "closed.toml").write_text('methods = ["kmeans"]\n')
    (folder / "open.toml").write_text("min_persons = 10\n")
    return folder


@pytest.fixture(autouse=True)
def _keys_of_no_study(documents: Path) -> None:
    """Tests share keys, and each has memories of its own: the keys forget earlier studies too."""
    for signed in documents.rglob(SIGNED):
        signed.unlink()


def nodes(documents: Path, out: Path, **given: Any) -> dict[int, dict[str, Any]]:
    same = {"text": "text", "embedding": "embedding", "insecure_seed": True}
    same["policy"] = str(documents / "open.toml")
    return {
        node: {"name": name, "data": str(documents / f"{name}.parquet"), "out": str(out / name)}
        | {"key": str(documents / name)}
        | same
        | given
        for node, name in enumerate(NAMES, 11)
    }


def run(study: Path, grid: FakeGrid, out: Path) -> None:
    from flwr.app import Context, RecordDict

    server_app(study)(grid, Context(7, 0, {}, RecordDict(), {"out": str(out)}, 7))


def assert_as_without_flower(path: Path, folders: dict[str, Path], documents: Path) -> TopicModel:
    """Compare the members' models and ledgers with the study without Flower."""
    model, clients = expected(Study.read(path), documents, path.parent / "without")
    for name, folder in folders.items():
        assert left(folder / "ledger.jsonl") == left(clients / name / "ledger.jsonl")
        assert_same_bits(TopicModel.from_pretrained(folder / "model"), model)
    return model


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    file = folder / "events.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in events if event["event"] == kind]


CASES = [(method, "plain") for method in METHODS] + [("gfedntm", "secure"), ("lda", "secure")]


@pytest.mark.parametrize(
    ("method", "aggregation"),
    [pytest.param(*c, marks=pytest.mark.quick if c[0] == "gfedntm" else ()) for c in CASES],
)
def test_resident_processes_end_with_the_bits_of_one(
    method: str, aggregation: str, documents: Path, tmp_path: Path
) -> None:
    needs(method)
    path = tmp_path / "study.toml"
    path.write_text(study_text(method, "of processes", aggregation, documents))
    run(path, FakeGrid(client_app(path), nodes(documents, tmp_path)), tmp_path / "run")
    folders = {name: tmp_path / name / "of-processes" for name in NAMES}
    model = assert_as_without_flower(path, folders, documents)
    assert not any(open_to_others(folder) for folder in [*folders.values(), tmp_path / "run"])
    if aggregation == "plain":
        assert_same_bits(TopicModel.from_pretrained(tmp_path / "run/model"), model)
    else:
        assert not (tmp_path / "run/model").exists()


@pytest.mark.parametrize("aggregation", ["plain", pytest.param("secure", marks=pytest.mark.quick)])
def test_killed_resident_processes_go_on(aggregation: str, documents: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    text = study_text("lda", "killed", aggregation, documents)
    path.write_text(text.replace("max_rounds = 2", "max_rounds = 8"))
    grid = FakeGrid(client_app(path), nodes(documents, tmp_path))
    folders = {name: tmp_path / name / "killed" for name in NAMES}

    def kill() -> None:
        while not events_of(folders["north"] / "state", "round"):
            time.sleep(0.02)
        (note,) = folders["north"].rglob("resident_process.json")
        os.kill(json.loads(note.read_text())["process"], signal.SIGKILL)

    killer = Background(kill)
    run(path, grid, tmp_path / "run")
    killer.result()
    assert len(events_of(folders["north"] / "state", "resumed")) == 1
    model, _ = expected(Study.read(path), documents, tmp_path / "without")
    for folder in folders.values():
        assert_same_bits(TopicModel.from_pretrained(folder / "model"), model)


def refused(documents: Path, tmp_path: Path, kind: str = "plain", **given: Any) -> FakeGrid:
    """A study that nobody can take part in, until its server gives up."""
    path = tmp_path / "study.toml"
    wait = {"join_timeout": 20, "quorum_timeout": 1}
    path.write_text(study_text("gfedntm", "s", kind, documents, **wait))
    grid = FakeGrid(client_app(path), nodes(documents, tmp_path, **given))
    with pytest.raises(FederationError):
        run(path, grid, tmp_path / "run")
    return grid


@pytest.mark.quick
def test_a_policy_that_forbids_the_method(
    documents: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(documents, tmp_path, "secure", policy=str(documents / "closed.toml"))
    assert (
        "The policy of client 'north' does not allow the method 'gfedntm'" in capfd.readouterr().out
    )
    assert not list(tmp_path.rglob("ledger.jsonl"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": "nowhere.csv"}, "nowhere.csv"),
        ({"name": "north pole"}, "cannot name a client"),
        ({"name": 7}, "needs the client's name"),
        ({"txt": "text"}, "txt"),
        ({"policy": "nowhere.toml"}, "The policy nowhere.toml cannot be used"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_stays_there(
    given: dict[str, Any],
    sentence: str,
    documents: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    grid = refused(documents, tmp_path, **given)
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("fedtopics")]
    assert lines
    assert sentence in lines[0]
    assert not any(sentence in reason for reason in grid.reasons)


@pytest.mark.quick
def test_a_supernode_that_is_gone(documents: Path, tmp_path: Path) -> None:
    grid = FakeGrid(client_app(tmp_path / "study.toml"), nodes(documents, tmp_path))
    grid.deaf = {11, 12}
    carrier = GridCarrier(grid)
    assert sorted(carrier.addresses()) == ["11", "12", "13"]
    carrier.send("12", b"anybody?")
    assert carrier.receive(5) == [("12", None)]
    before = time.monotonic()
    assert carrier.receive(0.2) == []
    assert time.monotonic() - before < 1


ECHO = """
import os, sys
from pathlib import Path
from fedtopics.integrations.resident_process import answer_messages
def answer(message):
    if message == b"die":
        os._exit(1)
    return message * 2 + str(os.getpid()).encode()
folder, idle = Path(sys.argv[1]), float(sys.argv[2])
answer_messages(folder, answer, lambda: idle)
"""


def test_a_resident_process_is_killed_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ECHO, str(tmp_path), "3"]
    large = bytes(9 << 20)
    first = ask(tmp_path, large, command)
    assert first.startswith(large * 2)
    assert ask(tmp_path, large, command) == first
    assert (tmp_path / "resident_process.json").stat().st_mode & 0o077 == 0
    with pytest.raises(FederationError, match="was ended"):
        ask(tmp_path, b"die", command)
    again = ask(tmp_path, large, command)
    assert again != first
    os.kill(int(again[2 * len(large) :]), signal.SIGKILL)
    assert ask(tmp_path, large, command) not in (first, again)
    note = tmp_path / "resident_process.json"
    ends = time.monotonic() + 30
    while note.exists():
        assert time.monotonic() < ends
        time.sleep(0.1)
    ask(tmp_path, b"begin", command)
    end(tmp_path)
    assert not note.exists()
    end(tmp_path)
    with pytest.raises(FederationError, match="did not start"):
        ask(tmp_path, b"", [sys.executable, "-c", "raise SystemExit(3)"])


def test_flower_init(tmp_path: Path, documents: Path) -> None:
    machine = Machine(tmp_path)
    machine.run("fedtopics init flower app")
    assert Study.read(tmp_path / "app/study.toml").clients.keys() == {"north", "south"}
    (tmp_path / "empty.toml").write_text("")
    for command, sentence in (
        ("app", "app is not an empty folder"),
        ("other --study nowhere.toml", "No such file"),
        ("other --study empty.toml", "has no clients"),
    ):
        done = subprocess.run(
            ["fedtopics", "init", "flower", *command.split()],  # noqa: S607
            cwd=tmp_path,
            env=machine.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert sentence in one_line(done.stderr)
        assert one_line(done.stderr).count("\n") == 1
    assert not (tmp_path / "other").exists()
    machine.run("cd app && flwr build")
    (bundle,) = (tmp_path / "app").glob("*.fab")
    names = {name for name in ZipFile(bundle).namelist() if not name.startswith(".info")}
    assert names == {"README.md", "client_app.py", "pyproject.toml", "server_app.py", "study.toml"}


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("flower"))
    write_documents(machine.folder)
    (machine.folder / "flwr").mkdir()
    files, commands = documented()
    for name, content in files.items():
        text = machine.adapted(content).replace("localhost", "127.0.0.1")
        text = text.replace("/home/me", str(machine.folder))
        # CSV has no embeddings, which one of the methods needs.
        data = 'data = "north.parquet"\nembedding = "embedding"\ninsecure_seed = true'
        text = text.replace('data = "north.csv"', data)
        if name == "policy.toml":  # for one that goes on when the other is dead
            text += "min_clients_in_sum = 1\n"
        folder = machine.folder / "flwr" if name == "config.toml" else machine.folder
        (folder / name).write_text(text)
        if name == "north.toml":  # "the same with their names"
            for other in NAMES[1:]:
                (folder / f"{other}.toml").write_text(text.replace("north", other))
    try:
        for command in commands:
            step(machine, command)
        yield machine
    finally:
        machine.end()


def step(machine: Machine, command: str) -> None:
    command = command.replace("localhost", "127.0.0.1").replace("/home/me", str(machine.folder))
    if command.startswith("flower-superlink"):
        machine.start("superlink", command, "Uvicorn running")
    elif command.startswith("flower-supernode"):
        name = next(name for name in NAMES if f"{name}.toml" in command)
        machine.start(name, command, "SuperNode ID")
    else:
        with (machine.folder / "walk.txt").open("a") as file:
            file.write(machine.run(command))


def test_the_walk_through(walked: Machine) -> None:
    """With secure aggregation: the server has no model."""
    folders = {name: walked.folder / f"at-{name}/walk" for name in NAMES}
    assert_as_without_flower(walked.folder / "study.toml", folders, walked.folder)
    assert not (walked.folder / "runs/walk/model").exists()
    for folder in folders.values():
        assert (folder / "theta.parquet").exists()
        assert (folder / "report.html").exists()


@pytest.mark.parametrize("method", METHODS)
def test_the_contract(method: str, walked: Machine) -> None:
    needs(method)
    assert walked.finish(walked.begin(method, study_text(method, method))) == "finished:completed"
    model, clients = expected(
        Study.read(walked.folder / f"{method}.toml"), walked.folder, walked.folder / f"p-{method}"
    )
    assert_same_bits(TopicModel.from_pretrained(walked.folder / f"runs/{method}/model"), model)
    for name in NAMES:
        assert left(walked.folder / f"at-{name}/{method}/ledger.jsonl") == left(
            clients / name / "ledger.jsonl"
        )


def test_a_secure_run_waits_for_a_supernode_that_died(walked: Machine) -> None:
    text = study_text("lda", "back", "secure").replace("max_rounds = 2", "max_rounds = 4")
    started = walked.begin("back", text)
    south = walked.folder / "at-south/back"
    walked.wait(lambda: events_of(south / "state", "round"), "the first round")
    walked.kill("south")
    time.sleep(GONE)  # before Flower notices, it lets no other in
    step(walked, next(command for command in documented()[1] if "south.toml" in command))
    assert walked.finish(started) == "finished:completed"
    model, _ = expected(
        Study.read(walked.folder / "back.toml"), walked.folder, walked.folder / "p-back"
    )
    for name in NAMES:
        assert_same_bits(TopicModel.from_pretrained(walked.folder / f"at-{name}/back/model"), model)


def test_the_simulation(tmp_path: Path) -> None:
    write_documents(tmp_path)
    text = study_text("gfedntm", "simulated", "secure")
    for name in NAMES:
        Key.create(tmp_path / name, name)
        table = f'data = "{name}.parquet"\ntext = "text"\nembedding = "embedding"\n'
        text = text.replace(f"[clients.{name}]\n", f"[clients.{name}]\n{table}")
    (tmp_path / "study.toml").write_text(text)
    machine = Machine(tmp_path)
    machine.run("fedtopics init flower app --study study.toml")
    try:
        said = machine.run(
            "flwr run app local --stream --federation-config "
            "'num-supernodes=3 client-resources-num-cpus=1' "
            f"""--run-config 'out="{tmp_path}/run" keys="{tmp_path}"'"""
        )
    finally:
        machine.end()
    folders = {name: tmp_path / "run/clients" / name for name in NAMES}
    assert (folders["north"] / "model").exists(), said
    assert_as_without_flower(tmp_path / "study.toml", folders, tmp_path)
