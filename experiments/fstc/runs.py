"""The runs of the FSTC paper's experiments: trainings that are not yet there, and their scores."""

import json
import tempfile
import time
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from experiments.costs import measured, what_left
from experiments.fstc.methods import DIMENSION, OTHER, OWN
from experiments.fstc.parts import PARTS, Task
from experiments.fstc.published import Counts
from experiments.fstc.tasks import Settings, given
from experiments.fstc.word_vectors import embed
from experiments.report import require, versions
from fedtopics import __version__
from fedtopics.contract.events import OnEvent
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.files import RowFile, digest
from fedtopics.inference.vectors import unit_rows
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information
from fedtopics.model.topic_model import TopicModel
from fedtopics.networks.trained_encoder import represent
from fedtopics.text.corpus import Corpus

PACKAGES = ("fedtopics", "sentence-transformers", "torch", "numpy", "scipy", "scikit-learn")
SCORES = ("acc", "nmi", "seconds", "core_seconds", "rounds", "bytes", "cost", "versions")
PICTURED = 2000  # documents
GROWING = (
    "table2",
    "views",
    "encoders",
    "tuning",
    "losses",
    "noise",
)  # parts whose lines are read one by one
Named = tuple[dict[str, Any], Task]  # by what its row says of it


def reproduce(settings: Settings, on_event: OnEvent = lambda _: None) -> list[dict[str, Any]]:
    """Train and score what is not yet there; return what the files hold, and a row a training.

    Rows are of each part and data set of which no line is empty, and those that there are of the
    parts in `GROWING`.
    """
    require(matplotlib="matplotlib")
    row_file = RowFile(settings.folder / "runs.jsonl")
    tasks = {
        part: [(_name(settings, task), task) for task in settings.tasks(part)] for part in PARTS
    }

    def score(task: Task) -> dict[str, Any]:
        return _scored(settings, task, on_event)

    trained = measured(score, PACKAGES)

    def work(named: Named) -> dict[str, Any]:
        name, task = named
        # The same training may be a row of several parts; rows of old are not set beside new ones.
        same = row_file.find({"made_of": name["made_of"], "versions": versions(PACKAGES)})
        if same is not None and task.part != "picture":
            return {key: same[key] for key in SCORES if key in same}
        return trained(task)

    wanted = [part for part in PARTS if part in settings.only or not settings.only]
    todo = [named for part in wanted for named in tasks[part]]
    row_file.fill(todo, itemgetter(0), work, _title, on_event)
    counted = [_counted(settings, row_file, data.name) for data in settings.data_sets]
    return counted + [row for part in tasks.values() for row in _shown(row_file, part)]


def _counted(settings: Settings, row_file: RowFile, name: str) -> dict[str, Any]:
    """Return the row of what a file holds, which needs no training."""
    documents = settings.documents(name)
    words = np.mean([len(text.split()) for text in _texts(documents)])
    counts = Counts(len(set(_labels(documents))), len(documents), float(words))
    row = {"part": "sets", "data": name, **counts._asdict()}
    return row_file.find(row) or row_file.keep(row)


def _shown(row_file: RowFile, part: list[Named]) -> list[dict[str, Any]]:
    """Return the rows of a part; those of a data set together, if each line has one."""
    lines: dict[str, dict[str, list[Any]]] = {}
    for name, task in part:
        line = json.dumps([task.name, task.varied])
        of_line = lines.setdefault(task.data, {}).setdefault(line, [])
        of_line += [row for row in [row_file.find(name)] if row is not None]
    whole = (
        of_data for of_data in lines.values() if all(of_data.values()) or part[0][1].part in GROWING
    )
    return [row for of_data in whole for of_line in of_data.values() for row in of_line]


def _name(settings: Settings, task: Task) -> dict[str, Any]:
    """Return what says which row it is, with a digest of what its result depends on."""
    study = settings.study(task)
    method: Any = study.method
    documents = [task.data, len(settings.documents(task.data, task.n_documents)), task.split]
    documents += [task.damaged] if task.damaged else []
    others = settings.known_to(method.embedding.model, task.data)
    content = [__version__, *documents, task.seed, given(study), *others]
    return task.row | {"made_of": digest(json.dumps(content, sort_keys=True))}


def _title(named: Named) -> str:
    _, task = named
    varied = [f"{name} {value}" for name, value in task.varied.items()]
    return ", ".join([task.part, task.data, task.name, *varied, f"seed {task.seed}"])


