"""The threshold of F-LDA, from pairs of topics that a person has labelled as same or different.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), before Algorithm 1, and figure 6. The
paper labels a random sample, in which almost all pairs differ. Our sample has all degrees of
similarity, which does not bias a regression of labels on the cosine. The paper's threshold is read
off where the probability declines; ours is where the probability falls below one half.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedtopics.errors import DataError, RunError, refuse
from fedtopics.escaping import csv_table
from fedtopics.files import check_output, read_text, write_durably
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic
from fedtopics.model.figures import Panel, chart
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.text.readers import read_table

COLUMNS = ["first", "second", "cosine", "same"]
LABELS = {
    "": None,
    **dict.fromkeys(("1", "y", "yes", "true"), True),
    **dict.fromkeys(("0", "n", "no", "false"), False),
}
DEGREES = 10  # degrees of similarity with equally many pairs in a sample
FEWEST_LABELS = 10
PENALTY = 1e4  # scikit-learn's C: a weak penalty; without it, separable labels have no slope


@dataclass(frozen=True)
class TopicPair:
    first: str
    second: str
    cosine: float
    same: bool | None = None


def read_topics(run: str | Path) -> list[dict[str, list[Topic]]]:
    """Read the topics that clients sent from the folder of an F-LDA run, one mapping per round."""
    files = sorted(Path(run).glob("topics-*.json"))
    if not files:
        raise RunError(
            f"There is no topics-*.json in {run}, so it is not the folder of a run of F-LDA with "
            "topics from clients; give the folder of such a run."
        )
    return [_read_round(path) for path in files]


class SentTopics(msgspec.Struct):
    topics: list[dict[str, float]]


def _read_round(path: Path) -> dict[str, list[Topic]]:
    try:
        sent = msgspec.json.decode(read_text(path), type=dict[str, SentTopics])
    except ValueError:  # also msgspec's errors
        raise RunError(f"{path} is damaged; copy the folder of the run again.") from None
    return {name: [topic for topic in reply.topics if topic] for name, reply in sent.items()}


def sample_pairs(
    rounds: Sequence[Mapping[str, Sequence[Topic]]],
    n_pairs: int = 60,
    seed: int = 0,
    n_words: int = WORDS_SHOWN,
) -> list[TopicPair]:
    """Sample pairs of topics from two clients in the same round, with all degrees of similarity."""
    pairs = [
        (first, second, float(cosine))
        for sent in rounds
        for one, other in combinations(sorted(sent), 2)
        for first, row in zip(sent[one], cosines(sent[one], sent[other]), strict=True)
        for second, cosine in zip(sent[other], row, strict=True)
    ]
    if not pairs:
        raise RunError(
            "There are no pairs, because in no round did two clients send topics; use the run of a "
            "study with more clients, or with more documents."
        )
    drawn = sample_evenly(np.array([cosine for *_, cosine in pairs]), n_pairs, seed)
    return [
        TopicPair(" ".join([*first][:n_words]), " ".join([*second][:n_words]), round(cosine, 6))
        for first, second, cosine in (pairs[number] for number in drawn)
    ]


def sample_evenly(values: NDArray[np.float64], n: int, seed: int) -> NDArray[np.int64]:
    """Sample equally many from each tenth of the values' range, if possible; return positions."""
    rng = np.random.default_rng(seed)
    low = values.min()
    width = max(values.max() - low, 1e-300)  # all values may be the same
    bins = np.minimum((values - low) / width * DEGREES, DEGREES - 1).astype(np.int64)
    order = rng.permutation(len(values))
    turn = np.empty(len(values), np.int64)
    for number in range(DEGREES):
        members = order[bins[order] == number]
        turn[members] = np.arange(len(members))
    # One from each bin in turn, the most similar first
    return rng.permutation(np.lexsort((-bins, turn))[:n])


def read_pairs(path: str | Path) -> list[TopicPair]:
    """Read a CSV file of pairs; labels are 1 and 0, or yes, no, true, false or a first letter."""
    path = Path(path)
    if not path.exists():
        raise DataError(
            f"There is no file {path}; make it with: fedtopics flda sample-pairs RUN -o {path}"
        )
    table = read_table(path, ".csv")
    if [*table.names] != COLUMNS or not table.n_rows:
        raise DataError(
            f"{path} is not a table of pairs, CSV in UTF-8 with the columns {', '.join(COLUMNS)}; "
            "make one with: fedtopics flda sample-pairs"
        )
    columns = [table.column(name).names().to_pylist() for name in COLUMNS]
    return [
        _read_pair(row, f"Row {number} of {path}")
        for number, row in enumerate(zip(*columns, strict=True), 1)
    ]


