"""Steps and seconds of a study, and what one client sends, in one process and with secure sums.

A step is a line in the ledger of a client: something that left it. Three clients hold the documents
in equal parts, drawn at random; policies are the defaults, the vocabulary has 5,000 words at most.
Beside them stands how many steps `fedtopics check` foresees, at most. Seconds are those of the
documents of one client, of five, and of scikit-learn with as many words, in turn.
"""

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from timeit import timeit
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.common import WORK, Row, arguments, grid, measured, table, versions, write
from benchmarks.quality import corpus_of, prepare
from experiments.made_up import write as write_made_up
from fedtopics import Corpus, Policy, Study, train
from fedtopics.federation.exposure import expose
from tests.helpers.grpc_federation import federated

SETS = ("news_outlets", "m10", "agnews", "20ng")
METHODS = ("nmf", "lda", "mixture", "discriminative")
NAMES = ("east", "north", "west", "south", "middle")
WORDS = {"max_words": 5_000}
FACTS = """20 topics, seed 0, one thread; steps of one of three clients; medians of three runs. \
{}. Command: `OMP_NUM_THREADS=1 make bench NAME=steps DATA=folder`."""
HEAD = """documents | method | one process: steps | foreseen, at most | MB | secure: steps \
| foreseen, at most | MB | one client, s | five / one | one / scikit-learn"""


def clients_of(documents: Path, n_clients: int) -> dict[str, Corpus]:
    corpus = corpus_of(pq.read_table(documents))
    parts = np.array_split(np.random.default_rng(0).permutation(len(corpus)), n_clients)
    return {name: corpus.take(np.sort(part)) for name, part in zip(NAMES, parts, strict=False)}


def scikit_learn(documents: Path) -> None:
    """Count words and factorise."""
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [" ".join(words) for words in pq.read_table(documents)["tokens"].to_pylist()]
    bag = TfidfVectorizer(max_features=WORDS["max_words"], analyzer=str.split)
    NMF(20, init="nndsvda", random_state=0).fit_transform(bag.fit_transform(texts))


def sent(ledger: Path) -> tuple[int, float]:
    """Return how many replies left the client of a ledger, and their megabytes."""
    lines = map(json.loads, ledger.read_text("utf-8").splitlines())
    sizes = [line["bytes"] for line in lines if line["what"] == "sent"]
    return len(sizes), sum(sizes) / 1e6


def measure(data: Path, work: Path, documents: str, method: str) -> Row:
    path = prepare(data, work, documents)[0]
    settings = {"name": method, "n_components": 20}
    row: dict[str, Any] = {}
    study = Study.make(method=settings, vocabulary=WORDS)
    parts = clients_of(path, 1), clients_of(path, len(NAMES))
    runs: list[Any] = [partial(train, study.here(clients), clients) for clients in parts]
    if method == "nmf":
        runs.append(partial(scikit_learn, path))
    turns = [[timeit(run, number=1) for run in runs] for _ in range(3)]
    row["seconds"] = np.median(turns, axis=0).tolist()
    corpora = clients_of(path, 3)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("plain", "secure"):
            out = Path(folder) / kind
            plan = study.model_copy(update={"aggregation": kind}).with_clients(corpora)
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
    one, five, peer = [*row["seconds"], np.nan][:3]
    return [*cells, f"{one:.1f}", f"{five / one:.2f}", f"{one / peer:.2f}".replace("nan", "-")]


def play(
    doc: str | None,
    measure: Callable[..., Row],
    facts: str,
    head: str,
    cells: Callable[[Row], list[str]],
) -> None:
    """Measure all methods with all sets of documents, and write a table with these facts."""
    given = arguments(doc, ".parquet, ".join(SETS) + ".parquet", sets=SETS, methods=METHODS)
    data = write_made_up(given.folder, ("m10",), 300) if given.quick else given.data
    work = given.folder / "work" if given.quick else WORK
    tasks = grid(documents=given.sets, method=given.methods)
    tasks = grid(documents=["m10"], method=["nmf"]) if given.quick else tasks
    rows = measured(given, tasks, lambda task: measure(data, work, **task))
    used = ", ".join(f"{name} {number}" for name, number in versions("fedtopics", "numpy").items())
    write(given, [facts.format(used), "", *table(head, map(cells, rows), left=2)])


def main() -> None:
    play(__doc__, measure, FACTS, HEAD, cells_of)
