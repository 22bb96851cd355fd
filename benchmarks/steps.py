"""Steps of a study, and what one client sends: in one process, and with secure aggregation.

A step is a line in the ledger of a client: something that left it. Three clients hold the documents
in equal parts, drawn at random; policies are the defaults, the vocabulary has 5,000 words at most.
Beside them stands how many steps `fedtopics check` foresees, at most.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.common import WORK, Row, arguments, grid, measured, table, versions, write
from benchmarks.quality import prepare
from experiments.made_up import write as write_made_up
from fedtopics import Corpus, Policy, Study, train
from fedtopics.federation.exposure import expose
from tests.helpers.grpc_federation import federated

SETS = ("news_outlets", "m10", "agnews", "20ng")
METHODS = ("nmf", "lda", "mixture", "discriminative")
NAMES = ("east", "north", "west")
HEAD = """documents | method | one process: steps | foreseen, at most | MB | secure: steps \
| foreseen, at most | MB"""


def clients_of(documents: Path) -> dict[str, Corpus]:
    table = pq.read_table(documents)
    vectors = table["embedding"].combine_chunks().flatten().to_numpy()
    corpus = Corpus.of(table["tokens"]).with_embeddings(vectors.reshape(len(table), -1))
    parts = np.array_split(np.random.default_rng(0).permutation(len(corpus)), len(NAMES))
    return {name: corpus.take(np.sort(part)) for name, part in zip(NAMES, parts, strict=True)}


def sent(ledger: Path) -> tuple[int, float]:
    """Return how many replies left the client of a ledger, and their megabytes."""
    lines = map(json.loads, ledger.read_text("utf-8").splitlines())
    sizes = [line["bytes"] for line in lines if line["what"] == "sent"]
    return len(sizes), sum(sizes) / 1e6


def measure(data: Path, work: Path, documents: str, method: str) -> Row:
    corpora = clients_of(prepare(data, work, documents)[0])
    settings = {"name": method, "n_components": 20}
    row: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("plain", "secure"):
            out = Path(folder) / kind
            plan = Study.make(
                method=settings,
                vocabulary={"max_words": 5_000},
                aggregation=kind,
                federation={} if kind == "secure" else {"outliers": "none"},
            ).with_clients(corpora)
            if kind == "secure":
                federated(plan, corpora, out, Policy())
            else:
                train(plan, corpora, out=out)
            ledger = next(out.rglob(f"{NAMES[0]}/ledger.jsonl"))
            row[kind] = [*sent(ledger), expose(plan).steps]
    return row


def cells_of(row: Row) -> list[str]:
    cells = [row["documents"], row["method"]]
    for steps, size, most in (row["plain"], row["secure"]):
        cells += [str(steps), str(most), f"{size:.1f}"]
    return cells


def main() -> None:
    files = ", ".join(f"{name}.parquet" for name in SETS)
    given = arguments(__doc__, files, sets=SETS, methods=METHODS)
    data, work, sets, methods = given.data, WORK, given.sets, given.methods
    if given.quick:
        data, work = write_made_up(given.folder, ("m10",), 90), given.folder / "work"
        sets, methods = ["m10"], ["nmf"]
    tasks = grid(documents=sets, method=methods)
    rows = measured(given, tasks, lambda task: measure(data, work, **task))
    used = ", ".join(f"{name} {number}" for name, number in versions("fedtopics", "numpy").items())
    command = "`make bench NAME=steps DATA=folder`"
    text = (
        f"20 topics, three clients, seed 0; of the client {NAMES[0]}. {used}. Command: {command}."
    )
    write(given, [text, "", *table(HEAD, map(cells_of, rows), left=2)])
