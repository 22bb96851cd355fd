"""Clusters of short texts: a consensus compared with one clustering, for any split of the texts.

Embeddings are those of all-MiniLM-L6-v2; policies are the default ones, except in the last table.
"""

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.common import (
    arguments,
    each_group,
    grid,
    kept_rows,
    measured,
    parquet,
    table,
    versions,
    write,
)
from experiments.made_up import write as write_made_up
from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.datasets import split_clients
from fedtopics.errors import FedTopicsError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information

SETS = "agnews", "stackoverflow", "biomedical", "m10", "s2_tiny"
CLIENTS = 4
RECIPES: dict[str, dict[str, Any]] = {
    "one clustering": {"preset": "single"},
    "consensus without words": {"word_weight": 0},
    "consensus": {},
}
SMALL = 200, 400, 800, 1600  # texts, other ones for each seed
COMPARED = RECIPES | {"k-means": {"name": "kmeans"}}
SPREAD = (4, None), (4, 0.5), (20, None), (20, 0.5)  # clients; alpha of Dirichlet, None is even
FEW = """\
NMI in %, mean of seeds, where two clients have few texts, plain aggregation. A dash: a client has \
too few texts."""
EXACT = "m10"  # whose words are all known, however texts are spread
INTRODUCTION = """\
ACC / NMI in %, mean of seeds of the study, in brackets the lowest ACC; four clients with as many \
texts each, secure aggregation; seconds of training without embeddings, one thread, simulated. \
Command: `make bench NAME=consensus DATA=folder`."""
BELOW = """\
The consensus of one seed, by where texts are. Other labels: documents in another cluster than \
with all texts at one client, where policies let everything leave. A dash: a client has too few \
texts."""


@cache
def documents(data: Path, name: str) -> Corpus:
    file = pq.read_table(parquet(data, name), columns=["text", "label"])
    corpus = Corpus.of(file, Columns(text="text", label="label"))
    return Study.make(method={"name": "discriminative"}).embedded(corpus)


def drawn(data: Path, task: dict[str, Any]) -> Corpus:
    """Return all texts, or as many as the task says."""
    corpus = documents(data, task["data"])
    n = task.get("texts", len(corpus))
    rows = np.random.default_rng(task["seed"]).permutation(len(corpus))[:n]
    return corpus.take(np.sort(rows))


def labels_of(corpus: Corpus) -> list[str]:
    column: Any = corpus.labels
    return [str(label) for label in column.to_pylist()]


def found(
    data: Path, task: dict[str, Any], policy: Policy, **more: Any
) -> tuple[TopicModel, NDArray[np.int64]]:
    corpus = drawn(data, task)
    alpha = task["alpha"]
    how = {"by": "even"} if alpha is None else {"by": "dirichlet", "alpha": alpha}
    n = task["clients"]
    clients = split_clients(corpus, n_clients=n, **how, seed=1) if n > 1 else {"all": corpus}
    method = {"name": "discriminative", "coherence": "nothing"} | COMPARED[task["recipe"]]
    method |= {"n_components": len(set(labels_of(corpus)))}
    study = Study.make(method=method, seed=task["seed"], aggregation=task["sums"], **more)
    model = train(study, clients, policies=dict.fromkeys(clients, policy))
    return model, model.main_topics(corpus)


@cache
def pooled(data: Path, name: str) -> NDArray[np.int64]:
    """Return the labels with all texts at one client, where all of it may leave."""
    at_one = {"data": name, "recipe": "consensus", "clients": 1, "alpha": None, "sums": "plain"}
    limits = {"min_persons_per_word": 1}
    return found(data, at_one | {"seed": 0}, OPEN_POLICY, vocabulary=limits)[1]


