"""The program's estimates from sums with noise: frequencies, first topics, clusters.

First topics follow from a sketch of the words that occur together: the rows of this matrix are
mixtures of one row per topic. Words that belong to one topic have almost pure rows. A random
projection to few columns keeps rows apart, with less noise.

References
----------
Arora and others, A Practical Algorithm for Topic Modeling with Provable Guarantees, ICML 2013: each
word is far from the space of earlier ones. We cluster words, as noise makes single ones unreliable.
"""

import numpy as np
import scipy  # whose parts are loaded when they are used
from numpy.typing import NDArray

from fedtopics.inference.vectors import TINY, Numbers, unit_rows

# Limits for frequencies of words
CLEAR_DEVIATIONS = 4.0  # standard deviations of noise above which a word surely occurs
COSINE_BINS = 25  # bins of cosines, and one more for the largest hundredth
FEWEST_PAIRS = 20  # least number of pairs of word and cluster in that last bin
LEAST_COUNT = 1e-6
FEWEST_OF_CLUSTER = 0.002  # assumed minimum of a cluster's share of all words
LEAST_VARIANCE = 0.1  # of a count, relative to the expected count's square
MOST_VARIANCE = 20.0  # relative to the same

# Limits for sketches
WIDTH = 200
WELL_KNOWN = 6.0  # least row length of a word that finds topics, as a multiple of the noise
KNOWN = 1.5  # the same for any word
SHORTEST_ROW = 3e-3  # least length, relative to the longest row, for words that find topics
MOST_WORDS = 2000  # words that find topics, at most
FEWEST_OF_TOPIC = 6  # words that find one topic, at least
PURE = 0.6  # cosine above which a word belongs to one topic
ALIKE = 0.9  # cosine above which two topics are one
PASSES = 15
TRIES = 5

# Limits for clusters
FEWEST_DIRECTIONS = 8
MOST_DIRECTIONS = 48
ABOVE_NOISE = 1.2  # least eigenvalue, relative to the largest one of pure noise
DEAD = 2.0  # least length of a cluster's sum, relative to pure noise; shorter ones mean nothing
STARTS = 8


# Frequencies of words, and noisy counts combined with prior knowledge


def surely_there(counts: Numbers, sigma: float, most: int) -> NDArray[np.int64]:
    """Return the columns of the words that surely occur, the most frequent first."""
    order = np.argsort(-counts, kind="stable")[:most]
    return np.asarray(order[counts[order] > max(CLEAR_DEVIATIONS * sigma, TINY)])


def expected_by_chance(
    counts: Numbers, sigma: float, overall: Numbers, overall_sigma: float
) -> Numbers:
    """Return the counts (n_words, n_clusters) expected if all clusters had equal words."""
    summed = counts.sum(1)
    scale = summed.sum() / overall.sum()
    # Both releases have noise, so combine them.
    of_counts = 1 / (counts.shape[1] * sigma**2)
    of_overall = 1 / (overall_sigma * scale) ** 2
    both = summed * of_counts + overall * scale * of_overall
    frequency = np.maximum(both / (of_counts + of_overall), overall_sigma / 2)
    sizes = np.maximum(counts.sum(0), FEWEST_OF_CLUSTER * np.abs(counts).sum())
    return np.outer(frequency, sizes / sizes.sum())


