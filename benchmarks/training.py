"""Documents per second in training: ours, contextualized-topic-models, and the bare products.

Same documents, network, batch size, optimiser (Adam) and threads. The contestants take turns in
long-lived processes, so that a machine whose speed drifts drifts for all of them. Then clients
beside one process: "at once" computes sums over all minibatches, "ledgers" has a folder.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from importlib.metadata import version
from itertools import product
from typing import Any

from benchmarks import common
from benchmarks.common import Worker, bag_of_words, table, tokenised, write

WORDS = (2_000, 5_000, 20_000)
BATCHES = (64, 256)
SIZES = tuple(product(WORDS, BATCHES))
WAYS = ("one process", "at once", "each client", "ledgers")
HIDDEN = 100
MINIBATCHES = 20
ROUNDS = {"name": "gfedntm", "max_rounds": 3 * MINIBATCHES, "coherence": "nothing"}


def federate(way: str, n_topics: int, n_words: int, batch: int, network: str = "prodlda") -> float:
    """Train on synthetic documents in one of the ways; five clients share the batch."""
    from fedtopics import Corpus, Study

    n_clients = 1 if way == "one process" else 5
    bag = bag_of_words(batch * MINIBATCHES, n_words)
    vectors = common.embedded(bag.shape[0])
    parts = [slice(i, None, n_clients) for i in range(n_clients)]
    clients = [Corpus.of(tokenised(bag[part])).with_embeddings(vectors[part]) for part in parts]
    method = ROUNDS | {"network": network, "n_components": n_topics, "batch_size": batch}
    method |= {"hidden": [HIDDEN, HIDDEN]}
    vocabulary = {"min_persons_per_word": 1, "max_words": n_words, "max_document_share": 1}
    study = Study.make(method=method, vocabulary=vocabulary, checkpoint_every=10 * MINIBATCHES)
    return timed(way, study, clients, min_persons=1)


def nodes(way: str, path: str) -> float:
    """Train ProdLDA on a file of tokens; each of its nodes is a client. All name all words."""
    import pyarrow.parquet as pq

    from fedtopics import Corpus, Study

    file = pq.read_table(path)
    node = file["node"].to_numpy()
    parts = [node == name for name in sorted(set(node))]
    if way == "one process":
        parts = [node == node]
    study = Study.make(method=ROUNDS, vocabulary={"min_persons_per_word": 1})
    return timed(way, study, [Corpus.of(file["tokens"].filter(part)) for part in parts])


def timed(way: str, study: Any, corpora: list[Any], **policy: Any) -> float:
    from fedtopics import Policy, train

    clients = {f"client{number}": corpus for number, corpus in enumerate(corpora)}
    policies = dict.fromkeys(clients, Policy(min_persons_per_word=1, **policy))
    rounds: list[dict[str, Any]] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            rounds.append(event)

    with tempfile.TemporaryDirectory() as folder:
        train(
            study,
            clients,
            policies=policies,
            on_event=note,
            at_once=way == "at once",
            out=f"{folder}/run" if way == "ledgers" else None,
        )
    later = rounds[MINIBATCHES:]
    return float(sum(e["documents"] for e in later) / sum(e["seconds"] for e in later))


def peer(kind: str, n_topics: int, n_words: int, batch: int) -> float:
    """Train a network of contextualized-topic-models for three passes; time the last two."""
    from contextualized_topic_models.datasets.dataset import CTMDataset
    from contextualized_topic_models.models import ctm
    from scipy import sparse
    from torch.utils.data import DataLoader

    bag = bag_of_words(batch * MINIBATCHES, n_words)
    contextual = bag.toarray() if kind == "ZeroShotTM" else common.embedded(bag.shape[0])
    words = {i: f"w{i}" for i in range(n_words)}
    data = CTMDataset(X_contextual=contextual, X_bow=sparse.csr_matrix(bag), idx2token=words)
    model = getattr(ctm, kind)(
        bow_size=n_words,
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


def floor(first_layer: bool, n_topics: int, n_words: int, batch: int) -> float:
    """Multiply the matrices of that network, forwards and backwards, and do nothing else."""
    import torch

    x = torch.from_numpy(bag_of_words(batch, n_words).toarray())
    hidden = torch.rand(batch, HIDDEN)
    theta = torch.rand(batch, n_topics)
    first = torch.rand(n_words, HIDDEN)
    second = torch.rand(HIDDEN, HIDDEN)
    posterior = torch.rand(HIDDEN, 2 * n_topics)
    beta = torch.rand(n_topics, n_words)
    both = torch.rand(batch, 2 * n_topics)
    logits = torch.rand(batch, n_words)

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


def speeds(busy: bool) -> Generator[float, None, None]:
    """Answer lines, a function's name and arguments, with documents per second."""
    import torch

    contestants = {f.__name__: f for f in (federate, nodes, peer, floor)}
    if busy:  # with one thread, what others compute meanwhile counts less
        time.perf_counter = time.process_time
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # the peer's are as many as ours
    for line in sys.stdin:
        name, *given = json.loads(line)
        yield contestants[name](*given)


