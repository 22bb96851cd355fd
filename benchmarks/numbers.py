"""How many topics or clusters are found, where labels say how many there are."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.metrics import adjusted_mutual_info_score

from benchmarks import common, peers
from benchmarks.quality import prepare
from experiments.made_up import write as write_made_up
from fedtopics import Corpus, Study, train
from fedtopics.federation.exposure import expose
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.methods.core.settings import NUMBERS

SETS = ("s2_tiny", "agnews", "m10", "stackoverflow", "biomedical", "20ng")
METHODS = {"clusters": "discriminative", "NMF": "nmf"}
PEERS = {"BERTopic": "bertopic", "Top2Vec": "top2vec"}
MOST = 10_000  # topics, more than peers find: they are not reduced
MOST_DOCUMENTS = 5_000  # of a set, for NMF
OF_CHOICE = ("products_of_thirds", "topics_of_parts")  # the steps that choose NMF's number
INTRODUCTION = """\
Numbers that `n_components = "auto"` chooses from 2 to 60, and those that BERTopic and Top2Vec \
find by default, one for each seed, and the mean over seeds of |log(chosen / labels)|. Documents \
are pooled. Command: `make bench NAME=numbers DATA=folder`."""
OF_NMF = """\
NMF, on at most 5,000 documents of each set that a seed draws. In brackets: the numbers that are \
about as good by the same score. AMI: agreement of the topics' documents with the labels, at the \
chosen number, and the best over all numbers. Steps and MB per client are those of the choice, at \
most. Policies are the default."""


def run(data: Path, python: str, task: dict[str, Any]) -> dict[str, Any]:
    file = pq.read_table(common.parquet(data, task["data"]), columns=["text", "label"])
    labels = len(set(file["label"].to_pylist()))
    if task["method"] in PEERS:
        name, *documents = PEERS[task["method"]], *prepare(data, common.WORK, task["data"])
        given: Any = name, *map(str, documents), MOST, task["seed"]
        result = common.apart(peers.trained, *given, python=python)
        if "failed" in result or not result["notes"]["topics_merged"]:
            return {"labels": labels, "failed": result.get("failed", "no topic")}
        row = scored(result["notes"]["topics_merged"], labels)
        return row | {key: result[key] for key in ("seconds", "versions")}
    if task["method"] == "NMF":
        return with_ami(file, task["seed"], task["clients"], labels)
    corpus = Corpus.of(file["text"].to_pylist())
    method = {"name": METHODS[task["method"]], "n_components": "auto", "coherence": "nothing"}
    study = Study.make(seed=task["seed"], method=method)
    corpus = study.embedded(corpus)
    begun = time.perf_counter()
    model = train(study, {"all": corpus}, policies={"all": OPEN_POLICY})
    tried = {"tried": model.info["numbers"], "seconds": time.perf_counter() - begun}
    return scored(model.n_topics, labels) | tried


def with_ami(file: Any, seed: int, n_clients: int, labels: int) -> dict[str, Any]:
    """Choose NMF's number; compare its topics with labels, and those of all other numbers."""
    rows = np.random.default_rng(seed).permutation(len(file))[:MOST_DOCUMENTS]
    texts, of_rows = (file[name].take(rows).to_pylist() for name in ("text", "label"))
    corpora = {f"client-{i}": Corpus.of(texts[i::n_clients]) for i in range(n_clients)}
    policies = dict.fromkeys(corpora, Policy(min_persons=10))
    shared = {"name": "nmf", "coherence": "nothing"}

    def trained(n_topics: int | str) -> Any:
        study = Study.make(seed=seed, method=shared | {"n_components": n_topics})
        return train(study, corpora, policies=policies)

    begun = time.perf_counter()
    model = trained("auto")
    seconds = time.perf_counter() - begun
    ami = {
        number: float(
            adjusted_mutual_info_score(of_rows, trained(number).transform(texts).argmax(1))
        )
        for number in NUMBERS
    }
    study = Study.make(method=shared | {"n_components": "auto"})
    steps = [row for row in expose(study).rows if row.function in OF_CHOICE]
    return scored(model.n_topics, labels) | {
        "tried": model.info["numbers"],
        "range": model.info["range"],
        "ami": ami[model.n_topics],
        "best": max(ami.values()),
        "at": max(ami, key=lambda number: ami[number]),
        "steps": sum(row.calls for row in steps),
        "bytes": sum(row.calls * (row.bytes or 0) for row in steps),
        "seconds": seconds,
    }


