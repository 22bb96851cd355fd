"""Clusters of short texts: whether they depend on how texts are spread, and small ones.

Labels are compared with those of one client; k-means also with scikit-learn's from the same start.
The second table has 44 subjects, 28 texts of each on average, as in the set Tweet of 89, from 283
down to 7. A cluster needs ten documents, of one client, or with secure aggregation of all.
"""

import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from benchmarks.common import arguments, parquet, table, write
from fedtopics import Corpus, Policy, Study, TopicModel, train
from fedtopics.datasets import split_clients
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.inference.clusters import centred
from fedtopics.inference.points import Moments
from fedtopics.methods.clusters.settings import StartSettings
from fedtopics.methods.core.interfaces import Call
from fedtopics.methods.kmeans.lloyd import draw_centres
from fedtopics.metrics import clustering_accuracy, normalised_mutual_information
from fedtopics.protocol.values import dumps

SPLITS: dict[str, dict[str, Any]] = {
    **{f"{n} client{'s' * (n > 1)}": {"by": "even", "n_clients": n} for n in (1, 2, 10, 50)},
    "10 clients, skewed": {"by": "dirichlet", "n_clients": 10, "alpha": 0.1},
}
METHODS = {"kmeans": "cluster_sums", "discriminative": "class_sums"}
CHUNK = 1 << 20
SETS = "stackoverflow", "biomedical", "agnews"
EACH, CLIENTS = 28, 4  # texts of a subject, on average
SMALL: dict[str, dict[str, Any]] = {
    "kmeans": {"name": "kmeans"},
    "discriminative": {"name": "discriminative", "preset": "single"},
    "discriminative, free sizes": {
        "name": "discriminative",
        "preset": "single",
        "separation": {"sizes": "free"},
    },
}
CASES: dict[str, tuple[int, Policy, bool]] = {  # clients, their policies, secure aggregation
    "pooled, one document is enough": (1, OPEN_POLICY, False),
    "pooled, ten": (1, Policy(), False),
    "four clients, ten of each": (CLIENTS, Policy(), False),
    "four clients with masks, ten of all": (CLIENTS, Policy(), True),
}
CALL = Door.call


def watched(function: str, sizes: list[int]) -> Any:
    """Note the bytes of one function's last reply: as computed, and as sent."""

    def call(door: Door, asked: Call) -> Any:
        reply = CALL(door, asked)
        if asked.function == function:
            sizes[0] = sum(value.nbytes for value in reply.values() if hasattr(value, "nbytes"))
            sizes[1] = len(dumps(reply))
        return reply

    return call


def clustered(
    method: dict[str, Any], clients: dict[str, Corpus], policy: Policy, **how: Any
) -> tuple[TopicModel, float]:
    study = Study.make(method=method | {"coherence": "nothing"}, **how)
    begun = time.perf_counter()
    model = train(study, clients, policies=dict.fromkeys(clients, policy))
    return model, time.perf_counter() - begun


def spread(corpus: Corpus, method: str, split: str, least: int) -> tuple[NDArray[Any], list[str]]:
    clients, sizes = split_clients(corpus, **SPLITS[split], seed=1), [0, 0]
    Door.call = watched(METHODS[method], sizes)  # type: ignore[method-assign]
    settings = {"name": method, "n_components": 20}
    model, seconds = clustered(settings, clients, Policy(min_documents=least))
    Door.call = CALL  # type: ignore[method-assign]
    labels = model.main_topics(corpus)
    accuracy = f"{100 * clustering_accuracy(labels_of(corpus), labels):.1f}"
    bytes_ = (f"{size:,}" for size in sizes)
    return labels, [accuracy, str(model.info["rounds"]), *bytes_, f"{seconds:.0f}"]


def labels_of(corpus: Corpus) -> list[Any]:
    known: Any = corpus.labels
    return list(known.to_pylist())


def from_scikit_learn(corpus: Corpus) -> NDArray[Any]:
    """Return k-means' labels on pooled embeddings, from the start that had the best end here."""
    embeddings = np.asarray(corpus.embeddings)
    points = centred(embeddings, embeddings.mean(0, dtype=np.float64)).astype(np.float64)
    moments = Moments.of(len(points), points.sum(0), points.T @ points)
    fits = [
        KMeans(20, init=centres, n_init=1, max_iter=10, tol=0).fit(points)
        for centres in draw_centres(StartSettings(), 20, moments, 0)
    ]
    best = min(fits, key=lambda fit: fit.inertia_).cluster_centers_
    end: NDArray[Any] = KMeans(20, init=best, n_init=1, max_iter=90, tol=0).fit(points).labels_
    return end


def made_up() -> Corpus:
    """Draw four hundred texts whose embeddings lie around those of twenty labels."""
    rng = np.random.default_rng(0)
    label = np.arange(400) % 20
    points = rng.normal(size=(20, 384))[label] + 0.5 * rng.normal(size=(400, 384))
    file = pa.table({"text": [f"text about thing{i}" for i in label], "label": label})
    return Corpus.of(file).with_embeddings(points.astype(np.float32))


