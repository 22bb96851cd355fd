"""The trainings of the FSTC paper's experiments: data sets, methods, and what each part varies.

Every method gets the same embeddings, computed once before any training: what an encoder brings
and what a method brings are told apart by k-means of the same embeddings (FSBERT), which is in
every part.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.compute as pc

from experiments.settings import FileSettings
from fedtopics.datasets import split_clients
from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.text.columns import Columns
from fedtopics.text.corpus import Corpus

N_CLIENTS = 4
SWEEP_SEEDS = 3  # at most, of what is not table 2
CONCENTRATION = 0.3  # of the Dirichlet distribution, for clients that differ in labels
QUICK_DOCUMENTS = 400
Method = dict[str, Any]


@dataclass(frozen=True)
class DataSet:
    """Labelled short texts in one file, and the paper's lambda.

    Parameters
    ----------
    name : str
        Of the file, without .parquet.
    title : str
    alignment : float
    """

    name: str
    title: str
    alignment: float = 1.0


DATA_SETS = {
    data.name: data
    for data in (
        DataSet("agnews", "AgNews"),
        DataSet("stackoverflow", "StackOverflow", 0.01),
        DataSet("biomedical", "Biomedical"),
        DataSet("searchsnippets", "SearchSnippets"),
    )
}
NEEDED = ("agnews", "stackoverflow")  # the others are taken if they are there
SWEPT = "stackoverflow"  # whose clients are varied, and which is pictured, as in the paper


@dataclass(frozen=True)
class Sweep:
    """A part that varies one number.

    Parameters
    ----------
    key : str
        Of the rows.
    values : tuple of float
    label : str
        Of an axis.
    """

    key: str
    values: tuple[float, ...]
    label: str


SWEEPS = {
    "lambda": Sweep("alignment", (0.001, 0.01, 0.1, 1, 10), "lambda"),
    "clients": Sweep("m", (2, 4, 8, 10), "m, clients of one size"),
    "shares": Sweep("rho", (0, 1, 2, 3, 4), "rho, two clients 5 + rho to 5 - rho"),
}

SHORT: Method = {"max_rounds": 10, "local_steps": 40}
TRAINED = ("fstc", "fsccl")  # methods with a schedule
ROUGH: Method = {"finalists": 1, "tolerance": 0.05}
STEPS: Method = {"max_rounds": 2, "local_steps": 5}
QUICK: dict[str, Method] = {
    "kmeans": {},
    "discriminative": ROUGH,
    "fstc": ROUGH | STEPS,
    "fsccl": STEPS | {"deletion": 0.0},  # texts without some words would have to be embedded
}
VARIANTS: dict[str, Method] = {
    "plain": {},
    "mixture": {"mixture_from": 0.0},
    "late": {"mixture_from": 0.5},
    "unaligned": {"alignment": 0.0},
}
FORMS = ("paper", "fstc")  # of FSTC: the paper's and ours
CONTROLS = ("fsbert", "fsccl", "discriminative")  # of clients that differ in labels
COMPARED = ("fsbert", "fsccl", "paper", "discriminative", "fstc")
MASSES = ("even", "global", "own")
PICTURES = ("ftfidf", "fsbert", "fsccl", "fstc", "discriminative")
TITLES = {
    "fbow": "FBOW",
    "ftfidf": "FTF-IDF",
    "fsbert": "FSBERT",
    "fsccl": "FSCCL",
    "stc": "FSTC-STC",
    "rstc": "FSTC-RSTC",
    "paper": "FSTC as in the paper",
    "discriminative": "discriminative clustering (ours)",
    "fstc": "FSTC, discriminative start (ours)",
}


def methods(data: DataSet) -> dict[str, Method]:
    """Return the methods of table 2: the paper's baselines, its FSTC in three forms, and ours."""
    return {
        "fbow": {"name": "kmeans", "preset": "fbow"},
        "ftfidf": {"name": "kmeans", "preset": "ftfidf"},
        "fsbert": {"name": "kmeans", "preset": "fsbert"},
        "fsccl": {"name": "fsccl"},
        "stc": {"name": "fstc", "preset": "stc"},
        "rstc": {"name": "fstc", "preset": "rstc"},
        "paper": {"name": "fstc", "preset": "paper", "alignment": data.alignment},
        "discriminative": {"name": "discriminative"},
        "fstc": {"name": "fstc"},
    }


@dataclass(frozen=True)
class Task:
    """One training.

    Parameters
    ----------
    part, data, name : str
    seed : int
        Of the study and of the split.
    method : dict
        Of its study.
    varied : dict
        What the part varies, for the row.
    split : dict
        How `split_clients` spreads the documents.
    """

    part: str
    data: str
    name: str
    seed: int
    method: Method
    varied: dict[str, Any] = field(default_factory=dict)
    split: dict[str, Any] = field(default_factory=lambda: {"by": "even", "n_clients": N_CLIENTS})


