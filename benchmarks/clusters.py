"""Clusters of short texts do not depend on how texts are spread: labels, bytes and seconds.

Twenty thousand texts at 1 client (pooled), 2, 10 and 50 of even size, and at 10 whose labels are
skewed (Dirichlet 0.1). Labels are held against those of one client; k-means also against
scikit-learn's from the same start. Policies ask for one document a sum, where the result is exact,
and for ten, as by default. Bytes are of one client's reply in a round: as computed from its shape,
and as sent between machines, with all that is around it.

    python benchmarks/clusters.py --data FOLDER  # with stackoverflow.parquet
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from fedtopics import Corpus, Policy, Study, train
from fedtopics.datasets import split_clients
from fedtopics.engines.grpc.frames import chunks
from fedtopics.engines.values import pack
from fedtopics.federation.door import Door
from fedtopics.inference.clusters import centred
from fedtopics.inference.points import Moments
from fedtopics.methods.core.interfaces import Moment
from fedtopics.methods.kmeans.lloyd import draw_centres
from fedtopics.metrics import clustering_accuracy

NAME = "stackoverflow.parquet"
RESULTS = Path(__file__).parent / "results" / "clusters.md"
SPLITS: dict[str, dict[str, Any]] = {
    "1 client": {"by": "even", "n_clients": 1},
    "2 clients": {"by": "even", "n_clients": 2},
    "10 clients": {"by": "even", "n_clients": 10},
    "50 clients": {"by": "even", "n_clients": 50},
    "10 clients, skewed": {"by": "dirichlet", "n_clients": 10, "alpha": 0.1},
}
METHODS = {"kmeans": "cluster_sums", "discriminative": "class_sums"}
CHUNK = 1 << 20
HEADER = "| method | texts at | min_documents | other labels | ACC | rounds | computed | sent | s |"


class Watched:
    """What one function of the clients replies last, as bytes."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.computed = self.sent = 0

    def __call__(self, door: Door, function: str, payload: Any, moment: Moment) -> Any:
        reply = CALL(door, function, payload, moment)
        if function == self.function:
            self.computed = sum(
                value.nbytes for value in reply.values() if hasattr(value, "nbytes")
            )
            packed = pack(reply)
            self.sent = packed.header.ByteSize() + sum(map(len, chunks(packed, CHUNK)))
        return reply


CALL = Door.call


def labels_of(corpus: Corpus, method: str, split: str, least: int) -> tuple[NDArray[Any], str]:
    """Return the documents' clusters, and a row's numbers."""
    policy = Policy(min_documents=least)
    clients = split_clients(corpus, **SPLITS[split], seed=1)
    watched = Watched(METHODS[method])
    Door.call = lambda *given: watched(*given)  # type: ignore[method-assign]
    study = Study.make(method={"name": method, "n_components": 20, "coherence": "nothing"})
    begun = time.perf_counter()
    model = train(study, clients, policies=dict.fromkeys(clients, policy))
    seconds = time.perf_counter() - begun
    labels = model.main_topics(corpus)
    known: Any = corpus.labels
    accuracy = clustering_accuracy(known.to_pylist(), labels)
    numbers = f"{model.info['rounds']} | {watched.computed:,} | {watched.sent:,} | {seconds:.0f} |"
    return labels, f"{100 * accuracy:.1f} | {numbers}"


def from_scikit_learn(corpus: Corpus) -> NDArray[Any]:
    """Return k-means' labels on pooled embeddings, from the start that had the best end here."""
    study = Study.make(method={"name": "kmeans", "n_components": 20})
    embeddings = np.asarray(corpus.embeddings)
    points = centred(embeddings, embeddings.mean(0, dtype=np.float64)).astype(np.float64)
    moments = Moments.of(len(points), points.sum(0), points.T @ points)
    fits = [
        KMeans(20, init=centres, n_init=1, max_iter=10, tol=0).fit(points)
        for centres in draw_centres(study.method, moments, 0)  # type: ignore[arg-type]
    ]
    best = min(fits, key=lambda fit: fit.inertia_).cluster_centers_
    end: NDArray[Any] = KMeans(20, init=best, n_init=1, max_iter=90, tol=0).fit(points).labels_
    return end


def made_up() -> Corpus:
    """Draw four hundred texts whose embeddings lie around those of twenty labels."""
    rng = np.random.default_rng(0)
    label = np.arange(400) % 20
    points = rng.normal(size=(20, 384))[label] + 0.5 * rng.normal(size=(400, 384))
    table = pa.table({"text": [f"text about thing{i}" for i in label], "label": label})
    return Corpus.of(table).with_embeddings(points.astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of stackoverflow.parquet")
    parser.add_argument("--quick", action="store_true", help="see that it runs; no file")
    given = parser.parse_args()
    if not given.quick and given.data is None:
        parser.error("say where stackoverflow.parquet is: --data FOLDER; or --quick")
    corpus = made_up() if given.quick else Corpus.of(pq.read_table(given.data / NAME))
    corpus = Study.make(method={"name": "kmeans"}).embedded(corpus)
    splits, bounds = (list(SPLITS)[:2], (1,)) if given.quick else (list(SPLITS), (1, 10))
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    lines = [
        f"Clusters of {len(corpus):,} texts (`python benchmarks/clusters.py`; threads: {threads}).",
        "Other labels: documents in another cluster than with all texts at one client. Bytes: of "
        "one client's reply in a late round.",
        "",
        HEADER,
        "| --- | --- |" + " ---: |" * 7,
    ]
    for method in METHODS:
        pooled: NDArray[Any] | None = None
        for least in bounds:
            for split in splits:
                labels, numbers = labels_of(corpus, method, split, least)
                pooled = labels if pooled is None else pooled
                other = int((labels != pooled).sum())
                lines.append(f"| {method} | {split} | {least} | {other:,} | {numbers}")
                sys.stderr.write(lines[-1] + "\n")
        if method == "kmeans":
            other = int((from_scikit_learn(corpus) != pooled).sum())
            lines.append(f"| scikit-learn's k-means | pooled | | {other:,} | | | | | |")
    if not given.quick:
        RESULTS.write_text("\n".join(lines) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
