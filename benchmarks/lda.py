"""Documents per second of LDA: ours over five clients, scikit-learn's and tomotopy's pooled.

The corpus is the synthetic experiment's (50 topics, 5,000 words, 200 words a document). Contestants
take turns, each in a process of its own with two threads; the table has medians. A document counts
each time it is looked at; TSS says how far one look at each document brings the topics.

    python benchmarks/lda.py --peer .venv-peers/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from quick import parser_of, results_of

THREADS = 2
TOPICS = 50
BATCH = 1000
N_CLIENTS = 5
Found = tuple[float, Any]  # seconds, topics (n_topics, n_words)


def ours(counts: sparse.csr_array, seed: int) -> Found:
    """One look at each document, from anchors, which are in the time; the words are agreed on."""
    from fedtopics import Study, train
    from fedtopics.datasets import SyntheticDocuments
    from fedtopics.federation.policy import OPEN_POLICY

    words = tuple(f"w{number}" for number in range(counts.shape[1]))
    parts = np.array_split(np.arange(counts.shape[0]), N_CLIENTS)
    clients = {
        f"client{i}": SyntheticDocuments(counts[rows], np.zeros((len(rows), 1)), words).corpus()
        for i, rows in enumerate(parts)
    }
    times: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] in ("vocabulary", "round"):
            times.append(event["time"])

    method = {
        "name": "lda", "n_components": TOPICS, "batch_size": BATCH, "coherence": "nothing",
        "max_rounds": counts.shape[0] // BATCH,
    }  # fmt: skip
    limits = {"min_document_frequency": 1, "max_document_share": 1.0}
    study = Study.make(method=method, vocabulary=limits, seed=seed)
    policies = dict.fromkeys(clients, OPEN_POLICY)
    model = train(study, clients, policies=policies, on_event=note)
    beta = np.zeros((TOPICS, len(words)))
    beta[:, [int(word[1:]) for word in model.vocabulary.words]] = model.beta
    return times[-1] - times[0], beta


def scikit_learn(counts: sparse.csr_array, seed: int) -> Found:
    """Online variational Bayes, one look at each document."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        TOPICS, learning_method="online", batch_size=BATCH, max_iter=1, n_jobs=THREADS,
        random_state=seed,
    )  # fmt: skip
    start = time.perf_counter()
    model.fit(sparse.csr_matrix(counts))
    seconds = time.perf_counter() - start
    return seconds, model.components_ / model.components_.sum(1, keepdims=True)


def tomotopy(counts: sparse.csr_array, seed: int) -> Found:
    """Collapsed Gibbs sampling, one sweep."""
    import tomotopy as tp

    model = tp.LDAModel(k=TOPICS, alpha=1 / TOPICS, eta=1 / TOPICS, seed=seed)
    for start, end in zip(counts.indptr, counts.indptr[1:], strict=False):
        words = np.repeat(counts.indices[start:end], counts.data[start:end])
        model.add_doc([f"w{word}" for word in words])
    model.train(0, workers=THREADS)
    begin = time.perf_counter()
    model.train(1, workers=THREADS)
    seconds = time.perf_counter() - begin
    beta = np.zeros((TOPICS, counts.shape[1]))
    columns = [int(word[1:]) for word in model.used_vocabs]
    for topic in range(TOPICS):
        beta[topic, columns] = model.get_topic_word_dist(topic)
    return seconds, beta


CONTESTANTS: dict[str, Callable[[sparse.csr_array, int], Found]] = {
    "fedtopics, five clients": ours,
    "scikit-learn, online": scikit_learn,
    "tomotopy, Gibbs": tomotopy,
}


def answer(name: str, corpus: str, out: str, seed: int) -> None:
    """Run one contestant and keep what it found."""
    counts = sparse.csr_array(sparse.load_npz(corpus))
    seconds, beta = CONTESTANTS[name](counts, seed)
    np.savez(out, beta=beta, seconds=seconds)


def measure(peer: str | None, turns: int, n_documents: int) -> str:
    """Let the contestants take turns; return the table."""
    from fedtopics.datasets import synthetic_lda
    from fedtopics.metrics import topic_similarity

    drawn = synthetic_lda(n_documents=n_documents // N_CLIENTS, n_validation=1, seed=7)
    counts = sparse.vstack([docs.counts for docs in drawn.training.values()], format="csr")
    pythons = {
        name: peer if name.startswith("tomotopy") else sys.executable for name in CONTESTANTS
    }
    found: dict[str, list[tuple[float, float]]] = {n: [] for n, python in pythons.items() if python}
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = Path(folder) / "corpus.npz", Path(folder) / "found.npz"
        sparse.save_npz(corpus, sparse.csr_matrix(counts))
        for turn in range(turns):
            for name in found:
                job = json.dumps([name, str(corpus), str(out), turn])
                call = [str(pythons[name]), __file__, "--answer", job]
                threads = {"OMP_NUM_THREADS": str(THREADS), "OPENBLAS_NUM_THREADS": "1"}
                subprocess.run(call, check=True, env=os.environ | threads)
                result = np.load(out)
                speed = counts.shape[0] / float(result["seconds"])
                found[name].append((speed, topic_similarity(drawn.beta, result["beta"])))
                sys.stderr.write(
                    f"{name}: {speed:,.0f} documents/s, TSS {found[name][-1][1]:.2f}\n"
                )
    medians = {name: statistics.median(speed for speed, _ in rows) for name, rows in found.items()}
    first, *_ = medians.values()
    lines = [
        f"{counts.shape[0]:,} documents, {counts.shape[1]:,} words, {TOPICS} topics, {THREADS} "
        f"threads, medians of {turns} turns; one look at each document. scikit-learn "
        f"{version('scikit-learn')}. Command: `make bench-lda`.",
        "",
        "| | documents/s | ours / theirs | TSS of 50 |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, speed in medians.items():
        tss = statistics.median(score for _, score in found[name])
        lines.append(f"| {name} | {speed:,.0f} | {first / speed:.2g} | {tss:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--peer", help="Python that has tomotopy; none leaves it out")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.answer:
        answer(*json.loads(arguments.answer))
        return
    if arguments.quick:
        arguments.turns, arguments.documents = 1, 1000
    table = measure(arguments.peer, arguments.turns, arguments.documents)
    table += "" if arguments.peer else "\nWithout tomotopy: no --peer.\n"
    (results_of("lda", arguments.quick) / "lda.md").write_text(table)
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
