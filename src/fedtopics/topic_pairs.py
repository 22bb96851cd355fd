"""From which cosine on two topics are the same: pairs that a person labels, and what follows.

F-LDA merges topics of different clients that are alike to a degree, the threshold. Here pairs of
topics that clients sent are drawn from a run, kept as a CSV file with what a person says of each,
and turned into a threshold. All of it is at the server, which has these topics anyway.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), before Algorithm 1, and
figure 6. The paper labels a random sample; almost all pairs of one are unlike, so ours has all
degrees of similarity, which does not bias a regression of labels given the cosine. Its threshold is
the cosine from where it sees the probability decline; ours is where that falls below one half.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedtopics.errors import DataError, RunError, StudyError
from fedtopics.gibbs import Topic
from fedtopics.methods.topic_lists import cosines

COLUMNS = ["first", "second", "cosine", "same"]
LABELS = {
    "": None,
    **dict.fromkeys(("1", "y", "yes", "true"), True),
    **dict.fromkeys(("0", "n", "no", "false"), False),
}
BINS = 10  # degrees of similarity that a sample has equally many pairs of
LEAST = 10  # labels that a threshold is found from
PENALTY = 1e4  # scikit-learn's C: as good as none, but a slope exists if a cosine parts the labels
PICTURES = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}  # what would differ


@dataclass(frozen=True)
class Pair:
    """Two topics of different clients, and what a person says of them.

    Parameters
    ----------
    first, second : str
        Their words, separated by spaces.
    cosine : float in [0, 1]
    same : bool or None
        None if nobody has said yet.
    """

    first: str
    second: str
    cosine: float
    same: bool | None = None


# Which pairs


def read_topics(run: str | Path) -> list[dict[str, list[Topic]]]:
    """Read what topics the clients sent, from the folder of a run of F-LDA.

    Parameters
    ----------
    run : path

    Returns
    -------
    list of mappings of client name to its topics
        A mapping a round.

    Raises
    ------
    RunError
        If it is not a run of F-LDA, or a file is damaged.

    Leaves the client
        Nothing: the server reads what it was sent.
    """
    files = sorted(Path(run).glob("topics-*.json"))
    if not files:
        raise RunError(
            f"There is no topics-*.json in {run}, so it is not the folder of a run of F-LDA whose "
            "clients have sent topics; name one that is."
        )
    return [_read_round(path) for path in files]


def _read_round(path: Path) -> dict[str, list[Topic]]:
    try:
        sent = json.loads(path.read_text("utf-8"))
        return {
            name: [
                {str(word): float(weight) for word, weight in topic.items()}
                for topic in reply["topics"]
                if topic
            ]
            for name, reply in sent.items()
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RunError(f"{path} is damaged; copy the folder of the run again.") from None


def sample_pairs(
    rounds: Sequence[Mapping[str, Sequence[Topic]]],
    n_pairs: int = 60,
    seed: int = 0,
    n_words: int = 10,
) -> list[Pair]:
    """Draw pairs of topics of different clients and the same round, of all degrees alike.

    Parameters
    ----------
    rounds : list of mappings of client name to its topics
    n_pairs : int
        Fewer are drawn if there are no more.
    seed : int
    n_words : int
        First words of a topic that a person sees; the cosine is that of all its words.

    Returns
    -------
    list of Pair
        In random order, without labels.

    Raises
    ------
    RunError
        If no two clients have topics in the same round.

    Leaves the client
        Nothing: the server draws from what it was sent.
    """
    blocks = [
        (sent[one], sent[other], cosines(sent[one], sent[other]))
        for sent in rounds
        for one, other in combinations(sorted(sent), 2)
    ]
    alike = np.concatenate([np.zeros(0), *(block.ravel() for *_, block in blocks)])
    if not len(alike):
        raise RunError(
            "In no round two clients have sent topics, and a pair is of two; take the run of a "
            "study with more clients, or with more documents."
        )
    starts = np.cumsum([0, *(block.size for *_, block in blocks)])
    pairs = []
    for number in spread(alike, n_pairs, seed).tolist():
        at = int(np.searchsorted(starts, number, side="right")) - 1
        rows, columns, block = blocks[at]
        row, column = divmod(number - int(starts[at]), block.shape[1])
        first, second = (" ".join([*topic][:n_words]) for topic in (rows[row], columns[column]))
        pairs.append(Pair(first, second, round(float(alike[number]), 6)))
    return pairs


def spread(values: NDArray[np.float64], n: int, seed: int) -> NDArray[np.int64]:
    """Draw equally many from each of ten equal parts of the values' range, as far as there are.

    Parameters
    ----------
    values : float array of shape (n_values,), not empty
    n : int
    seed : int

    Returns
    -------
    int array of shape (min(n, n_values),)
        Which are drawn, in random order.

    Examples
    --------
    >>> values = np.array([0.0] * 1000 + [0.5] * 2 + [1.0] * 1000)
    >>> sorted(values[spread(values, 8, seed=0)].tolist())
    [0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0]
    """
    rng = np.random.default_rng(seed)
    low, high = values.min(), values.max()
    width = max(high - low, 1e-300)  # all may be the same
    bins = np.minimum((values - low) / width * BINS, BINS - 1).astype(np.int64)
    order, turn = rng.permutation(len(values)), np.empty(len(values), np.int64)
    for number in range(BINS):
        members = order[bins[order] == number]
        turn[members] = np.arange(len(members))
    chosen = np.lexsort((-bins, turn))[:n]  # one of each bin in turn, the most alike first
    return rng.permutation(chosen)


# The file of pairs


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a CSV file of pairs, whoever labelled them.

    Parameters
    ----------
    path : path
        Labels are 1 or 0; yes, no, true, false and their first letters count as well.

    Raises
    ------
    DataError
        If it is not there, or not such a file.

    Leaves the client
        Nothing.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except FileNotFoundError:
        raise DataError(
            f"There is no file {path}; make it with: fedtopics flda sample-pairs RUN -o {path}"
        ) from None
    except (UnicodeDecodeError, csv.Error):
        header, rows = [], []
    if header != COLUMNS or not rows:
        raise DataError(
            f"{path} is not a table of pairs, CSV in UTF-8 with the columns {', '.join(COLUMNS)}; "
            "make one with: fedtopics flda sample-pairs"
        )
    return [_read_pair(row, f"Line {line} of {path}") for line, row in rows]


def _read_pair(row: Sequence[str], where: str) -> Pair:
    try:
        first, second, given, label = row
        cosine = float(given)
        if not 0 <= cosine <= 1:  # NaN neither
            raise ValueError
    except ValueError:
        raise DataError(
            f"{where} is not a pair with a cosine from 0 to 1; correct or delete it."
        ) from None
    if label.strip().lower() not in LABELS:
        raise DataError(
            f"{where} has the label {label!r}; write 1 for the same, 0 for not, or nothing."
        )
    return Pair(first, second, cosine, LABELS[label.strip().lower()])


def write_pairs(path: str | Path, pairs: Sequence[Pair]) -> None:
    """Write a CSV file of pairs, whole or not at all.

    Parameters
    ----------
    path : path
        What is there is replaced; see `check_free`.
    pairs : list of Pair

    Leaves the client
        Nothing.
    """
    path = Path(path)
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for pair in pairs:
                label = "" if pair.same is None else int(pair.same)
                writer.writerow([pair.first, pair.second, f"{pair.cosine:.6f}", label])
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def check_free(path: str | Path) -> None:
    """Refuse a file that holds a person's work, or is not of pairs.

    Parameters
    ----------
    path : path

    Raises
    ------
    DataError
        If there is a file, unless it is one of pairs without any label.
    """
    path = Path(path)
    if not path.exists():
        return
    try:
        labels = sum(pair.same is not None for pair in read_pairs(path))
    except (DataError, OSError):
        raise DataError(
            f"There is something else in {path} already; name a file that does not exist."
        ) from None
    if labels:
        raise DataError(
            f"{path} has {labels} labels already; go on with: fedtopics flda label {path}, or name "
            "another file."
        )


# The threshold


@dataclass(frozen=True)
class Curve:
    """How probable it is that two topics are the same, by their cosine.

    Parameters
    ----------
    intercept, slope : float
        Of the logarithm of the odds; the slope is positive.
    """

    intercept: float
    slope: float

    @property
    def threshold(self) -> float:
        """The cosine whose probability is one half."""
        return -self.intercept / self.slope

    def probability(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability at cosines, of their shape."""
        found: NDArray[np.float64] = expit(self.intercept + self.slope * values)
        return found