def _read_pair(row: Sequence[str], where: str) -> TopicPair:
    try:
        first, second, number, label = row
        cosine = float(number.replace(",", "."))  # as Excel writes it in Europe
        if not 0 <= cosine <= 1:  # excludes NaN
            raise ValueError
    except ValueError:
        raise DataError(
            f"{where} is not a pair with a cosine from 0 to 1; correct or delete it."
        ) from None
    if label.strip().lower() not in LABELS:
        raise DataError(
            f"{where} has an unknown label; write 1 for the same, 0 for different, or nothing."
        )
    return TopicPair(first, second, cosine, LABELS[label.strip().lower()])


def write_pairs(path: str | Path, pairs: Sequence[TopicPair]) -> None:
    rows = [
        (pair.first, pair.second, f"{pair.cosine:.6f}", "" if pair.same is None else int(pair.same))
        for pair in pairs
    ]
    write_durably(Path(path), csv_table([COLUMNS, *rows]).encode("utf-8-sig"))


def check_free(path: str | Path) -> None:
    """Raise InputError if a file exists that has labels, or that does not contain pairs."""
    check_output(path, [".csv"], names=COLUMNS)
    drawn = read_pairs(path) if Path(path).exists() else []
    if labels := sum(pair.same is not None for pair in drawn):
        raise DataError(
            f"{path} already contains {labels} labels, which would be lost; give another file name."
        )


@dataclass(frozen=True)
class Curve:
    """The log odds that two topics with a cosine are the same: intercept + slope * cosine."""

    intercept: float
    slope: float

    @property
    def threshold(self) -> float:
        """The cosine at which two topics are the same with a probability of one half."""
        return -self.intercept / self.slope

    def probability(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(expit(self.intercept + self.slope * values))


def fit_curve(pairs: Sequence[TopicPair]) -> Curve:
    """Fit the probability that two topics are the same to their cosine (logistic regression)."""
    from sklearn.linear_model import LogisticRegression

    values, labels = _labelled(pairs)
    what = "the same topic" if labels.all() else "different topics"
    refuse(
        {
            f"{len(labels)} of {len(pairs)} pairs have a label, but a threshold needs "
            f"{FEWEST_LABELS}; write 1 or 0 into the column same of more pairs.": (
                len(labels) < FEWEST_LABELS
            ),
            f"All {len(labels)} labelled pairs are {what}, but a threshold needs both kinds; label "
            "more pairs.": len(np.unique(labels)) < 2,
        },
        error=DataError,
    )
    fitted = LogisticRegression(C=PENALTY, tol=1e-8, max_iter=1000).fit(values[:, None], labels)
    curve = Curve(float(fitted.intercept_[0]), float(fitted.coef_[0, 0]))
    if curve.slope <= 0:
        raise DataError(
            "The labels do not show that topics with a higher cosine are more often the same, so "
            "there is no threshold; check whether yes and no were swapped, or label more pairs."
        )
    if not 0 < curve.threshold <= 1:
        raise DataError(
            "According to the labels, the threshold would be a cosine of "
            f"{curve.threshold:.2f}, which is impossible; label more pairs, from a run with more "
            "topics."
        )
    return curve


def decided_alike(pairs: Sequence[TopicPair], threshold: float) -> int:
    """Count the labelled pairs that a threshold classifies as the person did."""
    values, labels = _labelled(pairs)
    return int(((values >= threshold) == labels).sum())


def _labelled(pairs: Sequence[TopicPair]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    labelled = [pair for pair in pairs if pair.same is not None]
    return np.array([pair.cosine for pair in labelled]), np.array([p.same for p in labelled], bool)


def draw_curve(pairs: Sequence[TopicPair], curve: Curve) -> str:
    """Draw, as SVG, the probability by cosine with the labelled pairs (the paper's figure 6)."""
    values = np.linspace(0, 1, 201)
    measured, labels = _labelled(pairs)
    panel = Panel(
        title="probability of the same topic",
        across="cosine of two topics",
        line=[*zip(values.tolist(), curve.probability(values).tolist(), strict=True)],
        dots=[*zip(measured.tolist(), labels.astype(float).tolist(), strict=True)],
        mark=(curve.threshold, f"from a cosine of {curve.threshold:.3f}"),
    )
    return chart([panel])
