"""Each client's own model, these models merged by similar topics, and one federated model.

A client alone is scored on all documents, as the others are; mean over the clients.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from benchmarks.common import mean_and_range, measured, table, topic_scores
from fedtopics import Columns, Corpus, Study, TopicModel, train
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.flda.merged_models import merge_models
from fedtopics.metrics import normalised_mutual_information
from fedtopics.model.shown_words import WordRanking

N_CLIENTS = 5
N_TOPICS = 20
SHOWN = 10
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
    "topics": "topics",
    "npmi": "NPMI",
    "different": "different",
    "nmi": "NMI",
    "npmi_alike": "NPMI, read alike",
    "different_alike": "different, read alike",
}
ALIKE = WordRanking(0.4, by_sums=True)
Scores = dict[str, float]
INTRODUCTION = """\
Five clients, twenty topics a model: means over seeds, smallest and largest in brackets. NPMI by \
document and share of different words, of the ten words that a model shows and, read alike, of \
those of most relevance (lambda 0.4, by sums); NMI of main topics with groups; all on all clients' \
documents. Command: `make bench NAME=merging DATA=folder`."""


@dataclass(frozen=True)
class Bench:
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
        # The order of words is lost, hence coherence by document.
        settings = {"name": method, "n_components": n_topics, "coherence": "documents"}
        settings |= {} if self.rounds is None else {"max_rounds": self.rounds}
        limits = {"min_persons_per_word": 5, "min_clients_per_word": 1, "max_words": 5000}
        study = Study.make(method=settings, vocabulary=limits, seed=seed)
        return train(study, clients, policies=dict.fromkeys(clients, OPEN_POLICY))

    def scores(self, model: TopicModel) -> Scores:
        scores = {"topics": model.n_topics} | topic_scores(model.topics(SHOWN), self.words)
        alike = topic_scores(model.words_by(ALIKE, SHOWN), self.words)
        main = model.main_topics(self.pooled)
        scores |= {f"{name}_alike": value for name, value in alike.items()}
        return scores | {"nmi": normalised_mutual_information(self.labels, main)}

    def measure(self, method: str, seed: int, scenario: str) -> Scores:
        if scenario == "federated":
            return self.scores(self.trained(method, seed, self.clients))
        if scenario == "federated, then 20":
            many = self.trained(method, seed, self.clients, N_TOPICS * N_CLIENTS)
            return self.scores(many.reduce_topics(N_TOPICS))
        models = [self.trained(method, seed, {name: c}) for name, c in self.clients.items()]
        if scenario != "alone":
            return self.scores(
                merge_models(models, N_TOPICS if scenario == "merged to 20" else None)
            )
        scores = [self.scores(model) for model in models]
        return {name: float(np.mean([of_model[name] for of_model in scores])) for name in scores[0]}


def read(data: Path | None, split: str, seed: int) -> Bench:
    if data is None:
        clients = common.made_up_clients(N_CLIENTS)
        labels = [name for name, corpus in clients.items() for _ in range(len(corpus))]
        return Bench(clients, labels, rounds=3)
    corpus = Corpus.of(
        pq.read_table(common.parquet(data, "20ng")), Columns(tokens="tokens", label="label")
    )
    clients = split_clients(corpus, n_clients=N_CLIENTS, seed=seed, **SPLITS[split])
    labels = [str(label) for part in clients.values() for label in part.labels or ()]
    return Bench(clients, labels, rounds=None)


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield INTRODUCTION
    for split in dict.fromkeys(row["data"] for row in rows):
        lines = []
        for method, (scenario, title) in product(METHODS, SCENARIOS.items()):
            wanted = {"data": split, "method": method, "scenario": scenario}.items()
            these = [row for row in rows if wanted <= row.items()]
            columns = {name: [row[name] for row in these] for name in SCORES}
            topics = f"{np.mean(columns.pop('topics')):.0f}"
            lines.append(
                (method, title, len(these), topics, *map(mean_and_range, columns.values()))
            )
        yield from ("", f"**{split}**", "")
        yield from table(f"method | models | seeds | {' | '.join(SCORES.values())}", lines, left=2)


def main() -> None:
    given = common.arguments(__doc__, "20ng.parquet", seeds=3)
    data = None if given.quick else given.data
    splits, seeds = ([*SPLITS][:1], 1) if given.quick else ([*SPLITS], given.seeds)
    tasks = common.grid(data=splits, seed=range(seeds), method=METHODS, scenario=SCENARIOS)

    def measure(task: dict[str, Any]) -> Scores:
        split, seed, method, scenario = task.values()
        return read(data, split, seed).measure(method, seed, scenario)

    common.write(given, tables(measured(given, tasks, measure)))
