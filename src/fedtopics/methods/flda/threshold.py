"""From which cosine on two topics are the same, by what a person says of pairs of them.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), before Algorithm 1, and figure 6. Its
threshold is the cosine from where it sees the probability decline; ours is where that falls below
one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedtopics.errors import DataError, StudyError
from fedtopics.methods.flda.labelled_pairs import Pair
from fedtopics.model import figures

LEAST = 10  # labels that a threshold is found from
PICTURES = (".png", ".svg", ".pdf")
PENALTY = 1e4  # scikit-learn's C: as good as none, but a slope exists if a cosine parts the labels


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
    """Refuse a picture whose name has another ending, or that cannot be drawn here.

    Raises
    ------
    StudyError
        If it ends in none of .png, .svg, .pdf.
    FedTopicsError
        If what figures need is not installed.
    """
    if Path(path).suffix.lower() not in PICTURES:
        raise StudyError(
            f"{path} does not end in a format of pictures; name a file that ends in "
            f"{', '.join(PICTURES)}."
        )
    figures.require_altair()


def draw_curve(path: str | Path, pairs: Sequence[Pair], curve: Curve) -> None:
    """Draw the probability against the cosine, with the labelled pairs (the paper's figure 6).

    Parameters
    ----------
    path : path
        Ends in .png, .svg or .pdf.
    pairs : list of Pair
    curve : Curve
    """
    line = np.linspace(0, 1, 201)
    chart = figures.probability_of_same(
        _points(line, curve.probability(line)), _points(*_labelled(pairs)), curve.threshold
    )
    kind = Path(path).suffix[1:].lower()
    options: dict[str, Any] = {"format": kind} | ({"scale_factor": 2} if kind == "png" else {})
    chart.save(str(path), **options)


def _points(values: NDArray[np.float64], probabilities: NDArray[Any]) -> list[dict[str, float]]:
    return [
        {"cosine": float(value), "probability": float(probability)}
        for value, probability in zip(values, probabilities, strict=True)
    ]