def by_closeness(counts: Numbers, chance: Numbers, close: Numbers) -> Numbers:
    """Return expected counts from a curve over the cosine of word and cluster that never falls."""
    flat = counts.ravel()
    by_chance = chance.ravel()
    cosines = close.ravel()
    order = np.argsort(cosines, kind="stable")
    bins = [*np.array_split(order, COSINE_BINS), order[-max(len(order) // 100, FEWEST_PAIRS) :]]
    places = [cosines[part].mean() for part in bins]
    lifts = [max(flat[part].sum(), 0) / max(by_chance[part].sum(), TINY) for part in bins]
    return chance * np.interp(close, places, np.maximum.accumulate(lifts))


def shrunk(counts: Numbers, expected: Numbers, sigma: float) -> Numbers:
    """Move noisy counts towards the expected ones, as far as the noise justifies."""
    expected = np.maximum(expected, LEAST_COUNT)
    # Empirical Bayes: the difference beyond noise is normal, in proportion to the expected count.
    excess = ((counts - expected) ** 2 - sigma**2).sum() / (expected**2).sum()
    variance = np.clip(excess, LEAST_VARIANCE, MOST_VARIANCE) * expected**2
    posterior = expected + variance / (variance + sigma**2) * (counts - expected)
    return np.asarray(np.maximum(posterior, 0))


def smoothed_topics(counts: Numbers, more: float) -> Numbers:
    """Return contiguous topics (n_words, n_topics) from smoothed counts; columns sum to 1."""
    smooth = counts + more
    return np.ascontiguousarray(smooth / smooth.sum(0))


# First topics from a sketch


def projection(n_words: int, seed: int) -> Numbers:
    """Draw the public projection (n_words, WIDTH), whose rows have about length 1."""
    drawn = np.random.default_rng(seed).standard_normal((n_words, WIDTH))
    return np.asarray(drawn / np.sqrt(WIDTH))


def estimate_topics(sketch: Numbers, sigma: float, n_topics: int) -> Numbers:
    """Return topics' shares of words, (n_words, n_topics), or 0 for words that noise hides."""
    left, values, _ = np.linalg.svd(sketch, full_matrices=False)
    rows = left[:, :n_topics] * values[:n_topics]
    lengths = np.linalg.norm(rows, axis=1)
    noise = sigma * np.sqrt(n_topics)
    clear = int((lengths > max(WELL_KNOWN * noise, SHORTEST_ROW * lengths.max())).sum())
    number = min(max(FEWEST_OF_TOPIC * n_topics, clear), MOST_WORDS)
    chosen = np.argsort(-lengths, kind="stable")[:number]
    centres = _find_centres(unit_rows(rows[chosen]), lengths[chosen], n_topics)
    shares = np.zeros(rows.shape)
    for word in np.flatnonzero(lengths > max(KNOWN * noise, TINY)):
        shares[word] = scipy.optimize.nnls(centres.T, rows[word])[0]
    return shares


def _find_centres(directions: Numbers, weights: Numbers, n: int) -> Numbers:
    """Cluster directions of words; replace one of two similar centres by another."""
    different = np.zeros((0, directions.shape[1]))
    for _ in range(TRIES):
        more = _far_apart(directions, weights, different, n - len(different))
        centres = _clustered(directions, weights, np.vstack([different, more]))
        different = _different(centres, directions, weights)
        if len(different) == n:
            break
    return centres


def _far_apart(directions: Numbers, weights: Numbers, centres: Numbers, n: int) -> Numbers:
    """Choose directions far from the space of centres and each other; large weights count more."""
    reliability = np.minimum(1, weights / np.median(weights)) ** 0.5
    axes, _ = np.linalg.qr(centres.T)
    left = (directions - directions @ axes @ axes.T) * reliability[:, None]
    chosen = []
    for _ in range(n):
        farthest = int((left**2).sum(1).argmax())
        chosen.append(directions[farthest])
        axis = unit_rows(left[farthest])
        left = left - np.outer(left @ axis, axis)
    return np.array(chosen)


def _clustered(directions: Numbers, weights: Numbers, centres: Numbers) -> Numbers:
    """Move centres repeatedly to the mean of the words that belong only to them."""
    for _ in range(PASSES):
        close = directions @ centres.T
        sums = np.zeros_like(centres)
        np.add.at(sums, close.argmax(1), directions * (weights * (close.max(1) > PURE))[:, None])
        has_words = np.linalg.norm(sums, axis=1, keepdims=True) > 0
        centres = np.where(has_words, unit_rows(sums), centres)
    return centres


def _different(centres: Numbers, directions: Numbers, weights: Numbers) -> Numbers:
    """Return the centres, without those that are similar to a centre with more words."""
    nearest = (directions @ centres.T).argmax(1)
    chosen: list[int] = []
    for centre in np.argsort(-np.bincount(nearest, weights, len(centres)), kind="stable"):
        if not chosen or (centres[chosen] @ centres[centre]).max() <= ALIKE:
            chosen.append(int(centre))
    return np.asarray(centres[np.sort(chosen)])


# Clusters of documents


def find_directions(mean: Numbers, products: Numbers, documents: float, sigma: float) -> Numbers:
    """Return the directions in which embeddings spread by more than noise, as columns."""
    values, vectors = np.linalg.eigh(products - documents * np.outer(mean, mean))
    # Noise has eigenvalues up to sqrt(2 n_dimensions) sigma (Wigner's semicircle).
    clear = values > ABOVE_NOISE * np.sqrt(2 * len(mean)) * sigma
    number = min(max(int(clear.sum()), FEWEST_DIRECTIONS), MOST_DIRECTIONS)
    return np.asarray(vectors[:, -number:])


def first_centres(words: Numbers, frequency: Numbers, n: int, seed: int) -> Numbers:
    """Cluster words by the directions of their vectors; return the centres, of length 1."""
    from sklearn.cluster import KMeans

    kmeans = KMeans(n, n_init=STARTS, random_state=seed % 2**31)
    return unit_rows(kmeans.fit(unit_rows(words), sample_weight=frequency).cluster_centers_)


def move(
    centres: Numbers, sums: Numbers, directions: Numbers, sigma: float
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Move centres to their points' sums unless these are mostly noise; also return which moved."""
    projected = sums @ directions
    least = max(DEAD * sigma * np.sqrt(directions.shape[1]), TINY)
    alive = np.linalg.norm(projected, axis=1) >= least
    return np.where(alive[:, None], unit_rows(projected), centres), alive
