"""Federated discriminative clustering, a method of our own, which also gives FSTC's first labels.

Two steps alternate: Fisher's discriminant analysis finds the projection that separates the present
clusters best, and softmax memberships follow from the projected points. A bias per cluster, updated
like one column scaling of Sinkhorn's algorithm, keeps sizes even. Both steps need only sums.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import Candidate
from fedtopics.contract.interfaces import Run
from fedtopics.inference.clusters import Consensus
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.clusters.program import ClusterProgram, find_moments
from fedtopics.methods.clusters.settings import SKETCHED, DiscriminativeSettings, StartSettings
from fedtopics.methods.clusters.sums import Moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult, with_prefix, without_prefix
from fedtopics.methods.discriminative.client import ConsensusSums, DiscriminativeClient
from fedtopics.methods.discriminative.known_points import agree_with_oneself
from fedtopics.methods.discriminative.number import with_number
from fedtopics.methods.discriminative.separation import (
    Separation,
    Split,
    agree_on_clusters,
)
from fedtopics.methods.kmeans.lloyd import arrays_of, start_with_kmeans
from fedtopics.methods.nmf.sketch import sketch_of
from fedtopics.methods.registry import Method
from fedtopics.model.formulas import one_hot
from fedtopics.text.rounding import by_lot, coins_of, rounded, whole

PER_DIRECTION = 100  # documents, at least
LEAST_DIRECTIONS = 10  # with a single one, for instance, all documents are at one of two points
START_OF_WORDS = StartSettings(tries=12, rounds=20)  # of words' points; nothing is sent
WEIGHT_OF_POINT = 10.0  # of words, that one of their points stands for
SUM_STEP = 4.0  # sums of points of length 1 by word are rounded by lot to multiples of it


@dataclass(frozen=True)
class DiscriminativeState:
    separation: Separation
    split: Split
    words: Arrays = field(default_factory=dict)  # the words' points that move embeddings, if any


def start_separation(
    agreement: Agreement,
    settings: DiscriminativeSettings,
    seed: int,
    notify: Callable[[Candidate], None],
) -> DiscriminativeState:
    """Compute the points' moments, choose the number of clusters, and start from k-means."""
    inference = settings.build(len(agreement.vocabulary))
    words: Arrays = (
        find_words(agreement, inference, seed)
        if isinstance(inference, Consensus) and inference.n_directions
        else {}
    )
    origin = np.zeros(inference.n_dimensions)
    moments = find_moments(agreement, origin)
    settings = with_number(
        agreement, settings, origin=origin, moments=moments, seed=seed, notify=notify
    )
    # Clusters of words, which everybody knows, are better starts than drawn centres.
    centres = (
        centres_of_words(agreement, settings, inference, words, origin=origin, seed=seed)
        if isinstance(inference, Consensus) and words
        else None
    )
    clusters = start_with_kmeans(
        agreement,
        settings.start,
        settings.n_components,
        origin=origin,
        moments=moments,
        seed=seed,
        finalists=settings.separation.finalists,
        centres=centres,
    )
    return DiscriminativeState(
        Separation(settings, origin, moments),
        Split.of(clusters, settings.separation.sizes),
        words,
    )


