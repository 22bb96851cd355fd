"""A thousand clients on the local engine: what a round costs, and how that grows with clients.

Each client has a hundred documents of 60 words, of few of ten topics (its own mixture, drawn from a
Dirichlet distribution: skewed). All clients train in each round, or twenty that are drawn. Each
study runs in a process of its own.
"""

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, apart, arguments, grid, measured, memory_mb, table, write

CLIENTS = (10, 100, 1000)
QUICK = (3,)
DRAWN = 20
N_TOPICS = 10
N_WORDS = 5000
N_DOCUMENTS = 100
LENGTH = 60
DIMENSION = 64
METHODS: dict[str, dict[str, Any]] = {
    "ProdLDA": {"name": "gfedntm", "max_rounds": 12},
    "ProdLDA, 5 local steps": {
        "name": "gfedntm",
        "norm": "server",
        "optimizer": "fedadam",
        "local_steps": 5,
        "max_rounds": 5,
    },
    "LDA": {"name": "lda", "learning": "stochastic", "max_rounds": 12},
    "F-LDA": {
        "name": "flda",
        "max_rounds": 2,
        "documents_per_round": 33,
        "min_new_documents": 20,
        "iterations": 200,
    },
    "k-means": {"name": "kmeans", "max_rounds": 12},
    "FSTC, 10 local steps": {"name": "fstc", "network": {"local_steps": 10}, "max_rounds": 2},
}
EMBEDDED = ("k-means", "FSTC, 10 local steps")
HEAD = "method | clients | in a round | until the first round, s | a round, s | peak MB"


def corpora(n_clients: int, embedded: bool) -> dict[str, Any]:
    """Draw each client's documents; embeddings lie about the mean of their topics' points."""
    from fedtopics import Corpus

    rng = np.random.default_rng(0)
    beta = rng.dirichlet(np.full(N_WORDS, 0.02), N_TOPICS)
    points = rng.normal(size=(N_TOPICS, DIMENSION))
    words = np.array([f"word{i}" for i in range(N_WORDS)])
    clients = {}
    for client in range(n_clients):
        theta = rng.dirichlet(0.05 + 20 * rng.dirichlet(np.full(N_TOPICS, 0.05)), N_DOCUMENTS)
        drawn = [rng.choice(N_WORDS, LENGTH, p=row @ beta) for row in theta]
        corpus = Corpus.of([words[document].tolist() for document in drawn])
        if embedded:
            vectors = theta @ points + 0.3 * rng.normal(size=(N_DOCUMENTS, DIMENSION))
            corpus = corpus.with_embeddings(vectors.astype(np.float32))
        clients[f"client{client:04}"] = corpus
    return clients


def run(clients: int, name: str, drawn: int | None) -> dict[str, Any]:
    from fedtopics import Study, train

    method = METHODS[name] | {"n_components": N_TOPICS, "coherence": "nothing"}
    method |= {"clients_per_round": drawn}
    if name in EMBEDDED:
        method["embedding"] = {"dimension": DIMENSION}
    documents = corpora(clients, name in EMBEDDED)
    before = memory_mb()
    starts: list[float] = []
    rounds: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] > 0:
            starts.append(time.perf_counter() - event["seconds"])
            rounds.append(event["seconds"])

    begun = time.perf_counter()
    train(Study.make(method=method), documents, on_event=note)
    costs = {"start": starts[0] - begun, "round": statistics.median(rounds)}
    return costs | {"peak_mb": memory_mb(), "documents_mb": before}


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    titles = {"round": "seconds a round", "peak_mb": "peak memory, MB"}
    for axis, (value, title) in zip(axes, titles.items(), strict=True):
        for colour, method in enumerate(METHODS):
            for drawn, style in ((None, "-"), (DRAWN, "--")):
                line = [r for r in rows if r["method"] == method and r["drawn"] == drawn]
                label = method if drawn is None else None
                at = [r["clients"] for r in line]
                height = [r[value] for r in line]
                axis.plot(at, height, style, color=f"C{colour}", marker=".", label=label)
        axis.set(xscale="log", yscale="log", xlabel="clients", ylabel=title)
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(f"all clients in a round (lines), {DRAWN} of them (dashes)", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    given = arguments(__doc__)
    every = grid(clients=QUICK if given.quick else CLIENTS, method=METHODS, drawn=(None, DRAWN))
    todo = [task for task in every if task["clients"] > (task["drawn"] or 0)]
    how = partial(apart, run) if not given.quick else run
    rows = measured(given, todo, lambda task: how(*task.values()))
    lines = [
        (
            row["method"],
            f"{row['clients']:,}",
            f"{row['drawn'] or row['clients']:,}",
            f"{row['start']:.1f}",
            f"{row['round']:.2f}",
            f"{row['peak_mb']:,.0f}",
        )
        for row in rows
    ]
    write(given, table(HEAD, lines))
    figures = given.folder if given.quick else ROOT / "docs" / "figures"
    picture(rows, figures / "many-clients.png")
