"""Attack the sums of each method: what they reveal about words and documents."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks import blind, one_reply, pairs_of_sums, unmixing
from benchmarks.attacks.summed import DIMENSION, SEED, Summed
from benchmarks.attacks.tapped import rows_of
from benchmarks.attacks.unmixing import area, inside, likelihood
from fedtopics.inference.clusters import centred
from fedtopics.inference.lda import topic_weights
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.lda.first_topics import WIDTH

Numbers = NDArray[np.float64]
SECONDS = 10.0  # of a processor that documents are looked for in a sum
SINGLE = 1e-6  # a direction below this is rounding, in float32
DOUBLE = 1e-9  # the same in float64
LONGEST = 10.0  # the logarithm of a count, at most
NEAR = 0.99  # cosine of an embedding that is found
SIGNALS = 400  # sums of clusters that documents' signals are looked for in


@dataclass
class Told:
    """What a sum tells of its documents."""

    words: float = 0.0  # share of the words that occur that are known to
    counts: bool = False  # exactly how often
    some: float = 0.0  # documents that words are known to be of together
    wholly: float = 0.0  # documents that are known to the last count
    embeddings: float = 0.0  # documents
    member: float = 0.5  # area under the ROC curve of who asks whether a document is in the sum


def of_gradients(summed: Summed) -> Told:
    """Take the gradients of the encoder's first layer apart, by words and by embeddings."""
    told = []
    totals = (backward for backward in summed.sums("weight_gradients") if "weights" in backward[1])
    for (asked, _), (payload, total) in zip(summed.sums("topic_gradients"), totals, strict=True):
        one = Told()
        documents = None
        if "encoder_words" in total["weights"]:
            one, documents = by_words(summed, payload["round"], total)
        if "encoder_embedding" in total["weights"]:
            by_embeddings(one, summed, payload["round"], total, documents)
        if "encoder_words" not in total["weights"]:
            by_decoder(one, summed, payload["round"], total, asked["shared"]["topics"])
        told.append(one)
    return mean(told)


def by_words(summed: Summed, round_: int, total: Any) -> tuple[Told, Numbers | None]:
    """Read documents from rows of words; return their counts as well, if all can be."""
    actual = summed.bags(round_)
    rows = rows_of(total)
    n = len(actual)
    actual_counts = actual[:, rows.index]
    recovered = one_reply.of_gradients(total, actual)
    told = Told(
        words=len(rows.index) / int((actual > 0).any(0).sum()),
        counts=False,
        some=recovered.some,
        wholly=recovered.wholly,
    )
    space = unmixing.space_of(rows.values, SINGLE, n)
    documents = None
    if n <= rows.values.shape[1]:
        documents = np.array(unmixing.parts(space, n, SECONDS, logs)).reshape(-1, len(space))
        told.wholly = max(told.wholly, exactly(documents, actual_counts))
        told.some = max(told.some, told.wholly)
    wide = np.zeros((actual.shape[1], space.shape[1]))
    present = np.zeros(actual.shape[1])
    wide[rows.index] = space
    present[rows.index] = 1
    asked = (summed.members(round_), summed.outside())
    expected = summed.usual(n)
    told.member = max(
        area(*(inside(wide, np.log1p(candidates)) for candidates in asked)),
        area(*(likelihood(present, False, expected, candidates) for candidates in asked)),
    )
    return told, documents


def by_embeddings(
    told: Told, summed: Summed, round_: int, total: Any, documents: Numbers | None
) -> None:
    """Read embeddings, where documents are read; ask after documents by theirs."""
    seen = total["weights"]["encoder_embedding"]
    vectors = summed.embedded(round_)
    if documents is not None and len(documents):
        made = np.linalg.lstsq(np.log1p(documents).T, rows_of(total).values, rcond=None)[0]
        told.embeddings = near(np.linalg.lstsq(made.T, seen.T, rcond=None)[0], vectors)
    space = unmixing.space_of(seen, SINGLE, len(vectors))
    others = np.asarray(summed.others.embeddings, float)
    told.member = max(told.member, area(inside(space, vectors), inside(space, others)))


def by_decoder(told: Told, summed: Summed, round_: int, total: Any, topics: Any) -> None:
    """Count words by the gradients of their biases; ask after documents by the counts."""
    counted = np.round(
        unmixing.occurrences(total["weights"]["word_bias"], np.asarray(topics, float))
    )
    occur = summed.bags(round_).any(0)
    told.words = float((counted[occur] > 0).mean())
    told.member = max(told.member, by_counts(summed, np.maximum(counted, 0), round_))


def mean(told: list[Told]) -> Told:
    fields = {name: [getattr(one, name) for one in told] for name in asdict(told[0])}
    means: dict[str, Any] = {name: float(np.mean(values)) for name, values in fields.items()}
    return Told(**means | {"counts": told[0].counts})


def logs(part: Numbers) -> Numbers:
    """Return the counts c that a part is log(1 + c) of, but for a factor."""
    scaled = part / part[part > 0].min()
    return wholest([np.expm1(np.minimum(scaled * np.log1p(n), LONGEST)) for n in (1, 2, 3)])


def counts(part: Numbers) -> Numbers:
    """Return the counts that a part has, but for a factor."""
    return wholest([n * part / part[part > 0].min() for n in (1, 2, 3)])


def wholest(tried: list[Numbers]) -> Numbers:
    """Return the numbers that are nearest to whole ones."""
    return min(tried, key=lambda numbers: float(np.abs(numbers - np.round(numbers)).max()))


def exactly(documents: Numbers, actual: Numbers) -> int:
    recovered = {row.tobytes() for row in documents + 0.0}
    return sum(row.tobytes() in recovered for row in actual + 0.0)


