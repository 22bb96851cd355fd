"""How many topics or clusters are found, where labels say how many there are."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common, peers
from benchmarks.quality import prepare
from experiments.made_up import write as write_made_up
from fedtopics import Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY

SETS = ("s2_tiny", "agnews", "m10", "stackoverflow", "biomedical", "20ng")
METHODS = {"clusters": "discriminative", "NMF": "nmf"}
PEERS = {"BERTopic": "bertopic", "Top2Vec": "top2vec"}
MOST = 10_000  # topics, more than peers find: they are not reduced
INTRODUCTION = """\
Numbers that `n_components = "auto"` chooses from 2 to 60, and those that BERTopic and Top2Vec \
find by default, one for each seed, and the mean over seeds of |log(chosen / labels)|. Documents \
are pooled. Command: `make bench NAME=numbers DATA=folder`."""


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
    corpus = Corpus.of(file["text"].to_pylist())
    method = {"name": METHODS[task["method"]], "n_components": "auto", "coherence": "nothing"}
    study = Study.make(seed=task["seed"], method=method)
    corpus = study.embedded(corpus)
    begun = time.perf_counter()
    model = train(study, {"all": corpus}, policies={"all": OPEN_POLICY})
    tried = {"tried": model.info["numbers"], "seconds": time.perf_counter() - begun}
    return scored(model.n_topics, labels) | tried


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


def _means(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return ["-", "-"]
    error, seconds = (np.mean([row[name] for row in rows]) for name in ("error", "seconds"))
    return [f"{error:.2f}", f"{seconds:.0f}"]


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = common.arguments(__doc__, files, peers=True, seeds=3, only=SETS)
    methods = METHODS | (PEERS if given.peers else {})
    data = given.data
    tasks = common.grid(seed=range(given.seeds), data=given.only, method=methods)
    if given.quick:
        data = write_made_up(given.folder, ("agnews",), 240)
        tasks = common.grid(seed=[0], data=["agnews"], method=METHODS)
    common.measured(given, tasks, lambda task: run(data, given.peers, task))
    common.write(given, tables(common.kept_rows(given)))