def find_words(agreement: Agreement, inference: Consensus, seed: int) -> Arrays:
    """Send clients the words' points, rarity and directions, with zeros for words without sums."""
    reply = agreement.ask(
        ConsensusSums.embedding_sums_by_word,
        origin=np.zeros(inference.settings.embedding.dimension),
    )
    documents = max(reply["documents"], 1)
    counts, means, origin = means_by_word(reply["sums"], reply["sent"])
    rarity = np.log(np.maximum(documents / np.where(counts > 0, counts, documents), 1))
    words = {"word_origin": origin, "word_means": means.astype(np.float32), "rarity": rarity}
    directions = np.zeros((len(means), inference.n_directions), np.float32)
    n = min(inference.n_directions, documents // PER_DIRECTION)
    # Not only words that have a sum: their directions do not tell embeddings.
    frequency = np.maximum(agreement.vocabulary.document_frequency, 1)
    rarity = np.log(np.maximum(agreement.documents / frequency, 1))
    if n >= LEAST_DIRECTIONS:
        leading = sketch_of(agreement, rarity, min(SKETCHED, n // 2), seed).basis[:, :n]
        directions[:, : leading.shape[1]] = rarity[:, None] * leading
    words["word_directions"] = directions
    learn_words(agreement, words)
    return words


def centres_of_words(
    agreement: Agreement,
    settings: DiscriminativeSettings,
    inference: Consensus,
    words: Arrays,
    origin: Numbers,
    seed: int,
) -> Numbers | None:
    """Cluster the words' points, which all participants know, for centres to begin with.

    A word stands for more points, the more frequent and the rarer elsewhere it is. Returns None
    where random starts are better, with few documents, or the only ones, with few words.
    """
    present = np.flatnonzero(words["word_means"].any(1))
    if len(present) < settings.n_components or not words["word_directions"].any():
        return None
    frequency = np.maximum(agreement.vocabulary.document_frequency[present], 1)
    weights = np.sqrt(frequency) * words["rarity"][present]
    chosen = np.repeat(present, np.ceil(weights / WEIGHT_OF_POINT).astype(np.int64))
    embeddings = words["word_means"][chosen] + words["word_origin"]
    mixed = inference.mixed(embeddings, one_hot(chosen, inference.n_words), words)
    points = inference.points(origin, None, mixed)
    return start_with_kmeans(
        agree_with_oneself(np.asarray(points, np.float64), settings),
        START_OF_WORDS,
        settings.n_components,
        origin=origin,
        seed=seed,
        finalists=settings.separation.finalists,
    ).centres


def means_by_word(sums: Numbers, counts: Numbers) -> tuple[NDArray[np.int64], Numbers, Numbers]:
    """Round sums and counts; return the counts, the words' means less their mean, and that mean."""
    # The last bits of sums depend on which client has which document, so no coin follows from them.
    coins = coins_of(whole(np.column_stack([sums, counts])))
    sums = by_lot(sums / SUM_STEP, coins, np.arange(len(sums))) * SUM_STEP
    sizes = rounded(counts)
    means = sums / np.maximum(sizes, 1)[:, None]
    origin = sizes @ means / max(sizes.sum(), 1)  # from rounded sums, so no document changes it
    return sizes, np.where(sizes[:, None] > 0, means - origin, 0), origin


def learn_words(agreement: Agreement, words: Arrays) -> None:
    """Let clients move their embeddings towards their words' points, if these are known."""
    if words:
        agreement.tell(ConsensusSums.learn_words, **words)


class Discriminative(ClusterProgram[DiscriminativeSettings, DiscriminativeState]):
    """The method's program."""

    def first_state(self, agreement: Agreement, run: Run) -> DiscriminativeState:
        return start_separation(agreement, self.settings, self.plan.seed, partial(self.note, run))

    def exchange(self, agreement: Agreement, state: DiscriminativeState, round_: int) -> Any:
        return state.separation.exchange(agreement, state.split, round_)

    def step(
        self, agreement: Agreement, state: DiscriminativeState, reply: Any, round_: int
    ) -> RoundResult[DiscriminativeState]:
        step = state.separation.step(agreement, state.split, reply, round_)
        return RoundResult(replace(state, split=step.state), step.facts, step.change)

    def save(self, state: DiscriminativeState) -> Arrays:
        moments = state.separation.moments
        return {
            "origin": state.separation.origin,
            "count": np.array(moments.count),
            "mean": moments.mean,
            "scatter": moments.scatter,
            "rounds": np.array(state.split.rounds),
            **with_prefix("words", state.words),
            **with_prefix("split", arrays_of(state.split)),
        }

    def load(self, agreement: Agreement, arrays: Arrays) -> DiscriminativeState:
        separation = Separation(
            self.settings,
            arrays["origin"],
            Moments(int(arrays["count"]), arrays["mean"], arrays["scatter"]),
        )
        split = Split(**without_prefix("split", arrays), rounds=int(arrays["rounds"]))
        words = without_prefix("words", arrays)
        learn_words(agreement, words)  # clients may have been restarted
        return DiscriminativeState(separation, split, words)

    def weights(self, agreement: Agreement, state: DiscriminativeState, rounds: int) -> Arrays:
        """Return the arrays of the consensus, or of the clustering with the best separation."""
        if self.settings.inference is Consensus:
            # Rounds may end before a trial.
            split = state.split if self.settings.separation.sizes == "both" else state.split.best()
            return agree_on_clusters(agreement, state.separation, split) | state.words
        return {
            "origin": state.separation.origin,
            **state.separation.direct(state.split.best()).weights(),
        }


METHOD = Method(
    name="discriminative",
    title="discriminative clustering",
    settings=DiscriminativeSettings,
    program=Discriminative,
    client=DiscriminativeClient,
    version=6,
    shows="clusters",
)