def near(points: Numbers, vectors: Numbers) -> int:
    cosine = np.abs(unit_rows(np.asarray(points, float)) @ unit_rows(vectors).T)
    return len({int(row.argmax()) for row in cosine if row.max() > NEAR})


def of_topics(summed: Summed) -> Told:
    """Take LDA's expected counts of a minibatch apart."""
    told = []
    for payload, total in summed.sums("expected_counts"):
        actual = summed.bags(payload["round"])
        rows = rows_of(total)
        recovered = one_reply.of_lda(payload, total, actual)
        occurring = rows.dense().sum(1)
        told.append(
            Told(
                words=len(rows.index) / (actual > 0).any(0).sum(),
                counts=True,
                some=recovered.some,
                wholly=recovered.wholly,
                member=by_counts(summed, occurring, payload["round"]),
            )
        )
    return mean(told)


def by_counts(summed: Summed, occurring: Numbers, round_: int | None = None) -> float:
    """Ask after documents by exact counts of words."""
    expected = summed.usual(len(summed.bags(round_)))
    asked = summed.members(round_), summed.outside()
    return area(*(likelihood(occurring, True, expected, candidates) for candidates in asked))


def of_words(summed: Summed) -> Told:
    """Ask after documents by the counts that the vocabulary has: all methods' first sum."""
    occurring = summed.bags().sum(0)
    return Told(1.0, True, member=by_counts(summed, occurring))


def of_all_topics(summed: Summed) -> Told:
    """Take LDA's expected counts of all documents apart, pass by pass, and its first sketch."""
    blocks = []
    for payload, total in summed.sums("all_expected_counts"):
        weights = topic_weights(payload["pseudo_counts"], np.arange(len(summed.words)))
        blocks.append(unit_rows(rows_of(total).dense() / weights))
    directions, groups = one_reply.directions(np.hstack(blocks), 3, DOUBLE)
    told = one_reply.judge(groups, np.zeros((len(summed.words), len(directions))), summed.bags())
    sketch = of_factors(summed)
    some = max(told.some, sketch.some)
    return Told(1.0, True, some=some, wholly=sketch.wholly, member=of_words(summed).member)


def of_space(summed: Summed, rows: Numbers, n: int, read: Callable[[Numbers], Numbers]) -> Told:
    """Find documents among what the columns of a table of words span."""
    actual = summed.bags()
    present = np.flatnonzero(np.abs(rows).max(1) > 0)
    space = unmixing.space_of(rows[present], DOUBLE, n)
    told = Told(1.0, True, member=of_words(summed).member)
    if space.shape[1] < min(rows[present].shape):  # else everything is in it
        documents = np.array(unmixing.parts(space, n, SECONDS, read)).reshape(-1, len(space))
        told.some = told.wholly = exactly(documents, actual[:, present])
    return told


def of_projections(summed: Summed) -> Told:
    """Take what is beside words apart: projected, without the words themselves."""
    total = next(iter(summed.sums("projections")))[1]
    n = int(total["documents"])
    rows = total["projections"]
    if n >= WIDTH:
        return of_words(summed)
    drawn = np.random.default_rng([SEED, WIDTH]).standard_normal(rows.shape)
    present = total["mass"] > 0
    rows[present] = unmixing.without_diagonal(rows[present], drawn[present] / np.sqrt(WIDTH), n)
    return of_space(summed, rows, n, counts)


def of_factors(summed: Summed) -> Told:
    """Take a sketch and NMF's sums of all rounds apart: weighted words times what is known."""
    blocks = []
    for payload, total in summed.sums("word_products", "factor_sums"):
        rarity = np.where(payload["rarity"] > 0, payload["rarity"], np.inf)
        blocks.append(total.get("sums", total.get("products")) / rarity[:, None])
    return of_space(summed, np.hstack(blocks), len(summed.bags()), logs)


def of_mixture(summed: Summed) -> Told:
    """Take the words of topics of all rounds apart, and sums of clusters before them."""
    blocks = [total["words"].T for _, total in summed.sums("topic_sums")]
    told = of_space(summed, np.hstack(blocks), len(summed.bags()), counts)
    points = of_points(summed)
    told.embeddings, told.member = points.embeddings, max(told.member, points.member)
    return told


def of_points(summed: Summed) -> Told:
    """Take sums of clusters apart; ask after documents by the sum of outer products."""
    payload, total = next(iter(summed.sums("embedding_moments")))
    vectors, others = (
        centred(np.asarray(embeddings, np.float32), payload["origin"]).astype(float)
        for embeddings in (summed.embedded(), summed.others.embeddings)
    )
    products = total["products"]
    leverages = (unmixing.leverage(products, points) for points in (vectors, others))
    told = Told(1.0, True, member=max(area(*leverages), of_words(summed).member))
    of_clusters = [
        (total["sums"].reshape(-1, DIMENSION), total["counts"].ravel())
        for _, total in summed.sums("cluster_sums", "first_centres")
    ]
    sums, sizes = (np.concatenate(parts) for parts in zip(*of_clusters, strict=True))
    sums, first = np.unique(sums.round(9)[sizes > 0], axis=0, return_index=True)
    if not len(sums):
        return told
    sizes = sizes[sizes > 0][first]
    candidates = [pairs_of_sums.isolated(sums, sizes), sums[sizes == 1]]
    some = np.random.default_rng(SEED).permutation(len(sums))[:SIGNALS]
    if len(vectors) < DIMENSION:
        signals = blind.signals(sums[some], float(sizes[some].mean()) / len(vectors))
        candidates.append(np.linalg.lstsq(signals, sums[some], rcond=None)[0])
    told.embeddings = near(np.concatenate(candidates), vectors)
    return told