def fit_curve(pairs: Sequence[Pair]) -> Curve:
    """Learn from labels, by logistic regression, how probable it is that two topics are the same.

    Parameters
    ----------
    pairs : list of Pair
        Those without a label do not count.

    Returns
    -------
    Curve
        Its threshold is the paper's gamma: below it the probability is less than one half.

    Raises
    ------
    DataError
        If there are fewer than ten labels, all of them are alike, the probability does not rise
        with the cosine, or it is one half at no cosine that there can be.

    Leaves the client
        Nothing.
    """
    from sklearn.linear_model import LogisticRegression

    values, labels = _labelled(pairs)
    if len(labels) < LEAST:
        raise DataError(
            f"{len(labels)} of {len(pairs)} pairs have a label and a threshold needs {LEAST}; "
            "label more with: fedtopics flda label"
        )
    if labels.all() or not labels.any():
        what = "the same topic" if labels.all() else "different topics"
        raise DataError(
            f"All {len(labels)} labelled pairs are {what} and a threshold needs both kinds; label "
            "more with: fedtopics flda label"
        )
    found = LogisticRegression(C=PENALTY, tol=1e-8, max_iter=1000).fit(values[:, None], labels)
    curve = Curve(float(found.intercept_[0]), float(found.coef_[0, 0]))
    if curve.slope <= 0:
        raise DataError(
            "The labels do not say that topics of a higher cosine are rather the same, so there is "
            "no threshold; look whether yes and no were mixed up, or label more pairs."
        )
    if not 0 < curve.threshold <= 1:
        raise DataError(
            f"By the labels two topics are as likely the same as not at {curve.threshold:.2f}, "
            "which no cosine is; label more pairs, of a run with more topics."
        )
    return curve


