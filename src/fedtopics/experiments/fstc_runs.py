"""The FSTC paper's experiments: clusters of short texts at some clients, beside controls.

Every method gets the same embeddings, computed once before any training: what an encoder brings
and what a method brings are told apart by k-means of the same embeddings (FSBERT), which is in
every part.

References
----------
Hu, Chen, Liu, Liao and Zheng, Federated Learning for Short Text Clustering, section 5.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from fedtopics import __version__
from fedtopics.clustering import unit_rows
from fedtopics.corpus import Columns, Corpus
from fedtopics.datasets import split_clients
from fedtopics.errors import DataError, StudyError
from fedtopics.experiments.report import require
from fedtopics.experiments.rows import Rows
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information
from fedtopics.networks import represent
from fedtopics.privacy import OPEN_POLICY, Policy, summarise_ledger
from fedtopics.simulation import train
from fedtopics.study import Study
from fedtopics.topics import TopicModel

N_CLIENTS = 4
SWEEP_SEEDS = 3  # at most, of what is not table 2
LAMBDAS = (0.001, 0.01, 0.1, 1, 10)
CLIENTS = (2, 4, 8, 10)
LEVELS = (0, 1, 2, 3, 4)  # rho: 5 + rho documents at one client to 5 - rho at the other
CONCENTRATION = 0.3  # of the Dirichlet distribution, for clients that differ in labels
PICTURED = 2000  # documents
QUICK_DOCUMENTS = 400
SCORES = ("acc", "nmi", "seconds", "rounds", "bytes")
OnEvent = Callable[[dict[str, Any]], None]
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
COMPARED = ("fsbert", "fsccl", "paper", "discriminative", "fstc")
MASSES = ("even", "global", "own")
PICTURES = ("ftfidf", "fsbert", "fsccl", "fstc", "discriminative")


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


Named = tuple[dict[str, Any], Task]  # by what its row says of it


@dataclass(frozen=True)
class Settings:
    """How the experiment is run.

    Parameters
    ----------
    data : path
        Folder of the Parquet files.
    out : path, optional
        Folder of the results; see `folder`.
    seeds : int
        Of table 2; the other parts have three, or fewer.
    quick : bool
        One seed, few documents and steps: whether it runs, not what is true.
    only : tuple of str
        Parts that are trained now.

    Raises
    ------
    StudyError
        If there is no part of a name.
    """

    data: Path
    out: Path | None = None
    seeds: int = 5
    quick: bool = False
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.only) - set(PARTS):
            raise StudyError(f"There is no part {min(unknown)!r}; known: {', '.join(PARTS)}.")

    @property
    def folder(self) -> Path:
        """Where it all goes."""
        return self.out or Path(f"runs/fstc{'-quick' if self.quick else ''}")

    @property
    def command(self) -> str:
        """What repeats it."""
        options = " --quick" if self.quick else f" --seeds {self.seeds}"
        return f"fedtopics reproduce fstc --data FOLDER{options}"

    def path(self, name: str) -> Path:
        """Return the file of a data set."""
        return self.data / f"{name}.parquet"

    @property
    def data_sets(self) -> list[DataSet]:
        """Those of the paper that can be had, and what else is there."""
        return [data for data in DATA_SETS.values()
                if data.name in NEEDED or self.path(data.name).exists()]  # fmt: skip

    def tasks(self, part: str) -> list[Task]:
        """List the trainings of a part; all methods of a seed come before the next seed."""
        seeds = 1 if self.quick else self.seeds if part == "table2" else SWEEP_SEEDS
        return [
            task
            for data in self.data_sets
            for task in PARTS[part](self, data, min(seeds, self.seeds))
        ]

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
        return _documents(self.path(name), QUICK_DOCUMENTS if self.quick else None)


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
        for name in ("paper", "fstc"):
            for value in LAMBDAS:
                varied = {"alignment": value}
                yield Task("lambda", data.name, name, seed, known[name] | SHORT | varied, varied)


def _clients(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    for n_clients in CLIENTS:
        split = {"by": "even", "n_clients": n_clients}
        yield from _compared("clients", data, seeds, {"m": n_clients}, split)


def _shares(settings: Settings, data: DataSet, seeds: int) -> Iterator[Task]:
    for level in LEVELS:
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
            for name in ("fsbert", "fsccl", "discriminative"):
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


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[dict[str, Any]]:
    """Train and score what is not yet there.

    Parameters
    ----------
    settings : Settings
    on_event : function
        Called with {"event": "model", "name", "done", "models"} before each training, and with
        the events of training and of embedding.

    Returns
    -------
    list of dict
        A row a training, of all parts that are complete, be they trained now or before.
    """
    require(matplotlib="matplotlib")
    kept = Rows(settings.folder / "runs.jsonl")
    tasks = {
        part: [(_name(settings, task), task) for task in settings.tasks(part)] for part in PARTS
    }

    def work(named: Named) -> dict[str, Any]:
        name, task = named
        # The same training may be a row of several parts.
        same = kept.find({"made_of": name["made_of"]})
        if same is not None and task.part != "picture":
            return {key: same[key] for key in SCORES}
        return _scored(settings, task, on_event)

    wanted = [part for part in PARTS if part in settings.only or not settings.only]
    todo = [named for part in wanted for named in tasks[part]]
    kept.fill(todo, itemgetter(0), work, _title, on_event)
    rows = [[kept.find(name) for name, _ in part] for part in tasks.values()]
    return [row for part in rows if all(part) for row in part if row]


def _name(settings: Settings, task: Task) -> dict[str, Any]:
    """Return what says which row it is, with a digest of what its result depends on."""
    study = settings.study(task).model_dump(mode="json")
    study["method"].pop("preset", None)  # which stands for values that are there
    content = [__version__, task.data, len(settings.documents(task.data)), task.split, study]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    known = {"part": task.part, "data": task.data, "name": task.name, "seed": task.seed}
    return {**known, **task.varied, "made_of": digest}


def _title(named: Named) -> str:
    _, task = named
    varied = [f"{name} {value}" for name, value in task.varied.items()]
    return ", ".join([task.part, task.data, task.name, *varied, f"seed {task.seed}"])


@lru_cache(maxsize=len(DATA_SETS))
def _documents(path: Path, n_documents: int | None) -> Corpus:
    if not path.exists():
        raise DataError(f"There is no {path.name} in {path.parent}; name its folder with --data.")
    corpus = Corpus.read(path, Columns(text="text", label="label"))
    rows = np.random.default_rng(0).permutation(len(corpus))[:n_documents]
    return corpus if n_documents is None else corpus.take(rows)


@lru_cache(maxsize=len(DATA_SETS))
def _embedded(settings: Settings, name: str, on_event: OnEvent) -> Corpus:
    def tell(done: int, documents: int) -> None:
        on_event({"event": "embedding", "client": name, "done": done, "documents": documents})

    study = Study.make(method={"name": "discriminative"})
    return study.embedded(settings.documents(name), on_progress=tell)


def _labels(corpus: Corpus) -> list[Any]:
    assert corpus.labels is not None  # noqa: S101 - for mypy: its column was named
    labels: list[Any] = corpus.labels.to_pylist()
    return labels


def _scored(settings: Settings, task: Task, on_event: OnEvent) -> dict[str, Any]:
    """Train; return scores in per cent, and what they cost."""
    corpus = _embedded(settings, task.data, on_event)
    clients = split_clients(corpus, **task.split, seed=task.seed)
    # A quick run's clients have few documents of a cluster.
    policies = dict.fromkeys(clients, OPEN_POLICY if settings.quick else Policy())
    begun = time.perf_counter()

    def note(event: dict[str, Any]) -> None:
        nonlocal begun
        if event["event"] == "embedding":  # FSCCL's views, before it trains
            begun = time.perf_counter()
        on_event(event)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        model = train(settings.study(task), clients, out=out, policies=policies, on_event=note)
        seconds = time.perf_counter() - begun
        ledgers = [summarise_ledger(path) for path in out.glob("clients/*/ledger.jsonl")]
    labels, clusters = _labels(corpus), model.main_topics(corpus)
    row = {
        "acc": 100 * clustering_accuracy(labels, clusters),
        "nmi": 100 * normalised_mutual_information(labels, clusters, average="geometric"),
        "seconds": seconds,
        "rounds": int(model.info["rounds"]),
        "bytes": float(np.mean([sum(row["bytes"] for row in ledger) for ledger in ledgers])),
    }
    return row if task.part != "picture" else row | _pictured(model, corpus)


def _pictured(model: TopicModel, corpus: Corpus) -> dict[str, Any]:
    """Return places of some documents in the plane with numbers of their labels.

    They follow from what the model sees; so does how many of them have a nearest neighbour of the
    same label, in per cent, since some neighbours in the plane are none.
    """
    from sklearn.manifold import TSNE
    from sklearn.neighbors import NearestNeighbors

    some = corpus.take(np.random.default_rng(0).permutation(len(corpus))[:PICTURED])
    seen = representation(model, some)
    labels = np.unique(_labels(some), return_inverse=True)[1]
    nearest = NearestNeighbors(n_neighbors=1).fit(seen).kneighbors(return_distance=False)[:, 0]
    plane = TSNE(init="pca", random_state=0).fit_transform(seen)
    return {
        "neighbours": 100 * float((labels[nearest] == labels).mean()),
        "points": [[round(float(x), 1), round(float(y), 1), int(label)]
                   for (x, y), label in zip(plane, labels, strict=True)],
    }  # fmt: skip


def representation(model: TopicModel, corpus: Corpus) -> NDArray[np.float64]:
    """Return what a model tells documents' clusters by, shape (n_documents, n_dimensions).

    A trained adapter's output, a projection, or else the points themselves.
    """
    weights = {name: weight.numpy() for name, weight in model.weights.items()}
    embeddings = corpus.embeddings if model.inference.sees_embedding else None
    inference: Any = model.inference
    points = inference.points(weights["origin"], model.count(corpus), embeddings)
    dense: NDArray[np.float64] = points.toarray() if inference.sees_words else points
    dense = dense.astype(np.float64)
    if "adapter_in" in weights:
        return represent(model.weights, torch.from_numpy(dense)).numpy()
    if "projection" in weights:
        return unit_rows(dense @ weights["projection"])
    return dense
