"""What the adder learns from masked sums of many rounds, whose documents are drawn in secret.

LDA's sums are exact counts: `blind` finds in which rounds a document was, whoever it is of. Of a
sum of gradients, words of one document each come out, and more of it in another round: what has
words in common is put together.

    OMP_NUM_THREADS=1 python benchmarks/attacks/many_sums.py [--data FOLDER | --quick]
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import blind
import numpy as np
import one_reply
from numpy.typing import NDArray
from solving import minibatch_counts
from summed import Summed, play
from sums import CLIENTS, LEAST, METHODS, facts
from tapped import rows_of

from fedtopics.files import RowFile
from quick import parser_of, results_of

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


def measured(case: Case, data: Path | None) -> dict[str, Any]:
    """Play the rounds and attack them."""
    settings = METHODS[case.method][0] | {"max_rounds": case.rounds}
    n_clients = max(case.clients, LEAST)
    settings |= {"batch_size": case.each * n_clients}
    settings |= {"n_components": 5} if case.method == LDA else {}  # counts are the same
    summed = play(settings, case.clients, n_clients, case.documents, data)
    attack = of_counts if case.method == LDA else of_fragments
    return attack(summed, case) | facts()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of 20ng.parquet; else made-up documents")
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2: of two processes")
    given = parser.parse_args()
    number, of = map(int, given.part.split("/"))
    cases = (QUICK if given.quick else CASES)[number::of]
    rows = RowFile(results_of("many_sums", given.quick) / "many_sums.jsonl")
    source = {"data": "20ng" if given.data else "made up"}
    rows.fill(
        cases, lambda case: case._asdict() | source, lambda case: measured(case, given.data), str,
        lambda event: print(event["name"], flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
