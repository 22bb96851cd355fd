"""From 22 thousand to 2.2 million documents: speed and memory of a whole federated run.

Five clients' Parquet files of 100-word texts are read, counted, agreed on and trained on for 100
rounds (20,000 words, 25 topics), as in the largest experiment of the gFedNTM paper. Each size runs
in a process of its own, whose peak memory is what the operating system says. Results go to
``benchmarks/results/scale.md``.

    python benchmarks/scale.py
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SIZES = (22_000, 220_000, 2_200_000)
N_CLIENTS, N_WORDS, LENGTH, N_TOPICS, ROUNDS = 5, 20_000, 100, 25, 100
CHUNK = 20_000
LETTERS = np.array(list("abcdefghijklmnopqrst"))


def write_client(path: Path, documents: int, seed: int) -> None:
    """Write texts of Zipf-like words, a chunk at a time."""
    rng = np.random.default_rng(seed)
    number = np.arange(N_WORDS)
    digits = LETTERS[(number[:, None] // 20 ** np.arange(4)) % 20]
    words = pa.array(["".join(row) for row in digits])
    cumulative = np.cumsum(1 / (number + 11.0))
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
        for start in range(0, documents, CHUNK):
            n = min(CHUNK, documents - start)
            drawn = np.searchsorted(cumulative, rng.random(n * LENGTH) * cumulative[-1])
            ends = pa.array(np.arange(0, n * LENGTH + 1, LENGTH, dtype=np.int32))
            lists = pa.ListArray.from_arrays(ends, words.take(pa.array(drawn)))
            writer.write_table(pa.table({"text": pc.binary_join(lists, " ")}))


def run(folder: Path) -> dict[str, Any]:
    """Run the study on a folder's files; return speeds and peak memory."""
    from fedtopics import Study, train

    study = Study.make(
        method={
            "n_components": N_TOPICS,
            "batch_size": 64 * N_CLIENTS,
            "max_rounds": ROUNDS,
            "coherence": "nothing",
        },
        vocabulary={"max_words": N_WORDS, "max_document_share": 1},
        text={"stop_words": "none"},
        clients={path.stem: {"data": path} for path in sorted(folder.glob("*.parquet"))},
    )
    seen: dict[str, float] = {}
    rounds: list[float] = []
    found: dict[str, Any] = {}

    def note(event: dict[str, Any]) -> None:
        seen[event["event"]] = time.perf_counter()
        if event["event"] == "vocabulary":
            found.update(words=event["words"], documents=event["documents"])
        elif event["event"] == "round":
            rounds.append(event["seconds"])

    start = time.perf_counter()
    train(study, on_event=note)
    documents = found["documents"]
    return found | {
        "reading": documents / (seen["vocabulary"] - start),
        "training": 64 * N_CLIENTS / statistics.median(rounds),
        "inference": documents / (seen["finished"] - seen["round"]),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    worker = parser.parse_args().run
    if worker:
        sys.stdout.write(json.dumps(run(worker)))
        return
    lines = [
        f"Five clients, {N_WORDS:,} words, {N_TOPICS} topics, {ROUNDS} rounds of "
        f"{64 * N_CLIENTS} documents, two threads; documents per second. "
        "Command: `make bench-scale`.",
        "",
        "| documents | words agreed on | reading and counting | training | inference | peak GB |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            for client in range(N_CLIENTS):
                write_client(Path(folder) / f"client{client}.parquet", size // N_CLIENTS, client)
            command = [sys.executable, __file__, "--run", folder]
            r = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        lines.append(
            f"| {r['documents']:,} | {r['words']:,} | {r['reading']:,.0f} | {r['training']:,.0f} "
            f"| {r['inference']:,.0f} | {r['peak_gb']:.1f} |"
        )
        sys.stderr.write(lines[-1] + "\n")
    target = Path(__file__).parent / "results" / "scale.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
