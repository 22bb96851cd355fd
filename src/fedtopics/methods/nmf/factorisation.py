"""Non-negative matrix factorisation with sums: X, the weighted words, is approximated by W H'.

References
----------
Cichocki and Phan, Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
Factorizations, IEICE Transactions 2009 (HALS). Boutsidis and Gallopoulos, SVD based initialization,
Pattern Recognition 2008 (NNDSVD). Halko, Martinsson and Tropp, Finding Structure with Randomness,
SIAM Review 2011, algorithm 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedtopics.contract.events import Candidate
from fedtopics.contract.replies import LIMIT, Bounds, Template, of_topics, sums
from fedtopics.errors import StudyError
from fedtopics.inference.nmf import NMFShape, rarities
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import ALL, CHOOSING
from fedtopics.methods.core.settings import TOO_FEW, check_known
from fedtopics.methods.core.training import RoundResult, iterate

PASSES = 8  # passes over all documents; with 4, results of seeds differ by .02 in NPMI
MORE = 20  # number of directions in addition to topics
ROUNDS_BEFORE = 20  # number of rounds if another method starts from the topics
SMOOTHING = 0.01  # occurrences added to each word in each topic
SWEEPS = 2  # sweeps over the topics, per round
PER_TOPIC = 10  # documents of a half, at least; larger numbers are not tried
WORSE = 3  # numbers of topics in a row without a better prediction, after which no more are tried
START = 0x6E6D66  # keeps these random choices apart from other uses of the seed


@dataclass(frozen=True)
class NMFState:
    """Topics of length 1, (n_words, n_topics), and the sums from which they were computed."""

    topics: Numbers
    sums: Numbers  # X' W, (n_words, n_topics)
    products: Numbers  # W' W, (n_topics, n_topics)
    documents: Numbers  # their number

    @classmethod
    def first(cls, topics: Numbers) -> NMFState:
        n = topics.shape[1]
        return cls(topics, np.zeros_like(topics), np.zeros((n, n)), np.zeros(()))


@dataclass(frozen=True)
class Factorisation:
    """Rounds of NMF, with words weighted by rarity and topics kept near `seed_vectors`."""

    rarity: Numbers
    seed_vectors: Numbers | None = None
    pull: float = 0.0
    known_words: bool = True  # the vocabulary was counted in these documents
    part: int = ALL  # which half of the documents, or all

    def exchange(self, agreement: Agreement, state: NMFState, round_: int) -> dict[str, Any]:
        # Documents have length 1, which also limits their shares of topics.
        counted = agreement.vocabulary.document_frequency[:, None]
        of_words = agreement.bound_if_announced(counted) if self.known_words else LIMIT
        k = state.topics.shape[1]
        template: Template = {
            "sums": sums(*state.sums.shape, most=of_words, per_document=1),
            "products": sums(k, k, per_document=1),
        }
        payload = {"rarity": self.rarity, "topics": state.topics, "part": self.part}
        return agreement.sum_groups("factor_sums", template, of_topics(k), round=round_, **payload)

    def step(
        self, agreement: Agreement, state: NMFState, reply: dict[str, Any], round_: int
    ) -> RoundResult[NMFState]:
        """Update each topic with the others fixed (HALS), then scale it to length 1."""
        earlier = agreement.weight_of_earlier_sums(round_)
        n = reply["documents"] + earlier * state.documents
        sums = reply["sums"] + earlier * state.sums
        products = reply["products"] + earlier * state.products
        loss = 1 - 2 * (sums * state.topics).sum() / n
        loss += (products * (state.topics.T @ state.topics)).sum() / n
        wanted = sums
        weights = products
        if self.seed_vectors is not None:  # add documents of only these words
            wanted = sums + self.pull * n * self.seed_vectors
            weights = products + self.pull * n * np.diag(np.square(self.seed_vectors).sum(0))
        topics = _descend(wanted, weights, state.topics)
        moved = np.linalg.norm(topics - state.topics)
        size = np.linalg.norm(topics)
        facts: Any = {"loss": float(loss), "documents": reply["documents"]}
        after = NMFState(topics, sums, products, np.asarray(n, np.float64))
        return RoundResult(after, facts, float(moved) / max(float(size), TINY))


def _descend(sums: Numbers, products: Numbers, topics: Numbers) -> Numbers:
    """Do a round's steps; a topic without enough documents at any client does not change."""
    rows, wanted, weights = (np.array(part.T, order="C") for part in (topics, sums, products))
    for _ in range(SWEEPS):
        for k in range(len(rows)):
            if weights[k, k] > TINY:
                rows[k] += (wanted[k] - weights[k] @ rows) / weights[k, k]
                np.maximum(rows[k], 0, out=rows[k])
    return np.ascontiguousarray(unit_rows(rows).T)


