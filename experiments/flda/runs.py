"""The F-LDA paper's experiments: LDA pooled, alone and federated, guided and not, in rounds.

Three clients get new documents in each of three rounds. Every model is scored on all texts of the
set, so that scores of different rounds can be compared.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), section Experiments.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from experiments.costs import measured
from experiments.flda import similarities
from experiments.flda.models import CLIENTS, DATA_SETS, MODELS, N_ROUNDS, N_TOPICS, DataSet, Model
from experiments.flda.rounds import SHOWN, trajectory
from experiments.flda.similarities import PAIRS
from experiments.flda.subjects import (
    Numbers,
    Subjects,
    deal_by_subject,
    find_subjects,
    own_subjects,
)
from experiments.flda.training import all_found, in_words, own_found, train_and_score
from experiments.report import require
from experiments.settings import FileSettings
from fedtopics import __version__
from fedtopics.contract.events import OnEvent
from fedtopics.errors import DataError
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import RowFile, digest
from fedtopics.methods.flda.labelled_pairs import decided_alike, fit_curve, read_pairs
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import tokens

PACKAGES = ("fedtopics", "tomotopy", "torch", "numpy", "numba")
# Whose topics are kept in words, of the first seed: figures 3, 4 and 9, and table 1.
IN_WORDS = ("pooled", "pooled-guided", "alone", "flda-3", "transitive-3", "pairwise-3")

Task = tuple[DataSet, str, int]  # data set, model, seed


@dataclass(frozen=True)
class Settings(FileSettings):
    """How the experiment is run; a quick run has the first data set."""

    experiment: ClassVar[str] = "flda"

    @property
    def data_sets(self) -> tuple[DataSet, ...]:
        """Data sets that are run."""
        return DATA_SETS[:1] if self.quick else DATA_SETS

    def a_round(self, data: DataSet, size: float = 1.0) -> int:
        """Return the new documents of a client in a round."""
        return int(size * (60 if self.quick else data.a_round))

    def method(self, model: Model, data: DataSet) -> dict[str, Any]:
        """Return the [method] of a model's study."""
        method = dict(model.method)
        if method.get("name") == "flda":
            method["max_rounds"] = method.get("max_rounds", model.rounds)
            method |= {"threshold": data.gamma} if model.literal else {}
            method |= {"iterations": 10, "min_new_documents": 25} if self.quick else {}
            if "documents_per_round" in method:
                method["documents_per_round"] = self.a_round(data, model.size)
        elif self.quick:
            method |= {"max_rounds": 5}
        return method


def tasks(settings: Settings) -> Iterator[Task]:
    """List data set, model and seed of each row; ProdLDA takes longest and is last."""
    last = [name for name in MODELS if name == "prodlda"]
    for names in ([name for name in MODELS if name not in last], last):
        for seed in settings.used_seeds:
            for data in settings.data_sets:
                yield from ((data, name, seed) for name in names)


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[dict[str, Any]]:
    """Train and score what is not yet there; return a row a data set, model and seed."""
    require(matplotlib="matplotlib", tomotopy="tomotopy")
    for data in settings.data_sets:
        settings.file(data.name)  # it may be missing: better said before work
    row_file = RowFile(settings.folder / "runs.jsonl")

    def name(task: Task) -> dict[str, Any]:
        return _name(settings, *task)

    def title(task: Task) -> str:
        data, model, seed = task
        return f"{data.name}, {MODELS[model].where}: {MODELS[model].title}, {model}, seed {seed}"

    def work(task: Task) -> dict[str, Any]:
        return _scored(settings, *task, on_event)

    judged = _judge_similarities(settings, row_file, on_event)
    row_file.fill(tasks(settings), name, measured(work, PACKAGES), title, on_event)
    return judged + [row for task in tasks(settings) if (row := row_file.find(name(task)))]


def _judge_similarities(
    settings: Settings, row_file: RowFile, on_event: OnEvent
) -> list[dict[str, Any]]:
    """Judge similarities of topics by pairs whose answer is known, what is not yet there."""

    def name(task: tuple[str, int]) -> dict[str, Any]:
        pairs, seed = task
        made = digest(f"{__version__} {similarities.made_of(pairs, settings.quick)}")
        return {"data": pairs, "model": "similarity", "seed": seed, "made_of": made}

    def title(task: tuple[str, int]) -> str:
        return f"similarities, {task[0]}, seed {task[1]}"

    def work(task: tuple[str, int]) -> dict[str, Any]:
        return similarities.judged(*task, settings.quick)

    every = similarities.tasks(settings.used_seeds)
    row_file.fill(every, name, measured(work, PACKAGES), title, on_event)
    return [row for task in every if (row := row_file.find(name(task)))]


def _name(settings: Settings, data: DataSet, name: str, seed: int) -> dict[str, Any]:
    """Return what says which row it is, and what its model is made of."""
    method = settings.method(MODELS[name], data)
    study = _study(method, seed).model_dump_json(include={"seed", "method"})
    made_of = f"{__version__} {study} {settings.a_round(data)}"
    return {"data": data.name, "model": name, "seed": seed, "made_of": digest(made_of)}


def _study(method: Mapping[str, Any], seed: int) -> Study:
    return Study.make(seed=seed, method=dict(method))


