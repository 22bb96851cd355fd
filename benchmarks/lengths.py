"""Which method suits documents of which length: short texts of one label, joined to longer ones.

`choose_method` chooses between NMF and the mixture by the mean number of words.
"""

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from experiments.made_up import write as write_made_up
from fedtopics import Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import normalised_mutual_information
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens

SETS = ("agnews", "stackoverflow", "biomedical")
WORDS = (10, 15, 20, 30, 45, 60, 90, 120)
METHODS = {"NMF": "nmf", "mixture": "mixture", "consensus": "discriminative"}
DOCUMENTS = 1_000  # of each set and length, drawn in the same way
INTRODUCTION = """\
NMI of the main topic with the label, NPMI (windows of ten words) of the ten words shown; mean \
over seeds and over the sets {}. Documents are {:,} of each set, pooled: texts of one label are \
joined until they have so many words. Command: `make bench NAME=lengths DATA=folder`."""


@cache
def documents(path: Path, words: int, n_documents: int) -> tuple[Corpus, list[str]]:
    """Join texts of one label, in an order drawn once, to documents of so many words or more."""
    file = pq.read_table(path, columns=["text", "label"])
    rng = np.random.default_rng(0)
    texts = file["text"].to_pylist()
    labels = np.array(file["label"].to_pylist()).astype(str)
    joined = []
    for label in np.unique(labels):
        parts: list[str] = []
        for row in rng.permutation(np.flatnonzero(labels == label)):
            parts.append(texts[row])
            if sum(len(part.split()) for part in parts) >= words:
                joined.append((" ".join(parts), label))
                parts = []
    chosen = [joined[row] for row in rng.permutation(len(joined))[:n_documents]]
    corpus = Corpus.of([text for text, _ in chosen])
    embedded = Study.make(method={"name": "mixture"}).embedded(corpus)
    return embedded, [label for _, label in chosen]


def run(data: Path, task: dict[str, Any], n_documents: int) -> dict[str, float]:
    corpus, labels = documents(common.parquet(data, task["data"]), task["words"], n_documents)
    method = {"name": METHODS[task["method"]], "n_components": len(set(labels))}
    begun = time.perf_counter()
    study = Study.make(seed=task["seed"], method=method)
    model = train(study, {"all": corpus}, policies={"all": OPEN_POLICY})
    seconds = time.perf_counter() - begun
    split = [document for batch in tokens(corpus, TextRules()) for document in batch]
    nmi = normalised_mutual_information(labels, model.main_topics(corpus))
    return common.topic_scores(model.topics(10), split, "usual") | {"nmi": nmi, "seconds": seconds}


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    sets = dict.fromkeys(row["data"] for row in rows)
    yield from (INTRODUCTION.format(", ".join(sets), DOCUMENTS), "")
    groups = dict(common.each_group(rows, "words", "method"))
    lines = []
    for words in dict.fromkeys(row["words"] for row in rows):
        scores = [
            [np.mean([row[score] for row in groups[words, name]]) for score in ("nmi", "npmi")]
            for name in METHODS
            if (words, name) in groups
        ]
        lines.append((words, *(f"{nmi:.3f} / {npmi:.3f}" for nmi, npmi in scores)))
    yield from common.table(f"words | {' | '.join(METHODS)}", lines)


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = common.arguments(__doc__, files, seeds=3, only=SETS)
    data = given.data
    n_documents = DOCUMENTS
    tasks = common.grid(data=given.only, words=WORDS, method=METHODS, seed=range(given.seeds))
    if given.quick:
        data = write_made_up(given.folder, ("agnews",), 240)
        n_documents = 60
        tasks = common.grid(data=["agnews"], words=[20], method=METHODS, seed=[0])
    common.measured(given, tasks, lambda task: run(data, task, n_documents))
    common.write(given, tables(common.kept_rows(given)))
