"""Topics as lists of words with weights, for clients without a common vocabulary."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fedtopics.contract.replies import LONGEST, Announced, Bounds, Template, UpTo, counts, sums
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic
from fedtopics.text.words import is_word

Linkage = Literal["average", "single", "pairs"]
Place = tuple[str, int]
"""A client and the number of one of its topics."""


def topic_lists(n_topics: int, n_words: int) -> Template:
    topics = UpTo("topics", n_topics)
    shown = UpTo("shown", n_words)
    return {
        "words": [UpTo("words", n_topics * n_words)],
        "index": counts(topics, shown),
        "weights": sums(topics, shown, most=1),
        "occurrences": sums(topics, per_document=LONGEST),
        "seeds": Bounds((topics,), least=-1, dtype="int64"),
        "documents": Announced({}),
    }


def pack_topics(topics: Sequence[Topic]) -> dict[str, Any]:
    """Convert topics to a list of distinct words, and arrays (n_topics, most words of a topic)."""
    words = sorted({word for topic in topics for word in topic})
    place = {word: number for number, word in enumerate(words)}
    shape = len(topics), max(map(len, topics), default=0)
    index = np.zeros(shape, np.int64)
    weights = np.zeros(shape)
    for row, topic in enumerate(topics):
        index[row, : len(topic)] = [place[word] for word in topic]
        weights[row, : len(topic)] = list(topic.values())
    return {"words": words, "index": index, "weights": weights}


def unpack_topics(packed: Mapping[str, Any]) -> list[dict[str, float]] | None:
    """Undo `pack_topics`; return None if the input is invalid."""
    words = packed["words"]
    index = packed["index"]
    weights = packed["weights"]
    if not (
        isinstance(index, np.ndarray)
        and isinstance(weights, np.ndarray)
        and index.dtype.kind == "i"
        and ((index >= 0) & (index < len(words))).all()
        and ((weights >= 0) & (weights <= 1)).all()
        and len(set(words)) == len(words)
        and all(map(is_word, words))
    ):
        return None
    return [
        {words[i]: float(weight) for i, weight in zip(row, line, strict=True) if weight > 0}
        for row, line in zip(index, weights, strict=True)
    ]


def group_topics(
    local: Mapping[str, Sequence[Topic]],
    threshold: float,
    linkage: Linkage,
    together: Sequence[Sequence[Place]] = (),
) -> list[list[Place]]:
    """Group topics of different clients by cosine; groups, and places in them, are sorted.

    "single" connects all pairs over the threshold. "average" joins the two groups most similar on
    average, while they have no client in common. "pairs" makes a group of each pair.
    """
    if not any(local.values()):
        return []
    places = [(name, number) for name in sorted(local) for number in range(len(local[name]))]
    topics = [local[name][number] for name, number in places]
    owners = np.array([name for name, _ in places])
    alike = cosines(topics, topics)
    alike[owners[:, None] == owners] = -1.0
    number_of = {place: number for number, place in enumerate(places)}
    groups = [[number_of[place] for place in group] for group in together]
    grouped = {member for group in groups for member in group}
    groups += [[number] for number in range(len(places)) if number not in grouped]
    # `_paired` takes only single topics, so with "pairs" the given groups stay as they are.
    n_final = len(together) if linkage == "pairs" else 0
    groups = groups[:n_final] + _LINKS[linkage](groups[n_final:], alike, owners, threshold)
    return sorted(sorted(places[member] for member in group) for group in groups)


def _connected(
    groups: list[list[int]], alike: NDArray[np.float64], owners: NDArray[Any], threshold: float
) -> list[list[int]]:
    edges = alike >= threshold
    for group in groups:
        edges[group[0], group] = True
    _, label = connected_components(edges, directed=False)
    return [np.flatnonzero(label == number).tolist() for number in np.unique(label)]


def _joined(
    groups: list[list[int]], alike: NDArray[np.float64], owners: NDArray[Any], threshold: float
) -> list[list[int]]:
    member = np.zeros((len(groups), len(owners)))
    for number, group in enumerate(groups):
        member[number, group] = 1
    total = member @ alike @ member.T
    sizes = member.sum(1)
    n_topics = member @ (owners[:, None] == np.unique(owners))  # of each group and client
    apart = n_topics @ n_topics.T > 0
    while True:
        mean = np.where(apart, -1.0, total / np.outer(sizes, sizes))
        one, other = divmod(int(mean.argmax()), len(groups))  # among equals, the first topics
        if not mean[one, other] >= threshold:
            return [group for group in groups if group]
        groups[one] = groups[one] + groups[other]
        groups[other] = []
        total[one] += total[other]
        total[:, one] += total[:, other]
        sizes[one] += sizes[other]
        apart[one] |= apart[other]
        apart[:, one] |= apart[:, other]
        apart[other] = apart[:, other] = True


def _paired(
    groups: list[list[int]], alike: NDArray[np.float64], owners: NDArray[Any], threshold: float
) -> list[list[int]]:
    free = np.ravel(groups).astype(int)
    first, second = np.nonzero(np.triu(alike[np.ix_(free, free)] >= threshold))
    pairs = np.column_stack([free[first], free[second]])
    return [*pairs.tolist(), *np.setdiff1d(free, pairs)[:, None].tolist()]


_LINKS = {"average": _joined, "single": _connected, "pairs": _paired}


def mean_topic(
    topics: Sequence[Topic],
    absent_words: Literal["zero", "ignored"],
    weights: Sequence[float] | None = None,
) -> dict[str, float]:
    """Return the weighted mean of topics; a missing word counts as zero or is ignored."""
    shares = [1.0] * len(topics) if weights is None else weights
    total: dict[str, float] = {}
    counted: dict[str, float] = {}
    for topic, share in zip(topics, shares, strict=True):
        for word, weight in topic.items():
            total[word] = total.get(word, 0.0) + share * weight
            counted[word] = counted.get(word, 0.0) + share
    whole = sum(shares)
    means = {
        word: weight / (whole if absent_words == "zero" else counted[word])
        for word, weight in total.items()
        if weight > 0
    }
    return dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))
