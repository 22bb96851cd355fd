"""A server and its clients as processes, in a folder of their own: start, kill, wait, read."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

BIN = Path(sys.executable).parent
SOURCES = Path(__file__).resolve().parents[1] / "src"  # of these very files, wherever BIN is of
SIZES = {"north": 300, "south": 240, "west": 200}  # documents of the clients
ALL_SIZES = SIZES | {"east": 180, "centre": 160}
HOSTS = ("localhost", "127.0.0.1", "192.0.2.1")  # the last one between network namespaces
ROUNDS = 60
DAMAGED = "damaged line"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCES)}
TICK = 0.02  # seconds between two looks at a file


class TookTooLongError(Exception):
    """Something did not happen in its time."""


class NotHereError(Exception):
    """This machine cannot show the fault."""


class Ground:
    """What all rows stand on: made-up documents, two authorities, identities.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pki = folder / "pki"
        self.policy = folder / "policy.toml"
        self.policy.write_text("min_documents = 10\n")  # the usual one asks for more, without masks
        self.faultless: dict[Any, dict[str, NDArray[Any]]] = {}  # weights, by clients and rounds
        for seed, (name, size) in enumerate(ALL_SIZES.items()):
            self.data(name).write_text(documents(name, size, seed), encoding="utf-8")
        servers = [word for host in HOSTS for word in ("--server", host)]
        for authority in ("pki", "other"):
            self.fedtopics("pki", "create", authority, *servers)
        for name in (*SIZES, "stranger"):
            self.fedtopics("pki", "issue", name, "--pki", "pki")
        self.fedtopics("pki", "issue", "south", "--pki", "other")
        self.fedtopics("pki", "issue", "late", "--pki", "pki", "--days", "0")

    def data(self, name: str) -> Path:
        """Return the file of a client's documents; whoever is no client has those of south."""
        return self.folder / f"{name if name in ALL_SIZES else 'south'}.jsonl"

    def identity(self, name: str, authority: str = "pki") -> Path:
        """Return a client's identity folder."""
        return self.folder / authority / "clients" / name

    def fedtopics(self, *words: str, check: bool = True) -> int:
        """Run a command; return its exit code."""
        command = [str(BIN / "fedtopics"), *words]
        done = subprocess.run(command, cwd=self.folder, check=check, capture_output=True)
        return done.returncode


def documents(name: str, size: int, seed: int) -> str:
    """Draw documents as JSON lines: 120 words of the client's own, 26 that all share."""
    rng = np.random.default_rng(seed)
    letters = [chr(ord("a") + i) for i in range(26)]
    own = [f"{name}{a}{b}" for a in letters[:5] for b in letters[:24]]
    words = np.array(own + [f"common{a}" for a in letters])
    weights = rng.dirichlet(np.full(len(words), 0.3))
    texts = (" ".join(rng.choice(words, rng.integers(8, 30), p=weights)) for _ in range(size))
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


