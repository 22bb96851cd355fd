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


def ours(n_topics: int, n_words: int, batch: int) -> float:
    """Train ProdLDA in one process, through everything that training passes."""
    return federate(1, n_topics, n_words, batch)


def combined(n_topics: int, n_words: int, batch: int) -> float:
    """Train CombinedTM in one process."""
    return federate(1, n_topics, n_words, batch, network="combinedtm")


def five_clients(n_topics: int, n_words: int, batch: int) -> float:
    """Train federated ProdLDA: five clients that share the batch."""
    return federate(5, n_topics, n_words, batch)


def five_at_once(n_topics: int, n_words: int, batch: int) -> float:
    """The same, its sums computed over all five minibatches at once."""
    return federate(5, n_topics, n_words, batch, at_once=True)


def five_ledgers(n_topics: int, n_words: int, batch: int) -> float:
    """The same with a run folder: a ledger a client, every reply digested."""
    with tempfile.TemporaryDirectory() as folder:
        return federate(5, n_topics, n_words, batch, Path(folder) / "run")


def federate(
    n_clients: int,
    n_topics: int,
    n_words: int,
    batch: int,
    out: Path | None = None,
    network: str = "prodlda",
    at_once: bool = False,
) -> float:
    """Train with this many clients that share the batch."""
    from fedtopics import Corpus, Policy, Study, train

    bag = bag_of_words(batch * MINIBATCHES, n_words)
    embeddings = embedded(bag.shape[0])
    clients = {
        f"client{i}": Corpus.of(tokenised(bag[i::n_clients])).with_embeddings(
            embeddings[i::n_clients]
        )
        for i in range(n_clients)
    }
    study = Study.make(
        method={
            "network": network,
            "n_components": n_topics,
            "hidden": [HIDDEN, HIDDEN],
            "batch_size": batch,
            "max_rounds": 3 * MINIBATCHES,
            "coherence": "nothing",
        },
        vocabulary={"min_document_frequency": 1, "max_words": n_words, "max_document_share": 1},
        checkpoint_every=10 * MINIBATCHES,
    )
    times: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "vocabulary" and event["words"] != n_words:
            raise RuntimeError(f"{event['words']} words instead of {n_words}")
        if event["event"] == "round":
            times.append(event["seconds"])

    policies = dict.fromkeys(clients, Policy(min_documents=1, min_document_frequency=1))
    train(study, clients, policies=policies, on_event=note, out=out, at_once=at_once)
    return batch * 2 * MINIBATCHES / sum(times[MINIBATCHES:])


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
    """Answer each line of numbers with documents per second."""
    contestants: dict[str, Callable[[int, int, int], float]] = {
        f.__name__: f
        for f in (
            ours, combined, five_clients, five_at_once, five_ledgers, peer,
            peer_combined, floor, decoder_floor,
        )
    }  # fmt: skip
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # the peer's are as many as ours
    for line in sys.stdin:
        name, *numbers = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            speed = contestants[name](*numbers)
        sys.stdout.write(json.dumps(speed) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
