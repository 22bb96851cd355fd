"""The parts of the FSTC paper's experiments: which trainings each has.

Every method gets the same embeddings, computed once before any training: what an encoder brings
and what a method brings are told apart by k-means of the same embeddings (FSBERT), which is in
every part.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering, section 5.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from experiments.fstc.methods import (
    DAMAGED,
    ENCODERS,
    LOSSES,
    MASSES,
    SHORT,
    TUNED,
    TUNED_DOCUMENTS,
    TUNINGS,
    VARIANTS,
    VIEWS,
    DataSet,
    Method,
    methods,
    short,
)
from fedtopics.datasets import split_clients
from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.settings import filled
from fedtopics.text.corpus import Corpus

N_CLIENTS = 4
CONCENTRATION = 0.3  # of the Dirichlet distribution, for clients that differ in labels
SWEPT = "stackoverflow"  # whose clients are varied, and which is pictured, as in the paper
SMALLEST = "agnews"
FORMS = ("paper", "fstc")  # of FSTC: the paper's and ours
CONTROLS = ("fsbert", "fsccl", "discriminative")  # of clients that differ in labels
COMPARED = ("fsbert", "fsccl", "paper", "discriminative", "fstc")
VIEWED = ("fsccl", "stc", "paper")  # of which views are compared
ENCODED = ("fsbert", "stc", "discriminative", "fstc")  # of which encoders are
LEARNED = ("stc", "rstc", "paper")  # of which losses are: the paper's forms
SHAKEN = ("fsbert", *LEARNED, "discriminative")  # with typing mistakes
PICTURES = ("ftfidf", "fsbert", "fsccl", "fstc", "discriminative")


@dataclass(frozen=True)
class Sweep:
    """A part that varies one number: its key in rows, its values, the label of an axis."""

    key: str
    values: tuple[float, ...]
    label: str


SWEEPS = {
    "lambda": Sweep("alignment", (0.001, 0.01, 0.1, 1, 10), "lambda"),
    "clients": Sweep("m", (2, 4, 8, 10), "m, clients of one size"),
    "shares": Sweep("rho", (0, 1, 2, 3, 4), "rho, two clients 5 + rho to 5 - rho"),
}


@dataclass(frozen=True)
class Task:
    """One training: of a method on some documents of a data set, spread over clients."""

    part: str
    data: str
    name: str
    seed: int  # of the study and of the split
    method: Method
    varied: dict[str, Any] = field(default_factory=dict)  # for the row
    split: dict[str, Any] = field(default_factory=lambda: {"by": "even", "n_clients": N_CLIENTS})
    n_documents: int | None = None  # drawn at random; by default all
    damaged: float = 0.0  # share of words that get a typing mistake, which the seed draws

    @property
    def row(self) -> dict[str, Any]:
        """What its row is found by."""
        key = {"part": self.part, "data": self.data, "name": self.name, "seed": self.seed}
        return key | self.varied


Usable = Callable[[str, Mapping[str, Any], int], Sequence[int]]
"""Of a data set and a split, the first seeds that leave each client enough documents."""


def _table2(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for seed in range(seeds):
        for name, method in methods(data).items():
            yield Task("table2", data.name, name, seed, method)


def _ablation(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    by_name = methods(data)
    starts = {
        "kmeans": (by_name["fsbert"], by_name["stc"] | {"alignment": data.alignment}),
        "discriminative": (by_name["discriminative"], by_name["fstc"]),
    }
    for seed in range(seeds):
        for start, (alone, fstc) in starts.items():
            varied = {"start": start}
            yield Task("ablation", data.name, "alone", seed, alone, varied)
            for name, change in VARIANTS.items():
                yield Task("ablation", data.name, name, seed, fstc | SHORT | change, varied)


def _lambda(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    by_name = methods(data)
    for seed in range(seeds):
        for name in ("fsbert", "discriminative"):
            yield Task("lambda", data.name, name, seed, by_name[name])
        for name in FORMS:
            for value in SWEEPS["lambda"].values:
                varied = {"alignment": value}
                yield Task("lambda", data.name, name, seed, by_name[name] | SHORT | varied, varied)


def _clients(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for n_clients in SWEEPS["clients"].values:
        split = {"by": "even", "n_clients": n_clients}
        yield from _compared("clients", data, seeds, {"m": n_clients}, split)


def _shares(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for level in SWEEPS["shares"].values:
        split = {"by": "proportions", "proportions": [5 + level, 5 - level]}
        yield from _compared("shares", data, seeds, {"rho": level}, split)


def _compared(
    part: str, data: DataSet, seeds: int, varied: dict[str, Any], split: dict[str, Any]
) -> Iterator[Task]:
    if data.name == SWEPT:
        for seed in range(seeds):
            for name in COMPARED:
                yield Task(part, data.name, name, seed, short(data, name), varied, split)


def _skew(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    even = {"by": "even", "n_clients": N_CLIENTS}
    skewed = {"by": "dirichlet", "n_clients": N_CLIENTS, "alpha": CONCENTRATION}
    for labels, split, own_seeds in (
        ("even", even, range(seeds)),
        ("skewed", skewed, usable(data.name, skewed, seeds)),
    ):
        for seed in own_seeds:
            for name in CONTROLS:
                varied = {"labels": labels}
                yield Task("skew", data.name, name, seed, short(data, name), varied, split)
            for masses in MASSES:
                given = {"masses": masses}
                method = short(data, "fstc") | given
                varied = {"labels": labels, **given}
                yield Task("skew", data.name, "fstc", seed, method, varied, split)


def _picture(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    if data.name == SWEPT:
        for name in PICTURES:
            yield Task("picture", data.name, name, 0, methods(data)[name])


def _views(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for seed in range(seeds):
        for name in VIEWED:
            for views, given in VIEWS.items():
                method = filled(given, short(data, name))
                yield Task("views", data.name, name, seed, method, {"views": views})


def _encoders(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for seed in range(seeds):
        for encoder, given in ENCODERS.items():
            for name in ENCODED:
                method = short(data, name) | given
                yield Task("encoders", data.name, name, seed, method, {"encoder": encoder})


def _tuning(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    """List frozen and fine-tuned encoders, on few texts of the smallest set and in few steps."""
    if data.name != SMALLEST:
        return
    split = {"by": "even", "n_clients": 2}
    given: dict[str, Any] = {
        "data": data.name,
        "split": split,
        "n_documents": TUNED_DOCUMENTS,
        "part": "tuning",
    }
    for seed in range(seeds):
        yield Task(name="fsbert", seed=seed, method=methods(data)["fsbert"], **given)
        for tuning, change in TUNINGS.items():
            for name in ("stc", "paper"):
                method = methods(data)[name] | TUNED | change
                yield Task(name=name, seed=seed, method=method, varied={"tuning": tuning}, **given)


def _losses(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    for seed in range(seeds):
        for name in LEARNED:
            for loss, setting in LOSSES.items():
                method = short(data, name) | {"loss": setting}
                yield Task("losses", data.name, name, seed, method, {"loss": loss})


def _noise(usable: Usable, data: DataSet, seeds: int) -> Iterator[Task]:
    if data.name == SMALLEST:
        for seed in range(seeds):
            for share in DAMAGED:
                for name in SHAKEN:
                    method = short(data, name)
                    varied = {"damaged": share}
                    yield Task("noise", data.name, name, seed, method, varied, damaged=share)


PARTS: dict[str, Callable[[Usable, DataSet, int], Iterator[Task]]] = {
    "table2": _table2,
    "ablation": _ablation,
    "lambda": _lambda,
    "clients": _clients,
    "shares": _shares,
    "skew": _skew,
    "losses": _losses,
    "noise": _noise,
    "picture": _picture,
    "views": _views,
    "encoders": _encoders,
    "tuning": _tuning,
}


def usable_seeds(corpus: Corpus, split: Mapping[str, Any], seeds: int) -> list[int]:
    """Return the first seeds whose split leaves each client enough documents to take part."""

    def usable(seed: int) -> bool:
        try:
            parts = split_clients(corpus, **split, seed=seed)
        except StudyError:  # a client without any document
            return False
        return min(map(len, parts.values())) >= Policy().min_persons

    return list(islice(filter(usable, range(100)), seeds))
