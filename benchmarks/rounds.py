"""What a round costs: our engine beside a bare gRPC stream, both over mutual TLS on loopback.

A round sends so many bytes to every client and gets as many back. Ours also checks, writes ledgers
(with SHA-256), sums in float64 in the order of the names, and bounds its memory; the bare stream
looks at nothing. The two take turns in blocks of rounds, so that a noisy machine disturbs both.
Results go to ``benchmarks/results/rounds.md``; what is there already is not measured again.

    python benchmarks/rounds.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import IO, Any, cast

from echo import SIZES
from fedtopics import pki

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rounds.jsonl"
CLIENTS = (5, 50)
BLOCKS = 8
ROUNDS = {5: 12, 50: 4}  # of a block
ORIENTATION = """
For orientation, not measured here: the published gFedNTM code sleeps 3 s a client and step, 15 s
with five clients; design notes of this project give NVIDIA FLARE 2.9 (collab) 170-260 ms and
Flower 1.41 (deployment) 3-6 s for a round of 2 MB with five clients."""


class Contestant:
    """A server with its clients, in processes that wait for orders."""

    def __init__(self, kind: str, clients: int, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "round_contestant.py", kind, str(clients), "-", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, rounds: int, floats: int) -> dict[str, Any]:
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write(json.dumps([rounds, floats]) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def children(self) -> list[str]:
        """Return the clients' processes."""
        own = self._process.pid
        return Path(f"/proc/{own}/task/{own}/children").read_text(encoding="utf-8").split()

    def close(self) -> None:
        cast("IO[str]", self._process.stdin).close()
        self._process.wait()


def measure(clients: int, floats: int, folder: Path) -> dict[str, Any]:
    """Let the two take turns; fresh processes, so that their peak of memory is this size's."""
    contestants = {kind: Contestant(kind, clients, folder) for kind in ("bare", "ours")}
    seconds: dict[str, list[float]] = {kind: [] for kind in contestants}
    memory = {}
    for contestant in contestants.values():
        contestant.run(3, floats)
    for _ in range(BLOCKS):
        for kind, contestant in contestants.items():
            answer = contestant.run(ROUNDS[clients], floats)
            seconds[kind] += answer["seconds"]
            memory[kind] = answer["start"], answer["megabytes"]
    for contestant in contestants.values():
        contestant.close()
    row: dict[str, Any] = {"clients": clients, "floats": floats}
    for kind, times in seconds.items():
        row[kind] = [1e3 * statistics.median(times), 1e3 * statistics.quantiles(times, n=10)[-1]]
        row[f"{kind} MB"] = memory[kind]
    return row


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a setting, those of earlier runs first."""
    RESULTS.parent.mkdir(exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = {(row["clients"], row["floats"]): row for row in map(json.loads, lines)}
    pki.create(folder / "pki", ["localhost"])
    for number in range(max(CLIENTS)):
        pki.issue(folder / "pki", f"client-{number:03d}")
    for clients, floats in product(CLIENTS, SIZES.values()):
        row = known.get((clients, floats))
        if row is None:
            row = measure(clients, floats, folder)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
        yield row


def table(found: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Yield the table's lines."""
    names = {floats: name for name, floats in SIZES.items()}
    yield (
        "| clients | size | ours, ms (90 %) | bare, ms (90 %) | ours / bare | server at start, MB "
        "| at its peak, MB | bare at its peak, MB |"
    )
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in found:
        ours, bare = row["ours"], row["bare"]
        yield (
            f"| {row['clients']} | {names[row['floats']]} | {ours[0]:.1f} ({ours[1]:.1f}) "
            f"| {bare[0]:.1f} ({bare[1]:.1f}) | {ours[0] / bare[0]:.2f} "
            f"| {row['ours MB'][0]:.0f} | {row['ours MB'][1]:.0f} | {row['bare MB'][1]:.0f} |"
        )


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    lines = [
        "A round over mutual TLS on loopback, median and 90th percentile; clients are processes "
        f"of their own (of 50, ten a process). gRPC {version('grpcio')}. Command: "
        "`make bench-rounds`.",
        "",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for line in table(rows(Path(folder))):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            lines.append(line)
    lines += ORIENTATION.splitlines()
    RESULTS.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
