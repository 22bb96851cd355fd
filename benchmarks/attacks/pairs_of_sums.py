"""Compare the sums of clusters: two that differ by one document reveal its embedding.

The study is honest, and so is everybody in it. A client's documents move between the clusters of a
start in groups only; but different starts end with clusters that are nearly the same, and nobody
holds their sums against each other.

With masks, a cluster of enough documents of all clients is summed. A participant that has all of
them but one reads the embedding of that one, in totals less its own replies. One that lies says,
when documents are counted, that it has ten more of each cluster and of each move: every cluster is
summed then. Against it, clients count their own documents (policy `counts_of_all = false`).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.tapped import Tap, door_of, federate, synthetic
from fedtopics.contract.interfaces import Call
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus

DIMENSION = 64
N = 400
EXACT = 1e-3  # of a difference's length from 1, which is that of a document's point
Numbers = NDArray[np.float64]
CLIENTS = 4
NEAR = 1 - 1e-9  # cosine of what is read and a document's point


def documents(n_clients: int, groups: int = 8, seed: int = 5) -> dict[str, Corpus]:
    rng = np.random.default_rng(seed)
    middles = 0.6 * rng.normal(size=(groups, DIMENSION))
    corpora = {}
    for client in range(n_clients):
        vectors = rng.normal(size=(N, DIMENSION)) * 0.6 + middles[rng.integers(groups, size=N)]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        corpora[f"client{client}"] = Corpus.of(synthetic(N, seed=client)).with_embeddings(
            vectors.astype(np.float32)
        )
    return corpora


def isolated(sums: Numbers, counts: Numbers) -> Numbers:
    """Return the different points by which two sums differ, whose counts differ by one."""
    points: list[Numbers] = []
    for count in np.unique(counts):
        more = sums[counts == count + 1]
        less = sums[counts == count]
        if count and len(more) and len(less):
            squares = (more**2).sum(1)[:, None] + (less**2).sum(1) - 2 * more @ less.T
            for i, j in np.argwhere(np.abs(squares - 1) < EXACT):
                point = more[i] - less[j]
                if abs(np.linalg.norm(point) - 1) < EXACT:
                    points.append(point)
    return np.array(points).reshape(-1, sums.shape[1])


def replies(tap: Tap) -> tuple[Numbers, Numbers]:
    received = [reply for _, reply in tap.replies("cluster_sums")]
    sums = np.concatenate([reply["sums"].reshape(-1, DIMENSION) for reply in received])
    return sums, np.concatenate([reply["counts"].ravel() for reply in received])


def points_of(corpora: Iterable[Corpus], origin: Numbers) -> Numbers:
    """Return the documents' points, of length 1 from an origin."""
    vectors = np.concatenate([np.asarray(corpus.embeddings, float) - origin for corpus in corpora])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def attack(method: Mapping[str, Any]) -> str:
    """Run a study; count whose embeddings are differences of two of the first client's sums."""
    corpora = documents(3)
    study = Study.make(method={"name": "kmeans", "embedding": {"dimension": DIMENSION}, **method})
    _, taps = federate(study, corpora)
    tap = next(iter(taps.values()))
    points = isolated(*replies(tap))
    origin = next(payload["origin"] for payload, _ in tap.replies("cluster_sums"))
    near = np.abs(points @ points_of([corpora[next(iter(taps))]], origin).T)
    right = {int(row.argmax()) for row in near if row.max() > 0.999}
    return f"{len(right)} of {N} embeddings"


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Compare the sums of clusters: two that differ by one document reveal its embedding."""
    many: dict[str, Any] = {"n_components": 8, "start": {"tries": 200}}
    cases = [{"n_components": 8}, {"n_components": 20}, many]
    for case in cases[: 2 if quick else None]:
        yield f"k-means, {case}: {attack(case)}"


class Liar(Tap):
    """The door of who says that it has more documents of each cluster, by so many."""

    more = 0

    def call(self, call: Call) -> Any:
        reply = self.door.call(call)
        if "moves" in reply:
            reply["moves"] = reply["moves"] + self.more
        self.calls.append(("call", (call.function, call.payload, call.position), reply))
        return reply


def read_few(n_clusters: int, policy: Policy, more: int, skewed: bool) -> str:
    """Train; count the embeddings that the first client reads in totals less its own replies."""
    corpora = documents(CLIENTS)
    if skewed:  # the others have a twentieth of its documents
        corpora |= {name: corpora[name].take(np.arange(N // 20)) for name in list(corpora)[1:]}
    embedding = {"dimension": DIMENSION}
    method = {"name": "kmeans", "embedding": embedding, "n_components": n_clusters}
    study = Study.make(method=method | {"coherence": "nothing"}, aggregation="secure").with_clients(
        corpora
    )
    taps = {
        name: Liar(door_of(study, name, corpus, policy, masked=True))
        for name, corpus in corpora.items()
    }
    first, *others = taps.values()
    first.more = more
    doors: Any = taps
    clients = LocalClients(doors, hidden=True)
    program_of(study).train(clients, RunFolder(None, study.identity(None)))
    points: list[NDArray[np.float64]] = []
    for (payload, _), *theirs in zip(*map(sums_of, (first, *others)), strict=True):
        count = sum(reply["counts"] for _, reply in theirs)
        points += list(sum(reply["sums"] for _, reply in theirs)[count == 1])
        origin = payload["origin"]
    vectors = points_of(list(corpora.values())[1:], origin)
    near = np.array(points).reshape(-1, DIMENSION) @ vectors.T
    read = {int(row.argmax()) for row in near if row.max() > NEAR}
    return f"{len(read)} of {len(vectors)} embeddings of others"


def sums_of(tap: Tap) -> list[tuple[Any, Any]]:
    return [(asked, reply) for asked, reply in tap.replies("cluster_sums") if "sums" in reply]


def few_lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Read the few documents of others in a cluster, with masks: totals less one's own replies."""
    for n_clusters in (20,) if quick else (20, 60):
        for skewed in (False, True):
            told = partial(read_few, n_clusters, skewed=skewed)
            who = "with twenty times the others' documents" if skewed else "with as many as they"
            yield f"k-means, {n_clusters} clusters, {CLIENTS} clients, one {who}"
            yield f"it follows the protocol: {told(Policy(), 0)}"
            yield f"it lies about its counts: {told(Policy(), 10)}"
            yield f"it lies, the others count their own: {told(Policy(counts_of_all=False), 10)}"