def medians(turns: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def single(us: Worker, them: Worker | None, repeats: int, topics: int, sizes: Any) -> list[str]:
    """Hold ProdLDA in one process against the peer and the bare products."""
    rows = []
    for size in sizes:
        turns = []
        for _ in range(repeats):
            row = [us.ask(["federate", "one process", topics, *size])]
            row.append(them.ask(["peer", "ZeroShotTM", topics, *size]) if them else float("nan"))
            row += [us.ask(["floor", first, topics, *size]) for first in (True, False)]
            turns.append(row)
        middle = medians(turns)
        ratio = [statistics.median(turn[0] / turn[i] for turn in turns) for i in (1, 2, 3)]
        cells = [f"{middle[i]:,.0f} | {r:.{1 + (i > 1)}f}" for i, r in enumerate(ratio, 1)]
        rows.append((f"{size[0]:,}", size[1], f"{middle[0]:,.0f}", *cells))
    head = "words | batch | ours | peer | ours / peer | all products | ours / all products"
    return table(f"{head} | decoder's products | ours / decoder's", rows, left=0)


def combined(us: Worker, them: Worker, repeats: int, topics: int) -> list[str]:
    """Hold CombinedTM against the peer's, with the peer's usual batch and with our own."""
    small, large = BATCHES
    rows = []
    for n_words in WORDS:
        turns = []
        for _ in range(repeats):
            theirs = them.ask(["peer", "CombinedTM", topics, n_words, small])
            sizes = (["one process", topics, n_words, batch, "combinedtm"] for batch in BATCHES)
            turns.append((theirs, *(us.ask(["federate", *size]) for size in sizes)))
        theirs, *ours = medians(turns)
        ratios = [statistics.median(turn[i] / turn[0] for turn in turns) for i in (1, 2)]
        cells = [f"{o:,.0f} | {r:.1f}" for o, r in zip(ours, ratios, strict=True)]
        rows.append((f"{n_words:,}", f"{theirs:,.0f}", *cells))
    head = f"words | peer, {small} | ours, {small} | ours / peer | ours, {large} | ours / peer"
    return table(head, rows, left=0)


def federated(us: Worker, repeats: int, topics: int, path: str) -> list[str]:
    """Hold clients with synchronised normalisation against one process, the same total batch."""
    jobs: list[tuple[str, list[Any]]] = [
        (f"synthetic | {n_words:,} | {5 * batch:,} | 5", ["federate", topics, n_words, 5 * batch])
        for n_words, batch in SIZES
    ]
    jobs += [("m10, a subject a client | 1,696 | 256 | 10", ["nodes", path])] if path else []
    rows = []
    for label, (name, *given) in jobs:
        turns = [[us.ask([name, way, *given]) for way in WAYS] for _ in range(repeats)]
        one, *several = medians(turns)
        longer = [statistics.median(turn[0] / turn[i] for turn in turns) for i in (1, 2, 3)]
        cells = [f"{f:,.0f} | {t:.2f}" for f, t in zip(several, longer, strict=True)]
        rows.append((label, f"{one:,.0f}", *cells))
    head = "documents | words | total batch | clients | one process | at once | time | each client"
    return table(f"{head} | time | with ledgers | time", rows)


def parts_of_a_step(n_words: int, batch_size: int = 64, steps: int = 100) -> list[str]:
    """Return where the time of a training step goes, by torch's profiler."""
    import numpy as np
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from fedtopics.contract.payload import SparseRows
    from fedtopics.methods.gfedntm.optimizer import ServerOptimizer
    from fedtopics.networks.base import NetworkSettings, rows_of
    from fedtopics.networks.neural import batch_weights
    from fedtopics.networks.passes import autograd_leaves, gradients, run_through
    from fedtopics.networks.topic_networks import ProdLDA

    torch.set_num_threads(1)  # as in a study
    bag = bag_of_words(batch_size * 20, n_words)
    rng = np.random.default_rng(0)
    network = ProdLDA(n_words, NetworkSettings(n_components=20))
    adam = ServerOptimizer("adam", network.initial_weights(0), 0.002, 0.99)
    parts = {
        "minibatch": "drawing documents and noise, the bag of words",
        "first layer": "sparse product",
        "forward": "encoder, theta, loss and the logits' gradient",
        "backward": "autograd",
        "first layer's gradient": "sparse product",
        "Adam": "all weights",
    }

    def step() -> None:
        with record_function("minibatch"):
            rows = rng.choice(bag.shape[0], batch_size, replace=False)
            batch = network.batch(rows_of([(bag, rows)]), network.draw((rng, batch_size)))
        with record_function("first layer"):
            used = autograd_leaves(batch_weights(network, adam.weights, batch))
        with record_function("forward"):
            loss, _ = run_through(network, used, batch, None)
        with record_function("backward"):
            by_weight = gradients([loss], None, [used])[0]
        with record_function("first layer's gradient"):
            words = batch.spread(by_weight.pop("encoder_words")).numpy()
        with record_function("Adam"):
            dense = {name: gradient.numpy() for name, gradient in by_weight.items()}
            first = SparseRows(batch.words, words, network.n_words)
            adam.step(dense | {"encoder_words": first}, batch_size)

    for _ in range(10):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for _ in range(steps):
            step()
    times = {row.key: row.cpu_time_total / steps / 1000 for row in record.key_averages()}
    whole = sum(times[part] for part in parts)
    rows = [
        (f"{part}: {what}", f"{times[part]:.2f}", f"{times[part] / whole:.0%}")
        for part, what in parts.items()
    ]
    return table("part | ms | share", rows)


def main() -> None:
    given = common.arguments(
        __doc__, data="m10.parquet", optional=True, peers=True, topics=20, repeats=5, busy=False
    )
    threads = 1 if given.busy or given.quick else 2
    topics = given.topics
    us = Worker(speeds, given.busy, threads=threads)
    if given.quick:
        write(given, single(us, None, 1, topics, [(200, 16)]), "training")
        write(given, parts_of_a_step(200, steps=2), "step")
        return us.close()
    them = Worker(speeds, given.busy, python=given.peers, threads=threads) if given.peers else None
    seconds = "one thread, processor seconds" if given.busy else "two threads"
    setting = (
        f"{topics} topics, hidden layers of 100 and 100, {seconds}, medians of {given.repeats} "
        f"turns; torch {version('torch')}. Command: `make bench NAME=training`."
    )
    beside = "documents per second in training, beside contextualized-topic-models 2.6.1"
    if them:
        title = (
            f"CombinedTM: {beside}, by the size of batches (defaults: the peer's 64, ours 256); "
            "embeddings of 384 numbers"
        )
        lines = combined(us, them, given.repeats, topics)
        write(given, [f"{title}; {setting}", "", *lines], f"combined-{topics}")
    lines = single(us, them, given.repeats, topics, SIZES)
    write(given, [f"{beside.capitalize()}; {setting}", "", *lines], f"training-{topics}")
    title = (
        "Documents per second of one process and of several clients (`sync`) with the same total "
        "batch, and how many times as long these take"
    )
    path = str(common.parquet(given.data, "m10")) if given.data else ""
    lines = federated(us, given.repeats, topics, path)
    write(given, [f"{title}; {setting}", "", *lines], f"federated-{topics}")
    sys.stdout.writelines(f"{line}\n" for line in parts_of_a_step(5_000))
    for worker in filter(None, (us, them)):
        worker.close()
