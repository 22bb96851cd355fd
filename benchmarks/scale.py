"""From 22 thousand to 2.2 million documents: speed and memory of whole federated runs and of peers.

The largest experiment of the gFedNTM paper has as many documents. Each contestant runs in a process
of its own, whose peak memory is what the operating system says.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common import apart, arguments, kept_rows, measured, memory_mb, table, write

SIZES = (22_000, 220_000, 2_200_000)
QUICK = (300,)
N_CLIENTS = 5
N_WORDS = 20_000
LENGTH = 100
N_TOPICS = 25
RAREST = 5
MOST = 3.0  # GB
GB = 1.024 / 1000  # of a megabyte of 1024 times 1024 bytes, as the system counts
OURS: dict[str, dict[str, Any]] = {
    "prodlda": {"name": "gfedntm", "batch_size": 64 * N_CLIENTS, "max_rounds": 100},
    "lda": {"name": "lda", "learning": "stochastic", "max_rounds": 100},
    "nmf": {"name": "nmf", "max_rounds": 10},
}
Measures = dict[str, Any]
CHUNK = 20_000
LETTERS = np.array(list("abcdefghijklmnopqrst"))
HEAD = """documents | | words | reading and counting | training | inference | needed | with files \
| threads"""


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


def watch(most: list[float]) -> None:
    """Note the most memory of this process that is no copy of a file, twenty times a second."""
    while True:
        most[0] = max(most[0], memory_mb(kind="RssAnon"))
        time.sleep(0.05)


def ours(method: str, folder: Path) -> Measures:
    """Run the study on a folder's files; return speeds."""
    from fedtopics import Study, train

    study = Study.make(
        method=OURS[method] | {"n_components": N_TOPICS, "coherence": "nothing"},
        vocabulary={
            "max_words": N_WORDS,
            "max_document_share": 1,
            "min_persons_per_word": RAREST,
        },
        text={"stop_words": "none"},
        clients={path.stem: {"data": path} for path in sorted(folder.glob("*.parquet"))},
    )
    seen: dict[str, float] = {}
    looks = seconds = 0.0
    measures: Measures = {}

    def note(event: dict[str, Any]) -> None:
        nonlocal looks, seconds
        seen[event["event"]] = time.perf_counter()
        if event["event"] == "vocabulary":
            measures.update(words=event["words"], documents=event["documents"])
        elif event["event"] == "round":
            looks = looks + event["documents"]
            seconds = seconds + event["seconds"]

    start = time.perf_counter()
    train(study, on_event=note)
    documents = measures["documents"]
    return measures | {
        "reading": documents / (seen["vocabulary"] - start),
        "training": looks / seconds,
        "inference": documents / (seen["finished"] - seen["round"]),
    }


def texts_of(folder: Path) -> list[str]:
    paths = sorted(folder.glob("*.parquet"))
    return [text for path in paths for text in pq.read_table(path)["text"].to_pylist()]


def scikit_learn(folder: Path) -> Measures:
    """Count, weigh by tf-idf, factorise in minibatches: one pass; infer."""
    from sklearn.decomposition import MiniBatchNMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    start = time.perf_counter()
    weights = TfidfVectorizer(min_df=RAREST, max_features=N_WORDS, dtype=np.float32)
    bag = weights.fit_transform(texts_of(folder))
    counted = time.perf_counter()
    model = MiniBatchNMF(N_TOPICS, batch_size=1024, max_iter=1, random_state=0).fit(bag)
    trained = time.perf_counter()
    model.transform(bag)
    documents, words = bag.shape
    return {
        "documents": documents,
        "words": words,
        "reading": documents / (counted - start),
        "training": documents / (trained - counted),
        "inference": documents / (time.perf_counter() - trained),
    }


def tomotopy(folder: Path) -> Measures:
    """Add the documents, sample one sweep; a document's topics are there without inference."""
    import tomotopy as tp

    start = time.perf_counter()
    model = tp.LDAModel(k=N_TOPICS, min_df=RAREST, seed=0)
    texts = texts_of(folder)
    for text in texts:
        model.add_doc(text.split())
    model.train(0)
    counted = time.perf_counter()
    model.train(1, workers=int(os.environ["OMP_NUM_THREADS"]))
    return {
        "documents": len(texts),
        "words": len(model.used_vocabs),
        "reading": len(texts) / (counted - start),
        "training": len(texts) / (time.perf_counter() - counted),
    }


PEERS: dict[str, Callable[[Path], Measures]] = {
    "scikit-learn, mini-batch NMF": scikit_learn,
    "tomotopy, LDA": tomotopy,
}


def answer(name: str, folder: str) -> Measures:
    most = [0.0]
    threading.Thread(target=watch, args=(most,), daemon=True).start()
    try:
        measures = PEERS[name](Path(folder)) if name in PEERS else ours(name, Path(folder))
    except ImportError as error:
        return {"missing": str(error)}
    return measures | {"own_gb": most[0] * GB, "peak_gb": memory_mb() * GB}


def cells_of(row: Measures) -> tuple[str, ...]:
    if "missing" in row:
        return f"{row['size']:,}", row["name"], f"left out: {row['missing']}", *[""] * 6
    speeds = [f"{row[part]:,.0f}" if part in row else "-" for part in ("training", "inference")]
    over = f" (above {MOST:g})" if row["own_gb"] > MOST else ""
    numbers = f"{row['words']:,}", f"{row['reading']:,.0f}", *speeds, f"{row['own_gb']:.2f}{over}"
    return f"{row['documents']:,}", row["name"], *numbers, f"{row['peak_gb']:.2f}", row["threads"]


def main() -> None:
    given = arguments(__doc__, sizes=SIZES, methods=(*OURS, *PEERS))
    threads = int(os.environ["OMP_NUM_THREADS"])
    for size in QUICK if given.quick else given.sizes:
        with tempfile.TemporaryDirectory() as folder:

            def measure(task: dict[str, Any], size: int = size, folder: str = folder) -> Measures:
                for client in range(N_CLIENTS):
                    path = Path(folder) / f"client{client}.parquet"
                    if not path.exists():
                        write_client(path, size // N_CLIENTS, client)
                how = answer if given.quick else partial(apart, answer, threads=threads)
                return dict(how(task["name"], folder))

            tasks = [{"size": size, "name": n, "threads": str(threads)} for n in given.methods]
            measured(given, tasks, measure)
    rows = sorted(kept_rows(given), key=lambda row: (row["size"], row["name"]))
    rounds = ", ".join(f"{name} {method['max_rounds']}" for name, method in OURS.items())
    write(
        given,
        [
            f"Five clients, up to {N_WORDS:,} words, {N_TOPICS} topics; peers have all documents "
            f"in one place. Documents per second; in training each look at one counts (rounds: "
            f"{rounds}; of networks 320 documents each, of lda 1,024, of nmf all; peers: one "
            "pass). Of the peak memory (GB), files that the system keeps in memory while there is "
            "room are no part of what a process needs. Command: `make bench NAME=scale`.",
            "",
            *table(HEAD, map(cells_of, rows)),
        ],
    )
