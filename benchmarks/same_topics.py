"""From which cosine two models' topics are of one label: the default of `fedtopics models compare`.

Two models of disjoint documents share a third of the labels. A topic is of a label if it has more
than half of the topic's weight; two topics are the same if they are of the same label.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import common
from fedtopics import Corpus, TopicEstimator
from fedtopics.metrics import cosines
from fedtopics.model.comparison import word_weights

SETS = ("20ng", "m10", "agnews", "stackoverflow")
METHODS = ("nmf", "lda")
MOST = 6000  # documents of a set
THRESHOLDS = np.arange(0.2, 0.9, 0.05)


def measure(given: Any, task: dict[str, Any]) -> dict[str, list[float]]:
    """Return cosines of pairs of topics that are the same, and of those that are not."""
    texts, labels = read(None if given.quick else given.data, task["data"])
    rng = np.random.default_rng(task["seed"])
    names = rng.permutation(np.unique(labels))
    third = max(len(names) // 3, 1)
    first = rng.random(len(labels)) < 0.5
    sides = (first & np.isin(labels, names[: 2 * third]), ~first & np.isin(labels, names[third:]))
    (a, of_a), (b, of_b) = (topics(task, texts[side], labels[side]) for side in sides)
    alike = cosines(word_weights(a), word_weights(b))
    pairs = [
        (alike[i, j], x == y) for i, x in enumerate(of_a) for j, y in enumerate(of_b) if x and y
    ]
    return {
        key: [round(float(cosine), 4) for cosine, same in pairs if same == wanted]
        for key, wanted in (("same", True), ("others", False))
    }


def read(data: Path | None, name: str) -> Any:
    if data is None:
        clients = common.made_up_clients(6)
        texts = [" ".join(words) for c in clients.values() for words in c.documents.to_pylist()]
        return np.array(texts), np.repeat([*clients], len(texts) // len(clients))
    table = pq.read_table(common.parquet(data, name)).to_pydict()
    chosen = np.sort(np.random.default_rng(0).permutation(len(table["text"]))[:MOST])
    return np.array(table["text"], object)[chosen], np.array(table["label"], str)[chosen]


def topics(task: dict[str, Any], texts: Any, labels: Any) -> Any:
    """Return a model, and of each topic the label that has most of it, or nothing."""
    names, numbers = np.unique(labels, return_inverse=True)
    fitted = TopicEstimator(max(len(names), 2), method=task["method"], random_state=task["seed"])
    share = np.eye(len(names))[numbers].T @ fitted.fit(Corpus.of(texts.tolist())).transform(texts)
    share /= share.sum(0)
    return fitted.model_, [
        names[top] if of > 0.5 else ""
        for top, of in zip(share.argmax(0), share.max(0), strict=True)
    ]


def main() -> None:
    given = common.arguments(__doc__, ", ".join(SETS), seeds=2)
    sets, seeds = (SETS[:1], 1) if given.quick else (SETS, given.seeds)
    tasks = common.grid(data=sets, method=METHODS, seed=range(seeds))
    rows = common.measured(given, tasks, lambda task: measure(given, task))
    lines = []
    for threshold in THRESHOLDS:
        cells = []
        for name in (*sets, ""):
            these = [row for row in rows if name in ("", row["data"])]
            same, others = ([c for row in these for c in row[key]] for key in ("same", "others"))
            hits, false = (sum(c >= threshold for c in of) for of in (same, others))
            cells.append(f"{2 * hits / max(hits + false + len(same), 1):.2f}")
        lines.append((f"{threshold:.2f}", *cells))
    head = f"F1 of pairs from a cosine of | {' | '.join(sets)} | all"
    command = "Command: `make bench NAME=same-topics DATA=folder`."
    common.write(
        given,
        [(__doc__ or "").split("\n\n", 1)[1].strip(), "", command, "", *common.table(head, lines)],
    )
