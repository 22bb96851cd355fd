"""Each client's own model, these models merged by similar topics, and one federated model.

Twenty topics of 20ng, whose groups are spread unevenly over five clients (Dirichlet, alpha 0.3), or
whose documents are spread evenly. A client alone is scored on all documents, as the others are;
mean over the clients. NPMI (by document) and different words of the ten words that each model
shows, which documents chose but of merged ones, and of ten words by a relevance that is the same
for all; NMI of each document's main topic with its group. What is in ``results/merging.jsonl`` is
not done again.

    python benchmarks/merging.py --data FOLDER [--seeds 3] [--quick]  # with 20ng.parquet
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fedtopics import Columns, Corpus, Study, TopicModel, train
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.files import RowFile
from fedtopics.methods.flda.merged_models import merge_models
from fedtopics.metrics import coherence_of, normalised_mutual_information, unique_words
from fedtopics.model.shown_words import Reading
from quick import made_up_clients, parser_of, results_of

N_CLIENTS, N_TOPICS, SHOWN = 5, 20, 10
SPLITS: dict[str, dict[str, Any]] = {
    "20ng, groups spread unevenly": {"by": "dirichlet", "alpha": 0.3},
    "20ng, documents spread evenly": {"by": "even"},
}
METHODS = "lda", "nmf"
SCENARIOS = {
    "alone": "each client alone, mean",
    "merged": "merged, as many topics as differ",
    "merged to 20": "merged, 20 topics",
    "federated": "federated",
    "federated, then 20": "federated, as many topics as all clients have, put together to 20",
}
SCORES = {
    "topics": "topics", "npmi": "NPMI", "different": "different", "nmi": "NMI",
    "npmi_alike": "NPMI, read alike", "different_alike": "different, read alike",
}  # fmt: skip
ALIKE = Reading(0.4, by_sums=True)
WITHIN = {"coherence": "documents"}  # the order of words is lost
Scores = dict[str, float]


INTRODUCTION = """\
Five clients, twenty topics a model: means over seeds, smallest and largest in brackets. NPMI by \
document and share of different words, of the ten words that a model shows and, read alike, of \
those of most relevance (lambda 0.4, by sums); NMI of main topics with groups; all on all clients' \
documents. Command: `make bench-merging DATA=folder`."""


@dataclass(frozen=True)
class Bench:
    """Documents at clients, and how models are trained and scored."""

    clients: Mapping[str, Corpus]
    labels: Sequence[str]  # of all documents, client after client
    rounds: int | None  # the method's own, if None

    @cached_property
    def pooled(self) -> Corpus:
        return Corpus.pool(self.clients.values())

    @cached_property
    def words(self) -> list[list[str]]:
        return [list(document) for document in self.pooled.documents.to_pylist()]

    def trained(
        self, method: str, seed: int, clients: Mapping[str, Corpus], n_topics: int = N_TOPICS
    ) -> TopicModel:
        settings: dict[str, Any] = {"name": method, "n_components": n_topics} | WITHIN
        settings |= {} if self.rounds is None else {"max_rounds": self.rounds}
        limits = {"min_document_frequency": 5, "max_words": 5000}
        study = Study.make(method=settings, vocabulary=limits, seed=seed)
        return train(study, clients, policies=dict.fromkeys(clients, OPEN_POLICY))

    def scores(self, model: TopicModel) -> Scores:
        found: Scores = {"topics": model.n_topics}
        read = {"": model.topics(SHOWN), "_alike": model.read(ALIKE, SHOWN)}
        for name, words in read.items():
            npmi = coherence_of(words, self.words, "npmi", None)
            found[f"npmi{name}"] = float(np.nanmean(npmi))
            found[f"different{name}"] = unique_words(words, SHOWN)
        main = model.main_topics(self.pooled)
        return found | {"nmi": normalised_mutual_information(self.labels, main)}

    def measure(self, method: str, seed: int, wanted: Set[str]) -> Iterator[tuple[str, Scores]]:
        """Train apart and together; yield the scores of each scenario that is wanted."""
        if wanted & {"alone", "merged", "merged to 20"}:
            own = [self.trained(method, seed, {name: c}) for name, c in self.clients.items()]
            scores = [self.scores(model) for model in own]
            means = {name: float(np.mean([each[name] for each in scores])) for name in scores[0]}
            yield "alone", means
            yield "merged", self.scores(merge_models(own))
            yield "merged to 20", self.scores(merge_models(own, N_TOPICS))
        if "federated" in wanted:
            yield "federated", self.scores(self.trained(method, seed, self.clients))
        if "federated, then 20" in wanted:
            many = self.trained(method, seed, self.clients, N_TOPICS * N_CLIENTS)
            yield "federated, then 20", self.scores(many.reduce_topics(N_TOPICS))


def read(data: Path | None, split: str, seed: int) -> Bench:
    """Return 20ng at uneven or even clients, or made-up documents."""
    if data is None:
        clients = made_up_clients(N_CLIENTS)
        labels = [name for name, corpus in clients.items() for _ in range(len(corpus))]
        return Bench(clients, labels, rounds=3)
    table = pq.read_table(data / "20ng.parquet")
    corpus = Corpus.of(table, Columns(tokens="tokens", label="label"))
    clients = split_clients(corpus, n_clients=N_CLIENTS, seed=seed, **SPLITS[split])
    labels = [str(label) for part in clients.values() for label in part.labels or ()]
    return Bench(clients, labels, rounds=None)


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line a method and scenario: means over seeds, with their range."""
    lines = [
        f"| method | models | seeds | {' | '.join(SCORES.values())} |",
        "| --- | --- | ---: |" + " ---: |" * len(SCORES),
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        for scenario, title in SCENARIOS.items():
            these = [r for r in rows if (r["method"], r["scenario"]) == (method, scenario)]
            cells = [shown(name, [row[name] for row in these]) for name in SCORES]
            lines.append(f"| {method} | {title} | {len(these)} | {' | '.join(cells)} |")
    return lines


def shown(name: str, values: list[float]) -> str:
    """Write a mean, and its range."""
    if name == "topics":
        return f"{np.mean(values):.0f}"
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of 20ng.parquet")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if not given.quick and given.data is None:
        parser.error("say where 20ng.parquet is: --data FOLDER; or --quick")
    run(given)


def run(given: argparse.Namespace) -> None:
    """Measure what is missing; write the tables."""
    folder = results_of("merging", given.quick)
    kept = RowFile(folder / "merging.jsonl")
    data = None if given.quick else given.data
    lines = [INTRODUCTION]
    for split in [*SPLITS][: 1 if given.quick else None]:
        rows = []
        for seed in range(1 if given.quick else given.seeds):
            for method in METHODS:
                case = {"data": split, "method": method, "seed": seed}
                rows += measured(kept, case, read(data, split, seed))
        lines += ["", f"**{split}**", "", *table(rows)]
    (folder / "merging.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")


def measured(kept: RowFile, case: dict[str, Any], bench: Bench) -> list[dict[str, Any]]:
    """Return the rows of all scenarios; measure those that are missing."""
    wanted = {name for name in SCENARIOS if not kept.find(case | {"scenario": name})}
    for scenario, scores in bench.measure(case["method"], case["seed"], wanted):
        if scenario in wanted:
            row = kept.keep(case | {"scenario": scenario} | scores)
            print(row, file=sys.stderr, flush=True)
    found = (kept.find(case | {"scenario": scenario}) for scenario in SCENARIOS)
    return [row for row in found if row]


if __name__ == "__main__":
    main()
