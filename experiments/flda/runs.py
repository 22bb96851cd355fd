"""The F-LDA paper's experiments: LDA pooled, alone and federated, guided and not, in rounds.

Three clients get new documents in each of three rounds. Every model is scored on all texts of the
set, so that scores of different rounds can be compared.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), section Experiments.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from experiments.costs import what_left
from experiments.report import require
from experiments.settings import FileSettings
from fedtopics import __version__
from fedtopics.errors import DataError
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import RowFile, digest
from fedtopics.methods.events import OnEvent
from fedtopics.methods.flda.method import global_topics, optimal_topics
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import GlobalTopic, LocalTopics
from fedtopics.metrics import coherence_of, mean_cosine_dissimilarity, unique_words
from fedtopics.model.shown_words import Reading
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.columns import Columns
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens

CLIENTS = ("client1", "client2", "client3")
N_ROUNDS = 3
N_TOPICS = 10
SHOWN = 10  # words of a topic that are scored


@dataclass(frozen=True)
class DataSet:
    """Texts in one file, and what the paper says of a set of this kind.

    Parameters
    ----------
    name : str
        Of the file, without .parquet.
    a_round : int
        New documents of a client in a round; the paper has 1,000.
    gamma : float
        The paper's threshold.
    """

    name: str
    a_round: int
    gamma: float


Task = tuple[DataSet, str, int]  # data set, model, seed
DATA_SETS = (DataSet("medical_questions", 700, 0.45), DataSet("depression_tweets", 1000, 0.2))


@dataclass(frozen=True)
class Model:
    """One row of the table.

    Parameters
    ----------
    title : str
    where : {"pooled", "alone", "federated"}
    rounds : int
        Of documents that it sees: those of the first round, or of all so far.
    method : mapping
        Of its study.
    literal : bool
        Whether topics are merged with the paper's threshold.
    """

    title: str
    where: str
    rounds: int
    method: Mapping[str, Any]
    literal: bool = False


FLDA: dict[str, Any] = {"name": "flda", "n_components": N_TOPICS, "coherence": "documents"}
REGULAR = FLDA | {"max_rounds": 1}
ALONE = REGULAR | {"spare_topics": 0}
GUIDED = ALONE | {"max_rounds": 2}
STREAM = FLDA | {"documents_per_round": 0}  # filled in for the data set
TRANSITIVE: dict[str, Any] = {"preset": "paper-transitive", "stop": "documents"}
PAIRWISE: dict[str, Any] = {"preset": "paper-pairwise", "stop": "documents"}
OTHERS: dict[str, Any] = {"n_components": N_TOPICS, "coherence": "documents"}


def _literal(reading: str, method: dict[str, Any]) -> dict[str, Model]:
    """Return the rows of a reading of the paper's algorithms, round by round."""
    title = f"the paper, {reading}, round"
    return {
        f"{reading}-{n}": Model(
            f"{title} {n}", "federated", n, (REGULAR if n == 1 else STREAM) | method, True
        )
        for n in range(1, N_ROUNDS + 1)
    }


MODELS = {
    "pooled": Model("regular LDA", "pooled", 1, ALONE),
    "pooled-guided": Model("guided LDA", "pooled", 1, GUIDED),
    "pooled-all": Model("regular LDA, documents of 3 rounds", "pooled", 3, ALONE),
    "alone": Model("regular LDA", "alone", 1, ALONE),
    "alone-guided": Model("guided LDA", "alone", 1, GUIDED),
    **_literal("transitive", TRANSITIVE),
    **_literal("pairwise", PAIRWISE),
    "federated": Model("regular LDA", "federated", 1, REGULAR),
    "federated-all": Model("regular LDA, documents of 3 rounds", "federated", 3, REGULAR),
    "flda-2": Model("F-LDA, round 2", "federated", 2, STREAM),
    "flda-3": Model("F-LDA, round 3", "federated", 3, STREAM),
    "lda": Model("variational LDA", "federated", 3, OTHERS | {"name": "lda"}),
    "prodlda": Model("ProdLDA", "federated", 3, OTHERS),
}


