"""Comparison of two models: which topics match, which are new, which are gone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri

from fedtopics.errors import StudyError
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic
from fedtopics.model.effects import LEVEL
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.spread import margin
from fedtopics.model.topic_model import TopicModel

SAME_TOPIC = 0.6  # cosine; decides best on four labelled corpora: make bench NAME=same-topics


@dataclass(frozen=True)
class Pair:
    """A topic of model A and the matching topic of model B."""

    a: int
    b: int
    similarity: float
    """Cosine of their distributions over the words of both models."""
    share_a: float
    share_b: float
    share_margin: float
    """Most that chance explains of `share_b - share_a`: see `compare`."""
    common: list[str]
    """First words that both topics have."""
    new: list[str]
    """First words that only B's topic has."""
    removed: list[str]
    """First words that only A's topic has."""


@dataclass(frozen=True)
class Single:
    """A topic without a match in the other model, and its share of all documents."""

    topic: int
    share: float
    words: list[str]


@dataclass(frozen=True)
class Comparison:
    """The topics and words that two models, A and B, have in common."""

    threshold: float
    """Cosine from which two topics match."""
    similarity: float
    """Mean similarity of the pairs; 0 if there are none."""
    coherence: float | None
    """Mean over pairs of the NPMI in B's training minus that in A's; None if not measured."""
    coherence_margin: float | None
    """Half of its 95 % interval; None with fewer than two pairs."""
    pairs: list[Pair]
    """Sorted by share in B, largest first."""
    new: list[Single]
    """Topics that only B has, largest first."""
    removed: list[Single]
    """Topics that only A has."""
    words_common: int
    words_new: int
    words_removed: int


def compare(
    a: TopicModel, b: TopicModel, n_words: int = WORDS_SHOWN, threshold: float = SAME_TOPIC
) -> Comparison:
    """Match the topics of two models one to one, and report new and removed topics.

    The matching maximises the sum of cosines (Hungarian algorithm); pairs below the threshold are
    dropped. A word that is missing from a model has probability 0 there.

    A share is a mean over documents of numbers from 0 to 1, so its variance is at most
    share * (1 - share) / n_documents. `Pair.share_margin` is half of a 95 % interval from the sum
    of both models' largest standard errors, because both may have the same documents. Documents
    count as independent, and other random choices of the trainings are not in it.

    Parameters
    ----------
    a, b : TopicModel
        Methods, numbers of topics and vocabularies may differ.
    n_words : int
        Number of first words of a topic that are compared.
    threshold : float in (0, 1]
        Cosine from which two topics match.

    Raises
    ------
    StudyError
        If the threshold is not above 0 and at most 1.

    Examples
    --------
    >>> from fedtopics import LDA
    >>> trees, boats = ["oak elm fir", "fir elm larch"] * 20, ["yawl ketch", "brig yawl"] * 20
    >>> before = LDA(2, max_rounds=20).fit(trees + boats).model_
    >>> after = LDA(2, max_rounds=20).fit(trees + ["rice wheat", "rye rice"] * 20).model_
    >>> both = compare(before, after, n_words=2)
    >>> [sorted(pair.common) for pair in both.pairs]
    [['elm', 'fir']]
    >>> both.new[0].words[0], both.removed[0].words[0]
    ('rice', 'yawl')
    """
    if not 0 < threshold <= 1:
        raise StudyError(f"threshold={threshold:g} is out of range; give a number in (0, 1].")
    pairs = _pairs(a, b, cosines(word_weights(a), word_weights(b)), threshold, n_words)
    coherence = [
        change
        for pair in pairs
        if "npmi" in a.coherence and "npmi" in b.coherence
        # nan, if too few documents have the words
        if np.isfinite(change := float(b.coherence["npmi"][pair.b] - a.coherence["npmi"][pair.a]))
    ]
    words_a = a.vocabulary.index.keys()
    words_b = b.vocabulary.index.keys()
    return Comparison(
        threshold=threshold,
        similarity=float(np.mean([pair.similarity for pair in pairs])) if pairs else 0.0,
        coherence=float(np.mean(coherence)) if coherence else None,
        coherence_margin=margin(coherence),
        pairs=pairs,
        new=_single(b, n_words, {pair.b for pair in pairs}),
        removed=_single(a, n_words, {pair.a for pair in pairs}),
        words_common=len(words_a & words_b),
        words_new=len(words_b - words_a),
        words_removed=len(words_a - words_b),
    )


def word_weights(model: TopicModel) -> list[Topic]:
    """Return, for each topic, the probability of each word by the word itself."""
    return [dict(zip(model.vocabulary.words, row, strict=True)) for row in model.beta.tolist()]


def _pairs(
    a: TopicModel, b: TopicModel, similarity: NDArray[np.float64], threshold: float, n_words: int
) -> list[Pair]:
    above = np.where(similarity >= threshold, similarity, 0.0)
    rows, columns = linear_sum_assignment(-above)
    errors_a, errors_b = map(_largest_errors, (a, b))
    first_a = a.topics(n_words)
    first_b = b.topics(n_words)
    pairs = [
        Pair(
            a=i,
            b=j,
            similarity=min(float(similarity[i, j]), 1.0),  # rounding may exceed 1
            share_a=float(a.share[i]),
            share_b=float(b.share[j]),
            share_margin=float(ndtri((1 + LEVEL) / 2) * (errors_a[i] + errors_b[j])),
            common=[word for word in first_b[j] if word in first_a[i]],
            new=[word for word in first_b[j] if word not in first_a[i]],
            removed=[word for word in first_a[i] if word not in first_b[j]],
        )
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        if above[i, j] > 0
    ]
    return sorted(pairs, key=lambda pair: -pair.share_b)


def _largest_errors(model: TopicModel) -> NDArray[np.float64]:
    """Return the largest standard errors that shares of topics can have, (n_topics,)."""
    return np.sqrt(model.share * (1 - model.share) / max(sum(model.documents.values()), 1))


def _single(model: TopicModel, n_words: int, matched: set[int]) -> list[Single]:
    words = model.topics(n_words)
    return [
        Single(topic=k, share=float(model.share[k]), words=words[k])
        for k in np.argsort(-model.share, kind="stable").tolist()  # largest first
        if k not in matched
    ]