def scored(chosen: int, labels: int) -> dict[str, Any]:
    return {"labels": labels, "chosen": chosen, "error": abs(float(np.log(chosen / labels)))}


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from (INTRODUCTION, "")
    names = METHODS | PEERS
    rows = [row for row in rows if "failed" not in row]
    groups = dict(common.each_group(rows, "data", "method"))
    lines = []
    for data in dict.fromkeys(row["data"] for row in rows):
        cells: list[object] = [data, next(row["labels"] for row in rows if row["data"] == data)]
        for of in (groups.get((data, name), []) for name in names):
            chosen = ", ".join(str(row["chosen"]) for row in of) or "-"
            cells += [chosen, *_means(of)]
        lines.append(cells)
    columns = " | ".join(f"{name} | error | seconds" for name in names)
    yield from common.table(f"data | labels | {columns}", lines)
    means = [_means([row for row in rows if row["method"] == name])[0] for name in names]
    yield from ("", f"Mean error: {', '.join(map(' '.join, zip(names, means, strict=True)))}.")
    yield from ("", OF_NMF, "", *_of_nmf([row for row in rows if "ami" in row]))


def _of_nmf(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each set, seed and number of clients, and the means."""
    lines = [
        (
            row["data"],
            row["clients"],
            row["seed"],
            row["labels"],
            f"{row['chosen']} ({row['range'][0]} to {row['range'][1]})",
            f"{row['error']:.2f}",
            f"{row['ami']:.2f} / {row['best']:.2f} ({row['at']})",
            row["steps"],
            f"{row['bytes'] / 1e6:.0f}",
            f"{row['seconds']:.0f}",
        )
        for row in rows
    ]
    head = (
        "data | clients | seed | labels | chosen | error | AMI / best (at) | steps | MB | seconds"
    )
    yield from common.table(head, lines)
    for (clients,), group in common.each_group(rows, "clients"):
        shares = [row["ami"] / row["best"] for row in group]
        error = np.mean([row["error"] for row in group])
        yield from (
            "",
            f"Clients: {clients}. AMI over the best: mean {np.mean(shares):.3f}, lowest "
            f"{min(shares):.2f}. Mean error {error:.2f}.",
        )


def _means(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["-", "-"]
    error, seconds = (np.mean([row[name] for row in rows]) for name in ("error", "seconds"))
    return [f"{error:.2f}", f"{seconds:.0f}"]


def with_clients(tasks: list[dict[str, Any]], n_clients: int) -> list[dict[str, Any]]:
    """Add the number of clients to the tasks of NMF."""
    more = {"clients": n_clients}
    return [task | more if task["method"] == "NMF" else task for task in tasks]


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = common.arguments(__doc__, files, peers=True, seeds=2, only=SETS, clients=1)
    methods = METHODS | (PEERS if given.peers else {})
    data = given.data
    tasks = with_clients(
        common.grid(seed=range(given.seeds), data=given.only, method=methods), given.clients
    )
    if given.quick:
        data = write_made_up(given.folder, ("agnews",), 240)
        tasks = with_clients(common.grid(seed=[0], data=["agnews"], method=METHODS), 1)
    common.measured(given, tasks, lambda task: run(data, given.peers, task))
    common.write(given, tables(common.kept_rows(given)))
