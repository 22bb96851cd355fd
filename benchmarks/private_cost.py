"""What a bound for each document costs: private studies beside the same ones masked without noise.

A server and three or five clients, each a process with one thread, mutual TLS. The two take turns,
so that a noisy machine disturbs both. Documents have their embeddings, and words theirs: what those
cost is said apart. What is in ``results/private_cost.jsonl`` is not measured again.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import Worker, arguments, kept_rows, measured, parquet, write
from benchmarks.federated import free_port
from fedtopics import Corpus, Study, pki
from fedtopics.datasets import synthetic_lda
from fedtopics.engines.node import Node
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.policy import Policy
from fedtopics.federation.server import serve
from fedtopics.methods.private.settings import PrivateSettings
from fedtopics.pki import Identity
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings
from fedtopics.text.rules import TextRules

DRAWN, TEXTS = "drawn", "20ng"
EPSILON, HARDLY, TURNS = 8.0, 100.0, 3
CLIENTS = 3, 5
SOME = 300  # texts whose embeddings are timed
DRAWING: dict[str, Any] = {"n_words": 2_000, "n_topics": 20, "n_documents": 4_000}
SMALL: dict[str, Any] = {
    "n_words": 120, "n_topics": 7, "shared_topics": 2, "n_documents": 300, "eta": 0.05,
}  # fmt: skip
MODES = "words", "both", "embeddings"
HEAD = """# Private studies beside masked ones without noise

A server and its clients, each a process with one thread, mutual TLS on loopback; the method `private` with a bound
(delta 1e-6) and without, turn by turn, medians of {turns}. *Seconds* are from when all are there to the end, at the
server; *client* is processor time of one client; megabytes are those between the server and one client. Words are those
that surely occur, which are fewer with noise. On {cores} cores, with what else ran.
{embedding}
Command: `make bench NAME=private-cost DATA=folder`.

| data | mode | clients | epsilon | words, masked | private | masked, s | private, s | ratio | client, masked, s | private, s | up, masked, MB | private, MB | ratio | down, masked, MB | private, MB | ratio |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""  # noqa: E501 - a line of the page


class Task(NamedTuple):
    """One comparison."""

    data: str
    mode: str
    clients: int
    epsilon: float = EPSILON


def names_of(n: int) -> list[str]:
    """Return the names of so many clients."""
    return [f"client-{number}" for number in range(1, n + 1)]


def once(here: Path, study: dict[str, Any], n: int, epsilon: float | None) -> dict[str, float]:
    """Run a study, each participant in a process; return what it cost."""
    bound = {} if epsilon is None else {"privacy": {"epsilon": epsilon}}
    given = f"localhost:{free_port()}", str(here), tempfile.mkdtemp(dir=here), study | bound, n
    workers = [Worker(take_part, part, *given) for part in ("", *names_of(n))]
    server, *clients = (worker.answer() for worker in workers)
    for worker in workers:
        worker.close()
    return {**server, "client": statistics.mean(clients)}


def take_part(part: str, address: str, here: str, out: str, study: Any, n: int) -> Any:
    """Be the server or a client; return what was measured."""
    plan = Study.make(**study, secure=True).with_clients(dict.fromkeys(names_of(n)))
    begun: list[float] = []
    if part:

        def clock(event: dict[str, Any]) -> None:
            if event["event"] == "joined":
                begun.append(time.process_time())

        documents = pq.read_table(Path(here) / f"{n}-{part}.parquet")
        identity = Path(here) / "pki" / "clients" / part
        corpus = Corpus.of(documents)
        if "embedding" in documents.column_names:
            flat = documents["embedding"].combine_chunks().flatten().to_numpy()
            corpus = corpus.with_embeddings(flat.reshape(len(corpus), -1))
        GrpcParticipation(
            address, identity, corpus, Policy(), Path(out) / part, on_event=clock
        ).run()
        return time.process_time() - begun[0]
    nodes: list[Node] = []
    ended: dict[str, float] = {}  # the last time of each event

    def note(event: dict[str, Any]) -> None:
        ended[event["event"]] = time.perf_counter()

    server = Identity.load(Path(here) / "pki" / "server", "server")
    model = serve(plan, server, address, Path(out), on_event=note, on_listen=nodes.append)
    sent, received = nodes[0].traffic()
    found = {"seconds": ended["finished"] - ended["ready"], "words": len(model.vocabulary)}
    return found | {"up": received / 1e6 / n, "down": sent / 1e6 / n}