@dataclass(frozen=True)
class Settings(FileSettings):
    """How the experiment is run: see `FileSettings`."""

    experiment: ClassVar[str] = "flda"

    def a_round(self, data: DataSet) -> int:
        """Return the new documents of a client in a round."""
        return 120 if self.quick else data.a_round

    def method(self, model: Model, data: DataSet) -> dict[str, Any]:
        """Return the [method] of a model's study."""
        method = dict(model.method)
        if method.get("name") == "flda":
            method["max_rounds"] = method.get("max_rounds", model.rounds)
            method |= {"threshold": data.gamma} if model.literal else {}
            method |= {"iterations": 30} if self.quick else {}
            if "documents_per_round" in method:
                method["documents_per_round"] = self.a_round(data)
        elif self.quick:
            method |= {"max_rounds": 20}
        return method


def tasks(settings: Settings) -> Iterator[Task]:
    """List data set, model and seed of each row."""
    for seed in settings.used_seeds:
        for data in DATA_SETS:
            for name in MODELS:
                yield data, name, seed


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[dict[str, Any]]:
    """Train and score what is not yet there.

    Parameters
    ----------
    settings : Settings
    on_event : function
        Called with {"event": "model", "name", "done", "models"} before each model, and with the
        events of training.

    Returns
    -------
    list of dict
        A row a data set, model and seed, with its scores.
    """
    require(matplotlib="matplotlib", tomotopy="tomotopy")
    kept = RowFile(settings.folder / "runs.jsonl")

    def name(task: Task) -> dict[str, Any]:
        return _name(settings, *task)

    def title(task: Task) -> str:
        data, model, seed = task
        return f"{data.name}, {MODELS[model].where}: {MODELS[model].title}, seed {seed}"

    def work(task: Task) -> dict[str, Any]:
        return _scored(settings, *task, on_event)

    kept.fill(tasks(settings), name, work, title, on_event)
    return [row for task in tasks(settings) if (row := kept.find(name(task)))]


def _name(settings: Settings, data: DataSet, name: str, seed: int) -> dict[str, Any]:
    """Return what says which row it is, and what its model is made of."""
    method = settings.method(MODELS[name], data)
    study = _study(method, seed).model_dump_json(include={"seed", "method"})
    made_of = f"{__version__} {study} {settings.a_round(data)}"
    return {"data": data.name, "model": name, "seed": seed, "made_of": digest(made_of)}


def _study(method: Mapping[str, Any], seed: int) -> Study:
    return Study.make(seed=seed, method=dict(method))


@lru_cache(maxsize=2)
def _documents(path: Path) -> Corpus:
    words = [word for batch in tokens(Corpus.read(path, Columns(text="text")), TextRules())
             for word in batch]  # fmt: skip
    return Corpus.of(words)


def slices(settings: Settings, data: DataSet, seed: int) -> dict[str, Corpus]:
    """Deal the documents out at random: each client's of all rounds, those of round 1 first."""
    corpus = _documents(settings.file(data.name))
    size = settings.a_round(data) * N_ROUNDS
    order = np.random.default_rng([seed, 6]).permutation(len(corpus))
    if size * len(CLIENTS) > len(order):
        raise DataError(
            f"{data.name} has {len(order):,} documents, {size * len(CLIENTS):,} are needed; give "
            "the whole file, or --quick."
        )
    return {
        name: corpus.take(order[number * size : (number + 1) * size])
        for number, name in enumerate(CLIENTS)
    }


def _scored(
    settings: Settings, data: DataSet, name: str, seed: int, on_event: OnEvent
) -> dict[str, Any]:
    model = MODELS[name]
    first = np.arange(settings.a_round(data) * model.rounds)
    clients = {client: docs.take(first) for client, docs in slices(settings, data, seed).items()}
    groups: list[dict[str, Corpus]] = [clients]
    if model.where == "pooled":
        groups = [{"all": Corpus.pool(clients.values())}]
    elif model.where == "alone":
        groups = [{client: docs} for client, docs in clients.items()]
    study = _study(settings.method(model, data), seed)
    reference = _documents(settings.file(data.name))
    scores = [_train(study, group, reference, on_event) for group in groups]
    return {key: float(np.mean([one[key] for one in scores])) for key in scores[0]}


