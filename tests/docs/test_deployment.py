"""The example federation, the README's commands, deploy.md and events.md match the code."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import kubernetes_validate
import pytest
import yaml

from deploy import build
from fedtopics import errors
from fedtopics.contract.events import Event, RoundEnded, RoundReport, StatusChange
from fedtopics.federation.study_tables import FederationSettings
from tests.helpers.command_line import find_command
from tests.helpers.services import NAMES, assert_survives, write_folders

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / "examples" / name for name in ("federation.sh", "peers.sh")]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EVENTS = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")

Command = tuple[str, ...]


def commands(text: str) -> list[Command]:
    """The commands of fedtopics in a shell's text, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    matches = (re.match(r"\s*(?:run |start )?(fedtopics .*)", line) for line in lines)
    split = (shlex.split(match[1], comments=True) for match in matches if match)
    return [tuple(words[: words.index(">")] if ">" in words else words) for words in split]


def plain(command: Command) -> Command:
    """A command without what differs from place to place: names, addresses, hosts."""
    text = " ".join(command)
    text = re.sub(r"\b(north|south|west|networkx|scipy|sklearn)\b|\$(name|1)", "NAME", text)
    return tuple(text.split())


SHOWN = commands(README.partition("## Real deployment")[2].partition("\n## ")[0])
PLAYED = [command for script in SCRIPTS for command in commands(script.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    bash = shutil.which("bash")
    assert bash
    for file in (script, script.with_name("steps.sh")):
        subprocess.run([bash, "-n", str(file)], check=True)


def test_the_scripts_show_everything() -> None:
    begun = {" ".join(command[1:3]) for command in PLAYED}
    assert begun >= {"key create", "audit log", "audit verify", "audit dpia"}
    assert {words[1] for words in PLAYED} >= {"check", "serve", "join", "topics"}


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_a_script_plays_the_readme(command: Command) -> None:
    wanted = plain(command)
    assert any(plain(played)[: len(wanted)] == wanted for played in PLAYED)


@pytest.mark.parametrize("command", sorted({*SHOWN, *PLAYED}), ids=" ".join)
def test_commands_and_options_exist(command: Command) -> None:
    place, words = find_command(list(command[1:]))
    assert not isinstance(place, click.Group)
    options = {name for parameter in place.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


def test_every_key_of_the_federation_is_explained() -> None:
    text = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    table = text.partition("## Plain aggregation")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert rows.keys() == FederationSettings.model_fields.keys()
    for key, shown in rows.items():
        default = FederationSettings.model_fields[key].default
        assert default in (None, shown) or float(re.sub(r"[, s]", "", shown)) == default, key


def events(kind: type[Event]) -> Iterator[type[Event]]:
    for event in kind.__subclasses__():
        yield event
        yield from events(event)


def kinds_and_keys() -> Iterator[tuple[str, set[str]]]:
    for event in events(Event):
        keys = set(get_type_hints(event)) - {"kind"}
        if event is StatusChange:
            for kind in get_args(get_type_hints(event)["status"]):
                yield kind, {"client"}
        elif event is RoundEnded:
            yield event.kind, {"round", *RoundReport.__annotations__, "loss", "documents"}
        else:
            yield event.kind, keys


def test_every_event_is_explained() -> None:
    section = EVENTS.partition("## Events")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([a-z ]+)`", section))
    words = set(re.findall(r"\w+", section))
    for kind, keys in kinds_and_keys():
        assert kind in explained, kind
        assert keys <= words, (kind, keys - words)


def test_every_exit_code_is_explained() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.FedTopicsError)}
    section = EVENTS.partition("## Exit codes")[2].partition("\n## ")[0]
    assert codes | {0, 70, 130, 143} == {int(n) for n in re.findall(r"^\| (\d+) \|", section, re.M)}


# What deploy/ has: the commands are ours, nobody is root, versions are pinned.
# `make image` builds it, or does its steps where docker is missing.


PORT = "7557"
DEPLOY = ROOT / "deploy"
STEPS = list(build.instructions((DEPLOY / "Dockerfile").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
RESOURCES = [
    document
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]
JOBS = {
    document["metadata"]["name"]: document for document in RESOURCES if document["kind"] == "Job"
}


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
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


@pytest.mark.parametrize(
    "words",
    [
        *map(started, UNITS.values()),
        *(service["command"] for service in COMPOSE.values()),
        *(container["args"] for _, container in pods()),
    ],
    ids=lambda words: words[0],
)
def test_commands_are_as_they_can_be_typed(words: list[str]) -> None:
    command, rest = find_command(words)
    typed = [re.sub(r"\$\{\w+(:-(.*))?\}", r"\2", word) for word in rest]
    assert command.make_context(words[0], typed).params["out"] is not None


NEED_A_PERSON = {errors.InputError.exit_code, errors.PolicyError.exit_code, 4}


def test_kubernetes_takes_the_files_and_restarts_nothing_that_needs_a_person() -> None:
    for document in RESOURCES:
        kubernetes_validate.validate(document, "1.31", strict=True)
    assert JOBS.keys() == {
        document["metadata"]["name"]
        for document in RESOURCES
        if document["kind"] == "NetworkPolicy"
    }
    for job in JOBS.values():
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        assert (rule["action"], {*rule["onExitCodes"]["values"]}) == ("FailJob", NEED_A_PERSON)


def container(service: dict[str, Any], script: str, folder: Path) -> dict[str, Any]:
    """What starts a service of compose, with a script of the shell as the program."""
    (folder / "fedtopics").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "fedtopics").chmod(0o755)
    command = [word.replace("$$", "$") for word in service["entrypoint"]]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return {"args": [*command, "join", "a b"], "env": environment}


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (1, 1), (2, 0), (3, 0), (4, 0), (143, 143)])
def test_compose_restarts_nothing_that_needs_a_person(
    code: int, shown: int, tmp_path: Path
) -> None:
    for service in COMPOSE.values():
        done = subprocess.run(
            **container(service, f"exit $(({code} + $# - 2))", tmp_path), capture_output=True
        )
        assert done.returncode == shown
        assert (f"exit code {code};" in done.stderr.decode()) == (code in NEED_A_PERSON)


def test_a_stopped_container_lets_the_program_end(tmp_path: Path) -> None:
    script = "trap 'sleep 0.2; echo ended; exit 5' TERM\necho begun\nwhile :; do sleep 0.1; done"
    with subprocess.Popen(
        **container(COMPOSE["member"], script, tmp_path), stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"begun\n"
        shell.terminate()
        assert shell.stdout.read() == b"ended\n"
    assert shell.returncode == 5


def test_units_start_again_what_people_need_not_mend(tmp_path: Path) -> None:
    """They write in one folder alone, and systemd takes them."""
    assert {name: started(unit)[0] for name, unit in UNITS.items()} == {
        "fedtopics-member": "join",
        "fedtopics-server": "serve",
    }
    for name, unit in UNITS.items():
        assert {*map(int, lines(unit, "RestartPreventExitStatus")[0].split())} == NEED_A_PERSON
        assert (lines(unit, "Restart"), lines(unit, "User")) == (["on-failure"], ["fedtopics"])
        assert lines(unit, "ReadWritePaths") == lines(unit, "WorkingDirectory")
        assert not [word for word in started(unit) if word.startswith("/")]
        if (systemd := shutil.which("systemd-analyze")) is not None:
            file = tmp_path / (f"{name}@south.service" if "%i" in unit else f"{name}.service")
            file.write_text(
                unit.replace(PROGRAM, sys.executable).replace("User=fedtopics", "User=root")
            )
            done = subprocess.run([systemd, "verify", file], capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")


def test_nobody_is_root_and_the_lock_is_kept() -> None:
    kinds = [kind for kind, _ in STEPS]
    assert kinds.count("FROM") == 2
    assert kinds.index("USER") > kinds.index("FROM", 1) < kinds.index("ENTRYPOINT")
    assert dict(STEPS)["USER"] != "0"
    (base,) = {rest.split()[0] for kind, rest in STEPS if kind == "FROM"}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    installs = [rest for kind, rest in STEPS if kind == "RUN" and "pip install" in rest]
    assert ["-c requirements.lock" in rest for rest in installs] == [True, True]
    for kind, rest in build.first_stage((DEPLOY / "Dockerfile").read_text()):
        if kind == "COPY":
            assert all((ROOT / source).exists() for source in rest.split()[:-1])
    for pod, container in pods():
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": int(dict(STEPS)["USER"]),
            "fsGroup": int(dict(STEPS)["USER"]),
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    for service in COMPOSE.values():
        assert service["read_only"]
        assert {"mem_limit", "cpus"} < service.keys()


def test_health_is_asked_where_it_is_served() -> None:
    """A server listens where others ask; a member listens nowhere, and ends when it is done."""
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
        assert {volume["name"] for volume in pod["volumes"]} == {
            mount["name"] for mount in container["volumeMounts"]
        }


def test_the_services_of_compose_end_a_study_though_the_server_dies(tmp_path: Path) -> None:
    """What compose starts, in the folders of docs/how-to/deploy.md; members on two machines."""
    write_folders(tmp_path)
    program = str(Path(sys.executable).parent / "fedtopics")
    server, *members = (
        ([program, *COMPOSE[service]["command"]], tmp_path / name)
        for service, name in [("server", "server"), *(("member", name) for name in NAMES)]
    )
    assert COMPOSE["server"]["restart"] == "on-failure"
    assert COMPOSE["server"]["ports"] == ["7557:7557"]
    assert_survives(server, members, tmp_path / "north/run")
    assert (tmp_path / "north/run/theta.parquet").is_file()


def test_the_clean_folder_gets_the_steps_of_the_first_stage() -> None:
    text = "# a comment\nFROM a AS b\nARG X=1\nRUN one \\\n    two\nFROM c\nUSER 1\n"
    assert build.first_stage(text) == [("ARG", "X=1"), ("RUN", "one      two")]