def decided_alike(pairs: Sequence[Pair], threshold: float) -> int:
    """Count the labelled pairs that a threshold decides as the person did.

    Parameters
    ----------
    pairs : list of Pair
    threshold : float
        From this cosine on two topics are the same.

    Examples
    --------
    >>> pairs = [Pair("oak", "elm", 0.1, False), Pair("oak", "oak", 0.8, True), Pair("", "", 1.0)]
    >>> decided_alike(pairs, 0.5), decided_alike(pairs, 0.9)
    (2, 1)
    """
    values, labels = _labelled(pairs)
    return int(((values >= threshold) == labels).sum())


def _labelled(pairs: Sequence[Pair]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return cosines and labels of those that have one."""
    known = [(pair.cosine, pair.same) for pair in pairs if pair.same is not None]
    return np.array([value for value, _ in known]), np.array([label for _, label in known], bool)


def check_picture(path: str | Path) -> None:
    """Refuse a picture's name by which its format is not known.

    Raises
    ------
    StudyError
        If it ends in none of .png, .svg, .pdf.
    """
    if Path(path).suffix.lower() not in PICTURES:
        raise StudyError(
            f"{path} does not end in a format of pictures; name a file that ends in "
            f"{', '.join(PICTURES)}."
        )


def draw_curve(path: str | Path, pairs: Sequence[Pair], curve: Curve) -> None:
    """Draw the probability against the cosine, with the labelled pairs (the paper's figure 6).

    Parameters
    ----------
    path : path
        Ends in .png, .svg or .pdf.
    pairs : list of Pair
    curve : Curve
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    path = Path(path)
    values, labels = _labelled(pairs)
    line = np.linspace(0, 1, 501)
    with rc_context({"svg.hashsalt": "threshold", "font.size": 11}):
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(line, curve.probability(line), color="C0", label="probability")
        axes.axhline(0.5, color="0.7", linewidth=0.8, zorder=0)
        place = curve.threshold
        axes.axvline(place, color="C1", linestyle="--", label=f"threshold {place:.3f}")
        axes.plot(values, labels, "o", color="C2", alpha=0.5, label="labelled pairs")
        axes.set(
            xlabel="cosine of two topics",
            ylabel="probability of the same topic",
            xlim=(-0.02, 1.02),
        )
        axes.legend(loc="center right")
        meta: dict[str, Any] = {PICTURES[path.suffix.lower()]: None}
        figure.savefig(path, dpi=150, metadata=meta)