@dataclass(frozen=True)
class Settings(FileSettings):
    """How the experiment is run.

    Parameters
    ----------
    data, out, seeds, quick
        As in `FileSettings`; the seeds are of table 2, the other parts have three, or fewer.
    only : tuple of str
        Parts that are trained now.

    Raises
    ------
    StudyError
        If there is no part of a name.
    """

    experiment: ClassVar[str] = "fstc"

    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.only) - set(PARTS):
            raise StudyError(f"There is no part {min(unknown)!r}; known: {', '.join(PARTS)}.")

    @property
    def data_sets(self) -> list[DataSet]:
        """Those of the paper that can be had, and what else is there."""
        return [data for data in DATA_SETS.values()
                if data.name in NEEDED or self.path(data.name).exists()]  # fmt: skip

    def tasks(self, part: str) -> list[Task]:
        """List the trainings of a part; all methods of a seed come before the next seed."""
        seeds = len(self.used_seeds)
        seeds = seeds if part == "table2" else min(seeds, SWEEP_SEEDS)
        return [task for data in self.data_sets for task in PARTS[part](self, data, seeds)]

    def study(self, task: Task) -> Study:
        """Return a task's study; without coherence, which says nothing about clusters."""
        n_clusters = pc.count_distinct(self.documents(task.data).labels).as_py()
        method = {"n_components": n_clusters, "coherence": "nothing"} | task.method
        if not self.quick:
            return Study.make(seed=task.seed, method=method)
        method |= {"starts": 4, "start_rounds": 10, **QUICK[method["name"]]}
        # Few documents of a client have few words in common.
        return Study.make(seed=task.seed, method=method, vocabulary={"min_document_frequency": 1})

    def documents(self, name: str) -> Corpus:
        """Return a data set's texts and labels."""
        return _documents(self.file(name), QUICK_DOCUMENTS if self.quick else None)


def _table2(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    for seed in range(seeds):
        for name, method in methods(data).items():
            yield Task("table2", data.name, name, seed, method)


def _ablation(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    known = methods(data)
    starts = {
        "kmeans": (known["fsbert"], known["stc"] | {"alignment": data.alignment}),
        "discriminative": (known["discriminative"], known["fstc"]),
    }
    for seed in range(seeds):
        for start, (alone, fstc) in starts.items():
            varied = {"start": start}
            yield Task("ablation", data.name, "alone", seed, alone, varied)
            for name, change in VARIANTS.items():
                yield Task("ablation", data.name, name, seed, fstc | SHORT | change, varied)


def _lambda(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    known = methods(data)
    for seed in range(seeds):
        for name in ("fsbert", "discriminative"):
            yield Task("lambda", data.name, name, seed, known[name])
        for name in FORMS:
            for value in SWEEPS["lambda"].values:
                varied = {"alignment": value}
                yield Task("lambda", data.name, name, seed, known[name] | SHORT | varied, varied)


def _clients(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    for n_clients in SWEEPS["clients"].values:
        split = {"by": "even", "n_clients": n_clients}
        yield from _compared("clients", data, seeds, {"m": n_clients}, split)


def _shares(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    for level in SWEEPS["shares"].values:
        split = {"by": "proportions", "proportions": [5 + level, 5 - level]}
        yield from _compared("shares", data, seeds, {"rho": level}, split)


def _compared(
    part: str, data: DataSet, seeds: int, varied: dict[str, Any], split: dict[str, Any]
) -> Iterator[Task]:
    if data.name == SWEPT:
        for seed in range(seeds):
            for name in COMPARED:
                yield Task(part, data.name, name, seed, _short(data, name), varied, split)


def _short(data: DataSet, name: str) -> Method:
    method = methods(data)[name]
    return method | SHORT if method["name"] in TRAINED else method


def _skew(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    even = {"by": "even", "n_clients": N_CLIENTS}
    skewed = {"by": "dirichlet", "n_clients": N_CLIENTS, "alpha": CONCENTRATION}
    usable = usable_seeds(settings.documents(data.name), skewed, seeds)
    for labels, split, own_seeds in (("even", even, range(seeds)), ("skewed", skewed, usable)):
        for seed in own_seeds:
            for name in CONTROLS:
                varied = {"labels": labels}
                yield Task("skew", data.name, name, seed, _short(data, name), varied, split)
            for masses in MASSES:
                given = {"masses": masses}
                method, varied = _short(data, "fstc") | given, {"labels": labels, **given}
                yield Task("skew", data.name, "fstc", seed, method, varied, split)


def _picture(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    if data.name == SWEPT:
        for name in PICTURES:
            yield Task("picture", data.name, name, 0, methods(data)[name])


PARTS: dict[str, Callable[[Settings, DataSet, int], Iterator[Task]]] = {
    "table2": _table2,
    "ablation": _ablation,
    "lambda": _lambda,
    "clients": _clients,
    "shares": _shares,
    "skew": _skew,
    "picture": _picture,
}


def usable_seeds(corpus: Corpus, split: Mapping[str, Any], seeds: int) -> list[int]:
    """Return the first seeds whose split leaves each client enough documents to take part."""

    def usable(seed: int) -> bool:
        try:
            parts = split_clients(corpus, **split, seed=seed)
        except StudyError:  # a client without any document
            return False
        return min(map(len, parts.values())) >= Policy().min_documents

    return list(islice(filter(usable, range(100)), seeds))


@lru_cache(maxsize=len(DATA_SETS))
def _documents(path: Path, n_documents: int | None) -> Corpus:
    corpus = Corpus.read(path, Columns(text="text", label="label"))
    rows = np.random.default_rng(0).permutation(len(corpus))[:n_documents]
    return corpus if n_documents is None else corpus.take(rows)
