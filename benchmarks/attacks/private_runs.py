"""Attacks on runs with privacy beside masked and plain ones: on the model, on all that leaves.

The attacks are those of `fedtopics audit`: see `fedtopics.federation.audit`. Each study is trained
several times, each time on half of the documents, at three clients. What has a row in
``results/private_attacks.jsonl`` is not done again.

    python benchmarks/attacks/private_runs.py --data FOLDER [--seeds 1] [--part 0/2] [--quick]
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fedtopics import Corpus, Study
from fedtopics.errors import StudyError
from fedtopics.federation.audit import FALSE, allowed, audit
from fedtopics.files import Row, RowFile
from fedtopics.privacy import Privacy
from quick import made_up_clients, parser_of, results_of

NOISE = "with privacy"
CLIENTS = "one", "two", "three"
SHADOWS = 8
LDA: dict[str, Any] = {"name": "lda", "learning": "batch", "max_rounds": 20, "coherence": "nothing"}
NOISY: dict[str, Any] = {"name": "lda", "max_rounds": 3}


class Case(NamedTuple):
    """A study of so many documents; half of them are in a training."""

    title: str
    run: str
    epsilon: float | None
    method: dict[str, Any]
    documents: int | None  # by default all of 20ng


EPSILONS = 8.0, 3.0, 1.0
CASES = [
    *(Case("LDA", NOISE, epsilon, NOISY | {"n_components": 3}, 8000) for epsilon in EPSILONS),
    *(Case("LDA", run, None, LDA | {"n_components": 20}, 1600) for run in ("plain", "masked")),
    *(
        Case("k-means", NOISE, epsilon, {"name": "kmeans", "n_components": 5}, None)
        for epsilon in EPSILONS
    ),
]
SMALL = LDA | {"n_components": 2, "max_rounds": 2}
WORDS = NOISY | {"n_components": 2, "words": [f"term{i}" for i in range(300)]}
QUICK = [
    Case("LDA", "masked", None, SMALL, 0), Case("LDA", NOISE, 100.0, WORDS, 0),
]  # fmt: skip
INTRODUCTION = f"""\
# Attacks on runs with privacy

What the attacks of `fedtopics audit` find by the model and by all that leaves. Each study is trained {SHADOWS} times at
three clients, each time on half of the documents, of 20ng. Of plain runs each client's replies are seen, of the others
totals. *model* is the likelihood of a document by the model alone; *model and others* holds it against trainings of
which it is known who was there; *transcript* likewise what left, with the model; *all but one known* is what left for
who knows all other documents and, with privacy, the noise of a third of the clients: no test is stronger. Canaries
are made-up documents of words that do not belong together. *epsilon allows* is the most that any attack finds (delta
1e-6). An AUC is right within about .015 for what left, .02 for canaries, .005 for models; what is found at 1 % false
ones within 2 or 3 percentage points. LDA of few documents is there to see that the attacks find something; with privacy LDA has one round of topics. Rows with
seeds and versions: `private_attacks.jsonl`. Command: `make bench-private-attacks DATA=folder`."""  # noqa: E501


@cache
def texts(data: Path, embedded: bool) -> Corpus:
    """Return the documents of 20ng, in an order that is drawn."""
    import pyarrow.parquet as pq

    from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings

    corpus = Corpus.of(pq.read_table(data / "corpora" / "20ng.parquet", columns=["text"]))
    if embedded:
        corpus = corpus.with_embeddings(document_embeddings(corpus, EmbeddingSettings()))
    return corpus.take(np.random.default_rng(0).permutation(len(corpus)))


def measured(case: Case, seed: int, data: Path | None) -> Row:
    """Attack a study; or say why there was none."""
    bound = {} if case.epsilon is None else {"privacy": {"epsilon": case.epsilon}}
    study = Study.make(seed=seed, method=case.method, secure=case.run != "plain", **bound)
    if data is None:
        corpus, shadows = Corpus.pool(made_up_clients(3, 60).values()), 4
    else:
        embedded, shadows = case.method["name"] == "kmeans", SHADOWS
        corpus = texts(data, embedded)
        corpus = corpus.take(range(case.documents or len(corpus)))
    try:
        found = audit(study.with_clients(CLIENTS), corpus, shadows)
    except StudyError as error:
        return {"refused": str(error)} | facts()
    return asdict(found) | {"shadows": shadows} | facts()


def facts() -> Row:
    """Return what a row says of how it came about."""
    names = "fedtopics", "numpy", "scipy"
    return {"versions": {n: version(n) for n in names}, "python": platform.python_version()}


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
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of corpora/20ng.parquet")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="0/2 and 1/2: of two processes")
    given = parser.parse_args()
    if given.data is None and not given.quick:
        parser.error("say where the Parquet files are: --data FOLDER")
    number, of = map(int, given.part.split("/"))
    chosen = QUICK if given.quick else CASES
    tasks = [(case, seed) for seed in range(given.seeds) for case in chosen]
    folder = results_of("private_attacks", given.quick)
    path = folder / "private_attacks.jsonl"
    RowFile(path).fill(
        tasks[number::of], lambda task: json.loads(json.dumps(named(*task))),
        lambda task: measured(*task, given.data), lambda task: named(*task)["name"],
        lambda event: print(event["name"], flush=True),
    )  # fmt: skip
    rows = RowFile(path)
    found = [row for task in tasks if (row := rows.find(json.loads(json.dumps(named(*task)))))]
    text = "\n".join([INTRODUCTION, *tables(found), ""])
    (folder / "private_attacks.md").write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