def compared(task: Task, here: Path, study: dict[str, Any], turns: int) -> dict[str, Any]:
    """Let a study with a bound and one without take turns; return medians of each."""
    runs: dict[str, list[dict[str, float]]] = {"masked": [], "private": []}
    for _ in range(turns):
        for name, found in runs.items():
            found.append(
                once(here, study, task.clients, task.epsilon if name == "private" else None)
            )
    return {
        name: {key: statistics.median(run[key] for run in found) for key in found[0]}
        for name, found in runs.items()
    }


def prepare(here: Path, data: Path | None, small: bool) -> dict[str, Any]:
    """Write the clients' documents and certificates; return the method's public words."""
    pki.create(here / "pki", ["localhost"])
    for name in names_of(max(CLIENTS)):
        pki.issue(here / "pki", name)
    if data is None:
        drawn = synthetic_lda(n_validation=1, **(SMALL if small else DRAWING))
        corpus = Corpus.pool(each.corpus() for each in drawn.training.values())
        method = {"n_components": len(drawn.beta), "words": list(drawn.words), "alpha": 0.1}
    else:
        corpus = Corpus.of(pq.read_table(parquet(data, "20ng"), columns=["text"]))
        corpus = corpus.with_embeddings(document_embeddings(corpus, EmbeddingSettings()))
        method = {"n_components": 20}
        folder, words = cache_folder(), PrivateSettings().recipe.public_words(TextRules())
        cache = folder and folder / "words"  # where clients look for them
        document_embeddings(Corpus.of(words), EmbeddingSettings(), cache=cache)
    columns = {"text": np.array([text for batch in corpus.texts() for text in batch])}
    if corpus.embeddings is not None:
        columns["embedding"] = corpus.embeddings
    owner = np.random.default_rng(0).permutation(len(corpus))
    for n in CLIENTS:
        for number, name in enumerate(names_of(n)):
            own = {key: list(each[owner % n == number]) for key, each in columns.items()}
            pq.write_table(pa.table(own), here / f"{n}-{name}.parquet")
    return method


def embedding_cost(data: Path) -> str:
    """Say what it costs to embed each text by itself, as private studies do, and not in batches."""
    texts = pq.read_table(parquet(data, "20ng"), columns=["text"])["text"]
    some, seconds = Corpus.of(texts[:SOME].to_pylist()), []
    for apart in (False, True):
        with tempfile.TemporaryDirectory() as cache:
            document_embeddings(Corpus.of(["the"]), EmbeddingSettings(), cache=cache)
            begun = time.perf_counter()
            document_embeddings(some, EmbeddingSettings(), cache=cache, apart=apart)
        seconds.append((time.perf_counter() - begun) / SOME * 1000)
    return (
        f"Embedding a text of 20ng takes {seconds[0]:.0f} ms in batches, as without a bound, and "
        f"{seconds[1]:.0f} ms by itself, once a client:\nthat is not in the table."
    )


def described(task: Task, row: dict[str, Any]) -> str:
    """Return a line of the table."""
    masked, private = row["masked"], row["private"]
    cells = [f"{masked['words']:,.0f} | {private['words']:,.0f}"]
    for name in ("seconds", "client", "up", "down"):
        both = f"{masked[name]:.1f} | {private[name]:.1f}"
        ratio = f" | {private[name] / masked[name]:.2f}"
        cells.append(both + (ratio if name != "client" else ""))
    return (
        f"| {task.data} | {task.mode} | {task.clients} | {task.epsilon:g} | {' | '.join(cells)} |"
    )


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", optional=True)
    turns = 1 if given.quick else TURNS
    modes = ("words",) if given.data is None else MODES
    clients = CLIENTS[:1] if given.quick else CLIENTS
    name = DRAWN if given.data is None else TEXTS
    todo = [Task(name, mode, n) for mode in modes for n in clients]
    if given.data is None and not given.quick:  # where noise hides hardly a word
        todo.append(Task(name, "words", CLIENTS[0], HARDLY))
    with tempfile.TemporaryDirectory() as here:
        method = prepare(Path(here), given.data, given.quick) | {"name": "private"}

        def work(task: Task) -> dict[str, Any]:
            return compared(task, Path(here), {"method": method | {"mode": task.mode}}, turns)

        measured(given, todo, work)
    rows = kept_rows(given)
    lines = [described(Task(*(row[name] for name in Task._fields)), row) for row in rows]
    embedding = embedding_cost(given.data) if given.data else ""
    head = HEAD.format(turns=turns, cores=os.cpu_count(), embedding=embedding)
    write(given, [head.rstrip(), *lines])
