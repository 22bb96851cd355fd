"""What a reply that cannot be, or should not, does to a study, for each method and rule of sums.

Where nothing is wrong, a study ends with a model, all honest clients take part in it to the end, an
event names the liar, and documents are as well divided as when the liar is away.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.common import arguments, doors_of, each_group, kept_rows, measured, table, write
from benchmarks.poisoning import REFUSED, RULES, main_topics, robustly
from fedtopics import Corpus, Study
from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.contract.replies import LONGEST
from fedtopics.errors import FedTopicsError
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import purity
from fedtopics.protocol.outliers import Rule

HONEST = ("east", "north", "south", "west")
LIAR = "liar"
DOCUMENTS = 100  # of a client
THEMES = 5  # of all clients
DIMENSION = 16  # of embeddings
MOST_SECONDS = 60
JUNK = 5000
MOST_WORDS = 150  # of which 120 are in documents
CLOSE = 0.05  # of purity
EMBEDDED = {"embedding": {"dimension": DIMENSION}}
CLUSTERS = {"max_rounds": 10, "start": {"tries": 2}} | EMBEDDED
NETWORK = {
    "n_components": 2 * THEMES,
    "max_rounds": 40,
    "batch_size": 200,
    "learning_rate": 0.02,
    "hidden": [32, 32],
} | EMBEDDED
AVERAGED = {"norm": "server", "optimizer": "fedavg", "local_steps": 3, "initialisation": "anchors"}
TRAINED = {"max_rounds": 4} | EMBEDDED
STEPS = {"local_steps": 20, "batch_size": 50}
METHODS: dict[str, dict[str, Any]] = {
    "discriminative": CLUSTERS | {"preset": "single"},
    "flda": {"max_rounds": 3, "iterations": 60, "min_new_documents": 20},
    "fsccl": TRAINED | {"network": {**STEPS, "deletion": 0}},
    "fstc": TRAINED | {"network": {**STEPS, "learning_rate": 0.01}},
    **{f"gfedntm {n}": NETWORK | {"network": n} for n in ("prodlda", "neurallda", "combinedtm")},
    "gfedntm zeroshottm": NETWORK | {"network": "zeroshottm", "initialisation": "mixture"},
    "gfedntm averaged": NETWORK | AVERAGED,
    "kmeans": CLUSTERS,
    "kmeans k-fed": CLUSTERS | {"algorithm": "k-fed"},
    "lda": {"learning": "stochastic", "max_rounds": 10, "batch_size": 200},
    "mixture": {"max_rounds": 10} | EMBEDDED,
    "nmf": {"max_rounds": 10},
}
INTRODUCTION = f"""\
Studies of five clients with {DOCUMENTS} made-up documents each, of which one sends bad replies: \
about the vocabulary, in each exchange before the first round, in all rounds, or at the end. Of \
studies in which it could say such a thing: how many end with a model; in how many of these no \
honest client was blamed or left out of anything; in how many an event names the liar, as its \
reply is refused, or as it is clipped (rule `clip` alone says so). \
Then for each rule the worst loss of purity of the honest clients' documents, from the same study \
without the liar or, if that is lower, where it does not lie, and in how many studies it is more \
than {CLOSE}. The studies that ended, or did without somebody honest, and those that lost more \
with `clip`, are listed below. Command: `make bench NAME=bad-replies`."""
Reply = dict[str, Any]
Change = Callable[[Any], Any]


class Task(NamedTuple):
    method: str
    rule: Rule
    lie: str


class Lie(NamedTuple):
    """What becomes of a reply, and when."""

    when: tuple[str, ...]
    change: Callable[[Reply], Reply]


def parts(change: Change, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: parts(change, part) for name, part in value.items()}
    return change(value)


def arrays(change: Change, reply: Any) -> Any:
    def changed(value: Any) -> Any:
        if isinstance(value, SparseRows):
            return replace(value, values=change(value.values))
        return change(value) if isinstance(value, np.ndarray) else value

    return parts(changed, reply)


def largest(change: Change, reply: Reply) -> Reply:
    """Change the arrays of the field that has most numbers: what is bounded shields no others."""
    name = max(reply, key=lambda name: count(reply[name]))
    return reply | {name: arrays(change, reply[name])}


def count(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(count, value.values()))
    numbers = value.values if isinstance(value, SparseRows) else value
    return numbers.size if isinstance(numbers, np.ndarray) else 0


def first(number: float, array: Any) -> Any:
    if array.dtype.kind != "f" or not array.size:
        return array
    changed = array.copy()
    changed.flat[0] = number
    return changed


def turned(array: Any) -> Any:
    return array * array.dtype.type(-100)


def other_type(array: Any) -> Any:
    return array.astype(np.int64 if array.dtype.kind == "f" else np.float64)


