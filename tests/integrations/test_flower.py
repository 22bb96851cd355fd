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

import numpy as np
import pytest

from fedtopics.errors import FederationError
from fedtopics.federation.study import Study
from fedtopics.integrations.resident_process import ask, end
from fedtopics.model.topic_model import TopicModel
from tests.helpers.federation import assert_same_bits
from tests.helpers.flower_federation import (
    METHODS,
    NAMES,
    FakeGrid,
    Machine,
    documented,
    led,
    local,
    study_text,
    write_documents,
)
from tests.helpers.ledgers import left
from tests.helpers.private import open_to_others

REQUIRED = os.environ.get("FEDTOPICS_ENGINE") == "flower"
if importlib.util.find_spec("flwr") is None and not REQUIRED:
    pytest.skip("flwr is not installed; see make test SUITE=flower", allow_module_level=True)

from fedtopics.integrations.flower import client_app  # noqa: E402
from fedtopics.integrations.flower_carrier import GridCarrier  # noqa: E402


def needs(method: str) -> None:
    if method == "flda":
        pytest.importorskip("tomotopy")


# In this process


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder)
    (folder / "closed.toml").write_text('methods = ["kmeans"]\n')
    (folder / "open.toml").write_text("min_documents = 10\n")
    return folder


def nodes(documents: Path, out: Path, **given: Any) -> dict[int, dict[str, Any]]:
    """Node configurations."""
    same = {"text": "text", "embedding": "embedding", "insecure_seed": True}
    same["policy"] = str(documents / "open.toml")
    return {
        node: {"name": name, "data": str(documents / f"{name}.parquet"), "out": str(out / name)}
        | {"key": str(documents / name)}
        | same
        | given
        for node, name in enumerate(NAMES, 11)
    }


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.quick if m == "lda" else ()) for m in METHODS]
)
def test_plain_aggregation_has_the_bits_of_one_process(
    method: str, documents: Path, tmp_path: Path
) -> None:
    needs(method)
    path = tmp_path / "study.toml"
    path.write_text(study_text(method, "of processes", documents))
    plan = Study.read(path)
    grid = FakeGrid(client_app(path), nodes(documents, tmp_path))
    model = led(plan, grid, tmp_path / "run")
    assert model is not None
    assert_same_bits(model, local(plan, documents, tmp_path / "local"))
    for name in NAMES:
        folder = tmp_path / name / "of-processes"
        expected = tmp_path / "local/clients" / name / "ledger.jsonl"
        assert left(folder / "ledger.jsonl") == left(expected)
        assert_same_bits(TopicModel.from_pretrained(folder / "model"), model)
        assert open_to_others(folder) == []
    assert open_to_others(tmp_path / "run") == []


