"""Nearness: by how much documents are nearer to a topic's centre if they have the topic.

Documents are embeddings, less the mean of all and scaled to length 1. A topic's centre is the mean
of documents that have it; other documents are measured, at seven levels of their share of it. The
score was compared with the answers of people about 24 topics: docs/concepts/nearness.md.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from fedtopics.inference.clusters import centred
from fedtopics.inference.vectors import Numbers, unit_rows
from fedtopics.model.spread import bootstrap_interval

Shares = NDArray[np.floating]  # of topics in documents, (n_documents, n_topics)
LEVELS = 7  # of a share, of equal widths from 0 to 1
LEAST_SHARES = 0.5, 1 / LEVELS  # of documents in a centre: the second if there are too few
HELD_OUT = 5  # one of so many persons has documents that are measured and not in the centres
FEW = 3  # documents: fewer in a level join the next lower one, where no threshold of persons counts
DIGITS = 3  # of a score in a model: more could tell two models apart by one document
NOT_MEASURED = (
    "Nearness is not measured, as it needs embeddings of enough documents. For NPMI, no "
    "relation with people's ranking of topics was found (24 topics)."
)
LEVEL_SUMS = "documents_in", "shares", "nearness"


class Nearness(TypedDict):
    """The score of a model's topics."""

    scores: list[FiniteFloat | None]  # by topic; None where too few documents have the topic
    mean: FiniteFloat
    interval: list[FiniteFloat]  # 95 %, over topics; empty for a single topic
    encoder: str
    documents: Annotated[int, Field(ge=0)]  # measured


def in_centres(theta: Numbers) -> Numbers:
    """Return the weights of documents in each topic's two possible centres, (n, 2 n_topics)."""
    return np.hstack([theta * (theta >= least) for least in LEAST_SHARES])


def centres_of(sums: Numbers) -> Numbers:
    """Return unit centres (n_topics, n_dimensions) from two sums each, or zeros."""
    first, second = np.split(sums, len(LEAST_SHARES))
    return unit_rows(np.where(first.any(1, keepdims=True), first, second))


def levels_of(theta: Numbers) -> NDArray[np.bool_]:
    """Return which level of each topic documents are in, (n_documents, LEVELS, n_topics)."""
    level = np.minimum((theta * LEVELS).astype(np.int64), LEVELS - 1)
    return np.asarray(level[:, None] == np.arange(LEVELS)[:, None])


def level_sums(levels: NDArray[np.bool_], theta: Numbers, near: Numbers) -> Numbers:
    """Sum documents, their shares of topics and their nearness by level, (3, LEVELS, n_topics)."""
    summed = (np.ones_like(theta), theta, near)
    return np.stack([np.einsum("dlk,dk->lk", levels, numbers) for numbers in summed])


def joined_levels(sums: Numbers, enough: NDArray[np.bool_]) -> Numbers:
    """Add each level that has not enough documents to the next lower one that has.

    The lowest levels join the next higher one. A topic without two levels that have enough is left
    out: documents that have it would be added to those that do not.

    Parameters
    ----------
    sums : array of shape (3, LEVELS, n_topics)
    enough : array of shape (LEVELS, n_topics)
    """
    number = np.arange(LEVELS)[:, None]
    lower = np.maximum.accumulate(np.where(enough, number, -1), 0)
    joins = np.where(lower < 0, enough.argmax(0), lower)
    together = np.einsum("jlk,slk->sjk", joins == number[..., None], sums)
    return np.asarray(together * enough * (enough.sum(0) > 1))


def nearness_scores(sums: Numbers, centres: Numbers) -> Numbers:
    """Return the score of each topic, (n_topics,); NaN for one without a centre or two levels.

    It is the mean nearness of levels, weighted by their mean shares, less that without weights.

    Examples
    --------
    >>> sums = np.zeros((3, LEVELS, 1))
    >>> sums[:, 0, 0] = 2, 0.0, 0.2  # two documents of share 0, each with nearness .1
    >>> sums[:, 6, 0] = 1, 1.0, 0.5
    >>> nearness_scores(sums, np.ones((1, 2))).round(3).tolist()
    [0.2]
    """
    used = sums[0] > 0
    _, shares, near = sums / np.where(used, sums[0], 1)
    n_levels = used.sum(0)
    total = shares.sum(0)
    weighted = (shares * near).sum(0) / np.where(total > 0, total, 1)
    scores = weighted - near.sum(0) / np.maximum(n_levels, 1)
    return np.where((n_levels > 1) & (total > 0) & centres.any(1), scores, np.nan)


def summarised(scores: Numbers, encoder: str, documents: int) -> Nearness | None:
    """Return the score of a model, with the interval of its mean; None if no topic has one."""
    rounded = np.round(scores, DIGITS)
    finite = rounded[np.isfinite(rounded)]
    if not len(finite):
        return None
    interval = bootstrap_interval(lambda rows: float(finite[rows].mean()), len(finite))
    return {
        "scores": [float(score) if np.isfinite(score) else None for score in rounded],
        "mean": round(float(finite.mean()), DIGITS),
        "interval": [round(end, DIGITS) for end in interval or ()],
        "encoder": encoder,
        "documents": documents,
    }


def measured_nearness(
    theta: Shares,
    embeddings: NDArray[np.float32],
    persons: NDArray[np.int64],
    encoder: str,
    seed: int = 0,
) -> Nearness | None:
    """Score topics on documents of this computer, a fifth of whose persons are held out.

    Parameters
    ----------
    theta : array of shape (n_documents, n_topics)
    embeddings : array of shape (n_documents, n_dimensions)
    persons : array of shape (n_documents,)
        The number of each document's person.
    encoder : str
        The name of the embeddings' model.
    seed : int
        Of the choice of persons.
    """
    unique = np.unique(persons)
    drawn = np.random.default_rng(seed).permutation(unique)[: len(unique) // HELD_OUT]
    held_out = np.isin(persons, drawn)
    near, centres = near_to_topics(theta, embeddings, ~held_out)
    measured = theta[held_out].astype(np.float64)
    sums = level_sums(levels_of(measured), measured, near[held_out])
    return summarised(
        nearness_scores(joined_levels(sums, sums[0] >= FEW), centres), encoder, int(held_out.sum())
    )


def near_to_topics(
    theta: Shares, embeddings: NDArray[np.float32], used: NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """Return the nearness of documents to topics, and centres, which documents `used` make."""
    units = centred(embeddings, np.zeros(embeddings.shape[1]))
    origin = units[used].sum(0, dtype=np.float64) / max(used.sum(), 1)
    points = centred(units, origin).astype(np.float64)
    centres = centres_of(in_centres(theta[used].astype(np.float64)).T @ points[used])
    return points @ centres.T, centres
