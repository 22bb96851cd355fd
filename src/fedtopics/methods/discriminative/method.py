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

from fedtopics.contract.events import Candidate
from fedtopics.contract.interfaces import Run
from fedtopics.inference.clusters import Consensus, Discriminants
from fedtopics.methods.clusters.program import ClusterProgram, find_moments, find_origin
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.clusters.sums import Moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult, with_prefix, without_prefix
from fedtopics.methods.discriminative.client import DiscriminativeClient
from fedtopics.methods.discriminative.number import with_number
from fedtopics.methods.discriminative.separation import (
    Separation,
    Split,
    agree_on_clusters,
    sum_by_group,
)
from fedtopics.methods.kmeans.lloyd import arrays_of, start_with_kmeans
from fedtopics.methods.nmf.factorisation import leading_directions
from fedtopics.methods.registry import Method

PER_DIRECTION = 100  # documents, at least
LEAST_DIRECTIONS = 10  # with a single one, for instance, all documents are at one of two points


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
    shape = settings.shape(settings.inference.settings_type)
    inference = settings.inference(len(agreement.vocabulary), shape)
    words: Arrays = {}
    if isinstance(inference, Consensus) and inference.n_directions:
        words = find_words(agreement, inference, seed)
    origin, moments = find_moments(agreement, inference.n_dimensions)
    settings = with_number(
        agreement, settings, origin=origin, moments=moments, seed=seed, notify=notify
    )
    clusters = start_with_kmeans(
        agreement,
        settings.start,
        settings.n_components,
        origin=origin,
        moments=moments,
        seed=seed,
        finalists=settings.separation.finalists,
    )
    split = Split.of(clusters, settings.separation.sizes)
    return DiscriminativeState(Separation(settings, origin, moments), split, words)


def find_words(agreement: Agreement, inference: Consensus, seed: int) -> Arrays:
    """Send clients the words' points, rarity and directions, with zeros for words without sums."""
    shape = len(agreement.vocabulary), inference.settings.embedding.dimension
    origin = find_origin(agreement, shape[1])
    reply = sum_by_group(agreement, "point_sums", shape, origin=origin)
    counts = reply["sent"]
    documents = max(reply["documents"], 1)
    means = reply["sums"] / np.maximum(counts, 1)[:, None]
    rarity = np.log(documents / np.where(counts > 0, counts, documents))
    words = {"word_origin": origin, "word_means": means.astype(np.float32), "rarity": rarity}
    directions = np.zeros((shape[0], inference.n_directions), np.float32)
    n = min(inference.n_directions, documents // PER_DIRECTION)
    # Not only words that have a sum: their directions do not tell embeddings.
    frequency = np.maximum(agreement.vocabulary.document_frequency, 1)
    rarity = np.log(np.maximum(agreement.documents / frequency, 1))
    if n >= LEAST_DIRECTIONS:
        directions[:, :n] = rarity[:, None] * leading_directions(agreement, rarity, n, seed)
    words["word_directions"] = directions
    learn_words(agreement, words)
    return words


def learn_words(agreement: Agreement, words: Arrays) -> None:
    """Let clients move their embeddings towards their words' points, if these are known."""
    if words:
        vocabulary = agreement.vocabulary.fingerprint
        agreement.clients.tell("learn_words", vocabulary=vocabulary, **words)


class Discriminative(ClusterProgram[DiscriminativeSettings, DiscriminativeState]):
    """The method's program."""

    @property
    def inference(self) -> type[Consensus] | type[Discriminants]:  # type: ignore[override]
        return self.settings.inference

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
        arrays = {"origin": state.separation.origin, "count": np.array(moments.count)}
        arrays |= {"mean": moments.mean, "scatter": moments.scatter}
        arrays |= {"rounds": np.array(state.split.rounds), **with_prefix("words", state.words)}
        return arrays | with_prefix("split", arrays_of(state.split))

    def load(self, agreement: Agreement, arrays: Arrays) -> DiscriminativeState:
        moments = Moments(int(arrays["count"]), arrays["mean"], arrays["scatter"])
        separation = Separation(self.settings, arrays["origin"], moments)
        split = Split(**without_prefix("split", arrays), rounds=int(arrays["rounds"]))
        words = without_prefix("words", arrays)
        learn_words(agreement, words)  # clients may have been restarted
        return DiscriminativeState(separation, split, words)

    def weights(self, agreement: Agreement, state: DiscriminativeState, rounds: int) -> Arrays:
        """Return the arrays of the consensus, or of the clustering with the best separation."""
        if self.inference is Consensus:
            both = self.settings.separation.sizes == "both"
            split = state.split if both else state.split.best()  # rounds may end before a trial
            return agree_on_clusters(agreement, state.separation, split) | state.words
        directed = state.separation.direct(state.split.best())
        return {"origin": state.separation.origin, **directed.weights()}


METHOD = Method(
    name="discriminative",
    title="discriminative clustering",
    settings=DiscriminativeSettings,
    program=Discriminative,
    client=DiscriminativeClient,
    version=6,
    shows="clusters",
)
