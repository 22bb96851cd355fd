"""How far the words of topics are from each other, by their vectors: Word Mover's Distances."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from experiments.report import require


@dataclass(frozen=True)
class WordVectors:
    """A vector for each word: the row of each, and the rows, (n_words, dimension).

    Examples
    --------
    >>> vectors = WordVectors({"tea": 0, "milk": 1}, np.array([[3.0, 4.0], [0.0, 2.0]]))
    >>> vectors.unit(["tea", "sand"]).round(6).tolist()
    [[0.6, 0.8]]
    """

    index: dict[str, int]
    vectors: NDArray[np.floating]

    def unit(self, words: Iterable[str]) -> NDArray[np.float64]:
        """Return the vectors at unit length, (n_known, dimension).

        Words that have no vector, or one of zeros, have no row.
        """
        positions = [self.index[word] for word in words if word in self.index]
        rows: NDArray[np.float64] = self.vectors[positions].astype(np.float64)
        rows = rows[rows.any(1)]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows


def word_mover_distances(
    topics_a: Sequence[Sequence[str]], topics_b: Sequence[Sequence[str]], vectors: WordVectors
) -> NDArray[np.float64]:
    """Return the Word Mover's Distance of each topic of one model to each of another.

    The words of a topic weigh the same, and move by the Euclidean distance of their unit-length
    vectors, as in gensim's ``wmdistance``. Words without a vector, or with a vector of zeros, are
    left out.

    They are from 0 to 2, shape (n_a, n_b); nan where a topic has no word left. Unlike here, gensim
    returns infinity there, and also for different words whose vectors are equal.

    References
    ----------
    Kusner et al. (2015), From Word Embeddings To Document Distances, section 4.

    Examples
    --------
    >>> vectors = WordVectors({"tea": 0, "milk": 1}, np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> word_mover_distances([["tea"]], [["milk"], ["tea", "milk"]], vectors).round(3).tolist()
    [[1.414, 0.707]]
    """
    require(ot="POT")
    from ot import emd2  # type: ignore[import-untyped,import-not-found,unused-ignore]

    of_a = [vectors.unit(topic) for topic in topics_a]
    of_b = [vectors.unit(topic) for topic in topics_b]
    distances = np.full((len(of_a), len(of_b)), np.nan)
    for row, words_a in enumerate(of_a):
        for column, words_b in enumerate(of_b):
            if len(words_a) and len(words_b):
                weights_a = np.full(len(words_a), 1 / len(words_a))
                weights_b = np.full(len(words_b), 1 / len(words_b))
                distances[row, column] = emd2(weights_a, weights_b, cdist(words_a, words_b))
    return distances


class MinimumDistances(NamedTuple):
    """The distances of topics to the closest of another model, as a sum and as a mean."""

    total: float
    mean: float


def amwmd(
    topics: Sequence[Sequence[str]], evaluated: Sequence[Sequence[str]], vectors: WordVectors
) -> MinimumDistances:
    """Return the Average Minimum Word Mover's Distance, AMWMD: lower is better.

    For each topic, the distance to the closest topic of the model being evaluated.

    Both numbers are nan if one of `topics`, which are of a client's own model, has no word with a
    vector; such a topic of `evaluated`, the model to be compared, is passed over.

    References
    ----------
    Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, equation 7. It is a sum,
    although its name says average; the authors' script takes the mean. Hence both.

    Examples
    --------
    >>> vectors = WordVectors({"tea": 0, "milk": 1}, np.eye(2))
    >>> amwmd([["tea"], ["milk"]], [["tea", "milk"], ["tea"]], vectors)
    MinimumDistances(total=0.7071067811865476, mean=0.3535533905932738)
    """
    distances = word_mover_distances(topics, evaluated, vectors)
    closest = np.fmin.reduce(distances, axis=1, initial=np.nan)
    return MinimumDistances(float(closest.sum()), float(closest.mean()))