@lru_cache(maxsize=2)
def _documents(path: Path, column: str) -> Corpus:
    """Return the documents as words; a question with several answers is in the file several times.

    It counts once, or clients would have the same documents.
    """
    corpus = Corpus.read(path, Columns(text=column))
    if column == "question":
        texts = [text for batch in corpus.texts() for text in batch]
        corpus = Corpus.of([*dict.fromkeys(texts)])
    return Corpus.of([word for batch in tokens(corpus, TextRules()) for word in batch])


def rows_of(settings: Settings, data: DataSet, seed: int, dealt: str) -> dict[str, Numbers]:
    """Deal the documents out: each client's rows of all rounds, those of round 1 first."""
    source = settings.file(data.name), data.column
    size = settings.a_round(data) * N_ROUNDS
    total = len(_documents(*source))
    if size * len(CLIENTS) > total:
        raise DataError(
            f"{data.name} has {total:,} documents, {size * len(CLIENTS):,} are needed; give "
            "the whole file, or --quick."
        )
    if dealt == "by subject":
        by_subject = deal_by_subject(_subjects(*source).of, len(CLIENTS), size, seed)
        return dict(zip(CLIENTS, by_subject, strict=True))
    order = np.random.default_rng([seed, 6]).permutation(total)
    return {name: order[n * size : (n + 1) * size] for n, name in enumerate(CLIENTS)}


def slices(settings: Settings, data: DataSet, seed: int) -> dict[str, Corpus]:
    """Deal the documents out at random."""
    corpus = _documents(settings.file(data.name), data.column)
    dealt = rows_of(settings, data, seed, "at random")
    return {name: corpus.take(rows) for name, rows in dealt.items()}


@lru_cache(maxsize=2)
def _subjects(path: Path, column: str) -> Subjects:
    return find_subjects(_documents(path, column), N_TOPICS, SHOWN)


def _scored(
    settings: Settings, data: DataSet, name: str, seed: int, on_event: OnEvent
) -> dict[str, Any]:
    model = MODELS[name]
    source = (settings.file(data.name), data.column)
    texts = _documents(*source)
    subjects = _subjects(*source)
    words = [document for batch in texts.batches() for document in batch]
    dealt = rows_of(settings, data, seed, model.dealt)
    first = settings.a_round(data, model.size) * model.rounds
    clients = {client: texts.take(rows[:first]) for client, rows in dealt.items()}
    study = _study(settings.method(model, data), seed)
    trained = [train_and_score(study, *group, words, on_event) for group in _groups(model, clients)]
    row: dict[str, Any] = {
        key: float(np.mean([one.scores[key] for one in trained])) for key in trained[0].scores
    }
    row["most_training_seconds"] = max(one.scores["training_seconds"] for one in trained)
    row["found"] = all_found(subjects, trained)
    if model.dealt == "by subject":
        by_client = own_subjects({client: subjects.of[rows] for client, rows in dealt.items()})
        row["own_subjects"] = float(np.mean([len(numbers) for numbers in by_client.values()]))
        row |= own_found(subjects, by_client, trained)
    if rounds := trained[0].rounds:
        row["each_round"] = trajectory(rounds, N_TOPICS, words)
        row |= {key: row["each_round"][-1][key] for key in ("m", "own", "own_c_v")}
    if seed == 0 and name in IN_WORDS:
        row["words"] = {", ".join(one.clients): in_words(one.topics) for one in trained}
    return row


def _groups(
    model: Model, clients: Mapping[str, Corpus]
) -> list[tuple[tuple[str, ...], Mapping[str, Corpus]]]:
    """Return who get a model together, and what it is trained on by name."""
    if model.where == "pooled":
        return [(tuple(clients), {"all": Corpus.pool(clients.values())})]
    if model.where == "alone":
        return [((client,), {client: documents}) for client, documents in clients.items()]
    return [(tuple(clients), clients)]


def local_topics(settings: Settings, data: DataSet, seed: int = 0) -> dict[str, Any]:
    """Return the topics that the clients sent in round 1, for the figure."""
    clients = slices(settings, data, seed)
    first = np.arange(settings.a_round(data))
    study = _study(settings.method(MODELS["federated"], data), seed)
    with tempfile.TemporaryDirectory() as folder:
        train(study, {name: docs.take(first) for name, docs in clients.items()}, out=folder)
        sent: dict[str, Any] = json.loads((Path(folder) / "topics-00001.json").read_text("utf-8"))
    return sent


# How F-LDA's default threshold decides pairs of topics that a person has labelled

SEED = 50


def threshold_sentences(settings: Settings) -> Iterator[str]:
    """Say how many pairs each threshold decides as the person did."""
    for data in settings.data_sets:
        pairs = read_pairs(PAIRS / f"pairs-{data.name}.csv")
        values = {"regression": fit_curve(pairs).threshold, "paper": data.gamma}
        study = _study(settings.method(MODELS["flda-3"], data), SEED)
        rounds = enumerate(train(study, slices(settings, data, SEED)).info["history"], 1)
        values |= {f"default, round {number}": told["threshold"] for number, told in rounds}
        for name, value in values.items():
            decided = decided_alike(pairs, value)
            yield f"{data.name}, {name}: {value:.3f} decides {decided} of {len(pairs)}"
