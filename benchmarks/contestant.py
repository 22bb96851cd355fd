"""One contestant of the training benchmark: reads jobs from stdin, prints documents per second.

Runs in the environment of the library it measures: ``ours`` and ``floor`` in ours, ``peer`` in
that of contextualized-topic-models.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from documents import bag_of_words, embedded, tokenised

HIDDEN = 100
MINIBATCHES = 20
ROUNDS = {"max_rounds": 3 * MINIBATCHES, "coherence": "nothing"}


def ours(n_topics: int, n_words: int, batch: int) -> float:
    """Train ProdLDA in one process, through everything that training passes."""
    return federate("one process", n_topics, n_words, batch)


def combined(n_topics: int, n_words: int, batch: int) -> float:
    """Train CombinedTM in one process."""
    return federate("one process", n_topics, n_words, batch, "combinedtm")


def federate(way: str, n_topics: int, n_words: int, batch: int, network: str = "prodlda") -> float:
    """Train on synthetic documents in one of the ways of `timed`; five clients share the batch."""
    from fedtopics import Corpus, Policy, Study

    n_clients = 1 if way == "one process" else 5
    bag = bag_of_words(batch * MINIBATCHES, n_words)
    embeddings = embedded(bag.shape[0])
    clients = {
        f"client{i}": Corpus.of(tokenised(bag[i::n_clients])).with_embeddings(
            embeddings[i::n_clients]
        )
        for i in range(n_clients)
    }
    method = ROUNDS | {
        "network": network,
        "n_components": n_topics,
        "hidden": [HIDDEN, HIDDEN],
        "batch_size": batch,
    }
    vocabulary = {"min_document_frequency": 1, "max_words": n_words, "max_document_share": 1}
    study = Study.make(method=method, vocabulary=vocabulary, checkpoint_every=10 * MINIBATCHES)
    policies = dict.fromkeys(clients, Policy(min_documents=1, min_document_frequency=1))
    return timed(way, study, clients, policies)


def nodes(way: str, path: str) -> float:
    """Train ProdLDA on a file of tokens; each of its nodes is a client. All name all words."""
    import pyarrow.parquet as pq

    from fedtopics import Corpus, Policy, Study

    table = pq.read_table(path)
    node = table["node"].to_numpy()
    parts = [node == name for name in sorted(set(node))]
    if way == "one process":
        parts = [node == node]
    clients = {f"client{i}": Corpus.of(table["tokens"].filter(p)) for i, p in enumerate(parts)}
    study = Study.make(method=ROUNDS, vocabulary={"min_document_frequency": 1})
    return timed(way, study, clients, dict.fromkeys(clients, Policy(min_document_frequency=1)))


def timed(way: str, study: Any, clients: Any, policies: Any) -> float:
    """Train, in this process; "at once" computes sums over all minibatches, "ledgers" has a folder.

    Returns documents per second, without the rounds of the first pass.
    """
    from fedtopics import train

    rounds: list[dict[str, Any]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            rounds.append(event)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run" if way == "ledgers" else None
        at_once = way == "at once"
        train(study, clients, policies=policies, on_event=note, out=out, at_once=at_once)
    rounds = rounds[MINIBATCHES:]
    documents, seconds = (sum(event[key] for event in rounds) for key in ("documents", "seconds"))
    return float(documents / seconds)


def peer(n_topics: int, n_words: int, batch: int) -> float:
    """Train the same network, contextualized-topic-models' ZeroShotTM fed with the bag of words."""
    from contextualized_topic_models.models.ctm import ZeroShotTM

    bag = bag_of_words(batch * MINIBATCHES, n_words)
    return train_peer(ZeroShotTM, bag, bag.toarray(), n_topics, batch)


def peer_combined(n_topics: int, n_words: int, batch: int) -> float:
    """Train contextualized-topic-models' CombinedTM."""
    from contextualized_topic_models.models.ctm import CombinedTM

    bag = bag_of_words(batch * MINIBATCHES, n_words)
    return train_peer(CombinedTM, bag, embedded(bag.shape[0]), n_topics, batch)


def train_peer(kind: Any, bag: Any, contextual: Any, n_topics: int, batch: int) -> float:
    """Train one of the peer's networks for three passes; time the last two."""
    from contextualized_topic_models.datasets.dataset import CTMDataset
    from scipy import sparse
    from torch.utils.data import DataLoader

    words = {i: f"w{i}" for i in range(bag.shape[1])}
    data = CTMDataset(X_contextual=contextual, X_bow=sparse.csr_matrix(bag), idx2token=words)
    model = kind(
        bow_size=bag.shape[1],
        contextual_size=contextual.shape[1],
        n_components=n_topics,
        hidden_sizes=(HIDDEN, HIDDEN),
        batch_size=batch,
        num_data_loader_workers=0,
    )
    model.model.train()
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, num_workers=0)
    model._train_epoch(loader)
    start = time.perf_counter()
    for _ in range(2):
        model._train_epoch(loader)
    return batch * 2 * MINIBATCHES / (time.perf_counter() - start)


def floor(n_topics: int, n_words: int, batch: int, first_layer: bool = True) -> float:
    """Multiply the matrices of that network, forwards and backwards, and do nothing else."""
    x = torch.from_numpy(bag_of_words(batch, n_words).toarray())
    hidden, theta = torch.rand(batch, HIDDEN), torch.rand(batch, n_topics)
    first, second = torch.rand(n_words, HIDDEN), torch.rand(HIDDEN, HIDDEN)
    posterior, beta = torch.rand(HIDDEN, 2 * n_topics), torch.rand(n_topics, n_words)
    both, logits = torch.rand(batch, 2 * n_topics), torch.rand(batch, n_words)

    def products() -> None:
        if first_layer:
            x @ first, x.T @ hidden
        hidden @ second, hidden @ second.T, hidden.T @ hidden
        hidden @ posterior, both @ posterior.T, hidden.T @ both
        theta @ beta, logits @ beta.T, theta.T @ logits

    for _ in range(5):
        products()
    start = time.perf_counter()
    for _ in range(2 * MINIBATCHES):
        products()
    return batch * 2 * MINIBATCHES / (time.perf_counter() - start)


def decoder_floor(n_topics: int, n_words: int, batch: int) -> float:
    """The same without the dense products of the first layer, which a sparse input can avoid."""
    return floor(n_topics, n_words, batch, first_layer=False)


def main() -> None:
    """Answer each line, a name and arguments, with documents per second."""
    contestants: dict[str, Callable[..., float]] = {
        f.__name__: f
        for f in (ours, combined, federate, nodes, peer, peer_combined, floor, decoder_floor)
    }
    if "--busy" in sys.argv:  # with one thread, what others compute beside it counts less
        time.perf_counter = time.process_time
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # the peer's are as many as ours
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            speed = contestants[name](*arguments)
        sys.stdout.write(json.dumps(speed) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