def run(data: Path, task: dict[str, Any]) -> dict[str, Any]:
    corpus = drawn(data, task)
    begun = time.perf_counter()
    try:
        model, labels = found(data, task, Policy())
    except FedTopicsError as error:
        return {"refused": str(error)}
    seconds = time.perf_counter() - begun
    truth = labels_of(corpus)
    row = {
        "acc": 100 * clustering_accuracy(truth, labels),
        "nmi": 100 * normalised_mutual_information(truth, labels),
        "seconds": seconds,
        "rounds": model.info["rounds"],
        "versions": versions("fedtopics", "numpy", "scipy"),
    }
    exact = task["data"] == EXACT and "texts" not in task
    if task["recipe"] == "consensus" and exact and task["seed"] == 0:
        _, open_ = found(data, task, OPEN_POLICY, vocabulary={"min_persons_per_word": 1})
        row["other"] = int((open_ != pooled(data, EXACT)).sum())
    return row


def cell(rows: list[dict[str, Any]]) -> str:
    acc, nmi, seconds = (np.array([row[key] for row in rows]) for key in ("acc", "nmi", "seconds"))
    return f"{acc.mean():.1f} / {nmi.mean():.1f} ({acc.min():.1f}), {seconds.mean():.0f} s"


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from (INTRODUCTION, "")
    standard_rows = [row for row in rows if row["clients"] == CLIENTS and row["alpha"] is None]
    of = dict(
        each_group((row for row in standard_rows if row["sums"] == "secure"), "recipe", "data")
    )
    sets = [name for name in SETS if any(name == data for _, data in of)]
    lines = [
        [name, *(cell(of[name, data]) if (name, data) in of else "" for data in sets)]
        for name in RECIPES
    ]
    yield from table(f"recipe | {' | '.join(sets)}", lines)
    yield from ("", BELOW, "")
    places: list[tuple[Any, ...]] = []
    for row in (row for row in rows if "texts" not in row):
        if row["recipe"] == "consensus" and row["seed"] == 0:
            alpha = "even" if row["alpha"] is None else f"Dirichlet {row['alpha']}"
            scores = "-" if "refused" in row else f"{row['acc']:.1f} / {row['nmi']:.1f}"
            who = row["data"], f"{row['clients']}, {alpha}", row["sums"]
            places.append((*who, scores, row.get("other", "")))
    yield from table("set | clients | aggregation | ACC / NMI | other labels", places, left=3)
    yield from ("", FEW, "")
    few = dict(each_group((row for row in rows if "texts" in row), "data", "texts", "recipe"))

    def nmi(*key: Any) -> str:
        values = [row["nmi"] for row in few.get(key, ()) if "nmi" in row]
        return f"{np.mean(values):.1f}" if values else "-"

    numbers = dict.fromkeys((data, texts) for data, texts, _ in few)
    lines = [[*key, nmi(*key, "consensus"), nmi(*key, "k-means")] for key in numbers]
    yield from table("set | texts | consensus | k-means", lines)


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = arguments(__doc__, files, seeds=3, only=SETS)
    data = given.data
    sets = given.only
    if given.quick:
        data = write_made_up(given.folder, ("m10",), 240)
        sets = ("m10",)
    where: dict[str, Any] = {"clients": [CLIENTS], "alpha": [None], "sums": ["secure"]}
    where_few = {"clients": 2, "alpha": None, "sums": "plain"}
    seeds = range(1 if given.quick else given.seeds)
    tasks = list(grid(data=sets, recipe=RECIPES, seed=seeds, **where))
    spread = [] if given.quick else SPREAD
    tasks += [
        {"data": name, "recipe": "consensus", "seed": 0, "clients": n, "alpha": alpha, "sums": sums}
        for name in sets
        if name in (EXACT, SETS[0])
        for n, alpha in spread
        for sums in ("plain", "secure")
        if (n, alpha, sums) != (CLIENTS, None, "secure")
    ]
    small = grid(data=sets[:3], texts=SMALL, recipe=("consensus", "k-means"), seed=seeds)
    tasks += [where_few | task for task in small if not given.quick or task["texts"] == SMALL[0]]
    measured(given, tasks, lambda task: run(data, task))
    write(given, tables(kept_rows(given)))