def assert_near(folders: dict[str, Path], plan: Study, documents: Path, out: Path) -> None:
    """All members have one model, which is that of one process but for rounding."""
    first, *others = [TopicModel.from_pretrained(each / "model") for each in folders.values()]
    for other in others:
        assert_same_bits(other, first)
    expected = local(plan, documents, out)
    np.testing.assert_allclose(first.beta, expected.beta, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("method", "killed"),
    [("gfedntm", False), pytest.param("lda", True, marks=pytest.mark.quick)],
)
def test_secure_aggregation(method: str, killed: bool, documents: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(study_text(method, "masked", documents, "secure"))
    plan = Study.read(path)
    grid = FakeGrid(client_app(path), nodes(documents, tmp_path))
    if killed:
        grid.meanwhile = lambda: kill_after_a_round(tmp_path / "north")
    led(plan, grid, tmp_path / "run")
    assert grid.meanwhile is bool  # it has happened
    assert_near({n: tmp_path / n / "masked" for n in NAMES}, plan, documents, tmp_path / "local")
    (kept,) = (tmp_path / "run").iterdir()
    assert b"north" not in kept.read_bytes().replace(b"\xa5north", b"")  # but as a name


def kill_after_a_round(folder: Path) -> bool:
    """Kill a member's process once it has done a round; whether that has happened."""
    events = list(folder.rglob("events.jsonl"))
    if not events or '"event": "round"' not in events[0].read_text():
        return False
    (note,) = folder.rglob("resident_process.json")
    os.kill(json.loads(note.read_text())["process"], signal.SIGKILL)
    return True


@pytest.mark.quick
@pytest.mark.parametrize("aggregation", ["plain", "secure"])
def test_a_policy_that_forbids_the_method(
    aggregation: str, documents: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(study_text("lda", "s", documents, aggregation, join_timeout=0))
    forbidding = nodes(documents, tmp_path, policy=str(documents / "closed.toml"))
    with pytest.raises(FederationError):
        led(Study.read(path), FakeGrid(client_app(path), forbidding), tmp_path / "run")
    assert "The policy of client 'north' does not allow the method 'lda'" in capfd.readouterr().out
    assert not list(tmp_path.rglob("ledger.jsonl"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"data": "nowhere.csv"}, "nowhere.csv"),
        ({"name": "north pole"}, "cannot name a client"),
        ({"name": 7}, "needs the client's name"),
        ({"txt": "text"}, "txt"),
        ({"policy": "nowhere.toml"}, "The policy nowhere.toml cannot be used"),
        ({"key": "nowhere"}, "nowhere has no key"),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_stays_there(
    given: dict[str, Any],
    sentence: str,
    documents: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "study.toml"
    path.write_text(study_text("lda", "s", documents, join_timeout=5, quorum_timeout=5))
    grid = FakeGrid(client_app(path), nodes(documents, tmp_path, **given))
    with pytest.raises(FederationError):
        led(Study.read(path), grid, tmp_path / "run")
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("fedtopics")]
    assert lines
    assert sentence in lines[0]
    assert not any(sentence in reason for reason in grid.reasons)


@pytest.mark.quick
def test_a_supernode_that_is_gone(documents: Path, tmp_path: Path) -> None:
    grid = FakeGrid(client_app(tmp_path / "study.toml"), nodes(documents, tmp_path))
    grid.deaf = {11, 12}
    carrier = GridCarrier(grid)  # type: ignore[arg-type]
    assert sorted(carrier.addresses()) == ["11", "12", "13"]
    carrier.send("12", b"anybody?")
    assert carrier.receive(5) == [("12", None)]
    before = time.monotonic()
    assert carrier.receive(0.2) == []
    assert time.monotonic() - before < 1


# The resident process

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


# The app's folder


def test_flower_init(tmp_path: Path, documents: Path) -> None:
    machine = Machine(tmp_path)
    machine.run("fedtopics flower init app")
    assert Study.read(tmp_path / "app/study.toml").clients.keys() == {"north", "south"}
    (tmp_path / "empty.toml").write_text("")
    for command, sentence in (
        ("app", "app is no empty folder"),
        ("other --study nowhere.toml", "No such file"),
        ("other --study empty.toml", "names no clients"),
    ):
        done = subprocess.run(
            ["fedtopics", "flower", "init", *command.split()],  # noqa: S607
            cwd=tmp_path,
            env=machine.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "other").exists()
    machine.run("cd app && flwr build")
    (bundle,) = (tmp_path / "app").glob("*.fab")
    assert bundle.stat().st_size < 20_000


# Deployed: SuperLink and SuperNodes as processes


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The federation of docs/flower.md, after its walk-through."""
    machine = Machine(tmp_path_factory.mktemp("flower"))
    write_documents(machine.folder, keys=False)
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
    """With secure aggregation."""
    plan = Study.read(walked.folder / "study.toml")
    folders = {name: walked.folder / f"at-{name}/walk" for name in NAMES}
    assert_near(folders, plan, walked.folder, walked.folder / "local/walk")
    for folder in folders.values():
        assert (folder / "theta.parquet").exists()
        assert (folder / "report.html").exists()


@pytest.mark.parametrize("method", METHODS)
def test_the_contract(method: str, walked: Machine) -> None:
    needs(method)
    run = walked.begin(method, study_text(method, method, walked.folder))
    assert walked.finish(run) == "finished:completed"
    plan = Study.read(walked.folder / f"{method}.toml")
    model = TopicModel.from_pretrained(walked.folder / f"runs/{method}/model")
    assert_same_bits(model, local(plan, walked.folder, walked.folder / "local" / method))
    for name in NAMES:
        ledger = walked.folder / f"local/{method}/clients/{name}/ledger.jsonl"
        assert left(walked.folder / f"at-{name}/{method}/ledger.jsonl") == left(ledger)


def test_the_others_wait_for_a_supernode_that_died(walked: Machine) -> None:
    run = walked.begin("back", study_text("lda", "back", walked.folder, "secure"))
    events = walked.folder / "at-south/back/state/events.jsonl"
    walked.wait(lambda: events.exists() and '"event": "round"' in events.read_text(), "a round")
    walked.kill("south")
    time.sleep(90)  # Flower lets no other one in before it has noticed
    step(walked, next(each for each in documented()[1] if "south.toml" in each))
    assert walked.finish(run) == "finished:completed"
    plan = Study.read(walked.folder / "back.toml")
    folders = {name: walked.folder / f"at-{name}/back" for name in NAMES}
    assert_near(folders, plan, walked.folder, walked.folder / "local/back")


# Simulated


def test_the_simulation(tmp_path: Path) -> None:
    write_documents(tmp_path)
    text = study_text("gfedntm", "simulated", tmp_path, "secure")
    for name in NAMES:
        table = f'data = "{name}.parquet"\ntext = "text"\nembedding = "embedding"\n'
        text = text.replace(f"[clients.{name}]\n", f"[clients.{name}]\n{table}")
    (tmp_path / "study.toml").write_text(text)
    machine = Machine(tmp_path)
    machine.run("fedtopics flower init app --study study.toml")
    try:
        said = machine.run(
            "flwr run app local --stream --federation-config "
            "'num-supernodes=3 client-resources-num-cpus=1' "
            f"""--run-config 'out="{tmp_path}/run" keys="{tmp_path}"'"""
        )
    finally:
        machine.end()
    assert (tmp_path / "run/clients/north/model").exists(), said
    plan = Study.read(tmp_path / "study.toml")
    folders = {name: tmp_path / "run/clients" / name for name in NAMES}
    assert_near(folders, plan, tmp_path, tmp_path / "local")
