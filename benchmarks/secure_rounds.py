"""What secure aggregation costs whole rounds: studies with and without, turn by turn, over TLS.

At the end of a block the server waits for the next one, so that a noisy machine disturbs both. The
first round of a block is left out, as clients begin it while they wait.
"""

from __future__ import annotations

import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common
from benchmarks.common import Worker, measured, table
from benchmarks.federated import NAMES, free_port
from fedtopics import Corpus, Study, TopicModel, pki
from fedtopics.engines.node import Node
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.server import serve
from fedtopics.pki import Identity

ROUNDS, BLOCK, QUICK = 60, 6, 2  # a block's first round does not count
WORDS, TOPICS, EACH = 5_000, 50, 2_000  # of synthetic documents, at each client
NETWORK = {"n_components": TOPICS, "hidden": [100, 100]}
METHODS: dict[str, dict[str, Any]] = {
    "ProdLDA, sync": NETWORK | {"norm": "sync"},
    "ProdLDA, server": NETWORK | {"norm": "server"},
    "LDA": {"name": "lda", "n_components": TOPICS},
    "NMF": {"name": "nmf", "n_components": TOPICS},
}
BOTH_KINDS = "ProdLDA, server", "NMF"  # documents drawn anew, and always the same
BATCHES = 256, 256 * len(NAMES)  # documents a round, of methods that draw them
HEAD = """# Masked rounds beside plain ones

A server and five clients, each a process with one thread, mutual TLS on loopback, gRPC {grpc}; {topics} topics,
hidden layers of 100, `outliers = "none"`. Masked and plain rounds in blocks of {block}, turn by turn, {rounds} of each.
Seconds are medians; *client* is processor time of one client in a round (mean of the five); megabytes a round are
those between the server and one client, from one `round` event to the next. *Apart* is the largest
difference of a weight matrix after all rounds, relative to its norm; *furthest* that of a weight (LDA's are counts of
words, up to thousands). Same topics: ten words of each. *Load* is the machine's, on {cores} cores, with what else ran.
Command: `make bench NAME=secure-rounds DATA=folder`.
"""  # noqa: E501 - a line of the page
COLUMNS = """data | method | documents a round | plain, s | masked, s | ratio | client, plain, s \
| masked, s | up, plain, MB | masked, MB | ratio | down, plain, MB | masked, MB | ratio | apart \
| furthest | same topics | load"""


class Side:
    """A server and its clients, masked or not, which wait for the next of their blocks."""

    def __init__(self, folder: Path, study: Mapping[str, Any], masked: bool, block: int) -> None:
        self.out = Path(tempfile.mkdtemp(dir=folder))
        given = f"localhost:{free_port()}", str(folder), str(self.out)
        study = {**study, "aggregation": "secure" if masked else "plain"}
        self._server = Worker(lead, *given, study, block)
        self._clients = [Worker(take_part, name, *given, study, block) for name in NAMES]
        self.rounds: list[dict[str, float]] = []

    def run(self) -> None:
        self.rounds += self._server.ask()[1:]

    def finish(self) -> dict[str, Any]:
        """Let it end; return medians of rounds, seconds and megabytes."""
        self._server.close()
        seconds = [client.answer() for client in self._clients]
        for client in self._clients:
            client.close()
        names = self.rounds[0]
        middle = {n: statistics.median(each[n] for each in self.rounds) for n in names}
        return {**middle, "client": statistics.mean(seconds)}


def lead(
    address: str, folder: str, out: str, study: Any, block: int
) -> Generator[list[dict[str, float]], None, None]:
    """Be the server; yield what was measured in a block, for a line each."""
    plan = Study.make(**study).with_clients(dict.fromkeys(NAMES))
    blocks: queue.Queue[list[dict[str, float]]] = queue.Queue()
    wanted = threading.Semaphore(0)
    nodes: list[Node] = []
    rounds: list[dict[str, float]] = []
    before = 0, 0

    def note(event: dict[str, Any]) -> None:
        nonlocal before
        if event["event"] != "round" or event["round"] < 1:
            return
        # Not those of the event: a total may still be on its way when its round is over.
        sent, received = after = nodes[0].traffic()
        up, down = (each / 1e6 / len(NAMES) for each in (received - before[1], sent - before[0]))
        rounds.append({"seconds": event["seconds"], "up": up, "down": down})
        before = after
        if len(rounds) == block:
            blocks.put(rounds.copy())
            rounds.clear()
            wanted.acquire()

    def run() -> None:
        identity = Identity.load(Path(folder) / "pki" / "server", "server")
        serve(plan, identity, address, Path(out), on_event=note, on_listen=nodes.append)

    server = threading.Thread(target=run)
    server.start()
    for number, _ in enumerate(sys.stdin):
        if number:
            wanted.release()
        yield blocks.get()
    wanted.release()
    server.join()


