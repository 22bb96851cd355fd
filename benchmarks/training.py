"""Documents per second in training: ours, contextualized-topic-models, and the bare products.

Same documents, network, batch size, optimiser (Adam) and threads. The contestants take
turns in long-lived processes, several times round, so that a machine whose speed drifts drifts
for all of them; the table shows medians. Results go to ``benchmarks/results/training.md``.

    python benchmarks/training.py --peer .venv-peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import IO, cast

HERE = Path(__file__).parent
WORDS = (2_000, 5_000, 20_000)
BATCHES = (64, 256)
SIZES = tuple(product(WORDS, BATCHES))
WAYS = ("one process", "at once", "each client", "ledgers")


class Contestant:
    """A process that answers jobs with documents per second."""

    busy = False

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "contestant.py", *["--busy"] * self.busy],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1" if self.busy else "2"},
        )

    def run(self, name: str, *arguments: int | str) -> float:
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write(json.dumps([name, *arguments]) + "\n")
        stdin.flush()
        return float(json.loads(stdout.readline()))

    def close(self) -> None:
        cast("IO[str]", self._process.stdin).close()
        self._process.wait()


def measure(
    topics: int, repeats: int, peer_python: str | None, sizes: Iterable[tuple[int, int]] = SIZES
) -> list[str]:
    """Let the contestants take turns; return the table's lines."""
    us = Contestant(sys.executable)
    them = Contestant(peer_python) if peer_python else None
    lines = [
        "| words | batch | ours | peer | ours / peer | all products | ours / all products |"
        " decoder's products | ours / decoder's |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n_words, batch in sizes:
        rounds = []
        for _ in range(repeats):
            job = (topics, n_words, batch)
            row = {name: us.run(name, *job) for name in ("ours", "floor", "decoder_floor")}
            row["peer"] = them.run("peer", *job) if them else float("nan")
            rounds.append(row)
        middle = {name: statistics.median(row[name] for row in rounds) for name in rounds[0]}
        ratio = {
            name: statistics.median(row["ours"] / row[name] for row in rounds) for name in middle
        }
        line = (
            f"| {n_words:,} | {batch} | {middle['ours']:,.0f} | {middle['peer']:,.0f} "
            f"| {ratio['peer']:.1f} | {middle['floor']:,.0f} | {ratio['floor']:.2f} "
            f"| {middle['decoder_floor']:,.0f} | {ratio['decoder_floor']:.2f} |"
        )
        sys.stderr.write(line + "\n")
        lines.append(line)
    us.close()
    if them:
        them.close()
    return lines


def combined(topics: int, repeats: int, peer_python: str) -> list[str]:
    """CombinedTM beside the peer's, with the peer's usual batch and with our own."""
    us, them = Contestant(sys.executable), Contestant(peer_python)
    small, large = BATCHES
    lines = [
        f"| words | peer, {small} | ours, {small} | ours / peer | ours, {large} | ours / peer |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n_words in WORDS:
        turns = [
            (
                them.run("peer_combined", topics, n_words, small),
                us.run("combined", topics, n_words, small),
                us.run("combined", topics, n_words, large),
            )
            for _ in range(repeats)
        ]
        theirs, *ours = (statistics.median(column) for column in zip(*turns, strict=True))
        ratios = [statistics.median(turn[i] / turn[0] for turn in turns) for i in (1, 2)]
        cells = " | ".join(f"{o:,.0f} | {r:.1f}" for o, r in zip(ours, ratios, strict=True))
        lines.append(f"| {n_words:,} | {theirs:,.0f} | {cells} |")
        sys.stderr.write(lines[-1] + "\n")
    us.close()
    them.close()
    return lines


def federated(topics: int, repeats: int, data: Path | None) -> list[str]:
    """Clients with synchronised normalisation against one process, the same total batch."""
    us = Contestant(sys.executable)
    lines = [
        "| documents | words | total batch | clients | one process | at once | time | each client "
        "| time | with ledgers | time |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    jobs: list[tuple[str, tuple[int | str, ...]]] = [
        (f"synthetic | {n_words:,} | {5 * batch:,} | 5", ("federate", topics, n_words, 5 * batch))
        for n_words, batch in SIZES
    ]
    if data is not None:
        path = str((data / "m10.parquet").resolve())
        jobs.append(("m10, a subject a client | 1,696 | 256 | 10", ("nodes", path)))
    for label, (name, *arguments) in jobs:
        turns = [[us.run(str(name), way, *arguments) for way in WAYS] for _ in range(repeats)]
        one, *several = (statistics.median(column) for column in zip(*turns, strict=True))
        longer = [statistics.median(row[0] / row[i] for row in turns) for i in (1, 2, 3)]
        cells = " | ".join(f"{f:,.0f} | {t:.2f}" for f, t in zip(several, longer, strict=True))
        lines.append(f"| {label} | {one:,.0f} | {cells} |")
        sys.stderr.write(lines[-1] + "\n")
    us.close()
    return lines


def write(name: str, lines: list[str]) -> None:
    """Keep a table and print it."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peer", help="Python of an environment with the peer; none skips it")
    parser.add_argument("--data", type=Path, help="folder of m10.parquet; none leaves it out")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="see that it runs; no peer, no file")
    parser.add_argument(
        "--busy", action="store_true", help="count processor seconds of one thread: others compute"
    )
    arguments = parser.parse_args()
    Contestant.busy = arguments.busy
    if arguments.quick:
        sys.stdout.write("\n".join(measure(arguments.topics, 1, None, [(500, 64)])) + "\n")
        return
    seconds = "one thread, processor seconds" if arguments.busy else "two threads"
    setting = (
        f"{arguments.topics} topics, hidden layers of 100 and 100, {seconds}, medians of "
        f"{arguments.repeats} turns; torch {version('torch')}. Command: `make bench`."
    )
    if arguments.peer:
        table = combined(arguments.topics, arguments.repeats, arguments.peer)
        title = (
            "CombinedTM: documents per second in training, beside contextualized-topic-models "
            "2.6.1, by the size of batches (defaults: the peer's 64, ours 256); embeddings of 384 "
            "numbers"
        )
        write(f"combined-{arguments.topics}.md", [f"{title}; {setting}", "", *table])
        table = measure(arguments.topics, arguments.repeats, arguments.peer)
        title = "Documents per second in training, beside contextualized-topic-models 2.6.1"
        write(f"training-{arguments.topics}.md", [f"{title}; {setting}", "", *table])
    title = (
        "Documents per second of one process and of several clients (`sync`) with the same total "
        "batch, and how many times as long these take"
    )
    table = federated(arguments.topics, arguments.repeats, arguments.data)
    write(f"federated-{arguments.topics}.md", [f"{title}; {setting}", "", *table])


if __name__ == "__main__":
    main()
