"""Five participants without a server as processes: start, kill, wait, read."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from faults_stage import ALL_SIZES, BIN, Ground, NotHereError, Process, Stage
from fedtopics import pki
from fedtopics.federation.study import Study, adders

HOST = "127.0.0.1"
PACE = 0.03  # seconds that each call waits, so that a run outlives a fault
NOTHING: Mapping[str, str] = MappingProxyType({})


def peers_of(ground: Ground) -> Path:
    """Return the authority of the peers; made when it is needed first."""
    authority = ground.folder / "peers"
    if not authority.exists():
        pki.create(authority, ["localhost"])
        for name in ALL_SIZES:
            pki.issue(authority, name, peer=True)
    return authority


class PeerStage(Stage):
    """A row's participants, of whom one adds.

    Attributes
    ----------
    adders : list of str
        Names, in the order in which they add.
    """

    def __init__(self, ground: Ground, folder: Path, limit: float) -> None:
        super().__init__(ground, folder, limit)
        self.sizes = ALL_SIZES
        self.hosts = dict.fromkeys(ALL_SIZES, HOST)
        self.prefixes: dict[str, Sequence[str]] = {}  # of commands, such as in a network namespace
        self._ports: dict[str, int] = {}
        self.adders: list[str] = []
        self.paced = True  # else they are those of the command, as fast as they can
        self._authority = peers_of(ground)
        self.judge_by("north")

    def _table(self, name: str) -> str:
        if name not in self._ports:
            with socket.create_server((HOST, 0)) as free:
                self._ports[name] = free.getsockname()[1]
        return f'[clients.{name}]\naddress = "{self.hosts[name]}:{self._ports[name]}"\n'

    def _read_study(self) -> None:
        self.adders = adders(Study.read(self.folder / "study.toml"))

    def judge_by(self, name: str) -> None:
        """Say whose model and events are those that the others are held against."""
        self.teller, self.run, self.state = name, self.folder / name, self.folder / name / "state"

    def begin(self, *without: str, **dies: str) -> Process:
        """Start all, but for some; `dies` says when adders do. Return one of them."""
        if not self.adders:
            self.study()
        for name in self.sizes:
            if name not in without:
                self.peer(name, *(("--die", dies[name]) if name in dies else ()))
        return self.processes[-1]

    def peer(self, name: str, *options: str, environment: Mapping[str, str] = NOTHING) -> Process:
        """Start a participant; whoever is to die has no code to end with."""
        script = Path(__file__).with_name("faulty_peer.py")
        program = [str(BIN / "fedtopics"), "peer"]
        if "--die" in options or self.paced:
            program = [sys.executable, str(script)]
            options = (*options, "--pace", str(PACE))
        command = [
            *self.prefixes.get(name, ()), *program, "study.toml",
            "--identity", str(self._authority / "clients" / name), "--text", "text",
            "--data", str(self.ground.data(name)), "--out", str(self.folder / name),
            "--secret-from-seed", "--policy", str(self.ground.policy), *options,
        ]  # fmt: skip
        code = None if "--die" in options else 0
        return self._start(name, command, code, self.folder / name, environment)

    def _owner(self, place: Path) -> str:
        return place.parent.name if place.name == "state" else place.name

    def out_of(self, name: str) -> Path:
        return self.folder / name

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.histories.get(self.teller, [])

    def rounds_of(self, name: str) -> int:
        """Return the last round that a participant has done."""
        path = self.folder / name / "state" / "events.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        for line in reversed(lines):
            if b'"event": "round"' in line[:20] and line.endswith(b"}"):
                return int(json.loads(line)["round"])
        return 0

    def until_round(self, number: int, name: str = "") -> None:
        """Wait until a participant, by default the one judged by, has done a round."""
        name = name or self.teller
        self.until(
            lambda: self.rounds_of(name) >= number or not self[name].running,
            f"round {number} of {name}",
        )

    def until_dead(self, name: str) -> None:
        """Wait until somebody who is to die is dead."""
        self.until(lambda: not self[name].running, f"the death of {name}")
        self.remember()

    def expect_adder(self, name: str) -> None:
        """Note a defect unless the participant judged by was told that somebody adds now."""
        told = [event["client"] for event in self.events if event["event"] == "adds"]
        self.expect(name in told, f"events do not say that {name} adds")


def other_clock(ground: Ground) -> Path:
    """Compile what has a process see another time; return the file to load first."""
    compiler = shutil.which("cc")
    library = ground.folder / "clock.so"
    if compiler is None or sys.platform != "linux":
        raise NotHereError("it needs Linux and a C compiler, to shift a process's clock")
    if not library.exists():
        source = Path(__file__).with_name("faults_clock.c")
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source)]
        if subprocess.run(command, check=False).returncode:
            raise NotHereError("the clock of a process cannot be shifted here")
    return library
