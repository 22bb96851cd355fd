"""Topics with differential privacy: how good they are, by epsilon, beside no document at all.

All documents are at one client: sums do not depend on it, but of n clients a third may be missing,
so when all are there the noise is up to 1.5 times the variance (--clients 3). The control are
public words, clustered by their vectors and weighted by how often they occur, with noise.
"""

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from benchmarks.common import grid, measured, parquet, table, topic_scores
from fedtopics import Corpus, Study, train
from fedtopics.datasets import split_clients, synthetic_lda
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.inference.vectors import unit_rows
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information, topic_similarity
from fedtopics.privacy.estimates import first_centres
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens

EPSILONS: tuple[float | None, ...] = None, 8.0, 3.0, 1.0
SHOWN = 10
FAR = 0.3  # cosine: a word of a control's cluster is nearer
DRAWN = "drawn, 50,000 documents, lda"
DRAWING: dict[str, Any] = {"n_validation": 1}
DRAWING_QUICK = DRAWING | {
    "n_documents": 300,
    "n_words": 120,
    "n_topics": 7,
    "shared_topics": 2,
    "eta": 0.05,
}
METHODS = ("lda", "nmf", "kmeans")
FILES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "20ng": ("20ng", 20, {}),
    "news_outlets": ("news_outlets", 10, {"nearest_words": 16}),
    "agnews": ("agnews", 4, {}),
}
SETS: dict[str, tuple[str, dict[str, Any]]] = {
    f"{data}, {name}": (
        path,
        {"n_components": n, "name": name} | (more if name == "kmeans" else {}),
    )
    for data, (path, n, more) in FILES.items()
    for name in METHODS
}
SCORES = "npmi", "different", "nmi", "accuracy", "similarity", "control"
INTRODUCTION = """\
Topics with differential privacy for each document (delta 1e-6): mean over seeds, by epsilon. The \
budget's shares, numbers of rounds and the reading of topics were chosen by hand on 20ng, AgNews, \
news_outlets (one seed) and drawn documents; the rest are as found. Without noise it is the \
method's own training, with all its rounds. "refused" are seeds for which the study says that \
noise hides too much. Seconds are of training, with embeddings that are there, on a busy machine. \
Command: `make bench NAME=private DATA=folder`."""


@cache
def documents(path: Path, embedded: bool) -> tuple[Corpus, list[list[str]]]:
    corpus = Corpus.of(pq.read_table(path, columns=["text", "label"]))
    words = [document for batch in tokens(corpus, TextRules()) for document in batch]
    if embedded:
        corpus = corpus.with_embeddings(document_embeddings(corpus, EmbeddingSettings()))
    return corpus, words


def made(corpora: Any, epsilon: float | None, seed: int, **method: Any) -> Any:
    kind = "secure" if len(corpora) > 1 else "plain"
    public = {key: method.pop(key) for key in ("words", "nearest_words") if key in method}
    bound: Any = {} if epsilon is None else {"differential_privacy": {"epsilon": epsilon, **public}}
    study = Study.make(seed=seed, method=method, aggregation=kind, **bound)
    return train(study, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY))


def spread(corpus: Corpus, clients: int) -> dict[str, Corpus]:
    return {"one": corpus} if clients == 1 else split_clients(corpus, n_clients=clients, by="even")


def of_texts(path: Path, method: dict[str, Any], task: dict[str, Any]) -> dict[str, float]:
    embedded = method["name"] == "kmeans"
    corpus, words = documents(path, embedded)
    begun = time.perf_counter()
    model = made(spread(corpus, task["clients"]), task["epsilon"], task["seed"], **method)
    seconds = time.perf_counter() - begun
    main = model.main_topics(corpus)
    labels = [str(label) for label in corpus.labels.to_pylist()]  # type: ignore[union-attr]
    scores = topic_scores(model.topics(SHOWN), words)
    scores["nmi"] = normalised_mutual_information(labels, main)
    if len(set(labels)) == model.n_topics:
        scores["accuracy"] = clustering_accuracy(labels, main)
    if embedded:
        scores["control"] = topic_scores(control(model), words)["npmi"]
    return scores | {"seconds": seconds}


def control(model: Any) -> list[list[str]]:
    """Cluster the words that a model knows by their vectors; return ten of each cluster."""
    words = model.vocabulary.words
    frequency = model.vocabulary.frequency
    vectors = document_embeddings(Corpus.of(list(words)), EmbeddingSettings()).astype(np.float64)
    points = unit_rows(unit_rows(vectors - np.average(vectors, axis=0, weights=frequency)))
    close = points @ first_centres(points, frequency, model.n_topics, model.info["seed"]).T
    score = np.where(close > FAR, close**2 * frequency[:, None], 0)
    order = np.argsort(-score, axis=0, kind="stable")[:SHOWN].T
    return [[words[column] for column in topic] for topic in order]


def of_drawn(task: dict[str, Any], drawing: dict[str, Any]) -> dict[str, float]:
    """Train LDA on drawn documents; return how similar topics are to the true ones."""
    drawn = synthetic_lda(seed=100 + task["seed"], **drawing)
    pooled = Corpus.pool(client.corpus() for client in drawn.training.values())
    words = list(drawn.words)
    method = {"name": "lda", "n_components": len(drawn.beta), "words": words, "alpha": 0.1}
    begun = time.perf_counter()
    corpora = spread(pooled, task["clients"])
    model = made(corpora, task["epsilon"], task["seed"], **method)
    seconds = time.perf_counter() - begun
    similarity = topic_similarity(drawn.beta, model.beta, drawn.words, model.vocabulary.words)
    return {"similarity": similarity, "seconds": seconds}


def tables(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for (data, epsilon, clients), same in common.each_group(rows, "data", "epsilon", "clients"):
        scored = [row for row in same if not row["refused"]]
        cells = []
        for name in SCORES:
            values = [row[name] for row in scored if name in row]
            digits = 1 if name == "similarity" else 3
            cells.append(f"{np.mean(values):.{digits}f}" if values else "")
        several = f", {clients} clients" if clients > 1 else ""
        seconds = f"{np.mean([row['seconds'] for row in scored]):.0f}" if scored else ""
        refused = f"{len(same) - len(scored)} of {len(same)}"
        bound = "none" if epsilon is None else f"{epsilon:g}"
        lines.append([f"{data}{several}", bound, *cells, refused, seconds])
    return [INTRODUCTION, "", *table(f"data | epsilon | {' | '.join(SCORES)} | refused | s", lines)]


def main() -> None:
    every = [*SETS, DRAWN]
    given = common.arguments(__doc__, "the Parquet files", seeds=3, clients=(1, 3), sets=every)
    sets = given.sets
    epsilons = EPSILONS
    seeds = range(given.seeds)
    clients = given.clients
    if given.quick:
        sets = [DRAWN]
        epsilons = (None, 100.0)
        seeds = range(1)
        clients = [1]

    def work(task: dict[str, Any]) -> dict[str, Any]:
        try:
            if task["data"] == DRAWN:
                scores = of_drawn(task, DRAWING_QUICK if given.quick else DRAWING)
            else:
                file, method = SETS[task["data"]]
                scores = of_texts(parquet(given.data, file), method, task)
        except StudyError:
            return {"refused": True}
        return {"refused": False, **scores}

    measured(given, grid(clients=clients, data=sets, epsilon=epsilons, seed=seeds), work)
    common.write(given, tables(common.kept_rows(given)))
