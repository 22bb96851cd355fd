"""Titles and questions: the mixture beside clusters and networks, with and without it as a start.

All texts are at one client: sums do not depend on it. Words are shown as the model chooses them.
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
from benchmarks.common import mean_and_range, measured, parquet, table
from experiments.made_up import write as write_made_up
from fedtopics import Columns, Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import normalised_mutual_information
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens

SETS = ("m10", "agnews", "stackoverflow")
STARTED: dict[str, Any] = {"initialisation": "mixture"}
CONTESTANTS: dict[str, dict[str, Any]] = {
    "mixture": {"name": "mixture"},
    "kmeans": {"name": "kmeans"},
    "discriminative": {"name": "discriminative", "preset": "single"},
    "zeroshottm, 300 rounds": {"network": "zeroshottm", "max_rounds": 300},
    **{
        f"{network} from the mixture, 300 rounds": STARTED | {"network": network, "max_rounds": 300}
        for network in ("zeroshottm", "combinedtm")
    },
    "zeroshottm": {"network": "zeroshottm"},
    "zeroshottm from the mixture": {"network": "zeroshottm", **STARTED},
}  # fmt: skip
QUICK = ("mixture", "kmeans", "discriminative")
SHOWN = 10
INTRODUCTION = """\
Twenty topics of short texts, pooled: mean over seeds, smallest and largest where there are \
several. NPMI (windows of ten words) and different words of the ten words shown, NMI of the main \
topic with the label; seconds of training without embeddings, one thread, beside other work. \
Command: `make bench NAME=titles DATA=folder`."""


@cache
def documents(path: Path) -> tuple[Corpus, list[list[str]], list[str]]:
    file = pq.read_table(path)
    split = "tokens" if "tokens" in file.column_names else None
    corpus = Corpus.of(file, Columns(text="text", tokens=split, label="label"))
    vectors = document_embeddings(corpus, EmbeddingSettings())
    words = [document for batch in tokens(corpus, TextRules()) for document in batch]
    labels = [str(label) for label in file["label"].to_pylist()]
    return Corpus.of(pa.array(words)).with_embeddings(vectors), words, labels


def run(path: Path, name: str, seed: int) -> dict[str, float]:
    corpus, words, labels = documents(path)
    limits = {"min_document_frequency": 5, "max_document_share": 1.0}
    study = Study.make(seed=seed, method={"name": "gfedntm"} | CONTESTANTS[name], vocabulary=limits)
    begun = time.perf_counter()
    model = train(study, {"all": corpus}, policies={"all": OPEN_POLICY})
    seconds = time.perf_counter() - begun
    nmi = normalised_mutual_information(labels, model.main_topics(corpus))
    found = common.topic_scores(model.topics(SHOWN), words, "usual")
    return found | {"nmi": nmi, "seconds": seconds}


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield INTRODUCTION
    for data in SETS:
        found = dict(common.each_group((row for row in rows if row["data"] == data), "name"))
        lines = []
        for name in CONTESTANTS:
            if runs := found.get((name,)):
                scores = ([row[key] for row in runs] for key in ("npmi", "different", "nmi"))
                seconds = f"{np.mean([row['seconds'] for row in runs]):.0f}"
                lines.append((name, len(runs), *map(mean_and_range, scores), seconds))
        yield from ("", f"**{data}**", "")
        yield from table("method | seeds | NPMI | different | NMI | s", lines)


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = common.arguments(__doc__, files, seeds=3, only=CONTESTANTS)
    data, tasks = given.data, common.grid(name=given.only, seed=range(given.seeds), data=SETS)
    if given.quick:
        data = write_made_up(given.folder, ("m10",), 240)
        tasks = common.grid(name=QUICK, seed=[0], data=SETS[:1])
    measured(given, tasks, lambda t: run(parquet(data, t["data"]), t["name"], t["seed"]))
    common.write(given, tables(common.kept_rows(given)))
