"""One of our models on the prepared documents of the quality benchmark, as ``peers.py`` does it.

    python benchmarks/ours.py prodlda DOCUMENTS.parquet VOCABULARY.json --topics 20 --seed 0 \
        --clients node --out RESULT.json
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fedtopics import Corpus, Study, TopicModel, __version__, train
from fedtopics.federation.policy import OPEN_POLICY

TOP = 25
METHODS = ("lda", "nmf", "mixture")  # the others are networks of gFedNTM
EVEN = 5  # clients of the even split


def read(path: Path) -> tuple[Corpus, list[str]]:
    """Return the documents with their embeddings, and the client of each."""
    table = pq.read_table(path)
    vectors = table["embedding"].combine_chunks().flatten().to_numpy()
    corpus = Corpus.of(table["tokens"])
    return corpus.with_embeddings(vectors.reshape(len(corpus), -1)), table["node"].to_pylist()


def split(corpus: Corpus, nodes: list[str], clients: str, seed: int) -> dict[str, Corpus]:
    """Spread the documents over clients: by node, evenly, or not at all."""
    if clients == "pooled":
        return {"all": corpus}
    if clients == "even":
        owner = np.random.default_rng(seed).permutation(len(corpus)) % EVEN
    else:
        owner = np.unique(nodes, return_inverse=True)[1]
    return {f"client{i}": corpus.take(np.flatnonzero(owner == i)) for i in range(owner.max() + 1)}


def peak_mb() -> float:
    """Return the most memory that this process had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def fit(arguments: argparse.Namespace, parts: dict[str, Corpus]) -> tuple[TopicModel, list[float]]:
    """Train; return the model and the seconds of each round."""
    kind = {"name" if arguments.name in METHODS else "network": arguments.name}
    numbers = {} if arguments.rounds is None else {"max_rounds": arguments.rounds}
    common = {"n_components": arguments.topics, "coherence": arguments.within}
    study = Study.make(
        seed=arguments.seed,
        method=kind | common | numbers,
        vocabulary={"min_document_frequency": 1, "max_words": 100_000, "max_document_share": 1},
    )
    seconds: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            seconds.append(event["seconds"])

    policies = dict.fromkeys(parts, OPEN_POLICY)
    return train(study, parts, policies=policies, on_event=note), seconds


def main() -> None:
    """Train, and write topics, assignments, seconds and memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("name")
    parser.add_argument("documents", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clients", choices=("node", "even", "pooled"), default="node")
    parser.add_argument("--within", choices=("windows", "documents"), default="windows")
    parser.add_argument("--rounds", type=int, help="at most, if not the method's own number")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    corpus, nodes = read(arguments.documents)
    parts = split(corpus, nodes, arguments.clients, arguments.seed)
    start = time.perf_counter()
    model, rounds = fit(arguments, parts)
    seconds = time.perf_counter() - start
    result = {
        "name": arguments.name,
        "versions": {"fedtopics": __version__},
        "topics": model.topics(TOP),
        "assigned": model.transform(corpus).argmax(1).tolist(),
        "seconds": seconds,
        "rounds": len(rounds),
        "peak_mb": peak_mb(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
        "reading": [model.reading.lambda_, model.reading.by_sums],
        "by_probability": model.topics(TOP, lambda_=1.0),
    }
    arguments.out.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
