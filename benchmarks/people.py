"""Scores of topics compared with people: does a score order topics as people's answers do?

About five people read the exemplars of each of 24 topics, then judged seven documents, which have
from nearly all to nearly nothing of the topic: how well each fits it, and which fit better. For a
topic, people agree with its model as far as Kendall's tau of their answers and the model's shares
goes. A score is better, the more it orders topics like that.

References
----------
Hoyle, Calvo-Bartolomé, Resnik and Boyd-Graber, ProxAnn: Use-Oriented Evaluations of Topic Models
and Document Clustering, ACL 2025. Data: github.com/ahoho/proxann (MIT).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks import common
from fedtopics import Corpus
from fedtopics.inference.vectors import unit_rows
from fedtopics.model.nearness import (
    LEVELS,
    centres_of,
    in_centres,
    level_sums,
    levels_of,
    nearness_scores,
)
from fedtopics.model.spread import DRAWS, bootstrap_interval
from fedtopics.text.embeddings import PACKAGED, EmbeddingSettings, document_embeddings

FILES = "topics.parquet and documents.parquet of judged topics"
TARGETS = ("fit", "rank")
CITED = {  # tau with fit and rank, published for these topics or computed from the authors' files
    "NPMI": ".04 [-.27, .35] | .06 [-.25, .41]",
    "c_v": ".12 [-.21, .42] | .07 [-.26, .39]",
    "Qwen3-8B, as published": ".39 | .34",
    "another person, as published": ".10 | .18",
}
Numbers = NDArray[np.float64]
Topic = dict[str, Any]


def tau(one: Any, other: Any) -> float:
    return float(kendalltau(one, other)[0])


def read(folder: Path) -> tuple[list[Topic], list[Topic]]:
    """Return topics, and their documents with embeddings less the mean of all."""
    topics = pq.read_table(folder / "topics.parquet").to_pylist()
    documents = pq.read_table(folder / "documents.parquet").to_pylist()
    texts = [row["document"] for row in documents]
    texts += [text for topic in topics for text in topic["exemplars"]]
    vectors = document_embeddings(Corpus.of(texts), EmbeddingSettings())
    points = unit_rows(vectors - vectors.mean(0, dtype=np.float64))
    for row, point in zip(documents, points, strict=False):
        row["point"] = point
    ends = np.cumsum([len(documents), *(len(topic["exemplars"]) for topic in topics)])
    for topic, rows in zip(topics, np.split(points, ends)[1:], strict=False):
        topic["points"] = rows
    return topics, documents


def people(answers: list[list[float | None]], theta: Numbers, sign: int) -> float:
    """Return the mean tau of people's answers and shares, without people who see no difference."""
    by_person = sign * np.array(answers, np.float64).T
    taus = [tau(theta, answer) for answer in by_person if np.ptp(answer) > 0]
    return float(np.nanmean(taus)) if taus else np.nan


def gap(theta: Numbers, near: Numbers, is_apart: bool = False) -> float:
    """Return the package's score of a topic; `is_apart` puts each of 7 documents in a level."""
    shares = theta[:, None]
    levels = np.eye(LEVELS, dtype=bool)[:, :, None] if is_apart else levels_of(shares)
    return float(nearness_scores(level_sums(levels, shares, near[:, None]), np.ones((1, 1)))[0])


def near_to_others(
    theta: Numbers, points: Numbers, weigh: Callable[[Numbers], Numbers], n: int
) -> Numbers:
    """Return the nearness of the first n documents to the centre of all others."""
    weights = weigh(theta[:, None])
    total = weights.T @ points
    centres = [centres_of(total - np.outer(weights[row], points[row]))[0] for row in range(n)]
    return np.asarray(np.einsum("nd,nd->n", points[:n], np.array(centres)))