def best_number(
    agreement: Agreement,
    candidates: Sequence[int],
    rarity: Numbers,
    seed: int,
    notify: Callable[[Candidate], None],
) -> int:
    """Return the number of topics with which one half of the documents predicts the other best.

    Topics are computed from one half; in the other, they predict the words that are left out.
    """
    most = min(len(rarity), agreement.documents // (2 * PER_TOPIC))
    numbers = [number for number in candidates if number <= most]
    if not numbers:
        raise StudyError(TOO_FEW)
    leading = leading_directions(agreement, rarity, max(numbers), seed, CHOOSING)
    scores: dict[int, float] = {}
    for number in numbers:
        topics = without_signs(agreement, rarity, leading[:, :number], CHOOSING)
        rounds = Factorisation(rarity, part=CHOOSING)
        topics = iterate(agreement, rounds, NMFState.first(topics), repeat(0, ROUNDS_BEFORE)).topics
        template: Template = {"cosines": sums(per_document=1)}
        ask = partial(agreement.sum, "prediction", template, rarity=rarity, topics=topics)
        reply = agreement.round(0, ask)[0]
        scores[number] = reply["cosines"] / max(reply["documents"], 1)
        notify(Candidate(number, scores[number]))
        best = max(scores, key=lambda tried: scores[tried])
        if best not in list(scores)[-WORSE:]:
            break
    return best


def nndsvd_topics(agreement: Agreement, rarity: Numbers, n_topics: int, seed: int) -> Numbers:
    """Return first topics from the leading singular vectors of all documents (NNDSVD)."""
    leading = leading_directions(agreement, rarity, n_topics, seed)
    return without_signs(agreement, rarity, leading)


def leading_directions(
    agreement: Agreement, rarity: Numbers, n: int, seed: int, part: int = ALL
) -> Numbers:
    """Return the n leading singular vectors of the documents' weighted words, (n_words, n)."""
    n_words = len(rarity)
    width = min(n + MORE, n_words)
    drawn = np.random.default_rng([seed, START]).standard_normal((n_words, width))
    directions = np.linalg.qr(drawn)[0]
    # A document of length 1 adds at most 1 to each of its words.
    most = agreement.bound_if_announced(agreement.vocabulary.document_frequency[:, None])
    template: Template = {"products": Bounds((n_words, width), most, -most)}
    ask = partial(agreement.sum, "word_products", template, rarity=rarity, part=part)
    for number in range(PASSES):
        before = directions
        reply = agreement.round(0, partial(ask, directions=before))[0]
        if part != ALL and not reply["documents"]:
            raise StudyError(TOO_FEW)
        products = reply["products"]
        if number + 1 < PASSES:
            directions = np.linalg.qr(products)[0]
    values, vectors = np.linalg.eigh(before.T @ products)
    return np.ascontiguousarray(before @ vectors[:, np.argsort(-values)[:n]])


def without_signs(
    agreement: Agreement, rarity: Numbers, vectors: Numbers, part: int = ALL
) -> Numbers:
    """Keep the positive or the negative part of each singular vector, whichever explains more."""
    template: Template = {"squares": sums(2, vectors.shape[1], per_document=1)}
    ask = partial(agreement.sum, "signs", template, rarity=rarity, directions=vectors, part=part)
    squares = agreement.round(0, ask)[0]["squares"]
    above = np.maximum(vectors, 0)
    below = np.maximum(-vectors, 0)
    weight = [np.linalg.norm(side, axis=0) for side in (above, below)]
    up, down = (np.sqrt(squares) + TINY) * np.array(weight)  # TINY lets the longer part win ties
    return np.ascontiguousarray(unit_rows(np.where(up >= down, above, below).T).T)


def seed_vectors(
    seeds: Sequence[Sequence[str]], words: Mapping[str, int], n_topics: int
) -> Numbers:
    vectors = np.zeros((len(words), n_topics))
    check_known(dict(enumerate(seeds)), words)
    for number, seed in enumerate(seeds):
        rows = [words[word] for word in seed if word in words]
        vectors[rows, number] = 1 / np.sqrt(len(rows))
    return vectors


def replace_alike(topics: Numbers, seeds: Numbers) -> Numbers:
    """Put given directions first, and drop the topics that are most similar to them."""
    _, alike = linear_sum_assignment(-seeds.T @ topics)
    return np.hstack([seeds, np.delete(topics, alike, axis=1)])


def topics_before(agreement: Agreement, n_topics: int, seed: int) -> Numbers:
    frequency = agreement.vocabulary.document_frequency
    rarity = rarities(frequency, agreement.documents, NMFShape().rarity)
    state = NMFState.first(nndsvd_topics(agreement, rarity, n_topics, seed))
    state = iterate(agreement, Factorisation(rarity), state, repeat(0, ROUNDS_BEFORE))
    most = agreement.bound_if_announced(agreement.vocabulary.occurrences)
    template: Template = {"sums": sums(n_topics, len(rarity), most=most)}
    ask = partial(
        agreement.sum_groups,
        "topic_words",
        template,
        of_topics(n_topics),
        rarity=rarity,
        topics=state.topics,
    )
    words: Numbers = agreement.round(0, ask)[0]["sums"] + SMOOTHING
    words /= words.sum(1, keepdims=True)
    return words
