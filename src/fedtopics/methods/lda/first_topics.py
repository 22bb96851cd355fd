"""First topics from anchor words (words of a single topic), by sums over documents.

References
----------
Arora et al., A Practical Algorithm for Topic Modeling with Provable Guarantees, ICML 2013:
algorithms 1, 3 (RecoverL2) and 4. Co-occurrence is estimated as in section 5 of that paper.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import FIRST, NEVER, Reply, of_method, published
from fedtopics.contract.replies import sums
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.plan import TINY
from fedtopics.methods.core.settings import MinibatchSettings
from fedtopics.methods.nmf.sketch import first_word_sums

WIDTH = 300  # columns of the projection
RAREST = 0.006  # minimum share of the documents that contain an anchor
ANCHOR_DOCUMENTS = 20  # minimum number of these documents
CANDIDATES = 3  # minimum number of candidates per topic, however rare they are
HEAVY = 10.0  # weight of the condition that mixtures sum to 1; larger weights change nothing
SMOOTHING = 0.01  # occurrences added to each word in each topic
BLOCK = 10_000  # documents whose projections are in memory at once


def project(counts: sparse.csr_array, seed: int) -> dict[str, NDArray[np.float64]]:
    """Project the co-occurrence of a client's words on random directions, the same at all clients.

    Returns the projections (n_words, WIDTH), the ``mass`` (row sums), and the ``frequency``: the
    number of documents with the word and another one.
    """
    n_words = counts.shape[1]
    rng = np.random.default_rng([seed, WIDTH])
    directions = rng.standard_normal((n_words, WIDTH)) / np.sqrt(WIDTH)
    neighbours = np.zeros((n_words, WIDTH))
    itself, mass, frequency = np.zeros((3, n_words))
    for start in range(0, counts.shape[0], BLOCK):
        block = counts[start : start + BLOCK]
        lengths = block.sum(1, dtype=np.float64)
        pairs = lengths * (lengths - 1)
        weights = np.divide(1, pairs, out=np.zeros_like(pairs), where=pairs > 0)
        spread = np.repeat([weights, weights * (lengths - 1)], np.diff(block.indptr), axis=1)
        by_pairs, by_words = block.data * spread
        scaled = sparse.csr_array((by_pairs, block.indices, block.indptr), block.shape)
        neighbours += scaled.T @ (block @ directions)
        itself += np.bincount(block.indices, by_pairs, n_words)
        mass += np.bincount(block.indices, by_words, n_words)
        frequency += np.bincount(block.indices, by_pairs > 0, n_words)
    neighbours -= itself[:, None] * directions  # a word is not its own neighbour
    return {"projections": neighbours, "mass": mass, "frequency": frequency}


class Projections(SharedFunctions):
    @published(
        "For each word that documents of enough persons contain: 300 random mixtures of how often "
        "other words occur in documents with it, the number of documents with it, and the sum of "
        "its shares of their words; zeros for other words. For short texts or few words, these "
        "numbers reveal as much as counts of pairs of words, even counts of one document.",
        "random mixtures of words that occur together",
        often=of_method(
            MinibatchSettings, lambda s: FIRST if s.initialisation == "anchors" else NEVER
        ),
        reply=lambda agreement: {
            "projections": (len(agreement.vocabulary), WIDTH),
            "mass": sums(len(agreement.vocabulary)),
            "frequency": sums(len(agreement.vocabulary), per_document=1),
        },
    )
    def projections(self) -> Reply:
        sums = project(self.client.bag, self.client.public_seed)
        return sums | {"documents": self.client.over(np.arange(self.client.bag.shape[0]))}


def anchor_topics(
    summed: Mapping[str, Numbers], n_topics: int, documents: int
) -> NDArray[np.float64]:
    """Recover topics, (n_topics, n_words), from the sum of the clients' projections."""
    by_frequency = np.argsort(-summed["frequency"], kind="stable")
    n_frequent = int((summed["frequency"] >= max(RAREST * documents, ANCHOR_DOCUMENTS)).sum())
    frequent = np.sort(by_frequency[: max(n_frequent, CANDIDATES * n_topics)])
    mass = summed["mass"]
    rows = summed["projections"] / np.maximum(mass, TINY)[:, None]
    return _recover(rows, mass, frequent[_far_apart(rows[frequent], n_topics)])


def _far_apart(rows: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Choose n rows, each of which is farthest from the affine hull of the earlier rows."""
    first = int(np.square(rows).sum(1).argmax())
    residuals = rows - rows[first]
    chosen = [first]
    while len(chosen) < n:
        distances = np.square(residuals).sum(1)
        farthest = int(distances.argmax())
        chosen.append(farthest)
        direction = residuals[farthest] / np.sqrt(max(distances[farthest], TINY))
        residuals = residuals - np.outer(residuals @ direction, direction)
    return np.array(chosen)


def _recover(
    rows: NDArray[np.float64], mass: NDArray[np.float64], anchors: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Write each word's row as a mixture of the anchors' rows; return p(word | topic)."""
    basis, corners = np.linalg.qr(rows[anchors].T)
    targets = rows @ basis
    one = HEAVY * np.abs(corners).max()  # for one more equation: the weights sum to 1
    corners = np.vstack([corners, np.full(len(anchors), one)])
    mixtures = np.zeros((len(rows), len(anchors)))
    for word in np.flatnonzero(mass):
        mixtures[word], _ = nnls(corners, np.append(targets[word], one))
    mixtures /= np.maximum(mixtures.sum(1, keepdims=True), TINY)
    topics = (mixtures * mass[:, None]).T
    # If there are fewer different words than topics, topics without words are random.
    empty = topics.sum(1) == 0
    topics[empty] = np.random.default_rng(0).gamma(1, size=(int(empty.sum()), len(mass)))
    return np.asarray(topics / np.maximum(topics.sum(1, keepdims=True), TINY))


def find_first_topics(agreement: Agreement, settings: MinibatchSettings, seed: int) -> Numbers:
    """Return p(word | topic) of first topics, (n_topics, n_words), from sums over all documents."""
    if settings.initialisation == "nmf":
        words = first_word_sums(agreement, settings.n_components, seed) + SMOOTHING
        return np.asarray(words / words.sum(1, keepdims=True))
    return anchor_topics(
        agreement.ask_once(Projections.projections), settings.n_components, agreement.documents
    )
