"""Which words of topics are shown: the ten first, or the most coherent ten of the fifteen first.

Each trained model is read both ways by the library itself, at clients with the usual policy: one
half of each client's documents chooses, the other is what the scores are of. What is in
``results/reading.jsonl`` is not run again, so that it can be done in pieces.

    python benchmarks/reading.py --data DIR [--quick] [--sets demo m10] [--methods lda] [--seeds 3]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fedtopics import Corpus, Policy, Study, TopicModel, train
from fedtopics.datasets import package_documentation
from fedtopics.engines.local import LocalClients
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.methods.core.aggregation import RunningSum
from fedtopics.methods.core.agreement import Agreement, adopt
from fedtopics.methods.core.client import CHOOSING, SCORED, draw_halves
from fedtopics.methods.core.final import choose_words
from fedtopics.methods.core.plan import Secret, Site
from fedtopics.metrics import unique_words
from fedtopics.model.coherence import count_pairs, federated_coherence
from fedtopics.model.shown_words import CANDIDATES, SHOWN
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from fedtopics.text.tables import Columns
from quick import results_of

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "reading.jsonl"
WORK = HERE.parent / ".bench"
ORDERLESS = {"20ng", "reuters395"}  # bags of words
SETS = ("demo", "m10", "20ng", "news_outlets", "health_tweets", "reuters395")
MOST = 12_000  # documents of a set, drawn at random
METHODS: dict[str, dict[str, Any]] = {
    "lda": {"name": "lda"},
    "prodlda": {"name": "gfedntm", "network": "prodlda", "max_rounds": 500},
    "kmeans": {"name": "kmeans", "representation": "tfidf"},
    "discriminative": {"name": "discriminative"},
}
# No texts to embed; too few documents for so many clusters at each client.
UNFIT = {*((name, "discriminative") for name in ORDERLESS), ("reuters395", "kmeans")}
TOPICS = 20
QUICK = {"lda": 10, "prodlda": 50}  # rounds
INTRODUCTION = f"""\
The ten first words of {TOPICS} topics as they are, and the most coherent ten of the {CANDIDATES} \
first. One half of each client's documents chooses lambda and words, the scores are of the other \
half, with words that are too rare to be counted; "said" is the model's own score, without them, \
"in the half that chose" what its words score where they were chosen, which is too good. \
Diversity: share of different words. Means over seeds (of training and of the halves), with the \
smallest gain of a seed. Sets have at most {MOST:,} documents, at their nodes; clients have the \
usual policy. ProdLDA has 500 rounds, k-means is on TF-IDF, discriminative clustering on \
embeddings. Command: `make bench-reading DATA=folder`."""
HEADER = """\
| documents | clients | method | seeds | NPMI, ten first | most coherent | smallest gain | said | \
in the half that chose | diversity, ten first | most coherent |
| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def clients(data: Path, name: str) -> dict[str, Corpus]:
    """Return the documents of each client of a set."""
    if name == "demo":
        return package_documentation(5)
    table = pq.read_table(data / f"{name}.parquet")
    if len(table) > MOST:
        table = table.take(np.random.default_rng(0).permutation(len(table))[:MOST])
    tokens = "tokens" if "tokens" in table.column_names else None
    corpus = Corpus.of(table, Columns(text="text", tokens=tokens))
    nodes = np.array(table["node"].cast("string").to_pylist())
    rows = {node: np.flatnonzero(nodes == node) for node in np.unique(nodes)}
    least = Policy().min_documents
    return {
        f"client-{i}": corpus.take(own) for i, own in enumerate(rows.values()) if len(own) >= least
    }


def embedded(corpora: Mapping[str, Corpus]) -> dict[str, Corpus]:
    """Return them with embeddings, kept for the next seed."""
    settings = EmbeddingSettings()
    return {
        name: corpus.with_embeddings(document_embeddings(corpus, settings, cache=WORK))
        for name, corpus in corpora.items()
    }


def at_clients(study: Study, corpora: Mapping[str, Corpus], model: TopicModel) -> Agreement:
    """Return the clients at the end of a study, with the model's words."""
    doors = {}
    for name, corpus in corpora.items():
        site = Site(name, corpus, Policy(), secret=Secret.from_seed(study.seed, name))
        ledger = Ledger(study.method.method_name, study.fingerprint, None)
        doors[name] = Door(name, study.client_half(site), Policy(), ledger)
    joined, total = LocalClients(doors), sum(map(len, corpora.values()))
    adopt(joined, {"words": list(model.vocabulary.words), "total": total, "length": 1.0})
    return Agreement(joined, model.vocabulary, total, total, 1.0)


