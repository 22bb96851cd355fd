"""Seconds until topics are nearly as good as they will be: 95 % of the last NPMI.

Five even clients in one process train on 20ng, 20 topics. States of some rounds are kept; once
training is over, each becomes a model, as if training had ended there, whose ten first words a
topic are scored on all documents. Seconds are those of counting, agreeing and training until the
round, and of the last exchanges, without what keeping the states took; of the process, which has
one thread and may have to share its computer. What is in ``results/time_to_topics.jsonl`` is not
measured again.

    python benchmarks/time_to_topics.py --data FOLDER  # with 20ng.parquet
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq

from fedtopics import Corpus, Study, TopicModel
from fedtopics.datasets import split_clients
from fedtopics.engines.local import LocalClients
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.files import RowFile
from fedtopics.methods.core.interfaces import Checkpoint
from fedtopics.methods.core.plan import Secret, Site
from fedtopics.methods.core.training import Program
from fedtopics.metrics import coherence_of
from quick import made_up_clients, parser_of, results_of

N_CLIENTS, N_TOPICS, SHOWN = 5, 20, 10
ENOUGH = 0.95  # of the last NPMI
KEPT = (
    1, 2, 3, 5, 7, 10, 14, 20, 30, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400, 500, 700, 1000,
    1400, 2000, 3000,
)  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "lda": {"name": "lda"},
    "nmf": {"name": "nmf"},
    "prodlda": {"network": "prodlda"},
    "prodlda, from nmf": {"network": "prodlda", "initialisation": "nmf"},
    "neurallda": {"network": "neurallda"},
    "neurallda, from nmf": {
        "network": "neurallda",
        "preset": "mixtures",
        "initialisation": "nmf",
        "max_rounds": 300,
    },
}
QUICK_ROUNDS = 5
HEADER = """\
| method | seeds | rounds | s until 95 %, as shown | round | s until 95 %, by probability | round \
| s in all | NPMI, as shown | by probability |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


@dataclass
class Task:
    """One training."""

    data: str
    method: str
    seed: int


class Keeping(RunFolder):
    """A run that keeps states of some rounds in memory, and the seconds until then."""

    def __init__(self, study: Study) -> None:
        super().__init__(None, study.identity(None))
        self.last = study.method.max_rounds
        self.kept: list[tuple[float, Checkpoint]] = []
        self.begun, self.keeping = time.process_time(), 0.0

    @property
    def seconds(self) -> float:
        """Since the beginning, without what keeping took."""
        return time.process_time() - self.begun - self.keeping

    def due(self, round_: int) -> bool:
        return round_ in KEPT or round_ == self.last

    def checkpoint(self, state: Checkpoint) -> None:
        seconds, before = self.seconds, time.process_time()
        arrays = {name: np.array(array) for name, array in state.arrays.items()}
        self.kept.append((seconds, Checkpoint(state.round, arrays, state.numbers)))
        self.keeping += time.process_time() - before


@dataclass
class Bench:
    """Documents at clients, and what is done with them."""

    clients: Mapping[str, Corpus]
    texts: list[list[str]] = field(default_factory=list)

    def study(self, task: Task, quick: bool) -> Study:
        method = METHODS[task.method] | {"n_components": N_TOPICS, "coherence": "documents"}
        method |= {"max_rounds": QUICK_ROUNDS} if quick else {}
        limits = {"min_document_frequency": 1, "max_words": 100_000, "max_document_share": 1}
        study = Study.make(seed=task.seed, method=method, vocabulary=limits)
        return study.with_clients(self.clients)

    def engine(self, study: Study) -> LocalClients:
        """Return the clients, who have not yet counted their documents."""
        doors = {}
        for name, corpus in self.clients.items():
            secret = Secret.from_seed(study.seed, name)
            half = study.client_half(Site(name, corpus, OPEN_POLICY, secret=secret))
            ledger = Ledger(study.method.method_name, study.fingerprint)
            doors[name] = Door(name, half, OPEN_POLICY, ledger)
        return LocalClients(doors)

    def measure(self, task: Task, quick: bool = False) -> dict[str, Any]:
        """Train, and score what there was after each kept round."""
        study = self.study(task, quick)
        run = Keeping(study)
        study.server_half(None).train(self.engine(study), run)
        whole = run.seconds
        end = whole - run.kept[-1][0]  # the last exchanges, which every model needs
        points = [
            [checkpoint.round, round(seconds + end, 3), *self.scores(model)]
            for (seconds, checkpoint), model in zip(run.kept, self.models(study, run), strict=True)
        ]
        threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
        return {"points": points, "threads": threads}

    def models(self, study: Study, run: Keeping) -> Iterator[TopicModel]:
        """Make the model of each kept state."""
        program = cast("Program[Any, Any]", study.server_half(None))
        clients, silent = self.engine(study), Keeping(study)
        agreement = program.agree(clients, silent)
        for _, kept in run.kept:
            state = program.load(agreement, kept.arrays)
            work = partial(program.model, agreement, state, kept.round, silent)
            yield clients.round(kept.round + 1, work)[0]

    def scores(self, model: TopicModel) -> list[float]:
        """Return NPMI of the words that the model shows, and of the most probable ones."""
        both = model.topics(SHOWN), model.topics(SHOWN, 1)
        means = (coherence_of(words, self.texts, "npmi", None).mean() for words in both)
        return [round(float(mean), 4) for mean in means]


