"""What the adder learns from masked sums of many rounds, whose documents are drawn in secret.

LDA's sums are exact counts: `blind` finds in which rounds a document was, whoever it is of. Of a
sum of gradients, words of one document each come out, and more of it in another round: what has
words in common is put together.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks import blind, one_reply
from benchmarks.attacks.solving import minibatch_counts
from benchmarks.attacks.summed import Summed, play
from benchmarks.attacks.sums import CLIENTS, LEAST, METHODS, facts
from benchmarks.attacks.tapped import rows_of
from benchmarks.common import arguments, measured

Numbers = NDArray[np.float64]
ALIKE, PURE = 3, 0.9  # words in common; share of the words that are of one document
SAME = 1e-6


class Case(NamedTuple):
    """Rounds of sums of so many clients, each with so many of its documents."""

    method: str
    clients: int
    documents: int
    each: int
    rounds: int


LDA, NETWORK = "LDA", "gFedNTM, ProdLDA"
CASES = [
    Case(LDA, 1, 100, 10, 600),  # one client's replies: the control
    *(Case(LDA, n, 300 // n, 10, rounds) for n in CLIENTS for rounds in (600, 3000)),
    Case(LDA, 3, 1000, 52, 600),
    Case(NETWORK, 3, 200, 52, 60),
    Case(NETWORK, 3, 1000, 52, 60),
]
QUICK = [Case(LDA, 3, 24, 10, 100), Case(NETWORK, 3, 20, 12, 5)]


def by_client(member: Numbers) -> NDArray[np.int64]:
    """Return a number for each signal, the same for those of one client.

    A client has equally many documents in each round, so its signals add up to a constant.
    """
    _, size, right = np.linalg.svd(member - member.mean(0), full_matrices=False)
    constant = right[size < SAME * size[0]].T
    alike = np.abs(constant[:, None] - constant[None]).max(2, initial=0) < SAME
    return np.asarray(alike.argmax(1))


def of_counts(summed: Summed, case: Case) -> dict[str, Any]:
    """Find signals of documents in sums of counts, and then the documents."""
    counts = np.sum([minibatch_counts(tap) for tap in summed.taps.values()], axis=0)
    member = blind.signals(counts, case.each / case.documents)
    if not member.shape[1]:
        return {"signals": 0, "wholly": 0}
    found, clients = blind.documents(counts, member), by_client(member)
    for client in np.unique(clients):  # of each, some document has not a word
        found[clients == client] -= found[clients == client].min(0)
    rounded = np.round(found) + 0.0
    known = {row.tobytes() for row in rounded}
    right = sum(row.tobytes() in known for row in summed.bags() + 0.0)
    return {"signals": member.shape[1], "wholly": right}


def put_together(fragments: Iterable[set[int]]) -> list[set[int]]:
    """Join sets of words that have some in common."""
    joined: list[set[int]] = []
    for fragment in fragments:
        near = [each for each in joined if len(each & fragment) >= ALIKE]
        joined = [each for each in joined if len(each & fragment) < ALIKE]
        joined.append(fragment.union(*near))
    return joined


def of_fragments(summed: Summed, case: Case) -> dict[str, Any]:
    """Put together the words of documents that sums of gradients tell."""
    fragments = []
    for _, total in summed.sums("backward"):
        if "weights" in total:
            rows = rows_of(total)
            _, groups = one_reply.directions(rows.values, ALIKE, 1e-9)
            fragments += [set(rows.index[group].tolist()) for group in groups]
    known = summed.bags() > 0
    shares = np.zeros(len(known))
    for words in put_together(fragments):
        right = known[:, sorted(words)].sum(1)
        best = int(right.argmax())
        if right[best] >= PURE * len(words):
            shares[best] = max(shares[best], right[best] / known[best].sum())
    return {
        "fragments": len(fragments), "some": int((shares > 0).sum()),
        "half": int((shares > 0.5).sum()), "words": float(shares.mean()),
    }  # fmt: skip


def attacked(case: Case, data: Path | None) -> dict[str, Any]:
    """Play the rounds and attack them."""
    settings = METHODS[case.method][0] | {"max_rounds": case.rounds}
    n_clients = max(case.clients, LEAST)
    settings |= {"batch_size": case.each * n_clients}
    settings |= {"n_components": 5} if case.method == LDA else {}  # counts are the same
    summed = play(settings, case.clients, n_clients, case.documents, data)
    attack = of_counts if case.method == LDA else of_fragments
    return attack(summed, case) | facts()


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", optional=True)
    cases = QUICK if given.quick else CASES
    source = {"data": "20ng" if given.data else "made up"}

    def measure(task: dict[str, Any]) -> dict[str, Any]:
        return attacked(Case(*(task[name] for name in Case._fields)), given.data)

    measured(given, [case._asdict() | source for case in cases], measure)