def npmi(study: Study, corpora: Sequence[Corpus], words: list[list[str]]) -> float:
    """Score words on documents, where rare words count as well."""

    def ask(**payload: Any) -> dict[str, Any]:
        total = RunningSum()
        for corpus in corpora:
            total.add(count_pairs(corpus, study.text, **payload))
        return total.total()

    within: Any = study.method.coherence
    return float(federated_coherence(ask, words, within)["npmi"].mean())


def run(study: Study, corpora: Mapping[str, Corpus], folder: Path) -> dict[str, Any]:
    """Train a model, or take that in the folder, read it both ways, and score it."""
    if not folder.exists():
        train(study, corpora).save_pretrained(folder)
    model = TopicModel.from_pretrained(folder)
    agreement = at_clients(study, corpora, model)
    drawn = [
        (c, draw_halves(Secret.from_seed(study.seed, name), len(c), Policy().min_documents))
        for name, c in corpora.items()
    ]
    parts = {part: [c.take(rows[part]) for c, rows in drawn] for part in (CHOOSING, SCORED)}
    row: dict[str, Any] = {}
    for way, n in (("first", SHOWN), ("coherent", CANDIDATES)):
        settings = study.method.model_copy(update={"candidate_words": n})
        read = choose_words(agreement, settings, model)
        words = read.topics(SHOWN)
        row[f"{way}_npmi"] = npmi(study, parts[SCORED], words)
        row[f"{way}_there"] = npmi(study, parts[CHOOSING], words)
        row[f"{way}_said"] = float(read.coherence["npmi"].mean())
        row[f"{way}_diversity"] = unique_words(words, SHOWN)
        row[f"{way}_reading"] = [read.reading.lambda_, read.reading.by_sums]
    return row


def jobs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what is to be run, a seed after the other, so that the table fills evenly."""
    for seed in range(1 if options.quick else options.seeds):
        for name in options.sets:
            for method in options.methods:
                if (name, method) not in UNFIT:
                    yield {"data": name, "method": method, "seed": seed}


def known() -> list[dict[str, Any]]:
    """Return the finished rows; another process may be adding some."""
    return [json.loads(line) for line in RESULTS.open()] if RESULTS.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table: a line for each set and method."""
    lines = [INTRODUCTION, "", HEADER]
    for data in SETS:
        for method in METHODS:
            these = [row for row in rows if (row["data"], row["method"]) == (data, method)]
            if these:
                lines.append(f"| {data} | {these[0]['clients']} | {method} | {cells(these)} |")
    return "\n".join(lines) + "\n"


def cells(rows: list[dict[str, Any]]) -> str:
    """Return the means over seeds."""

    def mean(column: str) -> str:
        return f"{np.mean([row[column] for row in rows]):.3f}"

    gain = min(row["coherent_npmi"] - row["first_npmi"] for row in rows)
    both = mean("first_npmi"), mean("coherent_npmi")
    said = mean("coherent_said"), mean("coherent_there")
    diversity = mean("first_diversity"), mean("coherent_diversity")
    return " | ".join([str(len(rows)), *both, f"{gain:+.3f}", *said, *diversity])


def main() -> None:
    """Run what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True, help="folder of the Parquet files")
    parser.add_argument("--quick", action="store_true", help="a few rounds, one seed, no results")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    rows = []
    work = results_of("reading", quick=True) if options.quick else WORK / "reading"
    for job in jobs(options):
        if not options.quick and any(job.items() <= row.items() for row in known()):
            continue
        method = METHODS[job["method"]] | {"n_components": TOPICS}
        method["coherence"] = "documents" if job["data"] in ORDERLESS else "windows"
        if options.quick and job["method"] in QUICK:
            method["max_rounds"] = QUICK[job["method"]]
        corpora = clients(options.data, job["data"])
        corpora = embedded(corpora) if job["method"] == "discriminative" else corpora
        study = Study.make(seed=job["seed"], method=method)
        folder = work / "-".join([*map(str, job.values()), study.fingerprint])
        row = job | {"clients": len(corpora)} | run(study, corpora, folder)
        rows.append(row)
        sys.stderr.write(json.dumps(row) + "\n")
        if not options.quick:
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    text = table(rows if options.quick else known())
    if not options.quick:
        (HERE / "results" / "reading.md").write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
