"""Similarity of two models, by their topics and by the topics that they find in documents."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError

BLOCK = 1000  # documents whose similarities to all others are in memory at once
Topic = Mapping[str, float]  # words with their weights
USUAL_THRESHOLD = 0.99  # quantile of the similarities of two topics of one client
LEAST_THRESHOLD = 0.1
LARGEST_THRESHOLD = 0.9


def topic_similarity(
    true: NDArray[Any],
    inferred: NDArray[Any],
    true_words: Sequence[str] | None = None,
    inferred_words: Sequence[str] | None = None,
) -> float:
    """Return the topic similarity score, TSS: from 0 to the number of true topics (the best).

    The score sums, over true topics, the similarity of the closest inferred topic, 1 - H^2 with
    Hellinger's distance H. See Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models,
    equation 6. We compare columns by words, as the authors' script shifts columns by one word.

    Parameters
    ----------
    true, inferred : float arrays of shape (n_topics, n_words)
        Rows sum to 1. The numbers of topics may differ.
    true_words, inferred_words : sequences of str, optional
        The word of each column; a word that a model lacks has probability 0 in it. If you leave
        them out, columns must be the same words in the same order.

    Raises
    ------
    DataError
        If columns and words do not fit.

    Examples
    --------
    >>> topic_similarity(np.eye(3), np.eye(3)[[2, 0, 1]])
    3.0
    >>> topic_similarity([[0.36, 0.64]], [[0.64, 0.36]], ["tea", "milk"], ["milk", "tea"])
    1.0
    """
    true = np.asarray(true, np.float64)
    inferred = np.asarray(inferred, np.float64)
    if true_words is not None and inferred_words is not None:
        inferred = align_words(inferred, inferred_words, true_words)
    if true.shape[1] != inferred.shape[1]:
        raise DataError(
            f"The topics have {true.shape[1]:,} and {inferred.shape[1]:,} words; give the words "
            "of both, in the order of their columns."
        )
    return float((np.sqrt(true) @ np.sqrt(inferred).T).max(1).sum())


def align_words(
    beta: NDArray[np.float64], words: Sequence[str], wanted: Sequence[str]
) -> NDArray[np.float64]:
    """Return topics (n_topics, n_words) with a column for each wanted word, 0 if it is missing."""
    if beta.shape[1] != len(words):
        raise DataError(f"There are {len(words):,} words but {beta.shape[1]:,} columns of topics.")
    place = {word: column for column, word in enumerate(words)}
    columns = np.array([place.get(word, -1) for word in wanted])
    return np.where(columns >= 0, beta[:, columns], 0)


def document_similarity(true: NDArray[Any], inferred: NDArray[Any]) -> float:
    """Return the document similarity-based score, DSS; lower is better.

    DSS sums, over documents, the differences between the two models in similarities to all other
    documents (1 - H^2 of thetas), and divides by the number of documents (equations 4 and 5 of the
    paper of `topic_similarity`). DSS is at most n_documents - 1, so only scores for equal numbers
    of documents are comparable.

    Parameters
    ----------
    true, inferred : float arrays of shape (n_documents, n_topics)
        Rows sum to 1, for the same documents in both. The numbers of topics may differ.

    Raises
    ------
    DataError
        If the numbers of documents differ.

    Examples
    --------
    >>> even = np.full((2, 2), 0.5)
    >>> round(document_similarity(np.eye(2), even), 6)
    1.0
    """
    roots = [np.sqrt(np.asarray(theta, np.float64)) for theta in (true, inferred)]
    if len(roots[0]) != len(roots[1]):
        raise DataError(
            f"One theta has {len(roots[0]):,} documents and the other {len(roots[1]):,}; give both "
            "for the same documents."
        )
    total = 0.0
    for start in range(0, len(roots[0]), BLOCK):
        ours, theirs = (root[start : start + BLOCK] @ root.T for root in roots)
        differences = np.abs(ours - theirs, out=ours)
        total += float(differences.sum() - np.trace(differences, offset=start))
    return total / len(roots[0])


def cosines(rows: Sequence[Topic], columns: Sequence[Topic]) -> NDArray[np.float64]:
    """Return the cosine of each topic of `rows` and each of `columns`, from 0 to 1."""
    words = dict.fromkeys(word for topic in (*rows, *columns) for word in topic)
    places = {word: place for place, word in enumerate(words)}

    def unit(topics: Sequence[Topic]) -> NDArray[np.float64]:
        matrix = np.zeros((len(topics), len(places)))
        for row, topic in enumerate(topics):
            matrix[row, [places[word] for word in topic]] = list(topic.values())
        return np.asarray(
            matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-300)
        )

    return unit(rows) @ unit(columns).T


def heaviest(
    weights: NDArray[np.float64], words: Sequence[str], n: int | None = None, above: float = 0.0
) -> dict[str, float]:
    """Return the words with the n largest weights, the largest first, if these are above this."""
    order = np.argsort(-weights, kind="stable")[:n]
    return {words[i]: float(weights[i]) for i in order if weights[i] > above}


def usual_threshold(local: Mapping[str, Sequence[Topic]]) -> float:
    """Return the cosine that one in a hundred pairs of topics of the same client reaches.

    Topics of one client are distinct: two of them are similar only by chance and common words.
    """
    similarities = [
        cosines(topics, topics)[np.triu_indices(len(topics), 1)]
        for _, topics in sorted(local.items())
    ]
    cosines_of_pairs = np.concatenate([*similarities, np.zeros(0)])
    threshold = np.quantile(cosines_of_pairs, USUAL_THRESHOLD) if len(cosines_of_pairs) else 0.5
    return float(np.clip(threshold, LEAST_THRESHOLD, LARGEST_THRESHOLD))
