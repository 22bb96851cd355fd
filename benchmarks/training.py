"""Documents per second in training: ours, contextualized-topic-models, and the bare products.

Same documents, network, batch size, optimiser (Adam) and threads (two). The contestants take
turns in long-lived processes, several times round, so that a machine whose speed drifts drifts
for all of them; the table shows medians. Results go to ``benchmarks/results/training.md``.

    python benchmarks/training.py --peer .venv-peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import IO, cast

HERE = Path(__file__).parent
WORDS = (2_000, 5_000, 20_000)
BATCHES = (64, 256)


class Contestant:
    """A process that answers jobs with documents per second."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "contestant.py"],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *numbers: int) -> float:
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write(json.dumps([name, *numbers]) + "\n")
        stdin.flush()
        return float(json.loads(stdout.readline()))

    def close(self) -> None:
        cast("IO[str]", self._process.stdin).close()
        self._process.wait()


def measure(topics: int, repeats: int, peer_python: str | None) -> list[str]:
    """Let the contestants take turns; return the table's lines."""
    us = Contestant(sys.executable)
    them = Contestant(peer_python) if peer_python else None
    lines = [
        "| words | batch | ours | peer | ours / peer | all products | ours / all products |"
        " decoder's products | ours / decoder's |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n_words, batch in product(WORDS, BATCHES):
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


def federated(repeats: int, topics: int, n_words: int, batch: int) -> str:
    """Five clients with synchronised normalisation against one process, the same total batch."""
    us = Contestant(sys.executable)
    ratios, ones, fives = [], [], []
    for _ in range(repeats):
        ones.append(us.run("ours", topics, n_words, 5 * batch))
        fives.append(us.run("five_clients", topics, n_words, 5 * batch))
        ratios.append(ones[-1] / fives[-1])
    us.close()
    return (
        f"| {n_words:,} | {5 * batch} | {statistics.median(ones):,.0f} "
        f"| {statistics.median(fives):,.0f} | {statistics.median(ratios):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peer", help="Python of an environment with the peer")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = [
        f"Documents per second in training, {arguments.topics} topics, hidden layers of 100 and "
        f"100, two threads, medians of {arguments.repeats} turns; torch {version('torch')}. "
        "Peer: contextualized-topic-models 2.6.1. Command: `make bench`.",
        "",
        *measure(arguments.topics, arguments.repeats, arguments.peer),
        "",
        "Five clients on the local engine (`sync`, doors and policies, ledgers written) against "
        "one process with the same total batch; documents per second, and how many times as long "
        "the five take.",
        "",
        "| words | total batch | one process | five clients | time |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for n_words, batch in product(WORDS, BATCHES):
        lines.append(federated(arguments.repeats, arguments.topics, n_words, batch))
        sys.stderr.write(lines[-1] + "\n")
    target = HERE / "results" / f"training-{arguments.topics}.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