def of_subjects(data: Path) -> Corpus:
    """Draw texts of each set's subjects: of the k-th one as many as its share by Zipf's law."""
    tables = [pq.read_table(parquet(data, name)) for name in SETS]
    rng = np.random.default_rng(0)
    texts = [
        (name, label, text)
        for name, file in zip(SETS, tables, strict=True)
        for label, text in zip(file["label"].to_pylist(), file["text"].to_pylist(), strict=True)
    ]
    subjects = sorted({(name, label) for name, label, _ in texts})
    shares = 1 / np.arange(1, len(subjects) + 1)
    sizes = np.ceil(EACH * len(subjects) * shares / shares.sum()).astype(int)
    found: dict[str, list[Any]] = {"text": [], "label": []}
    for number, place in enumerate(rng.permutation(len(subjects))):
        own = [text for name, label, text in texts if (name, label) == subjects[place]]
        found["text"] += rng.choice(own, sizes[number], replace=False).tolist()
        found["label"] += [int(place)] * int(sizes[number])
    return Corpus.of(pa.table(found))


def small(corpus: Corpus, method: dict[str, Any], case: str, seed: int) -> list[float]:
    n, policy, is_secure = CASES[case]
    kind = "secure" if is_secure else "plain"
    truth = labels_of(corpus)
    clients = split_clients(corpus, by="even", n_clients=n, seed=seed)
    settings = method | {"n_components": len(set(truth))}
    model, seconds = clustered(settings, clients, policy, aggregation=kind, seed=seed)
    labels = model.main_topics(corpus)
    own = np.array([np.bincount(model.main_topics(each), minlength=model.n_topics)
                    for each in clients.values()])  # fmt: skip
    others, least = own.sum(0) - own, policy.min_documents
    few = ((others > 0) & (others < least) & (own.sum(0) >= least)).any(0).sum()
    agreement = 100 * normalised_mutual_information(truth, labels)
    accuracy = 100 * clustering_accuracy(truth, labels)
    return [accuracy, agreement, len(set(labels.tolist())), float(few), seconds]


def main() -> None:
    given = arguments(__doc__, ", ".join(f"{name}.parquet" for name in SETS), seeds=3)
    embed = Study.make(method={"name": "kmeans"}).embedded
    large, splits, bounds = made_up(), list(SPLITS)[:2], [1]
    if not given.quick:
        large = Corpus.of(pq.read_table(parquet(given.data, SETS[0])))
        splits, bounds = list(SPLITS), [1, 10]
    corpus, lines = embed(large), []
    for method in METHODS:
        pooled: NDArray[Any] | None = None
        for least, split in product(bounds, splits):
            labels, numbers = spread(corpus, method, split, least)
            pooled = labels if pooled is None else pooled
            other = f"{int((labels != pooled).sum()):,}"
            lines.append([method, split, str(least), other, *numbers])
            print(lines[-1], flush=True)
        if method == "kmeans":
            other = f"{int((from_scikit_learn(corpus) != pooled).sum()):,}"
            lines.append(["scikit-learn's k-means", "pooled", "", other, *[""] * 5])
    head = "method | texts at | min_documents | other labels | ACC | rounds | computed | sent | s"
    write(given, [
        f"Clusters of {len(corpus):,} texts (`make bench NAME=clusters DATA=folder`; threads: "
        f"{os.environ['OMP_NUM_THREADS']}).",
        "Other labels: documents in another cluster than with all texts at one client. Bytes: of "
        "one client's reply in a late round.", "", *table(head, lines, left=2),
    ])  # fmt: skip
    corpus = embed(made_up() if given.quick else of_subjects(given.data))
    sizes = np.unique(labels_of(corpus), return_counts=True)[1]
    seeds = 1 if given.quick else given.seeds
    lines = []
    for name, settings in list(SMALL.items())[: 1 if given.quick else None]:
        for case in CASES:
            mean = np.mean([small(corpus, settings, case, seed) for seed in range(seeds)], axis=0)
            lines.append([name, case, *(f"{x:.1f}" for x in mean)])
            print(lines[-1], flush=True)
    head = "method | documents | ACC | NMI | clusters used | of few others | s"
    write(given, [
        f"{len(corpus):,} texts of {len(sizes)} subjects ({sizes.min()} to {sizes.max()} of each) "
        f"in as many clusters, mean of {seeds} ways of dealing them out to four clients "
        "(`make bench NAME=clusters DATA=folder`, simulated). Used: clusters that texts are in. Of "
        "few others: clusters of ten texts or more, of which all clients but one have 1 to 9 "
        "together: with masks that one can read the sum of these.", "", *table(head, lines, left=2),
    ], "small_groups")  # fmt: skip