def _train(
    study: Study, clients: Mapping[str, Corpus], reference: Corpus, on_event: OnEvent
) -> dict[str, float]:
    """Train a model; return its scores, and what left one client for it."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        # A quick run's few documents have few words that ten share.
        model = train(study, clients, out=out, on_event=on_event, policies=_policies(clients))
        sent = what_left(out)
        method = study.method
        if isinstance(method, FLDASettings) and method.memory == 0 and len(clients) > 1:
            sent |= score_merged(method, out, reference)
    by_weight = score(model, reference, Reading(1.0))
    shown = score(model, reference, model.reading)
    return {
        **by_weight,
        "shown_c_v": shown["c_v"],
        "shown_diversity": shown["diversity"],
        "rounds": float(model.info["rounds"]),
        **sent,
    }


def score_merged(settings: FLDASettings, out: Path, reference: Corpus) -> dict[str, float]:
    """Score all that a last round merged, the paper's M, and what of it is each client's, its M*.

    As nothing is remembered, M is what was merged of the topics that clients sent last.
    """
    sent = json.loads(max(out.glob("topics-*.json")).read_text("utf-8"))
    local = {name: LocalTopics(**each) for name, each in sent.items()}
    gamma = float(settings.threshold or 0)
    topics = [
        GlobalTopic(number, words, [], 0.0)
        for number, (words, _) in enumerate(global_topics(local, gamma, settings))
    ]
    own = [optimal_topics(each.topics, topics, gamma) for each in local.values()]
    shown = [list(topic.words)[:SHOWN] for topic in topics]
    c_v = coherence_of(shown, _words_of(reference), "c_v")
    return {
        "m": float(len(topics)),
        "own": float(np.mean([len(ids) for ids in own])),
        "own_c_v": float(np.mean([c_v[ids].mean() for ids in own if ids])),
    }


def _words_of(reference: Corpus) -> list[Any]:
    return [document for batch in reference.batches() for document in batch]


def _policies(clients: Mapping[str, Corpus]) -> dict[str, Policy]:
    return dict.fromkeys(clients, Policy())


def score(model: TopicModel, reference: Corpus, reading: Reading) -> dict[str, float]:
    """Return c_v, diversity, the share of distinct words, and the number of topics."""
    topics = model.read(reading, SHOWN)
    documents = _words_of(reference)
    index = model.vocabulary.index
    beta = np.zeros_like(model.beta)
    for number, words in enumerate(topics):
        columns = [index[word] for word in words]
        beta[number, columns] = model.beta[number, columns]
    return {
        "c_v": float(coherence_of(topics, documents, "c_v").mean()),
        "diversity": mean_cosine_dissimilarity(beta),
        "unique": unique_words(topics, SHOWN),
        "topics": float(len(topics)),
    }


def thresholds(settings: Settings, data: DataSet, seed: int) -> list[float]:
    """Return what each round of F-LDA takes for the threshold by default."""
    study = _study(settings.method(MODELS["flda-3"], data), seed)
    model = train(study, slices(settings, data, seed))
    return [told["threshold"] for told in model.info["history"]]


def local_topics(settings: Settings, data: DataSet, seed: int = 0) -> dict[str, Any]:
    """Return the topics that the clients sent in round 1, for the figure."""
    clients = slices(settings, data, seed)
    first = np.arange(settings.a_round(data))
    study = _study(settings.method(MODELS["federated"], data), seed)
    with tempfile.TemporaryDirectory() as folder:
        train(study, {name: docs.take(first) for name, docs in clients.items()}, out=folder)
        sent: dict[str, Any] = json.loads((Path(folder) / "topics-00001.json").read_text("utf-8"))
    return sent