def other_form(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return SparseRows(np.arange(len(value)), value, len(value))
    return value.dense() if isinstance(value, SparseRows) else value


def single(number: float, reply: Reply) -> Reply:
    return {name: number if type(part) is float else part for name, part in reply.items()}


def escaped(value: Any) -> Any:
    """Put a control sequence in front of the first word."""
    if isinstance(value, CountsByWord) and value.names:
        return replace(value, names=["\x1b[31m" + value.names[0], *value.names[1:]])
    if isinstance(value, list) and value and isinstance(value[0], str):
        return ["\x1b[31m" + value[0], *value[1:]]
    return value


def junk(possible: bool, reply: Reply) -> Reply:
    """Name words that nobody has, in all documents, as often as can be or more often."""
    documents = reply["documents"]
    most = LONGEST * documents // JUNK if possible else 10**9
    first = np.arange(JUNK) < (reply["words"].values[:, 3].sum() if possible else JUNK)
    columns = [np.full(JUNK, documents), np.full(JUNK, most), np.ones(JUNK), first]
    names = [f"junk{number:04}" for number in range(JUNK)]
    return reply | {"words": CountsByWord(names, np.stack(columns, 1).astype(np.int64))}


def documents(number: int, reply: Reply) -> Reply:
    return reply | {name: number for name in ("documents", "training") if name in reply}


def theta(reply: Reply) -> Reply:
    return reply | ({"theta": first(-1000.0, reply["theta"])} if "theta" in reply else {})


AWAY = "the liar is away"
HONESTLY = "nobody lies"
WORDS = "words"
NUMBERS = "numbers"
BEFORE = "before round 1"
ROUNDS = "rounds"
END = "end"
GRADIENTS = "gradients"  # of a round, where the lie is in nothing else
USUAL = {
    "vocabulary": {WORDS},
    "document_counts": {NUMBERS},
    "weight_gradients": {ROUNDS, GRADIENTS},
}
ANYWHERE: dict[str, Callable[[Reply], Reply]] = {
    "documents = -512": partial(documents, -512),
    "int64 for float64": partial(arrays, other_type),
    "dense for rows": partial(parts, other_form),
    "a number is 1e30": partial(largest, partial(first, 1e30)),
    "numbers times -100": partial(largest, turned),
    "a number is NaN": partial(largest, partial(first, np.nan)),
    "a number is inf": partial(largest, partial(first, np.inf)),
    "2 MB of empty values": lambda reply: reply | {"more": [[]] * 2_000_000},
}
LIES = {
    **dict.fromkeys((AWAY, HONESTLY), Lie((), dict)),
    "5,000 junk words, 1e9 times each": Lie((WORDS,), partial(junk, False)),
    "5,000 junk words, as often as can be": Lie((WORDS,), partial(junk, True)),
    "words of -100000 documents": Lie((WORDS,), partial(documents, -100_000)),
    "a word with an escape character": Lie((WORDS, ROUNDS), partial(parts, escaped)),
    "a billion documents": Lie((WORDS, NUMBERS), partial(documents, 10**9)),
    **{
        f"{title}, {when}": Lie((when,), change)
        for (title, change), when in product(ANYWHERE.items(), (BEFORE, ROUNDS, END))
    },
    "a gradient is 1e30": Lie((GRADIENTS,), partial(arrays, partial(first, 1e30))),
    "gradients times -100": Lie((GRADIENTS,), partial(arrays, turned)),
    "a loss of 1.7e308": Lie((ROUNDS,), partial(single, 1.7e308)),
    "at the end 1e18 documents": Lie((END,), partial(documents, 10**18)),
    "at the end a theta of -1000": Lie((END,), theta),
}


class LyingDoor:
    def __init__(self, door: Door, lie: Lie) -> None:
        self._door = door
        self._lie = lie
        self._trained = False
        self.told = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._door, name)

    def call(self, call: Call) -> Reply:
        reply = self._door.call(call)
        function = call.function
        payload = call.payload
        self._trained |= bool(payload.get("round"))
        phase = ROUNDS if payload.get("round") else END if self._trained else BEFORE
        if not USUAL.get(function, {phase}) & {*self._lie.when}:
            return reply
        said = self._lie.change(dict(reply))
        self.told += str(said) != str(reply)
        return said


@cache
def corpora() -> dict[str, Corpus]:
    """Draw each client's documents: of a theme each, whose words and point are its own."""
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((THEMES, DIMENSION))
    clients = {}
    for name in sorted((*HONEST, LIAR)):
        themes = rng.integers(THEMES, size=DOCUMENTS)
        texts = [
            [f"theme{theme}word{number}" for number in rng.integers(20, size=15)]
            + [f"common{number}" for number in rng.integers(20, size=5)]
            for theme in themes
        ]
        vectors = centres[themes] + rng.normal(0, 0.5, (DOCUMENTS, DIMENSION))
        labelled = replace(Corpus.of(texts), labels=pa.chunked_array([themes.astype(str)]))
        clients[name] = labelled.with_embeddings(vectors.astype(np.float32))
    return clients


