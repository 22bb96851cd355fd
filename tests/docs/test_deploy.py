"""What deploy/ has for containers: the commands are ours, nobody is root, versions are pinned.

`make image` builds it, or does its steps where docker is missing.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy import build
from fedtopics import cli
from tests.helpers.services import NAMES, Service, assert_survives, free_port, write_letters

METRICS = "9557"
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


COMMANDS = [
    *(service["command"] for service in COMPOSE.values()),
    *(container["args"] for _, container in pods()),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_commands_are_as_they_can_be_typed(words: list[str]) -> None:
    command = cli.app.get_command(click.Context(cli.app), words[0])
    assert command is not None
    typed = [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in words[1:]]
    context = command.make_context(words[0], typed)
    assert context.params["out"] is not None
    if words[0] == "server":
        assert context.params["go_on"]


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
    assert ("ARG", "EXTRAS=[neural,metrics]") in STEPS
    assert METRICS in dict(STEPS)["EXPOSE"].split()
    for service in COMPOSE.values():
        command, asked = service["command"], service["healthcheck"]["test"]
        assert command[command.index("--metrics") + 1] == METRICS, "this container's alone"
        assert asked[:3] == ["CMD", "python", "-c"]
        assert f"'http://127.0.0.1:{METRICS}/healthz'" in asked[3]
        compile(asked[3], "healthcheck", "exec")
    for _, container in pods():
        arguments = container["args"]
        assert arguments[arguments.index("--metrics") + 1] == f"0.0.0.0:{METRICS}"
        assert {"containerPort": int(METRICS), "name": "metrics"} in container["ports"]
        probes = {name: probe["httpGet"] for name, probe in container.items() if "Probe" in name}
        assert probes == {
            "readinessProbe": {"path": "/healthz/ready", "port": "metrics"},
            "livenessProbe": {"path": "/healthz", "port": "metrics"},
            "startupProbe": {"path": "/healthz", "port": "metrics"},
        }


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

    In place of containers are processes; of the port that is published, one of this machine, and
    of that of metrics, which each container has for itself, any.
    """
    write_letters(tmp_path)
    port = free_port()
    program = str(Path(sys.executable).parent / "fedtopics")

    def service(name: str, folder: Path) -> Service:
        words = [
            re.sub(r"\$\{SERVER:-.*\}", f"localhost:{port}", w).replace(METRICS, "0")
            for w in COMPOSE[name]["command"]
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
