"""Attack sums over 3, 5 and 10 clients, method by method."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks import blind, one_reply
from benchmarks.attacks import by_method as by
from benchmarks.attacks.solving import minibatch_counts
from benchmarks.attacks.summed import SEED, Summed, play
from benchmarks.attacks.tapped import rows_of
from benchmarks.common import Row, arguments, measured, table, versions, write
from fedtopics.errors import FedTopicsError
from fedtopics.federation.policy import Policy

CLIENTS = (3, 5, 10)
EACH = (52, 100, 256)
CONTROLS = (1, 10), (1, 52)
QUICK = ((1, 10),)
LEAST = 3  # clients of a study
OF_MANY = 1000  # documents of a client that draws some
ROUNDS = 2  # of minibatches
PASSES = 12  # over all documents
FEW = 5  # clusters, of which even clients of 52 documents have enough


HEAD = f"""# What sums tell

What who adds learns from one masked sum, or from the sums over all documents of a study, by the attacks of
`benchmarks/attacks/by_method.py`; *3 of 52* is a sum over 156 documents, 52 of each of three clients, *1 of* one
client's reply without masks. Networks and LDA draw documents anew in each round, out of {OF_MANY:,} of each client
(means over the first {ROUNDS} rounds); all others sum all documents,
of which clients have so many, {PASSES} rounds (of FSTC and FSCCL: those before training). Weights are of the first rounds. 20 topics, {FEW}
clusters where nothing else is said; hidden layers of 100 units. *=*: their exact number of occurrences is known as well.
*Membership* is the area under the ROC curve of telling up to 500 documents in the sum from up to 500 of nobody's (.5 is
guessing), the better of two or three attacks. A dash: the study refuses. Methods with nothing in any column are left
out of a table. Documents of 20ng, all-MiniLM-L6-v2 embeddings, seed {SEED}; at most 10 seconds of a processor are spent
on looking for the documents of a sum. Rows with versions: `sums.jsonl`; of many
rounds `many_sums.jsonl`. Command:
`make bench NAME=sums DATA=folder`."""  # noqa: E501 - lines of the page


class Cell(NamedTuple):
    """A method, and how many documents of how many clients are added up."""

    method: str
    clients: int
    each: int


PRODLDA = "gFedNTM, ProdLDA"
WIDE = "gFedNTM, ProdLDA, 400 units"
UNITS = 400
ANY = Policy(min_persons=1)
NETWORK = {"name": "gfedntm", "max_rounds": ROUNDS}
LDA = {"name": "lda", "initialisation": "random", "learning": "stochastic"}
CLUSTERS = {"max_rounds": PASSES, "n_components": FEW}
BRIEFLY = {"max_rounds": 1, "network": {"local_steps": 5, "deletion": 0}}  # attacked is the start
Attack = Callable[[Summed], by.Told]
# Title: settings, whether clients draw documents, the attack, the clients' policy.
METHODS: dict[str, tuple[dict[str, Any], bool, Attack, Policy | None]] = {
    "the vocabulary, of all methods": (LDA | {"max_rounds": 1}, False, by.of_words, None),
    PRODLDA: (NETWORK, True, by.of_gradients, None),
    WIDE: (NETWORK | {"hidden": (UNITS, 100)}, True, by.of_gradients, None),
    "gFedNTM, NeuralLDA": (NETWORK | {"network": "neurallda"}, True, by.of_gradients, None),
    "gFedNTM, CombinedTM": (NETWORK | {"network": "combinedtm"}, True, by.of_gradients, None),
    "gFedNTM, ZeroShotTM": (NETWORK | {"network": "zeroshottm"}, True, by.of_gradients, None),
    "LDA": (LDA | {"max_rounds": ROUNDS}, True, by.of_topics, None),
    'LDA, `learning = "batch"`': (
        LDA | {"learning": "batch", "initialisation": "nmf", "max_rounds": PASSES},
        False,
        by.of_all_topics,
        None,
    ),
    'start by `"anchors"`': (
        LDA | {"max_rounds": 1, "initialisation": "anchors"},
        False,
        by.of_projections,
        None,
    ),
    "NMF": ({"name": "nmf", "max_rounds": PASSES}, False, by.of_factors, None),
    "mixture": ({"name": "mixture", "max_rounds": PASSES}, False, by.of_mixture, None),
    "k-means": (CLUSTERS | {"name": "kmeans"}, False, by.of_points, None),
    "k-means, 20 clusters of any size": (
        CLUSTERS | {"name": "kmeans", "n_components": 20},
        False,
        by.of_points,
        ANY,
    ),
    "discriminative": (
        CLUSTERS | {"name": "discriminative", "preset": "single"},
        False,
        by.of_points,
        None,
    ),
    "FSTC": (CLUSTERS | {"name": "fstc"} | BRIEFLY, False, by.of_points, None),
    "FSCCL": (CLUSTERS | {"name": "fsccl"} | BRIEFLY, False, by.of_points, None),
}


def facts() -> dict[str, Any]:
    return {"seed": SEED, "versions": versions("fedtopics", "numpy", "scipy", "torch")}


def attacked(cell: Cell, data: Path | None) -> dict[str, Any]:
    """Play a study and attack it; or say why there was none."""
    settings, draws, attack, policy = METHODS[cell.method]
    n_clients = max(cell.clients, LEAST)
    batch = {"batch_size": cell.each * n_clients} if draws else {}
    try:
        size = OF_MANY if draws else cell.each
        summed = play({**settings, **batch}, cell.clients, n_clients, size, data, policy)
        told = asdict(attack(summed))
    except FedTopicsError as error:
        told = {"refused": str(error)}
    return told | facts()


def tables(rows: list[Row]) -> Iterator[str]:
    sums = list(dict.fromkeys((row["clients"], row["each"]) for row in rows))
    head = [f"{clients} of {documents}" for clients, documents in sorted(sums)]
    for title, show in SHOWN.items():
        yield f"\n**{title}**\n"
        lines = []
        for method in METHODS:
            cells = dict.fromkeys(sorted(sums), "")
            for row in (row for row in rows if row["method"] == method):
                cells[row["clients"], row["each"]] = "-" if "refused" in row else show(row)
            if any(cell not in NOTHING for cell in cells.values()):
                lines.append([method, *cells.values()])
        yield from table(f"method | {' | '.join(head)}", lines)


NOTHING = "", "-", "0", "0 (0)"
SHOWN: dict[str, Callable[[Row], str]] = {
    "Words that are known to occur, % of those that do": lambda row: (
        f"{100 * row['words']:.3g}{' =' if row['counts'] else ''}"
    ),
    "Documents to the last count (in brackets: those of which some words are told)": lambda row: (
        f"{row['wholly']:.3g} ({row['some']:.3g})"
    ),
    "Embeddings": lambda row: f"{row['embeddings']:.3g}",
    "Membership": lambda row: f"{row['member']:.2f}",
}


# Many rounds: LDA's sums are exact counts, so that `blind` finds in which rounds a document was,
# whoever it is of. Of a sum of gradients, words of one document each come out, and more of it in
# another round: what has words in common is put together.

Numbers = NDArray[np.float64]
ALIKE = 3  # words in common
PURE = 0.9  # share of the words that are of one document
SAME = 1e-6


class Case(NamedTuple):
    """Rounds of sums of so many clients, each with so many of its documents."""

    method: str
    clients: int
    documents: int
    each: int
    rounds: int


CASES = [
    Case("LDA", 1, 100, 10, 600),  # one client's replies: the control
    *(Case("LDA", n, 300 // n, 10, rounds) for n in CLIENTS for rounds in (600, 3000)),
    Case("LDA", 3, 1000, 52, 600),
    Case(PRODLDA, 3, 200, 52, 60),
    Case(PRODLDA, 3, 1000, 52, 60),
]
QUICK_CASES = [Case(PRODLDA, 3, 20, 12, 5)]


def by_client(member: Numbers) -> NDArray[np.int64]:
    """Return a number for each signal, the same for those of one client."""
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
    documents = blind.documents(counts, member)
    clients = by_client(member)
    for client in np.unique(clients):  # of each, some document has not a word
        documents[clients == client] -= documents[clients == client].min(0)
    rounded = np.round(documents) + 0.0
    recovered = {row.tobytes() for row in rounded}
    right = sum(row.tobytes() in recovered for row in summed.bags() + 0.0)
    return {"signals": member.shape[1], "wholly": right}


def put_together(fragments: Iterable[set[int]]) -> list[set[int]]:
    joined: list[set[int]] = []
    for fragment in fragments:
        near = [group for group in joined if len(group & fragment) >= ALIKE]
        joined = [group for group in joined if len(group & fragment) < ALIKE]
        joined.append(fragment.union(*near))
    return joined


def of_fragments(summed: Summed, case: Case) -> dict[str, Any]:
    """Put together the words of documents that sums of gradients tell."""
    fragments = []
    for _, total in summed.sums("weight_gradients"):
        if "weights" in total:
            rows = rows_of(total)
            _, groups = one_reply.directions(rows.values, ALIKE, 1e-9)
            fragments += [set(rows.index[group].tolist()) for group in groups]
    present = summed.bags() > 0
    shares = np.zeros(len(present))
    for words in put_together(fragments):
        right = present[:, sorted(words)].sum(1)
        best = int(right.argmax())
        if right[best] >= PURE * len(words):
            shares[best] = max(shares[best], right[best] / present[best].sum())
    return {
        "fragments": len(fragments),
        "some": int((shares > 0).sum()),
        "half": int((shares > 0.5).sum()),
        "words": float(shares.mean()),
    }


def attacked_often(case: Case, data: Path | None) -> dict[str, Any]:
    settings = METHODS[case.method][0] | {"max_rounds": case.rounds}
    n_clients = max(case.clients, LEAST)
    settings |= {"batch_size": case.each * n_clients}
    settings |= {"n_components": 5} if case.method == "LDA" else {}  # counts are the same
    summed = play(settings, case.clients, n_clients, case.documents, data)
    attack = of_counts if case.method == "LDA" else of_fragments
    return attack(summed, case) | facts()


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", optional=True)
    sizes = QUICK if given.quick else [*CONTROLS, *itertools.product(CLIENTS, EACH)]
    cells = [Cell(method, *size) for size in sizes for method in METHODS]
    cells = [cell for cell in cells if cell.method != WIDE or 2 * cell.clients * cell.each <= UNITS]
    source = {"data": "20ng" if given.data else "made up"}
    rows = measured(
        given,
        [cell._asdict() | source for cell in cells],
        lambda task: attacked(Cell(task["method"], task["clients"], task["each"]), given.data),
    )
    write(given, [HEAD, *tables(rows)])
    given.name = "many_sums"
    cases = QUICK_CASES if given.quick else CASES
    measured(
        given,
        [case._asdict() | source for case in cases],
        lambda task: attacked_often(Case(*(task[name] for name in Case._fields)), given.data),
    )
