"""A hierarchy of topics, and models with fewer topics, from the model's own sums.

References
----------
Slonim and Tishby, Agglomerative Information Bottleneck, NIPS 1999: each step merges the pair that
loses least mutual information of topics and words.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from fedtopics.errors import StudyError, check_number
from fedtopics.inference.merged import PARTS, Merged
from fedtopics.inference.vectors import TINY
from fedtopics.model.labels import tidy
from fedtopics.model.shown_words import NAME_WORDS, WORDS_SHOWN, WordRanking
from fedtopics.model.topics import Topics

Model = TypeVar("Model", bound=Topics)
DROPPED = "ids", "same", "nearness"  # of the training information, as they are of single topics


def hierarchy(model: Topics, n_words: int = WORDS_SHOWN) -> list[dict[str, Any]]:
    """Return the steps that merge the two nearest topics until one remains, one row per step.

    Returns
    -------
    list of dict
        ``parent``, a new number, at least n_topics; ``left`` and ``right``, topics or earlier
        parents; ``topics``, all topics in it; ``distance``, the mutual information of topics and
        words that the step loses, in nats per word; ``share`` of all documents; ``name``, its
        number and four words; ``words``, the most probable first.
    """
    masses = np.maximum(model.share, TINY)[:, None] * model.beta
    added = _information(masses)
    numbers = [*range(model.n_topics)]
    members = [[topic] for topic in numbers]
    lost = np.full((len(masses), len(masses)), np.inf)  # above the diagonal
    for place in range(len(masses) - 1):
        rest = slice(place + 1, None)
        lost[place, rest] = added[place] + added[rest] - _information(masses[place] + masses[rest])
    rows: list[dict[str, Any]] = []
    for parent in range(model.n_topics, 2 * model.n_topics - 1):
        left, right = map(int, np.unravel_index(lost.argmin(), lost.shape))
        distance = max(float(lost[left, right]), 0.0)
        pair = (numbers[left], numbers[right])
        # The parent takes the place of its left part; the right one's place stays empty.
        masses[left] += masses[right]
        added[left] = _information(masses[left])
        numbers[left] = parent
        members[left] = sorted(members[left] + members[right])
        lost[right] = np.inf
        lost[:, right] = np.inf
        before = np.isfinite(lost[:, left])
        behind = np.isfinite(lost[left])
        for others, pairs in ((before, (before, left)), (behind, (left, behind))):
            lost[pairs] = added[left] + added[others] - _information(masses[left] + masses[others])
        words = _words(model, masses[left], max(n_words, NAME_WORDS))
        rows.append(
            {
                "parent": parent,
                "left": min(pair),
                "right": max(pair),
                "topics": members[left],
                "distance": distance,
                "share": float(model.share[members[left]].sum()),
                "name": "_".join([str(parent), *words[:NAME_WORDS]]),
                "words": words[:n_words],
            }
        )
    return rows


def _information(masses: NDArray[np.float64]) -> Any:
    """Return what rows of p(topic, word) add to the mutual information, without the words' part."""
    total = masses.sum(-1)
    return xlogy(masses, masses).sum(-1) - xlogy(total, total)


def _words(model: Topics, mass: NDArray[np.float64], n_words: int) -> list[str]:
    # By probability: relevance would name a large branch by its rarest words.
    columns = WordRanking(relevance=1.0).order(
        (mass / mass.sum())[None], model.vocabulary.frequency, n_words
    )
    return [model.vocabulary.words[column] for column in columns[0]]


def merge_topics(model: Model, topics_to_merge: Sequence[int] | Sequence[Sequence[int]]) -> Model:
    """Return the model with some topics merged; works with models of every method.

    A document's share of the new topic is the sum of its shares of the merged topics. The new topic
    takes the place of its first part. Measured values such as coherence are dropped. A merged model
    cannot be trained further, but its topics can start a training. The new topic keeps a person's
    label of its largest labelled part; a warning lists lost labels. Suggested labels of merged
    topics are dropped.

    Parameters
    ----------
    topics_to_merge : list of int, or list of such lists
        Numbers of topics that become one, or several such lists.

    Raises
    ------
    StudyError
        If a topic does not exist or is listed twice.
    """
    try:
        groups: Any = topics_to_merge
        if all(isinstance(topic, Integral) for topic in topics_to_merge):
            groups = [topics_to_merge]
        return _grouped(model, [[*map(index, group)] for group in groups])
    except TypeError:
        raise StudyError(
            "topics_to_merge cannot be read; give a list of topic numbers, or a list of such lists."
        ) from None