def scored(topic: Topic, judged: list[Topic]) -> dict[str, float]:
    """Return people's agreement with a topic, and its scores."""
    theta = np.array([row["theta"] for row in judged])
    points = np.array([row["point"] for row in judged])
    every = np.concatenate([points, topic["points"]])
    shares = np.concatenate([theta, topic["exemplar_theta"]])
    exemplars = points @ unit_rows(topic["points"].mean(0))
    by_sums = near_to_others(shares, every, in_centres, len(theta))
    # Both possible centres are the same: all documents count, by their shares.
    of_all = near_to_others(shares, every, lambda theta: np.hstack([theta] * 2), len(theta))
    return {
        "fit": people([row["fits"] for row in judged], theta, 1),
        "rank": people([row["ranks"] for row in judged], theta, -1),
        "nearness as the package computes it, from sums": gap(theta, by_sums),
        "the same, one document a level": gap(theta, by_sums, is_apart=True),
        "from sums of all documents, one a level": gap(theta, of_all, is_apart=True),
        "from seven exemplars, one document a level": gap(theta, exemplars, is_apart=True),
        "tau of share and nearness to exemplars": tau(theta, exemplars),
        "spread of shares (a control)": float(np.std(theta)),
    }


def tables(rows: list[dict[str, float]]) -> Iterator[str]:
    """Yield the table of taus, with 95 % intervals over topics."""
    yield (
        f"Kendall's tau of scores with people's agreement, over {len(rows)} topics; 95 % "
        f"bootstrap intervals over topics ({DRAWS:,} draws, seed 0). Embeddings: {PACKAGED}. "
        "Documents: less the mean of all; each is left out of sums for its topic's centre. NPMI "
        "and later rows are cited, from the authors' figures. Command: "
        "`make bench NAME=people DATA=folder`. Versions: "
        f"{common.versions('fedtopics', 'numpy', 'scipy', 'sentence-transformers')}."
    )
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    lines = [
        [name, *(compared(columns[name], columns[target]) for target in TARGETS)]
        for name in columns
        if name not in TARGETS
    ]
    cited = [[name, *map(str.strip, cells.split("|"))] for name, cells in CITED.items()]
    yield from ("", *common.table("score | fit | rank", [*lines, *cited]))


def compared(score: Numbers, answers: Numbers) -> str:
    """Return tau with its interval."""
    used = np.isfinite(score) & np.isfinite(answers)
    one = score[used]
    other = answers[used]
    interval = bootstrap_interval(lambda rows: tau(one[rows], other[rows]), len(one))
    ends = ", ".join(f"{end:.2f}" for end in interval or ())
    return f"{tau(one, other):.2f} [{ends}]".replace("0.", ".")


def made_up(folder: Path) -> Path:
    """Write six topics of synthetic texts, which two invented people judged."""
    rng = np.random.default_rng(0)
    words = [f"{name}{i}" for name in ("oak", "ship", "bread") for i in range(20)]
    topics: list[Topic] = []
    documents: list[Topic] = []
    for k in range(6):

        def text(share: float, first: int = k % 3 * 20) -> str:
            inside = rng.random(30) < share
            drawn = np.where(inside, first + rng.integers(20, size=30), rng.integers(60, size=30))
            return " ".join(words[i] for i in drawn)

        topics.append({"topic": f"t{k}", "exemplars": [text(1) for _ in range(7)]})
        topics[-1]["exemplar_theta"] = [0.99] * 7
        for share in np.linspace(0.99 - k / 9, 0.01, 7):
            noisy = share + rng.normal(size=2) / 3
            documents.append({"topic": f"t{k}", "document": text(share), "theta": share})
            documents[-1] |= {"fits": noisy.tolist(), "ranks": (-noisy).tolist()}
    pq.write_table(pa.Table.from_pylist(topics), folder / "topics.parquet")
    pq.write_table(pa.Table.from_pylist(documents), folder / "documents.parquet")
    return folder


def main() -> None:
    given = common.arguments(__doc__, FILES)
    topics, documents = read(made_up(given.folder) if given.quick else given.data)
    rows = [
        scored(topic, [row for row in documents if row["topic"] == topic["topic"]])
        for topic in topics
    ]
    common.write(given, tables(rows))
