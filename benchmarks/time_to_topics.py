"""Seconds until topics are nearly as good as they will be: 95 % of the last NPMI.

States of some rounds are kept; once training is over, each becomes a model, as if training had
ended there. Seconds are those of counting, agreeing and training until the round, and of the last
exchanges, without what keeping the states took.
"""

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from fedtopics import Corpus, Study
from fedtopics.contract.interfaces import Checkpoint
from fedtopics.datasets import split_clients
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.core.training import Program
from fedtopics.model.topics import Topics

N_CLIENTS = 5
N_TOPICS = 20
SHOWN = 10
ENOUGH = 0.95  # of the last NPMI
KEPT = (
    1,
    2,
    3,
    5,
    7,
    10,
    14,
    20,
    30,
    40,
    60,
    80,
    100,
    130,
    160,
    200,
    250,
    300,
    400,
    500,
    700,
    1000,
    1400,
    2000,
    3000,
)
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
HEAD = """method | seeds | rounds | s until 95 %, as shown | round | s until 95 %, by probability \
| round | s in all | NPMI, as shown | by probability"""


class Keeping(RunFolder):
    """A run that keeps states of some rounds in memory, and the seconds until then."""

    def __init__(self, study: Study) -> None:
        super().__init__(None, study.identity(None))
        self.last = study.method.max_rounds
        self.kept: list[tuple[float, Checkpoint]] = []
        self.begun = time.process_time()
        self.keeping = 0.0

    @property
    def seconds(self) -> float:
        """Since the beginning, without what keeping took."""
        return time.process_time() - self.begun - self.keeping

    def due(self, round_: int) -> bool:
        return round_ in KEPT or round_ == self.last

    def checkpoint(self, state: Checkpoint) -> bool:
        seconds = self.seconds
        before = time.process_time()
        arrays = {name: np.array(array) for name, array in state.arrays.items()}
        self.kept.append((seconds, Checkpoint(state.round, arrays, state.numbers)))
        self.keeping += time.process_time() - before
        return True


class Bench(NamedTuple):
    clients: Mapping[str, Corpus]

    def measure(self, name: str, seed: int, quick: bool) -> dict[str, Any]:
        method = METHODS[name] | {"n_components": N_TOPICS, "coherence": "documents"}
        method = {"name": "gfedntm", **method} | ({"max_rounds": 2} if quick else {})
        limits = {"min_persons_per_word": 1, "max_words": 100_000, "max_document_share": 1}
        study = Study.make(seed=seed, method=method, vocabulary=limits).with_clients(self.clients)
        run = Keeping(study)
        program_of(study).train(self.engine(study), run)
        end = run.seconds - run.kept[-1][0]  # the last exchanges, which every model needs
        points = [
            [checkpoint.round, round(seconds + end, 3), *self.scores(model)]
            for (seconds, checkpoint), model in zip(run.kept, self.models(study, run), strict=True)
        ]
        return {"points": points, "threads": int(os.environ["OMP_NUM_THREADS"])}

    def engine(self, study: Study) -> LocalClients:
        return LocalClients(common.doors_of(study, self.clients, OPEN_POLICY))

    def models(self, study: Study, run: Keeping) -> Iterator[Topics]:
        program = cast("Program[Any, Any]", program_of(study))
        clients = self.engine(study)
        silent = Keeping(study)
        agreement = program.agree(clients, silent)
        for _, checkpoint in run.kept:
            state = program.load(agreement, checkpoint.arrays)
            work = partial(program.model, agreement, state, checkpoint.round, silent)
            yield clients.round(checkpoint.round + 1, work)[0]

    def scores(self, model: Topics) -> list[float]:
        texts = [text for corpus in self.clients.values() for text in corpus.documents.to_pylist()]
        both = model.topics(SHOWN), model.topics(SHOWN, 1)
        return [round(common.topic_scores(words, texts)["npmi"], 4) for words in both]


def read(data: Path | None, seed: int) -> Bench:
    """Return 20ng, or synthetic documents, at even clients."""
    if data is None:
        return Bench(common.made_up_clients(N_CLIENTS))
    corpus = Corpus.of(pq.read_table(common.parquet(data, "20ng"))["tokens"])
    return Bench(split_clients(corpus, "even", n_clients=N_CLIENTS, seed=seed))


def reached(points: list[list[float]], column: int) -> tuple[float, float]:
    """Return seconds and round of the first point that is good enough."""
    wanted = points[-1][column] - (1 - ENOUGH) * abs(points[-1][column])
    first = next(point for point in points if point[column] >= wanted)
    return first[1], first[0]


def lines(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield a line a method: medians over seeds, with the range of the seconds."""
    for (method,), group in common.each_group(rows, "method"):
        these = [row["points"] for row in group]
        cells = [method, str(len(these)), f"{these[0][-1][0]:,}"]
        for column in (2, 3):
            seconds, rounds = zip(*(reached(points, column) for points in these), strict=True)
            between = f" ({min(seconds):.1f} to {max(seconds):.1f})"
            cells.append(f"{statistics.median(seconds):.1f}{between}")
            cells.append(f"{statistics.median(rounds):g}")
        cells.append(f"{statistics.median(points[-1][1] for points in these):.1f}")
        means = (statistics.mean(points[-1][column] for points in these) for column in (2, 3))
        yield [*cells, *(f"{mean:.3f}" for mean in means)]


def main() -> None:
    given = common.arguments(__doc__, "20ng.parquet", methods=METHODS, seeds=3)
    data = None if given.quick else given.data
    name = "made-up documents" if given.quick else "20ng"
    seeds = range(1 if given.quick else given.seeds)
    tasks = common.grid(data=[name], seed=seeds, method=given.methods)

    def measure(task: dict[str, Any]) -> dict[str, Any]:
        if not given.quick:  # what is loaded or compiled once is
            read(None, 0).measure(task["method"], task["seed"], quick=True)
        return read(data, task["seed"]).measure(task["method"], task["seed"], given.quick)

    rows = common.measured(given, tasks, measure)
    threads = "/".join(sorted({str(row["threads"]) for row in rows}))
    common.write(
        given,
        [
            f"{name}, {N_TOPICS} topics, {N_CLIENTS} even clients in one process, threads: "
            f"{threads}. The first of the rounds looked at whose NPMI is {ENOUGH:.0%} of the last "
            f"one's; NPMI of {SHOWN} words a topic, by document. Medians over seeds and, in "
            "brackets, from the fastest to the slowest; seconds of the process. Command: "
            "`make bench NAME=time-to-topics DATA=folder`.",
            "",
            *common.table(HEAD, lines(rows)),
        ],
    )