def reduce_topics(model: Model, n_topics: int) -> Model:
    """Return the model with `n_topics` topics, merging the nearest ones as in `hierarchy`.

    StudyError if that is less than 1, or more than the model has.
    """
    check_number(n_topics, "n_topics", 1, model.n_topics)
    rows = hierarchy(model)[: model.n_topics - n_topics]
    inner = {row[side] for row in rows for side in ("left", "right")}
    return _grouped(model, [row["topics"] for row in rows if row["parent"] not in inner])


def _grouped(model: Model, groups: Iterable[Sequence[int]]) -> Model:
    first = np.arange(model.n_topics)  # by topic: the smallest number in its group
    for group in groups:
        if unfit := [k for k in group if not 0 <= k < len(first)]:
            raise StudyError(
                f"There is no topic {unfit[0]}; the model has topics 0 to {len(first) - 1}."
            )
        if twice := [k for k in group if first[k] != k or (first == k).sum() > 1]:
            raise StudyError(f"Topic {twice[0]} is listed twice; list it once.")
        first[list(group)] = min(group, default=0)
    remaining, places = np.unique(first, return_inverse=True)
    if len(remaining) == model.n_topics:
        return model

    def sums(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([rows[places == place].sum(0) for place in range(len(remaining))])

    inference: Any = Merged.of(model.inference, len(model.vocabulary), places.tolist())
    # A model that was merged before already has the parts of its original topics.
    parts = {} if isinstance(model.inference, Merged) else {PARTS: np.maximum(model.share, TINY)}
    members = [np.flatnonzero(places == place) for place in range(len(remaining))]
    largest_first = [sorted(map(int, topics), key=lambda k: -model.share[k]) for topics in members]
    manual = manual_labels(model)
    new_labels = [next((manual[k] for k in topics if k in manual), "") for topics in largest_first]
    alone = {int(k): place for place, (k, *others) in enumerate(members) if not others}
    suggested = {alone[k]: model.labels[k] for k in model.unconfirmed if k in alone}
    if lost := sorted({*manual.values()} - {*new_labels}):
        warnings.warn(
            f"Merging drops these labels, because a topic has one: {', '.join(lost)}.", stacklevel=3
        )
    merged = replace(
        model,
        inference=inference,
        weights={**model.weights, **parts},
        shares={name: sums(share) for name, share in model.shares.items()},
        word_sums=sums(model.word_sums),
        groups=tuple(table.of_topics(sums) for table in model.groups),
        estimates=(),  # of other topics
        word_ranking=replace(model.word_ranking, first=()),
        coherence={},
        labels=tidy({**dict(enumerate(new_labels)), **suggested}),
        unconfirmed=frozenset(suggested),
        info=_info(model, places, sums),
    )
    return _with_first_words(merged, model.word_ranking.first, members)


def _with_first_words(
    merged: Model, first: Sequence[Sequence[int]], members: Sequence[NDArray[np.int64]]
) -> Model:
    """Let topics that were not merged keep their `first` words, and so their names."""
    if not first:
        return merged
    ranked = merged.columns(merged.word_ranking, len(first[0])).tolist()
    words = tuple(
        tuple(ranked[place] if others else first[k]) for place, (k, *others) in enumerate(members)
    )
    return replace(merged, word_ranking=replace(merged.word_ranking, first=words))


def manual_labels(model: Topics) -> dict[int, str]:
    """Return labels that people gave, without suggested ones."""
    return {k: label for k, label in model.labels.items() if k not in model.unconfirmed}


def _info(model: Topics, places: NDArray[np.int64], sums: Any) -> Any:
    """Return training information, without entries about single topics before the merger."""
    info: dict[str, Any] = {k: v for k, v in model.info.items() if k not in DROPPED}
    if "sizes" in info:
        info["sizes"] = {name: sums(np.array(n)).tolist() for name, n in info["sizes"].items()}
    if "optimal" in info:  # F-LDA's topics that are a client's own
        info["optimal"] = {
            name: sorted({*places[topics].tolist()}) for name, topics in info["optimal"].items()
        }
    return info