def measure(task: Task) -> dict[str, Any]:
    clients = dict(corpora())
    lie = LIES[task.lie]
    if task.lie == AWAY:
        del clients[LIAR]
    name = task.method.split()[0]
    method = {"name": name, "n_components": THEMES} | METHODS[task.method]
    limits = {"min_persons_per_word": 1, "max_words": MOST_WORDS}
    study = Study.make(method=method, vocabulary=limits).with_clients(clients)
    doors: dict[str, Any] = dict(doors_of(study, clients, OPEN_POLICY))
    liar = LyingDoor(doors.get(LIAR, doors[HONEST[0]]), lie)
    doors |= {LIAR: liar} if LIAR in doors else {}
    events: list[dict[str, Any]] = []
    begun = time.perf_counter()
    row = {"ended": "", "purity": 0.0}
    signal.alarm(MOST_SECONDS)
    try:
        model = robustly(study, doors, task.rule, events.append)
        labels = [label for client in HONEST for label in clients[client].labels.to_pylist()]  # type: ignore[union-attr]
        row["purity"] = round(purity(labels, main_topics(model, [clients[n] for n in HONEST])), 4)
        row["missing"] = sorted({*HONEST} - model.documents.keys())
    except FedTopicsError as error:
        row["ended"] = str(error)
    except Exception as error:  # what is no sentence is a fault, whatever it is
        row["ended"] = f"{type(error).__name__}: {error}"
        row["fault"] = True
    finally:
        signal.alarm(0)
    row |= {"told": liar.told, "seconds": round(time.perf_counter() - begun, 1)}
    return row | said(events)


def said(events: list[dict[str, Any]]) -> dict[str, Any]:
    of_clients = [e for e in events if e["event"] in (*REFUSED, "clipped")]
    named = {e["event"]: e.get("reason", "") for e in of_clients if e["client"] == LIAR}
    rounds = [e for e in events if e["event"] in ("round", "left out")]
    absent = {name for e in rounds for name in e.get("missing", {})}
    blamed = absent | {e["client"] for e in of_clients}
    return {"named": named, "blamed": sorted(blamed - {LIAR})}


def cells_of(title: str, rows: list[dict[str, Any]]) -> Iterator[object]:
    with_model = [row for row in rows if not row["ended"]]
    yield from (title, len(rows), len(with_model))
    yield sum(not row["missing"] and not row["blamed"] for row in with_model)
    yield from (sum(kind in row["named"] for row in rows) for kind in ("bad reply", "clipped"))
    for rule in RULES:
        lost = [row["lost"] for row in rows if row["rule"] == rule]
        yield f"{max(lost):.2f} / {sum(loss > CLOSE for loss in lost)}" if lost else "-"


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line a lie and a line a method, and what is not as it should be."""
    honest = each_group((r for r in rows if r["lie"] in (AWAY, HONESTLY)), "method", "rule")
    honest_purity = {place: min(row["purity"] for row in group) for place, group in honest}
    for row in rows:
        row["lost"] = honest_purity[row["method"], row["rule"]] - row["purity"]
    lied = [row for row in rows if row["told"]]
    for what in ("lie", "method"):
        head = f"{what} | studies | end | all in it | refused | clipped | {' | '.join(RULES)}"
        lines = [list(cells_of(name, group)) for (name,), group in each_group(lied, what)]
        yield from ("", *table(head, lines))
    yield ""
    wrong: dict[str, list[str]] = {}
    for row in lied:
        without = ", ".join(sorted({*row["blamed"], *row.get("missing", ())}))
        bent = f"{row['lost']:.2f} lost" if row["rule"] == "clip" and row["lost"] > CLOSE else ""
        if what := row["ended"] or (without and f"without {without}") or bent:
            where = f"{row['method']}, {row['rule']}"
            wrong.setdefault(f"- {row['lie']}: {what}", []).append(where)
    yield from (f"{what} ({'; '.join(places)})" for what, places in wrong.items())


def too_long(*_: Any) -> None:
    raise TimeoutError(f"longer than {MOST_SECONDS} s")


def main() -> None:
    given = arguments(__doc__)
    signal.signal(signal.SIGALRM, too_long)
    tasks = [Task(method, rule, lie) for method, rule, lie in product(METHODS, RULES, LIES)]
    if given.quick:
        tasks = [task for task in tasks if (task.method, task.rule) == ("lda", "clip")]
    measured(given, tasks, measure)
    write(given, [INTRODUCTION, *tables(kept_rows(given))])
