"""Read the few documents of others in a cluster, with masks: totals less one's own replies.

A cluster of enough documents of all clients is summed. A participant that has all of them but one
reads the embedding of that one. One that lies says, when documents are counted, that it has ten
more of each cluster and of each move: every cluster is summed then. Against it, clients count their
own documents (`counts_of_all = false` in their policy).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.pairs_of_sums import DIMENSION, N, documents
from benchmarks.attacks.tapped import Tap, door_of
from fedtopics.engines.local import LocalClients
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study

CLIENTS = 4
NEAR = 1 - 1e-9  # cosine of what is read and a document's point


class Liar(Tap):
    """The door of who says that it has more documents of each cluster, by so many."""

    more = 0

    def call(self, function: str, payload: Any, moment: Any) -> Any:
        reply = self.door.call(function, payload, moment)
        if "moves" in reply:
            reply["moves"] = reply["moves"] + self.more
        self.calls.append(("call", (function, payload, moment), reply))
        return reply


def read(n_clusters: int, policy: Policy, more: int, skewed: bool) -> str:
    """Train; count the embeddings that the first client reads in totals less its own replies."""
    corpora = documents(CLIENTS)
    if skewed:  # the others have a twentieth of its documents
        corpora = {
            name: corpus if place == 0 else corpus.take(np.arange(N // 20))
            for place, (name, corpus) in enumerate(corpora.items())
        }
    embedding = {"dimension": DIMENSION}
    method = {"name": "kmeans", "embedding": embedding, "n_components": n_clusters}
    study = Study.make(method=method | {"coherence": "nothing"}, secure=True).with_clients(corpora)
    taps = {
        name: Liar(door_of(study, name, corpus, policy, masked=True))
        for name, corpus in corpora.items()
    }
    first, *others = taps.values()
    first.more = more
    clients = LocalClients(taps, hidden=True)
    study.server_half(None).train(clients, RunFolder(None, study.identity(None)))
    points: list[NDArray[np.float64]] = []
    for (payload, _), *theirs in zip(*map(sums_of, (first, *others)), strict=True):
        count = sum(reply["counts"] for _, reply in theirs)
        points += list(sum(reply["sums"] for _, reply in theirs)[count == 1])
        origin = payload["origin"]
    vectors = np.concatenate([
        np.asarray(corpus.embeddings, float) - origin for corpus in list(corpora.values())[1:]
    ])  # fmt: skip
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = np.array(points).reshape(-1, DIMENSION) @ vectors.T
    found = {int(row.argmax()) for row in near if row.max() > NEAR}
    return f"{len(found)} of {len(vectors)} embeddings of others"


def sums_of(tap: Tap) -> list[tuple[Any, Any]]:
    """Return payloads and replies of sums, without those that count."""
    return [(asked, reply) for asked, reply in tap.replies("cluster_sums") if "sums" in reply]


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    for n_clusters in (20,) if quick else (20, 60):
        for skewed in (False, True):
            told = partial(read, n_clusters, skewed=skewed)
            who = "with twenty times the others' documents" if skewed else "with as many as they"
            yield f"k-means, {n_clusters} clusters, {CLIENTS} clients, one {who}"
            yield f"it follows the protocol: {told(Policy(), 0)}"
            yield f"it lies about its counts: {told(Policy(), 10)}"
            yield f"it lies, the others count their own: {told(Policy(counts_of_all=False), 10)}"
