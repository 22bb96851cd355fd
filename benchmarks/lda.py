"""Documents per second of LDA: ours over five clients, scikit-learn's and tomotopy's pooled.

Contestants take turns, each in a process of its own. A document counts each time it is looked at;
TSS says how far one look at each document brings the topics.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.common import apart, arguments, table, versions, write

THREADS = 2
TOPICS = 50
BATCH = 1000
N_CLIENTS = 5
Trained = tuple[float, Any]  # seconds, topics (n_topics, n_words)


def ours(counts: sparse.csr_array, seed: int) -> Trained:
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
        "name": "lda",
        "learning": "stochastic",
        "n_components": TOPICS,
        "batch_size": BATCH,
        "coherence": "nothing",
        "max_rounds": counts.shape[0] // BATCH,
    }
    limits = {"min_persons_per_word": 1, "max_document_share": 1.0}
    study = Study.make(method=method, vocabulary=limits, seed=seed)
    policies = dict.fromkeys(clients, OPEN_POLICY)
    model = train(study, clients, policies=policies, on_event=note)
    beta = np.zeros((TOPICS, len(words)))
    beta[:, [int(word[1:]) for word in model.vocabulary.words]] = model.beta
    return times[-1] - times[0], beta


def scikit_learn(counts: sparse.csr_array, seed: int) -> Trained:
    """Online variational Bayes, one look at each document."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        TOPICS,
        learning_method="online",
        batch_size=BATCH,
        max_iter=1,
        n_jobs=THREADS,
        random_state=seed,
    )
    start = time.perf_counter()
    model.fit(sparse.csr_matrix(counts))
    seconds = time.perf_counter() - start
    return seconds, model.components_ / model.components_.sum(1, keepdims=True)


def tomotopy(counts: sparse.csr_array, seed: int) -> Trained:
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


CONTESTANTS: dict[str, Callable[[sparse.csr_array, int], Trained]] = {
    "fedtopics, five clients": ours,
    "scikit-learn, online": scikit_learn,
    "tomotopy, Gibbs": tomotopy,
}


def timed(name: str, corpus: str, out: str, seed: int) -> float:
    seconds, beta = CONTESTANTS[name](sparse.csr_array(sparse.load_npz(corpus)), seed)
    np.save(out, beta)
    return seconds


def main() -> None:
    from fedtopics.datasets import synthetic_lda
    from fedtopics.metrics import topic_similarity

    given = arguments(__doc__, peers=True, turns=3, documents=20_000)
    turns, documents = (1, 1000) if given.quick else (given.turns, given.documents)
    drawn = synthetic_lda(n_documents=documents // N_CLIENTS, n_validation=1, seed=7)
    counts = sparse.vstack([docs.counts for docs in drawn.training.values()], format="csr")
    peers = None if given.quick else given.peers
    pythons = {n: peers if n.startswith("tomotopy") else sys.executable for n in CONTESTANTS}
    runs: dict[str, list[tuple[float, float]]] = {n: [] for n, python in pythons.items() if python}
    with tempfile.TemporaryDirectory() as folder:
        corpus = f"{folder}/corpus.npz"
        out = Path(folder) / "beta.npy"
        sparse.save_npz(corpus, sparse.csr_matrix(counts))
        for turn in range(turns):
            for name in runs:
                how = {"python": pythons[name], "threads": THREADS}
                speed = counts.shape[0] / apart(timed, name, corpus, str(out), turn, **how)
                runs[name].append((speed, topic_similarity(drawn.beta, np.load(out))))
    medians = {n: map(statistics.median, zip(*f, strict=True)) for n, f in runs.items()}
    rows = [(name, *middle) for name, middle in medians.items()]  # ours first
    write(
        given,
        [
            f"{counts.shape[0]:,} documents, {counts.shape[1]:,} words, {TOPICS} topics, {THREADS} "
            f"threads, medians of {turns} turns; one look at each document. scikit-learn "
            f"{versions('scikit-learn')['scikit-learn']}. Command: `make bench NAME=lda`.",
            "",
            *table(
                " | documents/s | ours / theirs | TSS of 50",
                [
                    (name, f"{speed:,.0f}", f"{rows[0][1] / speed:.2g}", f"{tss:.2f}")
                    for name, speed, tss in rows
                ],
            ),
            "" if peers else "\nWithout tomotopy: the peers' environment is missing.",
        ],
    )
