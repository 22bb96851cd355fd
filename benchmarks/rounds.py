"""What an exchange costs: our engine beside a bare gRPC stream, both over mutual TLS on loopback.

An exchange gets so many bytes from every client and brings as many to it. Ours also checks, signs,
writes ledgers (with SHA-256) and the log of totals, sums in float64 in the order of the names, and
bounds its memory; the bare stream looks at nothing. The two take turns in blocks of exchanges, so
that a noisy machine disturbs both. Results go to ``benchmarks/results/rounds.md``; what is there
already is not measured again.

    python benchmarks/rounds.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import IO, Any, cast

from echo import SIZES, Block, name_of
from fedtopics import pki

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "rounds.jsonl"
CLIENTS = (5, 50)
BLOCKS, QUICK = 8, 4
EXCHANGES = {5: 12, 50: 4}  # of a block
WARMING = 3
ORIENTATION = """
For orientation, not measured here: the published gFedNTM code sleeps 3 s a client and step, 15 s
with five clients; design notes of this project give NVIDIA FLARE 2.9 (collab) 170-260 ms and
Flower 1.41 (deployment) 3-6 s for a round of 2 MB with five clients."""


class Contestant:
    """A server with its clients, in processes that wait for the next of their blocks."""

    def __init__(self, kind: str, clients: int, folder: Path, blocks: Sequence[Block]) -> None:
        command: list[str | Path] = [
            HERE / "round_contestant.py",
            kind,
            str(clients),
            json.dumps(blocks),
            folder,
        ]
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> dict[str, Any]:
        """Do the next block."""
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write("\n")
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


def measure(clients: int, floats: int, folder: Path, turns: int = BLOCKS) -> dict[str, Any]:
    """Let the two take turns; fresh processes, so that their peak of memory is this size's."""
    blocks = [(WARMING, floats), *turns * [(EXCHANGES[clients], floats)]]
    contestants = {
        kind: Contestant(kind, clients, new_folder(folder, kind), blocks)
        for kind in ("bare", "ours")
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in contestants}
    memory = {}
    for contestant in contestants.values():
        contestant.run()
    for _ in range(turns):
        for kind, contestant in contestants.items():
            answer = contestant.run()
            seconds[kind] += answer["seconds"]
            memory[kind] = answer["start"], answer["megabytes"]
    for contestant in contestants.values():
        contestant.close()
    row: dict[str, Any] = {"clients": clients, "floats": floats}
    for kind, times in seconds.items():
        row[kind] = [1e3 * statistics.median(times), 1e3 * statistics.quantiles(times, n=10)[-1]]
        row[f"{kind} MB"] = memory[kind]
    return row


def new_folder(folder: Path, kind: str) -> Path:
    """Make a folder for ledgers and a log, with the certificates."""
    found = Path(tempfile.mkdtemp(prefix=kind, dir=folder))
    (found / "pki").symlink_to(folder / "pki")
    return found


def certify(folder: Path, clients: int) -> None:
    """Make certificates."""
    pki.create(folder / "pki", ["localhost"])
    for number in range(clients):
        pki.issue(folder / "pki", name_of(number))


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row a setting, those of earlier runs first."""
    RESULTS.parent.mkdir(exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = {(row["clients"], row["floats"]): row for row in map(json.loads, lines)}
    certify(folder, max(CLIENTS))
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 MB, five clients; writes nothing")
    if parser.parse_args().quick:
        with tempfile.TemporaryDirectory() as folder:
            certify(Path(folder), CLIENTS[0])
            row = measure(CLIENTS[0], SIZES["2 MB"], Path(folder), QUICK)
        sys.stdout.writelines(f"{line}\n" for line in table(iter([row])))
        return
    lines = [
        "An exchange over mutual TLS on loopback, median and 90th percentile; clients are "
        f"processes of their own (of 50, ten a process). gRPC {version('grpcio')}. Command: "
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