class Process:
    """One process, its output, and how it should end.

    Parameters
    ----------
    name, command
    folder : path
        Where it works and its output is kept.
    code : int or None
        The exit code it should have; None if any will do.
    out : path, optional
        Where the model should be when it ends with 0.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        code: int | None,
        out: Path | None,
        environment: Mapping[str, str],
    ) -> None:
        self.name = name
        self.code = code
        self.out = out
        number = len(list(folder.glob(f"{name}*.log")))
        self._log = folder / (f"{name}-{number}.log" if number else f"{name}.log")
        with self._log.open("wb") as file:
            self.popen = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT, **environment},
            )

    @property
    def lines(self) -> list[str]:
        """What it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def says(self, pattern: str) -> bool:
        """Whether a line matches a regular expression."""
        return any(re.search(pattern, line) for line in self.lines)

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel does when memory is short."""
        self.code = None
        self.popen.kill()
        self.popen.wait()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.popen.send_signal(number)


class Stage:
    """A row's processes.

    Parameters
    ----------
    ground : Ground
    folder : path
        The row's own.
    limit : float
        Seconds until whoever still runs is killed and called hung.
    """

    def __init__(self, ground: Ground, folder: Path, limit: float) -> None:
        self.ground = ground
        self.folder = folder
        self.run = folder / "run"  # whose model and events the row is judged by
        self.state = self.run  # where these events are
        self.sizes: Mapping[str, int] = SIZES  # of the study's clients
        self.rounds = ROUNDS
        self.processes: list[Process] = []
        self.teller = "server"  # whose output the column of the others shows
        self.seen: Process | None = None  # whose output the column "the client" shows
        self.also: list[str] = []  # what was seen otherwise
        self.did: list[str] = []  # the same of the server
        self.defects: list[str] = []
        self.cleanup: list[Callable[[], None]] = []
        self.completed: dict[int, dict[tuple[tuple[str, ...], int], str]] = {}  # see `remember`
        self._ends = time.monotonic() + limit
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    # Begin.

    def study(
        self,
        rounds: int = ROUNDS,
        checkpoint_every: int = 5,
        deadline: float = 20,
        gather: float = 30,
        megabytes: int = 64,
    ) -> None:
        """Write the study; without a call, `serve` writes the usual one."""
        self.rounds = rounds
        clients = "".join(self._table(name) for name in self.sizes)
        (self.folder / "study.toml").write_text(
            f"checkpoint_every = {checkpoint_every}\nsecure = false\n"
            f"[method]\nn_components = 6\nhidden = [16, 12]\nmax_rounds = {rounds}\n"
            f'[federation]\ndeadline = {deadline}\nrobust = "none"\ngather = {gather}\nwait = 30\n'
            f"largest_message = {megabytes}\n{clients}"
        )
        self._read_study()

    def _read_study(self) -> None:
        """Look at the study that was written."""

    def _table(self, name: str) -> str:
        return f"[clients.{name}]\n"

    def begin(self, *without: str) -> Process:
        """Start the server and the clients, but for some; return the server."""
        server = self.serve()
        for name in SIZES:
            if name not in without:
                self.join(name)
        return server

    def serve(self, *options: str, prefix: Sequence[str] = (), host: str = "127.0.0.1") -> Process:
        """Start the server."""
        if not (self.folder / "study.toml").exists():
            self.study()
        listen = f"{host}:{self.port}"
        command = [
            *prefix, str(BIN / "fedtopics"), "server", "study.toml", "--listen", listen,
            "--pki", str(self.ground.pki), "--out", str(self.run), *options,
        ]  # fmt: skip
        return self._start("server", command, 0, self.run)

    def join(
        self,
        name: str,
        *options: str,
        identity: Path | None = None,
        prefix: Sequence[str] = (),
        host: str = "127.0.0.1",
        code: int | None = 0,
        program: Sequence[str] = (str(BIN / "fedtopics"), "client"),
        out: str = "",
    ) -> Process:
        """Start a client; `code` is how it should end."""
        folder = self.folder / (out or name)
        identity = identity or self.ground.identity(name)
        secure = [] if "--insecure" in options else ["--identity", str(identity)]
        policy = [] if "--policy" in options else ["--policy", str(self.ground.policy)]
        command = [
            *prefix, *program, "--server", f"{host}:{self.port}", *secure, "--text", "text",
            "--data", str(self.ground.data(name)), "--out", str(folder), "--secret-from-seed",
            *policy, *options,
        ]  # fmt: skip
        return self._start(out or name, command, code, folder)

    def spoil(
        self,
        fault: str,
        *options: str,
        name: str = "south",
        code: int | None = 4,
        prefix: Sequence[str] = (),
    ) -> Process:
        """Start a client of ours that spoils replies; see faulty_client.py."""
        script = Path(__file__).with_name("faulty_client.py")
        program = (sys.executable, str(script), fault)
        return self.join(name, *options, code=code, program=program, prefix=prefix)

    def _start(
        self,
        name: str,
        command: Sequence[str],
        code: int | None,
        out: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Process:
        process = Process(name, command, self.folder, code, out, environment)
        self.processes.append(process)
        return process

    def __getitem__(self, name: str) -> Process:
        """Return the newest process of a name."""
        return [process for process in self.processes if process.name == name][-1]

    # Wait and look.

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, but not longer than the row may take."""
        while not condition():
            if time.monotonic() > self._ends:
                raise TookTooLongError(what)
            time.sleep(TICK)

    def until_round(self, number: int) -> None:
        """Wait until a round is done."""
        server = self["server"]
        self.until(
            lambda: not server.running or max(self.rounds_done, default=0) >= number,
            f"round {number}",
        )

    def until_said(self, process: Process, pattern: str) -> None:
        """Wait until a process has printed something, or has ended."""
        self.until(lambda: process.says(pattern) or not process.running, f"{pattern!r}")

    def finish(self) -> None:
        """Wait until all have ended."""
        self.remember()
        for process in self.processes:
            self.until(lambda p=process: not p.running, f"the end of {process.name}")  # type: ignore[misc]

    def stop(self) -> list[str]:
        """Kill whoever is left; return their names."""
        left = [process for process in self.processes if process.running]
        for process in left:
            process.popen.kill()
            process.popen.wait()
        return [process.name for process in left]

    def leave(self) -> None:
        """Take away what the row put up around its processes."""
        for clean in self.cleanup:
            clean()

    def pause(self, seconds: float) -> None:
        """Let time pass, unless the server ends."""
        ends, server = time.monotonic() + seconds, self["server"]
        self.until(lambda: time.monotonic() > ends or not server.running, "time")

    def rest(self, seconds: float) -> None:
        """Let time pass, whoever runs."""
        ends = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > ends, "time")

    def expect(self, true: bool, otherwise: str) -> None:
        """Note a defect unless something is true."""
        if not true:
            self.defects.append(otherwise)

    @property
    def histories(self) -> dict[str, list[dict[str, Any]]]:
        """What everybody's events say, complete lines only, by the name of its folder."""
        places = [self.run, *sorted(self.folder.glob("*/state"))]
        found = {self._owner(place): _events(place / "events.jsonl") for place in places}
        return {name: events for name, events in found.items() if events}

    def _owner(self, place: Path) -> str:
        return "server" if place == self.run else place.parent.name

    def out_of(self, name: str) -> Path:
        """Return somebody's folder."""
        return self.run if name == "server" else self.folder / name

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the run's events say."""
        return self.histories.get("server", [])

    def remember(self) -> None:
        """Note which rounds somebody has completed, and with whom; none may ever be another one."""
        for name, events in self.histories.items():
            for event in events:
                if event["event"] == "round":
                    counted = tuple(event["clients"]), event["attempts"]
                    self.completed.setdefault(event["round"], {}).setdefault(counted, name)

    @property
    def last_round(self) -> dict[str, Any]:
        """What the events say of the last round."""
        return [event for event in self.events if event["event"] == "round"][-1]

    @property
    def rounds_done(self) -> list[int]:
        """Numbers of the rounds, as often as they were done."""
        return [event["round"] for event in self.events if event["event"] == "round"]


def _events(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [_event(line) for line in whole.splitlines()]


def _event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return {"event": DAMAGED}
    return event


def room(folder: Path, kilobytes: int) -> Callable[[], None]:
    """Mount a small file system on a folder; return what takes it away."""
    folder.mkdir(parents=True)
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() or not mount or not umount:
        raise NotHereError("it needs root, to mount a small file system")
    size = f"size={kilobytes}k"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=False)
    if done.returncode:
        raise NotHereError("a file system cannot be mounted here")

    def leave() -> None:
        subprocess.run([umount, "--lazy", str(folder)], check=False)

    return leave


def fill(folder: Path) -> Path:
    """Fill a file system to the last byte; return the file to delete."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path