def take_part(part: str, address: str, folder: str, out: str, study: Any, block: int) -> float:
    """Be a client; return its processor seconds in a round."""
    times: list[float] = []

    def clock(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] > 0:
            times.append(time.process_time())

    here = Path(folder)
    corpus = Corpus.of(pq.read_table(here / f"{part}.parquet")["tokens"])
    GrpcParticipation(
        address, here / "pki" / "clients" / part, corpus, OPEN_POLICY, Path(out) / part,
        on_event=clock, insecure_seed=True,
    ).run()  # fmt: skip
    # A client's event comes before it waits for the next round, also at the end of a block.
    within = [i for i in range(1, len(times)) if i % block]
    return statistics.mean(times[i] - times[i - 1] for i in within)


def compared(task: dict[str, Any], folder: Path, rounds: int, block: int) -> dict[str, Any]:
    method = METHODS[task["method"]] | {"max_rounds": rounds, "coherence": "nothing"}
    method |= {"batch_size": task["batch"]} if task["batch"] else {}
    limits = {"min_document_frequency": 1, "max_words": 100_000, "max_document_share": 1.0}
    study = {"method": method, "vocabulary": limits, "checkpoint_every": 1_000_000}
    study |= {"federation": {"outliers": "none"}}
    sides = {name: Side(folder, study, name == "masked", block) for name in ("plain", "masked")}
    loads = []
    for _ in range(rounds // block):
        for side in sides.values():
            side.run()
            loads.append(os.getloadavg()[0])
    row: dict[str, Any] = {name: side.finish() for name, side in sides.items()}
    plain, masked = (TopicModel.from_pretrained(s.out / "model") for s in sides.values())
    weights = {name: np.asarray(weight) for name, weight in plain.weights.items()}
    matrices = [(w, np.asarray(masked.weights[name]) - w) for name, w in weights.items()]
    norm = np.linalg.norm
    return {
        **row, "load": statistics.median(loads), "same": plain.topics(10) == masked.topics(10),
        "apart": max(float(norm(between) / norm(weight)) for weight, between in matrices),
        "furthest": max(float(np.abs(between).max()) for _, between in matrices),
    }  # fmt: skip


def prepare(folder: Path, data: Path | None, each: int) -> None:
    pki.create(folder / "pki", ["localhost"])
    if data is None:
        tokens = pa.chunked_array(common.tokenised(common.bag_of_words(each * len(NAMES), WORDS)))
    else:
        tokens = pq.read_table(common.parquet(data, "20ng"))["tokens"]
    owner = np.random.default_rng(0).permutation(len(tokens)) % len(NAMES)
    for number, name in enumerate(NAMES):
        pki.issue(folder / "pki", name)
        own = tokens.take(pa.array(np.flatnonzero(owner == number)))
        pq.write_table(pa.table({"tokens": own}), folder / f"{name}.parquet")


def cells_of(row: dict[str, Any]) -> Iterator[str]:
    yield from (row["data"], row["method"], f"{row['batch']:,}" if row["batch"] else "all")
    for name in ("seconds", "client", "up", "down"):
        plain, masked = row["plain"][name], row["masked"][name]
        yield from (f"{plain:.3f}", f"{masked:.3f}")
        if name != "client":
            yield f"{masked / plain:.2f}"
    yield from (f"{row['apart']:.1e}", f"{row['furthest']:.1e}")
    yield from ("yes" if row["same"] else "no", f"{row['load']:.1f}")


def main() -> None:
    given = common.arguments(__doc__, "20ng.parquet", optional=True, methods=METHODS)
    rounds, block = (2 * QUICK, QUICK) if given.quick else (ROUNDS, BLOCK)
    name = "made up" if given.data is None else "20ng"
    methods, sizes = (BOTH_KINDS, BATCHES[:1]) if given.quick else (given.methods, BATCHES)
    todo = [
        {"data": name, "method": method, "batch": batch}
        for method in methods for batch in ((None,) if method == "NMF" else sizes)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as here:
        prepare(Path(here), given.data, 100 if given.quick else EACH)
        rows = measured(given, todo, lambda task: compared(task, Path(here), rounds, block))
    facts = {"grpc": version("grpcio"), "topics": TOPICS, "cores": os.cpu_count()}
    head = HEAD.format(block=block, rounds=rounds, **facts)
    common.write(given, [head, *table(COLUMNS, map(list, map(cells_of, rows)), left=2)])
