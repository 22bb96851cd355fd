"""Attacks on private runs beside masked and plain ones: on the model, and on all that leaves.

The attacks are those of `fedtopics audit`: see `fedtopics.federation.audit`. Each study is trained
several times, each time on half of the documents, at three clients.

"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import arguments, made_up_clients, measured, parquet, versions, write
from fedtopics import Corpus, Study
from fedtopics.errors import StudyError
from fedtopics.federation.audit import FALSE, allowed, audit
from fedtopics.files import Row
from fedtopics.privacy import Privacy

CLIENTS = "one", "two", "three"
SHADOWS = 8
LDA: dict[str, Any] = {"name": "lda", "learning": "batch", "max_rounds": 20, "coherence": "nothing"}
PRIVATE: dict[str, Any] = {"name": "private", "mode": "words"}


class Case(NamedTuple):
    """A study of so many documents; half of them are in a training."""

    title: str
    run: str
    epsilon: float | None
    method: dict[str, Any]
    documents: int | None  # by default all of 20ng


BY_WORDS = "by words", PRIVATE | {"n_components": 3}, 8000
BY_EMBEDDINGS = (
    "by embeddings", PRIVATE | {"mode": "embeddings", "n_components": 5}, None,
)  # fmt: skip
EPSILONS = 8.0, 3.0, 1.0
CASES = [
    *(Case(BY_WORDS[0], "private", epsilon, *BY_WORDS[1:]) for epsilon in EPSILONS),
    *(Case("LDA", run, None, LDA | {"n_components": 20}, 1600) for run in ("plain", "masked")),
    *(Case(BY_WORDS[0], run, None, *BY_WORDS[1:]) for run in ("masked", "plain")),
    *(Case(BY_EMBEDDINGS[0], "private", epsilon, *BY_EMBEDDINGS[1:]) for epsilon in EPSILONS),
]
SMALL = LDA | {"n_components": 2, "max_rounds": 2}
WORDS = PRIVATE | {"n_components": 2, "words": [f"term{i}" for i in range(300)]}
QUICK = [
    Case("LDA", "masked", None, SMALL, 0), Case("by words", "private", 100.0, WORDS, 0),
]  # fmt: skip
INTRODUCTION = f"""\
# Attacks on private runs

What the attacks of `fedtopics audit` find by the model and by all that leaves. Each study is trained {SHADOWS} times at
three clients, each time on half of the documents, of 20ng. Of plain runs each client's replies are seen, of the others
totals. *model* is the likelihood of a document by the model alone; *model and others* holds it against trainings of
which it is known who was there; *transcript* likewise what left, with the model; *all but one known* is what left for
who knows all other documents and, of a private run, the noise of a third of the clients: no test is stronger. Canaries
are made-up documents of words that do not belong together. *epsilon allows* is the most that any attack finds (delta
1e-6). An AUC is right within about .015 for what left, .02 for canaries, .005 for models; what is found at 1 % false
ones within 2 or 3 percentage points. LDA of few documents is there to see that the attacks find something. Rows with
seeds and versions: `private_attacks.jsonl`. Command: `make bench NAME=private-attacks DATA=folder`."""  # noqa: E501


@cache
def texts(data: Path, embedded: bool) -> Corpus:
    """Return the documents of 20ng, in an order that is drawn."""
    import pyarrow.parquet as pq

    from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings

    corpus = Corpus.of(pq.read_table(parquet(data, "20ng"), columns=["text"]))
    if embedded:
        corpus = corpus.with_embeddings(document_embeddings(corpus, EmbeddingSettings()))
    return corpus.take(np.random.default_rng(0).permutation(len(corpus)))


def attacked(case: Case, seed: int, data: Path | None) -> Row:
    """Attack a study; or say why there was none."""
    bound = {} if case.epsilon is None else {"privacy": {"epsilon": case.epsilon}}
    study = Study.make(seed=seed, method=case.method, secure=case.run != "plain", **bound)
    if data is None:
        corpus, shadows = Corpus.pool(made_up_clients(3, 60).values()), 4
    else:
        embedded, shadows = case.method.get("mode") == "embeddings", SHADOWS
        corpus = texts(data, embedded)
        corpus = corpus.take(range(case.documents or len(corpus)))
    try:
        found = audit(study.with_clients(CLIENTS), corpus, shadows)
    except StudyError as error:
        return {"refused": str(error)} | facts()
    return asdict(found) | {"shadows": shadows} | facts()


def facts() -> Row:
    """Return what a row says of how it came about."""
    return {"versions": versions("fedtopics", "numpy", "scipy", "dp-accounting")}


ATTACKS = "model", "model and others", "transcript", "all but one known"


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of a table for each kind of documents: means over seeds, and what is read."""
    refused = sorted({row["name"] for row in rows if "refused" in row})
    rows = [row for row in rows if "members" in row]
    for kind, title in (("", "Documents of 20ng"), (", canaries", "Canaries")):
        columns = [name for name in ATTACKS if f"{name}{kind}" in rows[0]["members"]]
        yield f"\n**{title}:** AUC; found, % at {FALSE:.0%} false ones\n"
        yield f"| study | {' | '.join([*columns, 'epsilon allows'])} |"
        yield f"| --- |{' ---: |' * (len(columns) + 1)}"
        for name, same in by_study(rows):
            found = [[row["members"][f"{column}{kind}"] for row in same] for column in columns]
            cells = [shown(mean(each, "auc"), mean(each, "found")) for each in found]
            epsilon = same[0]["epsilon"]
            most = allowed(Privacy(epsilon=epsilon)) if epsilon else None
            cells.append("all" if most is None else shown(most.auc, most.found))
            yield f"| {name} | {' | '.join(cells)} |"
    yield "\n**Words of documents, where all others are known, among as many as each has**\n"
    yield "| study | right, % | by guessing, % | documents wholly |\n| --- | ---: | ---: | ---: |"
    for name, same in by_study(rows):
        read = [row["read"] for row in same]
        shares = [f"{100 * mean(read, which):.1f}" for which in ("recall", "guessing")]
        wholly, documents = (sum(each[which] for each in read) for which in ("wholly", "documents"))
        yield f"| {name} | {' | '.join(shares)} | {wholly:,} of {documents:,} |"
    if refused:
        yield f"\nRefused, as noise hides too much: {'; '.join(refused)}."


def by_study(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield each study's name and its rows, one a seed."""
    names = {row["name"]: [each for each in rows if each["name"] == row["name"]] for row in rows}
    yield from names.items()


def mean(found: list[Row], name: str) -> float:
    return float(np.mean([each[name] for each in found]))


def shown(auc: float, found: float) -> str:
    return f"{auc:.3f}; {100 * found:.1f}"


def named(case: Case, seed: int) -> Row:
    """Return what a row is searched by."""
    documents = f", {case.documents:,} documents" if case.documents else ""
    bound = "" if case.epsilon is None else f", epsilon {case.epsilon:g}"
    name = f"{case.title}{documents}: {case.run}{bound}"
    return {"name": name, "seed": seed, "epsilon": case.epsilon, "method": case.method}


def main() -> None:
    given = arguments(__doc__, "20ng.parquet", seeds=1)
    seeds, chosen = range(given.seeds), QUICK if given.quick else CASES
    cases = {(named(case, seed)["name"], seed): (case, seed) for seed in seeds for case in chosen}
    tasks = [named(case, seed) for case, seed in cases.values()]
    rows = measured(
        given, tasks, lambda task: attacked(*cases[task["name"], task["seed"]], given.data)
    )
    write(given, [INTRODUCTION, *tables(rows)])
