"""Small clusters, where sums over few documents are not sent.

There are 44 subjects, 28 texts of each on average, as in the set Tweet of 89, from 283 down to 7. A
cluster needs ten documents, of one client, or with secure aggregation of all.
"""

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common
from experiments.made_up import write as write_made_up
from fedtopics import Columns, Corpus, Policy, Study, train
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information

SETS = "stackoverflow", "biomedical", "agnews"
EACH = 28  # texts of a subject, on average
CLIENTS = 4
METHODS: dict[str, dict[str, Any]] = {
    "k-means": {"name": "kmeans"},
    "one clustering": {"name": "discriminative", "preset": "single"},
    "consensus": {"name": "discriminative"},
}
CASES: dict[str, tuple[int, Policy, str]] = {  # clients, their policies, aggregation
    "pooled, one document is enough": (1, OPEN_POLICY, "plain"),
    "pooled, ten": (1, Policy(), "plain"),
    "four clients, ten of each": (CLIENTS, Policy(), "plain"),
    "four clients, secure, ten of all": (CLIENTS, Policy(), "secure"),
}
COLUMNS = ("acc", "nmi", "used", "few", "seconds")
INTRODUCTION = """\
Texts of many subjects (1,254 of 44, fewer with --quick) in as many clusters, mean of random ways \
to divide them between four clients. Used: clusters with texts. Of few others: clusters of ten \
texts or more, of which all clients but one have 1 to 9 together, so that this one can read the \
sum of these. Command: `make bench NAME=small-groups DATA=folder`."""


@cache
def documents(data: Path, is_whole: bool) -> Corpus:
    """Draw texts of each set's subjects: of the k-th one as many as its share by Zipf's law."""
    rng = np.random.default_rng(0)
    texts = []
    for name in SETS if is_whole else ("m10",):
        file = pq.read_table(common.parquet(data, name), columns=["label", "text"])
        texts += [(name, str(row["label"]), row["text"]) for row in file.to_pylist()]
    subjects = sorted({(name, label) for name, label, _ in texts})
    shares = 1 / np.arange(1, len(subjects) + 1)
    sizes = np.ceil(EACH * len(subjects) * shares / shares.sum()).astype(int)
    columns: dict[str, list[str]] = {"text": [], "label": []}
    for size, place in zip(sizes, rng.permutation(len(subjects)), strict=True):
        subject_texts = [text for name, label, text in texts if (name, label) == subjects[place]]
        chosen = rng.permutation(subject_texts)[:size].tolist()
        columns["text"] += chosen
        columns["label"] += [str(place)] * len(chosen)
    corpus = Corpus.of(pa.table(columns), Columns(text="text", label="label"))
    return Study.make(method={"name": "kmeans"}).embedded(corpus)


def run(data: Path, is_whole: bool, task: dict[str, Any]) -> dict[str, float]:
    corpus = documents(data, is_whole)
    seed = task["seed"]
    n, policy, aggregation = CASES[task["case"]]
    truth: Any = corpus.labels.to_pylist()  # type: ignore[union-attr]
    clients = split_clients(corpus, by="even", n_clients=n, seed=seed)
    method = METHODS[task["method"]] | {"n_components": len(set(truth)), "coherence": "nothing"}
    study = Study.make(method=method, aggregation=aggregation, seed=seed)
    begun = time.perf_counter()
    model = train(study, clients, policies=dict.fromkeys(clients, policy))
    seconds = time.perf_counter() - begun
    labels = model.main_topics(corpus)
    counts = np.array(
        [
            np.bincount(model.main_topics(client), minlength=model.n_topics)
            for client in clients.values()
        ]
    )
    others = counts.sum(0) - counts
    least = policy.min_persons
    few = ((others > 0) & (others < least) & (counts.sum(0) >= least)).any(0).sum()
    return {
        "acc": 100 * clustering_accuracy(truth, labels),
        "nmi": 100 * normalised_mutual_information(truth, labels),
        "used": len(set(labels.tolist())),
        "few": int(few),
        "seconds": seconds,
    }


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from (INTRODUCTION, "")
    lines = [
        [*names, *(f"{np.mean([row[key] for row in of]):.1f}" for key in COLUMNS)]
        for names, of in common.each_group(rows, "method", "case")
    ]
    head = "method | documents | ACC | NMI | clusters used | of few others | s"
    yield from common.table(head, lines, left=2)


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = common.arguments(__doc__, files, seeds=3)
    data = given.data
    methods = list(METHODS)
    seeds = range(given.seeds)
    if given.quick:
        data = write_made_up(given.folder, ("m10",), 240)
        methods = methods[:1]
        seeds = range(1)
    tasks = common.grid(method=methods, case=CASES, seed=seeds)
    common.measured(given, tasks, lambda task: run(data, not given.quick, task))
    common.write(given, tables(common.kept_rows(given)))
