"""The stage of `faults`: a server and its clients, or peers, as processes in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.federated import free_port
from fedtopics import pki

SIZES = {"north": 90, "south": 70, "west": 60}  # documents of the clients
ROUNDS, EARLY = 80, 15  # the round in which faults happen
LIMIT = 240.0  # seconds for anything
STUDY = """
name = "faults"
checkpoint_every = 5
secure = false  # so that two can go on

[method]
name = "lda"
n_components = 3
max_rounds = {rounds}
batch_size = 16

[vocabulary]
min_document_frequency = 1

[federation]
min_clients = {quorum}
wait = 200
pause = {pause}
deadline = {deadline}
"""
USUAL = MappingProxyType({"rounds": ROUNDS, "quorum": 3, "pause": 0.1, "deadline": 30})
Process = subprocess.Popen[bytes]


def documents(name: str, size: int, seed: int) -> str:
    """Draw documents as JSON lines: 120 words of the client's own, 26 that all share."""
    rng, letters = np.random.default_rng(seed), "abcdefghijklmnopqrstuvwxyz"
    words = [f"{name}{a}{b}" for a in letters[:5] for b in letters[:24]]
    words += [f"common{a}" for a in letters]
    weights = rng.dirichlet(np.full(len(words), 0.3))
    texts = (" ".join(rng.choice(words, rng.integers(8, 30), p=weights)) for _ in range(size))
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


class Stage:
    """The processes of a row, in a folder with the clients' documents and identities."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.teller, self.wrong = "server", list[str]()
        self.started: dict[str, Process] = {}  # the last one of each name
        self.codes: dict[str, int] = {}  # with which each should end
        for seed, (name, size) in enumerate(SIZES.items()):
            (folder / f"{name}.jsonl").write_text(documents(name, size, seed), "utf-8")
        (folder / "policy.toml").write_text("min_documents = 10\n", "utf-8")

    def study(self, changed: Mapping[str, float] = USUAL, of: str = "clients") -> None:
        """Write the study: of clients of a server, of peers, or of files in one process."""
        text = STUDY.format(**{**USUAL, **changed})
        pki.create(self.folder / "pki", ["localhost"])
        for name in SIZES:
            pki.issue(self.folder / "pki", name, peer=of == "peers")
            address = f'address = "localhost:{free_port()}"\n' if of == "peers" else ""
            data = f'data = "{name}.jsonl"\n' if of == "files" else ""
            text += f"\n[clients.{name}]\n{address}{data}"
        (self.folder / "study.toml").write_text(text, "utf-8")

    def start(self, who: str, *words: str) -> Process:
        """Start a command; its output is in WHO.log."""
        with (self.folder / f"{who}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtopics", *words], cwd=self.folder, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.started[who], self.codes[who] = process, 0
        return process

    def server(self, *more: str) -> Process:
        address = f"localhost:{self.port}"
        return self.start(
            "server", "server", "study.toml", "--pki", "pki", "--listen", address,
            "--out", "server", *more,
        )  # fmt: skip

    def take_part(self, name: str, *words: str) -> Process:
        return self.start(
            name, *words, "--identity", f"pki/clients/{name}", "--data", f"{name}.jsonl",
            "--text", "text", "--policy", "policy.toml", "--out", name, "--secret-from-seed",
        )  # fmt: skip

    def client(self, name: str, port: int = 0) -> Process:
        return self.take_part(name, "client", "--server", f"localhost:{port or self.port}")

    def peer(self, name: str) -> Process:
        return self.take_part(name, "peer", "study.toml")

    def begin(self, changed: Mapping[str, float] = USUAL) -> None:
        """Start a server and all clients, and let them train for a while."""
        self.study(changed)
        self.server()
        for name in SIZES:
            self.client(name)
        self.until_round(EARLY)

    def begin_peers(self) -> None:
        """Start all participants without a server, and let them train for a while."""
        self.study(of="peers")
        self.teller = "north"
        for name in SIZES:
            self.peer(name)
        self.until_round(EARLY)

    def kill(self, *names: str) -> None:
        """End processes as the kernel does when memory is short."""
        for name in names:
            self.started[name].kill()
            self.started[name].wait()

    def events(self, who: str = "", out: str = "") -> list[dict[str, Any]]:
        """Return whole lines of somebody's events."""
        place = self.folder / (out or who or self.teller)
        found = [*place.glob("events.jsonl"), *place.glob("state/events.jsonl")]
        whole = found[0].read_text("utf-8").rpartition("\n")[0] if found else ""
        return [json.loads(line) for line in whole.splitlines()]

    def rounds(self, who: str = "") -> list[dict[str, Any]]:
        return [event for event in self.events(who) if event["event"] == "round"]

    def until_round(self, number: int, who: str = "") -> None:
        """Wait until somebody has done a round."""
        self.until(
            lambda: any(event["round"] >= number for event in self.rounds(who)), f"round {number}"
        )

    def until(self, true: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
        ends = time.monotonic() + limit
        while not true():
            if time.monotonic() > ends:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.05)

    def says(self, who: str, words: str) -> bool:
        return words in (self.folder / f"{who}.log").read_text("utf-8", "replace")

    def finish(self) -> None:
        """Wait until all have ended, and look at how."""
        for name, process in self.started.items():
            self.until(lambda p=process: p.poll() is not None, f"the end of {name}")  # type: ignore[misc]
            if process.returncode != self.codes[name]:
                self.wrong.append(f"{name} ended with {process.returncode}")

    def stop(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()
