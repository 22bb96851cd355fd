"""Let one client of a masked study say what cannot be, or just can, and see what comes of it.

python benchmarks/masked_liars.py [--quick]
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from bad_replies import (
    HONEST,
    LIAR,
    LIES,
    METHODS,
    MOST_SECONDS,
    MOST_WORDS,
    THEMES,
    LyingDoor,
    corpora,
    too_long,
)  # fmt: skip
from fedtopics import Study
from fedtopics.engines.local import LocalClients
from fedtopics.errors import FedTopicsError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.files import RowFile
from fedtopics.methods.base import Moment
from fedtopics.methods.robust import Rule
from fedtopics.metrics import purity
from fedtopics.secure import said
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.field import PRIME, Residues
from fedtopics.secure.fixed import Layout
from fedtopics.secure.sum import SecureClients
from poisoning import doors_of, main_topics
from quick import parser_of, results_of

NOBODY = "nobody lies"
SAID = (
    NOBODY, "documents = -512, rounds", "a number is 1e30, before round 1",
    "a number is 1e30, rounds", "a number is NaN, rounds", "numbers times -100, rounds",
    "5,000 junk words, 1e9 times each", "5,000 junk words, as often as can be",
    "words of -100000 documents", "a billion documents",
)  # fmt: skip
STUDIES: dict[str, tuple[int, Rule, bool]] = {  # clients, rule, whether policies allow the clear
    "5": (5, "none", False),
    "5, in the clear": (5, "none", True),
    "6": (6, "none", False),
    "6, in the clear": (6, "none", True),
    "9": (9, "none", False),
    "9, median": (9, "median", False),
}
OF = {
    "lda": METHODS["lda"],
    "lda, drawn": {"max_rounds": 20, "batch_size": 60},
    "gfedntm prodlda": METHODS["gfedntm prodlda"],
    "nmf": METHODS["nmf"],
    "kmeans": METHODS["kmeans"],
}
INTRODUCTION = """\
Masked studies of five, six and nine clients with 100 made-up documents each, one of which says \
what `benchmarks/bad_replies.py` has it say; what cannot be masked, it sends as noise. What came \
of it: the model, or how it ended; whom events name (`bad reply`), or suspect and leave out \
(`suspected`); how many attempts were void, or in the clear; purity of the honest clients' \
documents, less that where nobody lies. In `lda, drawn` and in networks' rounds documents are \
drawn; all else is of all documents. Command: `python benchmarks/masked_liars.py`."""


@dataclass(frozen=True)
class Task:
    """A study."""

    method: str
    clients: str
    lie: str


class MaskedLiar(MaskedDoor):
    """Masks what cannot be as noise, and says something else than an answer where it has none."""

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
        try:
            return super().call(function, payload, moment)
        except FedTopicsError:
            return {}

    def _encoded(self, layout: Layout) -> Residues:
        try:
            return super()._encoded(layout)
        except Exception:  # it has no such field, or numbers that fit into none
            self._fits = said.FITS
            rng = np.random.default_rng(1)
            return rng.integers(PRIME, size=layout.size, dtype=np.uint64)


def measure(task: Task) -> dict[str, Any]:
    """Do a study, and say what came of it."""
    n, rule, clears = STUDIES[task.clients]
    clients = corpora(tuple(f"more{number}" for number in range(n - len(HONEST) - 1)))
    method = {"name": task.method.split()[0].strip(","), "n_components": THEMES} | OF[task.method]
    limits = {"min_document_frequency": 1, "max_words": MOST_WORDS}
    study = Study.make(method=method, vocabulary=limits, secure=True).with_clients(clients)
    policy = OPEN_POLICY.model_copy(update={"clear_attempt": clears})
    doors: dict[str, Any] = dict(doors_of(study, clients, policy))
    lying = LyingDoor(doors[LIAR], LIES[task.lie])
    masked = {
        name: MaskedDoor(door, name, name.encode().ljust(32), bytes) for name, door in doors.items()
    }
    masked[LIAR] = MaskedLiar(lying, LIAR, bytes(32), bytes)
    events: list[dict[str, Any]] = []
    run = RunFolder(None, study.identity(None), on_event=events.append)
    engine = LocalClients(masked, notify=run.event)
    drawn = study.registration.drawn(study.method)
    secure = SecureClients(engine, drawn, run.event, study.vocabulary, rule)
    begun, row = time.perf_counter(), {"ended": "", "purity": 0.0}
    honest = [clients[name] for name in clients if name != LIAR]
    signal.alarm(MOST_SECONDS)
    try:
        model = study.server_half(None).train(secure, run)
        labels = [label for each in honest for label in each.labels.to_pylist()]  # type: ignore[union-attr]
        row["purity"] = round(purity(labels, main_topics(model, honest)), 4)
    except FedTopicsError as error:
        row["ended"] = str(error)
    except Exception as error:  # what is no sentence is a fault, whatever it is
        row["ended"] = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    row |= {"told": lying.told, "seconds": round(time.perf_counter() - begun, 1)}
    return row | counted(events)


def counted(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return whom events name or leave out, and how many attempts were void."""

    def of(kind: str) -> list[dict[str, Any]]:
        return [event for event in events if event["event"] == kind]

    left_out = [event["clients"] for event in of("suspected") if event["left_out"]]
    return {
        "named": sorted({event["client"] for event in of("bad reply")}),
        "claimed": sorted({event["client"] for event in of("claimed")}),
        "left out": sorted({name for names in left_out for name in names}),
        "voided": len(of("voided")),
        "clear": len(of("in the clear")),
    }


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line a study."""
    usual = {(row["method"], row["clients"]): row["purity"] for row in rows if row["lie"] == NOBODY}
    heads = "method", "clients", "lie", "comes to", "named", "left out", "void", "clear", "purity"
    yield from ("", f"| {' | '.join(heads)} |", "| --- " * 5 + "| --- | ---: | ---: | ---: |")
    for row in rows:
        lost = row["purity"] - usual[row["method"], row["clients"]]
        purities = f"{row['purity']:.2f}" if row["lie"] == NOBODY else f"{lost:+.2f}"
        cells = (
            row["method"], row["clients"], row["lie"], row["ended"] or "a model",
            ", ".join([*row["named"], *(f"{name} (claimed)" for name in row["claimed"])]),
            ", ".join(row["left out"]), str(row["voided"]), str(row["clear"]),
            "-" if row["ended"] else purities,
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    given = parser_of(__doc__).parse_args()
    signal.signal(signal.SIGALRM, too_long)
    folder = results_of("masked_liars", given.quick)
    kept = RowFile(folder / "masked_liars.jsonl")
    tasks = [Task(*each) for each in product(OF, STUDIES, SAID)]
    if given.quick:
        tasks = [task for task in tasks if (task.method, task.clients) == ("lda, drawn", "6")]
    kept.fill(
        tasks, vars, measure,
        lambda task: ", ".join(vars(task).values()),
        lambda event: print(event["done"], "of", event["models"], event["name"], flush=True),
    )  # fmt: skip
    rows = [json.loads(each) for each in (folder / "masked_liars.jsonl").read_text().splitlines()]
    told = [row for row in rows if row["told"] or row["lie"] == NOBODY]
    text = "\n".join([INTRODUCTION, *tables(told)]) + "\n"
    (folder / "masked_liars.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
