"""The cosine from which two topics are the same, estimated from a person's labels of pairs.

References
----------
The F-LDA paper (federated topic modelling with guided LDA), before Algorithm 1, and figure 6. Its
threshold is read off where the probability declines; ours is where it falls below one half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedtopics.errors import DataError
from fedtopics.methods.flda.labelled_pairs import TopicPair
from fedtopics.model.figures import Panel, chart

FEWEST_LABELS = 10
PENALTY = 1e4  # scikit-learn's C: as good as none, but a slope exists if a cosine parts the labels


@dataclass(frozen=True)
class Curve:
    """The log odds that two topics of a cosine are the same: intercept + slope * cosine."""

    intercept: float
    slope: float

    @property
    def threshold(self) -> float:
        """The cosine whose probability is one half."""
        return -self.intercept / self.slope

    def probability(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability at cosines, of their shape."""
        return np.asarray(expit(self.intercept + self.slope * values))


def fit_curve(pairs: Sequence[TopicPair]) -> Curve:
    """Fit by logistic regression how probable it is that two topics are the same, by their cosine.

    The threshold of the curve is the paper's gamma. Pairs without a label do not count. Raise
    DataError if there are fewer than ten labels, all of them are alike, the probability does not
    rise with the cosine, or it is one half at no cosine from 0 to 1.
    """
    from sklearn.linear_model import LogisticRegression

    values, labels = _labelled(pairs)
    if len(labels) < FEWEST_LABELS:
        raise DataError(
            f"{len(labels)} of {len(pairs)} pairs have a label and a threshold needs "
            f"{FEWEST_LABELS}; label more with: fedtopics flda label"
        )
    if labels.all() or not labels.any():
        what = "the same topic" if labels.all() else "different topics"
        raise DataError(
            f"All {len(labels)} labelled pairs are {what} and a threshold needs both kinds; label "
            "more with: fedtopics flda label"
        )
    fitted = LogisticRegression(C=PENALTY, tol=1e-8, max_iter=1000).fit(values[:, None], labels)
    curve = Curve(float(fitted.intercept_[0]), float(fitted.coef_[0, 0]))
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


def decided_alike(pairs: Sequence[TopicPair], threshold: float) -> int:
    """Count the labelled pairs that a threshold decides as the person did.

    Examples
    --------
    >>> pairs = [TopicPair("oak", "elm", 0.1, False), TopicPair("oak", "oak", 0.8, True)]
    >>> decided_alike(pairs, 0.5), decided_alike(pairs, 0.9)
    (2, 1)
    """
    values, labels = _labelled(pairs)
    return int(((values >= threshold) == labels).sum())


def _labelled(pairs: Sequence[TopicPair]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the cosines and labels of the pairs that have a label."""
    labelled = [pair for pair in pairs if pair.same is not None]
    return np.array([pair.cosine for pair in labelled]), np.array([p.same for p in labelled], bool)


def draw_curve(pairs: Sequence[TopicPair], curve: Curve) -> str:
    """Draw the probability against the cosine, with the labelled pairs (the paper's figure 6).

    Returned is the text of an SVG file.
    """
    values = np.linspace(0, 1, 201)
    line = [*zip(values.tolist(), curve.probability(values).tolist(), strict=True)]
    cosines, labels = _labelled(pairs)
    dots = [*zip(cosines.tolist(), labels.astype(float).tolist(), strict=True)]
    mark = curve.threshold, f"from a cosine of {curve.threshold:.3f}"
    title = "probability of the same topic"
    return chart([Panel(title, "cosine of two topics", line, dots=dots, mark=mark)])
