"""What deploy/ has: the commands are ours, nobody is root, versions are pinned.

`make image` builds it, or does its steps where docker is missing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy import build
from fedtopics import cli, errors
from tests.helpers.services import NAMES, Service, assert_survives, free_port, write_letters

PORT = "7557"
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
STEPS = list(build.instructions((DEPLOY / "Dockerfile").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
JOBS = {
    document["metadata"]["name"]: document
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
    if document["kind"] == "Job"
}


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each job's pod, and its container."""
    for job in JOBS.values():
        pod = job["spec"]["template"]["spec"]
        yield pod, pod["containers"][0]


UNITS = {
    path.stem.rstrip("@"): path.read_text() for path in sorted(DEPLOY.glob("fedtopics-*.service"))
}
PROGRAM = "/opt/fedtopics/bin/fedtopics"


def lines(unit: str, key: str) -> list[str]:
    """What a unit says of a key."""
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def started(unit: str) -> list[str]:
    """The words of a unit's command, behind the program."""
    ((program, *words),) = map(shlex.split, lines(unit, "ExecStart"))
    assert program == PROGRAM
    return words


COMMANDS = [
    *map(started, UNITS.values()),
    *(service["command"] for service in COMPOSE.values()),
    *(container["args"] for _, container in pods()),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_commands_are_as_they_can_be_typed(words: list[str]) -> None:
    command = cli.app.get_command(click.Context(cli.app), words[0])
    assert command is not None
    typed = [re.sub(r"\$\{\w+(:-(.*))?\}", r"\2", word) for word in words[1:]]
    context = command.make_context(words[0], typed)
    assert context.params["out"] is not None
    if words[0] == "server":
        assert context.params["go_on"]


def test_units_start_again_what_people_need_not_mend(tmp_path: Path) -> None:
    """They write in one folder alone, and systemd takes them."""
    assert {name: started(unit)[0] for name, unit in UNITS.items()} == {
        "fedtopics-client": "client", "fedtopics-server": "server"
    }  # fmt: skip
    for name, unit in UNITS.items():
        codes = {errors.InputError.exit_code, errors.PolicyError.exit_code}
        assert {*map(int, lines(unit, "RestartPreventExitStatus")[0].split())} == codes
        assert lines(unit, "Restart") == ["on-failure"]
        assert lines(unit, "User") == ["fedtopics"]
        assert lines(unit, "ReadWritePaths") == lines(unit, "WorkingDirectory")
        assert not [word for word in started(unit) if word.startswith("/")]
        if (systemd := shutil.which("systemd-analyze")) is not None:
            here = unit.replace(PROGRAM, sys.executable).replace("User=fedtopics", "User=root")
            file = tmp_path / (f"{name}@south.service" if "%i" in unit else f"{name}.service")
            file.write_text(here)
            done = subprocess.run([systemd, "verify", file], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")


def test_nobody_is_root_and_the_lock_is_kept() -> None:
    kinds = [kind for kind, _ in STEPS]
    assert kinds.count("FROM") == 2
    assert kinds.index("USER") > kinds.index("FROM", 1) < kinds.index("ENTRYPOINT")
    assert dict(STEPS)["USER"] != "0"
    bases = {rest.split()[0] for kind, rest in STEPS if kind == "FROM"}
    assert len(bases) == 1
    installs = [rest for kind, rest in STEPS if kind == "RUN" and "pip install" in rest]
    assert len(installs) == 2
    assert all("-c requirements.lock" in rest for rest in installs)
    for kind, rest in build.first_stage((DEPLOY / "Dockerfile").read_text()):
        if kind == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1])
    for pod, container in pods():
        assert pod["securityContext"]["runAsNonRoot"]
        assert f"{pod['securityContext']['runAsUser']}" == dict(STEPS)["USER"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
    for service in COMPOSE.values():
        assert service["read_only"]


def test_health_is_asked_where_it_is_served() -> None:
    """A server listens where others ask; a client listens nowhere, and ends when it is done."""
    assert dict(STEPS)["EXPOSE"] == PORT
    *program, code = COMPOSE["server"]["healthcheck"]["test"]
    assert program == ["CMD", "python", "-c"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked = code.replace(PORT, f"{listening.getsockname()[1]}")
        subprocess.run([sys.executable, "-c", asked], check=True)
    assert subprocess.run([sys.executable, "-c", asked], stderr=subprocess.DEVNULL).returncode == 1
    server = JOBS["fedtopics-server"]["spec"]["template"]["spec"]["containers"][0]
    assert server["ports"] == [{"containerPort": int(PORT)}]
    assert server["readinessProbe"] == {"tcpSocket": {"port": int(PORT)}}


def test_what_is_written_is_on_a_volume() -> None:
    """And what is read is mounted; the working folder of the image is that of compose's volume."""
    assert dict(STEPS)["WORKDIR"] == "/data"
    for name, service in COMPOSE.items():
        assert service["volumes"] == [f"./{name}:/data"]
        assert not [word for word in service["command"] if word.startswith("/")]
    for pod, container in pods():
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        paths = [word for word in container["args"] if word.startswith("/")]
        assert all(f"/{path.split('/')[1]}" in mounts for path in paths)
        names = {volume["name"] for volume in pod["volumes"]}
        assert names == {mount["name"] for mount in container["volumeMounts"]}


def test_the_services_of_compose_end_a_study_though_the_server_dies(tmp_path: Path) -> None:
    """What compose starts, in folders that docs/deployment.md has filled; a client on two machines.

    In place of containers are processes; of the port that is published, one of this machine.
    """
    write_letters(tmp_path)
    port = free_port()
    program = str(Path(sys.executable).parent / "fedtopics")

    def service(name: str, folder: Path) -> Service:
        words = [
            re.sub(r"\$\{SERVER:-.*\}", f"localhost:{port}", word)
            for word in COMPOSE[name]["command"]
        ]
        return [program, *words], folder

    server = tmp_path / "server"
    shutil.copytree(tmp_path / "pki/server", server / "identity")
    shutil.copy(tmp_path / "study.toml", server)
    clients = []
    for name in NAMES:
        folder = tmp_path / name
        shutil.copytree(tmp_path / "pki/clients" / name, folder / "identity")
        rows = (tmp_path / f"{name}.csv").read_text().splitlines()[1:]
        documents = (json.dumps({"text": row}) for row in rows)
        (folder / "documents.jsonl").write_text("\n".join(documents))
        (folder / "policy.toml").write_text("min_documents = 10\n")
        clients.append(service("client", folder))
    words, place = service("server", server)
    assert COMPOSE["server"]["restart"] == "on-failure"
    assert COMPOSE["server"]["ports"] == ["7557:7557"]
    assert_survives(([*words, "--listen", f"127.0.0.1:{port}"], place), clients, server / "run")
    assert (tmp_path / "north/run/theta.parquet").is_file()


def test_the_clean_folder_gets_the_steps_of_the_first_stage() -> None:
    text = "# a comment\nFROM a AS b\nARG X=1\nRUN one \\\n    two\nFROM c\nUSER 1\n"
    assert build.first_stage(text) == [("ARG", "X=1"), ("RUN", "one      two")]