def read(data: Path | None, seed: int) -> Bench:
    """Return 20ng, or made-up documents, at even clients."""
    if data is None:
        clients = made_up_clients(N_CLIENTS)
    else:
        corpus = Corpus.of(pq.read_table(data / "20ng.parquet")["tokens"])
        clients = split_clients(corpus, "even", n_clients=N_CLIENTS, seed=seed)
    texts = [text for corpus in clients.values() for text in corpus.documents.to_pylist()]
    return Bench(clients, texts)


def reached(points: list[list[float]], column: int) -> tuple[float, float]:
    """Return seconds and round of the first point that is good enough."""
    wanted = points[-1][column] - (1 - ENOUGH) * abs(points[-1][column])
    first = next(point for point in points if point[column] >= wanted)
    return first[1], first[0]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a line a method: medians over seeds, with the range of the seconds."""
    lines = [HEADER]
    for method in dict.fromkeys(row["method"] for row in rows):
        these = [row["points"] for row in rows if row["method"] == method]
        cells = [f"{these[0][-1][0]:,}"]
        for column in (2, 3):
            seconds, rounds = zip(*(reached(points, column) for points in these), strict=True)
            between = f" ({min(seconds):.1f} to {max(seconds):.1f})"
            cells += [
                f"{statistics.median(seconds):.1f}{between}",
                f"{statistics.median(rounds):g}",
            ]
        for column in (1, 2, 3):
            average = statistics.median if column == 1 else statistics.mean
            value = average([points[-1][column] for points in these])
            cells.append(f"{value:.1f}" if column == 1 else f"{value:.3f}")
        lines.append(f"| {method} | {len(these)} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of 20ng.parquet")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if not given.quick and given.data is None:
        parser.error("say where 20ng.parquet is: --data FOLDER; or --quick")
    run(given)


def run(given: argparse.Namespace) -> None:
    """Measure what is missing; write the table."""
    folder = results_of("time_to_topics", given.quick)
    kept = RowFile(folder / "time_to_topics.jsonl")
    data = None if given.quick else given.data
    name = "made-up documents" if given.quick else "20ng"
    seeds = range(1 if given.quick else given.seeds)
    todo = [Task(name, method, seed) for seed in seeds for method in given.methods]

    def measured(task: Task) -> dict[str, Any]:
        if not given.quick:
            read(None, 0).measure(task, quick=True)  # what is loaded or compiled once is
        return read(data, task.seed).measure(task, given.quick)

    kept.fill(
        todo, vars, measured, lambda task: f"{task.method}, seed {task.seed}",
        lambda event: print(event["done"], "of", event["models"], event["name"], flush=True),
    )  # fmt: skip
    rows = [row for task in todo if (row := kept.find(vars(task)))]
    threads = "/".join(sorted({str(row["threads"]) for row in rows}))
    lines = [
        f"{name}, {N_TOPICS} topics, {N_CLIENTS} even clients in one process, threads: {threads}. "
        f"The first of the rounds looked at whose NPMI is {ENOUGH:.0%} of the last one's; NPMI of "
        f"{SHOWN} words a topic, by document. Medians over seeds and, in brackets, from the "
        "fastest to the slowest; seconds of the process. Command: `make bench-time DATA=folder`.",
        "",
        *table(rows),
    ]
    (folder / "time_to_topics.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