@lru_cache(maxsize=4)
def _embedded(
    settings: Settings,
    name: str,
    n_documents: int | None,
    encoder: str,
    on_event: OnEvent,
    noise: tuple[float, int] | None,
) -> Corpus:
    """Return a data set's texts with their embeddings, with mistakes by a share and a seed."""
    documents = settings.documents(name, n_documents)
    if noise is not None:
        columns = {"text": damaged(_texts(documents), *noise), "label": _labels(documents)}
        documents = Corpus.of(pa.table(columns))
    if encoder in (OWN, OTHER):
        corpora = [settings.documents(other) for other in settings.known_to(encoder, name)]
        texts = [text for corpus in corpora for text in _texts(corpus)]
        return documents.with_embeddings(embed(_texts(documents), texts, DIMENSION))

    def tell(done: int, documents: int) -> None:
        on_event({"event": "embedding", "client": name, "done": done, "documents": documents})

    study = Study.make(method={"name": "discriminative"})
    return study.embedded(documents, on_progress=tell)


def _texts(corpus: Corpus) -> list[str]:
    return [text for batch in corpus.texts() for text in batch]


def _labels(corpus: Corpus) -> list[Any]:
    assert corpus.labels is not None  # noqa: S101 - for mypy: its column was named
    labels: list[Any] = corpus.labels.to_pylist()
    return labels


def _scored(settings: Settings, task: Task, on_event: OnEvent) -> dict[str, Any]:
    """Train; return scores in per cent, and what they cost."""
    study = settings.study(task)
    method: Any = study.method
    encoder = method.embedding.model
    noise = (task.damaged, task.seed) if task.damaged else None
    corpus = _embedded(settings, task.data, task.n_documents, encoder, on_event, noise)
    if getattr(method, "fine_tune", False):
        corpus = settings.documents(task.data, task.n_documents)
    clients = split_clients(corpus, **task.split, seed=task.seed)
    # A quick run's clients have few documents of a cluster.
    policies = dict.fromkeys(clients, OPEN_POLICY if settings.quick else Policy())
    begun = time.perf_counter()
    begun_on_cores = time.process_time()

    def note(event: dict[str, Any]) -> None:
        nonlocal begun, begun_on_cores
        if event["event"] == "embedding":  # of views, before any training
            begun = time.perf_counter()
            begun_on_cores = time.process_time()
        on_event(event)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        model = train(study, clients, out=out, policies=policies, on_event=note)
        seconds = time.perf_counter() - begun
        core_seconds = time.process_time() - begun_on_cores
        sent = what_left(out)
    labels = _labels(corpus)
    clusters = model.main_topics(corpus)
    row = {
        "acc": 100 * clustering_accuracy(labels, clusters),
        "nmi": 100 * normalised_mutual_information(labels, clusters, average="geometric"),
        "seconds": seconds,
        "core_seconds": core_seconds,
        "rounds": int(model.info["rounds"]),
        "bytes": sent["bytes"],
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
        "points": [
            [round(float(x), 1), round(float(y), 1), int(label)]
            for (x, y), label in zip(plane, labels, strict=True)
        ],
    }


def representation(model: TopicModel, corpus: Corpus) -> NDArray[np.float64]:
    """Return what a model separates clusters by, shape (n_documents, n_dimensions).

    A trained adapter's output, a projection, or else the points themselves.
    """
    weights = model.weights
    embeddings = corpus.embeddings if model.inference.sees_embedding else None
    inference: Any = model.inference
    points = inference.points(weights["origin"], model.count_words(corpus), embeddings)
    dense: NDArray[np.float64] = points.toarray() if inference.sees_words else points
    dense = dense.astype(np.float64)
    if "adapter_in" in weights:
        tensors = {name: torch.from_numpy(weight) for name, weight in weights.items()}
        return represent(tensors, torch.from_numpy(dense)).numpy()
    if "projection" in weights:
        return unit_rows(dense @ weights["projection"])
    return dense


# Texts with typing mistakes, which stand for the noise of real texts


def damaged(texts: list[str], share: float, seed: int) -> list[str]:
    """Return texts of which each word has a typing mistake with the probability `share`.

    Examples
    --------
    >>> damaged(["two oaks", "a ketch and a sloop"], 0.5, seed=1)
    ['two ooaks', 'aa ketch and a solop']
    """
    rng = np.random.default_rng(seed)
    return [" ".join(_typed(word, share, rng) for word in text.split()) for text in texts]


def _typed(word: str, share: float, rng: np.random.Generator) -> str:
    drawn, which = rng.random(2)
    spellings = mistakes(word) if drawn < share else [word]
    return spellings[int(which * len(spellings))]


def mistakes(word: str) -> list[str]:
    """Return what becomes of a word with two letters swapped, one dropped or one doubled.

    Examples
    --------
    >>> mistakes("oak")
    ['ak', 'aok', 'oa', 'oaak', 'oakk', 'ok', 'oka', 'ooak']
    """
    places = range(len(word))
    swapped = {word[:i] + word[i : i + 2][::-1] + word[i + 2 :] for i in places}
    dropped = {word[:i] + word[i + 1 :] for i in places if len(word) > 1}
    doubled = {word[: i + 1] + word[i:] for i in places}
    return sorted((swapped | dropped | doubled) - {word})
