"""Seconds and memory of Dask's workers, from 10,000 to 1,000,000 synthetic documents."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common
from fedtopics import Study, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.integrations.dask import connected

SIZES = (10_000, 100_000, 1_000_000)
IN_FILE = 25_000
TOPICS = 20
WORDS = 400
LENGTH = 30
METHODS: dict[str, dict[str, Any]] = {
    "NMF": {"name": "nmf"},
    "LDA": {"name": "lda", "learning": "batch", "max_rounds": 10},
    "ProdLDA": {"name": "gfedntm", "network": "prodlda", "max_rounds": 100, "batch_size": 4096},
}
ENGINES = {"one process": 0, "two workers": 2}
INTRODUCTION = """\
One client's documents of {} words, in files of {:,}. Seconds include reading, not the start of \
workers. Memory is the largest of a worker, or of the process, in MB. Coherence is not \
computed. Command: `make bench NAME=dask`."""


def write_documents(folder: Path, n_documents: int) -> Path:
    """Write texts of words of one topic, with a fifth of other words."""
    place = folder / str(n_documents)
    place.mkdir(parents=True, exist_ok=True)
    words = np.array(
        [f"w{topic:02d}{word:03d}" for topic in range(TOPICS) for word in range(WORDS)]
    )
    for number, start in enumerate(range(0, n_documents, IN_FILE)):
        rng = np.random.default_rng([0, number])
        n = min(IN_FILE, n_documents - start)
        if (file := place / f"{number:03d}.parquet").exists():
            continue
        on_topic = (
            rng.integers(TOPICS, size=(n, 1)) * WORDS + rng.geometric(0.02, (n, LENGTH)) % WORDS
        )
        other = rng.integers(len(words), size=on_topic.shape)
        drawn = words[np.where(rng.random(on_topic.shape) < 0.2, other, on_topic)]
        pq.write_table(pa.table({"text": [" ".join(row) for row in drawn]}), file)
    return place / "*.parquet"


def run(task: dict[str, Any]) -> dict[str, float]:
    files = write_documents(common.ROOT / "build/dask", task["documents"])
    method = METHODS[task["method"]] | {"n_components": TOPICS, "coherence": "nothing"}
    study = Study.make(method=method)
    policies = {"a": OPEN_POLICY}
    if not (workers := ENGINES[task["engine"]]):
        begun = time.perf_counter()
        train(study, {"a": files}, policies=policies)
        return {"seconds": time.perf_counter() - begun, "megabytes": common.memory_mb()}
    with connected(None, workers) as cluster:
        begun = time.perf_counter()
        train(study, {"a": files}, policies=policies, engine=cluster)
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "megabytes": max(cluster.run(common.memory_mb).values())}


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from (INTRODUCTION.format(LENGTH, IN_FILE), "")
    groups = dict(common.each_group(rows, "method", "documents", "engine"))
    lines = []
    for method, documents in dict.fromkeys((row["method"], row["documents"]) for row in rows):
        of = [groups.get((method, documents, engine), []) for engine in ENGINES]
        cells = [f"{row['seconds']:.1f} / {row['megabytes']:,.0f}" for group in of for row in group]
        lines.append((method, f"{documents:,}", *cells))
    head = " | ".join(f"{name}, s / MB" for name in ENGINES)
    yield from common.table(f"method | documents | {head}", lines, left=1)


def main() -> None:
    given = common.arguments(__doc__, only=tuple(METHODS))
    tasks = common.grid(documents=SIZES, method=["NMF"], engine=ENGINES)
    tasks += common.grid(documents=[200_000], method=given.only, engine=ENGINES)
    if given.quick:
        tasks = common.grid(documents=[200], method=["NMF"], engine=ENGINES)
    common.measured(given, tasks, lambda task: common.apart(run, task))
    common.write(given, tables(common.kept_rows(given)))
