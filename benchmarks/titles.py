"""Titles and questions: the mixture beside clusters and networks, with and without it as a start.

Twenty topics of the titles of papers (m10), of news (AgNews) and of questions (Stack Overflow), all
at one client: sums do not depend on it. Scores are those of ten words shown, as the model chooses
them, and NMI of each document's main topic with its label. A run that is in
``results/titles.jsonl`` is not run again, so the benchmark can be done in pieces.

    python benchmarks/titles.py --data FOLDER [--seeds 3] [--only NAME ...] [--quick]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedtopics import Columns, Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import coherence_of, normalised_mutual_information, unique_words
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens
from quick import results_of

SETS = {
    "m10": "corpora/m10.parquet",
    "agnews": "short_text/agnews.parquet",
    "stackoverflow": "short_text/stackoverflow.parquet",
}
STARTED = {"initialisation": "mixture"}
CONTESTANTS: dict[str, dict[str, Any]] = {
    "mixture": {"name": "mixture"},
    "kmeans": {"name": "kmeans"},
    "discriminative": {"name": "discriminative"},
    "zeroshottm, 300 rounds": {"network": "zeroshottm", "max_rounds": 300},
    "zeroshottm from the mixture, 300 rounds": {
        "network": "zeroshottm", "max_rounds": 300, **STARTED
    },
    "combinedtm from the mixture, 300 rounds": {
        "network": "combinedtm", "max_rounds": 300, **STARTED
    },
    "zeroshottm": {"network": "zeroshottm"},
    "zeroshottm from the mixture": {"network": "zeroshottm", **STARTED},
}  # fmt: skip
QUICK = 3  # contestants and one set
SHOWN = 10
INTRODUCTION = """\
Twenty topics of short texts, pooled: mean over seeds, smallest and largest where there are \
several. NPMI (windows of ten words) and different words of the ten words shown, NMI of the main \
topic with the label; seconds of training without embeddings, one thread, beside other work. \
Command: `make bench-titles DATA=folder`."""
HEADER = """\
| method | seeds | NPMI | different | NMI | s |
| --- | ---: | ---: | ---: | ---: | ---: |"""


@cache
def documents(path: Path) -> tuple[Corpus, list[list[str]], list[str]]:
    """Return documents with embeddings, their words, and their labels."""
    table = pq.read_table(path)
    split = "tokens" if "tokens" in table.column_names else None
    corpus = Corpus.of(table, Columns(text="text", tokens=split, label="label"))
    vectors = document_embeddings(corpus, EmbeddingSettings())
    words = [document for batch in tokens(corpus, TextRules()) for document in batch]
    labels = [str(label) for label in table["label"].to_pylist()]
    return Corpus.of(pa.array(words)).with_embeddings(vectors), words, labels


def run(data: Path, name: str, seed: int) -> dict[str, float]:
    """Train a contestant; return its scores."""
    corpus, words, labels = documents(data)
    limits = {"min_document_frequency": 5, "max_document_share": 1.0}
    study = Study.make(seed=seed, method=CONTESTANTS[name], vocabulary=limits)
    begun = time.perf_counter()
    model = train(study, {"all": corpus}, policies={"all": OPEN_POLICY})
    seconds = time.perf_counter() - begun
    shown = model.topics(SHOWN)
    return {
        "npmi": float(np.nanmean(coherence_of(shown, words, "npmi", "usual"))),
        "different": unique_words(shown, SHOWN),
        "nmi": normalised_mutual_information(labels, model.main_topics(corpus)),
        "seconds": seconds,
    }


def known(results: Path) -> list[dict[str, Any]]:
    """Return the runs that are done."""
    return [json.loads(line) for line in results.read_text().splitlines()]


def tables(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables of all sets."""
    yield INTRODUCTION
    for data in SETS:
        yield f"\n**{data}**\n\n{HEADER}"
        for name in CONTESTANTS:
            rows = [row for row in runs if (row["data"], row["name"]) == (data, name)]
            if rows:
                cells = (shown([row[key] for row in rows]) for key in ("npmi", "different", "nmi"))
                seconds = np.mean([row["seconds"] for row in rows])
                yield f"| {name} | {len(rows)} | {' | '.join(cells)} | {seconds:.0f} |"


def shown(values: list[float]) -> str:
    """Write a mean, and its range."""
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="m10, one seed, without networks")
    parser.add_argument("--only", choices=CONTESTANTS, nargs="+", default=list(CONTESTANTS))
    given = parser.parse_args()
    results = results_of("titles", given.quick) / "titles.jsonl"
    results.touch()
    seeds, sets, names = range(given.seeds), list(SETS), given.only
    if given.quick:
        seeds, sets, names = range(1), sets[:1], list(CONTESTANTS)[:QUICK]
    for name in names:
        for seed in seeds:
            for data in sets:
                case = {"data": data, "name": name, "seed": seed}
                if any(case.items() <= row.items() for row in known(results)):
                    continue
                row = case | run(given.data / SETS[data], name, seed)
                sys.stderr.write(f"{row}\n")
                with results.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
    text = "\n".join(tables(known(results))) + "\n"
    results.with_suffix(".md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
