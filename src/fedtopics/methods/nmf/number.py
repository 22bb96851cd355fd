"""The number of topics: that whose topics say most, and most reliably, about unseen documents.

The documents are divided at random into thirds, in three divisions, and each document's words into
two parts. Topics of a third come from a sketch of its words' products, for all numbers of topics
without further sums. Pairs with a word that is rare in a third at a client count by a third of
their sum over all its documents: without them, too few words of small clients are left. Topics of
two thirds then read the documents of the last one. Which topic each part of a document names gives
two tables of counts:

- own: the same topics read both parts;
- other: topics of one third read one part, topics of the other third read the other part.

The score of a number of topics is the information of "other" times the geometric mean of the kappas
of both tables. Few topics agree but say little; of many, chance decides.

References
----------
Miller, Note on the Bias of Information Estimates, 1955 (the bias of a table of counts). Cohen, A
Coefficient of Agreement for Nominal Scales, 1960 (kappa). Tibshirani and Walther, Cluster
Validation by Prediction Strength, 2005 (unseen documents decide).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from fedtopics.contract.events import Candidate
from fedtopics.contract.published import Reply
from fedtopics.errors import StudyError
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import DIVISIONS, THIRDS
from fedtopics.methods.core.settings import TOO_FEW
from fedtopics.methods.nmf.client import (
    COMPANY,
    KINDS,
    MOST_WORDS,
    PASSES,
    READINGS,
    NumberSums,
    sketch_width,
)
from fedtopics.methods.nmf.sketch import RANDOM, Sketch, factorise

PER_TOPIC = 10  # documents of a third, at least; larger numbers are not tried
NEARLY = 0.9  # of the best score: numbers that are about as good
STARTS = 2  # fewer than for the model: doubling them did not change the choice
SWEEPS = 30
MATCHINGS = 3  # rounds in which the topics of all thirds are put in the same order


def score_numbers(
    agreement: Agreement,
    candidates: Sequence[int],
    rarity: Numbers,
    seed: int,
    notify: Callable[[Candidate], None],
) -> dict[int, float]:
    """Return the score of each number of topics for which there are enough documents."""
    frequent = rarity[:MOST_WORDS]  # the vocabulary begins with the most frequent words
    numbers = _enough_for(candidates, len(frequent), agreement.documents // THIRDS)
    sketches, documents = _sketches(agreement, frequent, max(numbers), seed)
    numbers = _enough_for(numbers, len(frequent), documents)
    length = agreement.length
    topics = [
        _topics_of_thirds(sketches, number, seed, sketch_width(number, len(frequent), length))
        for number in numbers
    ]
    reply = agreement.ask_once(
        NumberSums.topics_of_parts,
        rarity=frequent,
        topics=np.concatenate(topics, axis=2),
        numbers=numbers,
    )
    scores = {}
    for place, number in enumerate(numbers):
        same_topics, other_topics = (
            joint_table(reply["cells"][kind], READINGS * DIVISIONS * reply["documents"], number)
            for kind in range(KINDS * place, KINDS * (place + 1))
        )
        scores[number] = score_of(same_topics, other_topics, reply["documents"])
        notify(Candidate(number, scores[number]))
    if not any(scores.values()):
        raise StudyError(TOO_FEW)
    return scores


def about_as_good(scores: Mapping[int, float]) -> tuple[int, int]:
    """Return the least and the largest number around the best one with nearly its score."""
    best = max(scores, key=lambda number: scores[number])
    worse = [number for number, score in scores.items() if score < NEARLY * scores[best]]
    below = max((number for number in worse if number < best), default=0)
    above = min((number for number in worse if number > best), default=np.inf)
    good = [number for number in scores if below < number < above]
    return good[0], good[-1]


def _enough_for(candidates: Sequence[int], n_words: int, documents: int) -> list[int]:
    """Return the numbers for which a third has enough documents; StudyError if none has."""
    most = min(n_words, documents // PER_TOPIC)
    numbers = [number for number in candidates if number <= most]
    if not numbers:
        raise StudyError(TOO_FEW)
    return numbers


def _sketches(
    agreement: Agreement, rarity: Numbers, n_topics: int, seed: int
) -> tuple[list[Sketch], int]:
    """Return a sketch of each third of each division, and the number of documents of a third."""
    shape = len(rarity), sketch_width(n_topics, len(rarity), agreement.length)
    # Each third has directions of its own, so that sums of different thirds cannot be combined.
    drawn = np.random.default_rng([seed, RANDOM]).standard_normal((DIVISIONS * THIRDS, *shape))
    directions = drawn
    reply: Reply = {"products": drawn}
    for _ in range(PASSES):
        directions = np.linalg.qr(reply["products"])[0]
        reply = agreement.ask_once(
            NumberSums.products_of_thirds, rarity=rarity, directions=directions
        )
    thirds = zip(directions, reply["products"], strict=True)
    return [Sketch.of(of_third, sums) for of_third, sums in thirds], reply["documents"]


def _topics_of_thirds(
    sketches: Sequence[Sketch], number: int, seed: int, width: int
) -> NDArray[np.float64]:
    """Return the topics of each third, (n_thirds, n_words, number), in the same order.

    The order is such that topics of different thirds are as near as possible.
    """
    topics = np.stack(
        [factorise(sketch.first(width), number, seed, STARTS, SWEEPS) for sketch in sketches]
    )
    mean = topics[0]
    for _ in range(MATCHINGS):
        orders = [linear_sum_assignment(-mean.T @ of_third)[1] for of_third in topics]
        topics = np.stack(
            [of_third[:, order] for of_third, order in zip(topics, orders, strict=True)]
        )
        mean = unit_rows(topics.sum(0).T).T
    return topics


def joint_table(cells: NDArray[np.int64], readings: int, number: int) -> NDArray[np.float64]:
    """Return the table of a sum over clients, of topics in any order; "none" comes last.

    Readings that clients left out are taken as independent, with the shares of the other cells.
    """
    table = np.zeros((number + 1, number + 1))
    high, low = np.tril_indices(number + 1)
    table[high, low] = cells[COMPANY + 1 :][: len(low)]
    table = (table + table.T) / 2
    shares = table.sum(1) / max(table.sum(), 1)
    return np.asarray(table + (readings - table.sum()) * np.outer(shares, shares))


def score_of(same_topics: Numbers, other_topics: Numbers, documents: int) -> float:
    """Return the score of a number of topics from its two tables; 0 is that of chance."""
    agreeing = max(kappa(same_topics), 0.0) * max(kappa(other_topics), 0.0)
    return float(max(information(other_topics, documents), 0.0) * np.sqrt(agreeing))


def information(table: Numbers, documents: int) -> float:
    """Return the mutual information of rows and columns in nats, less its bias.

    The bias is that of a table of so many documents, though each is counted several times in it.
    """
    joint = table / max(table.sum(), TINY)
    expected = np.outer(joint.sum(1), joint.sum(0))
    present = joint > 0
    n_rows, n_columns = (np.count_nonzero(joint.sum(axis)) for axis in (1, 0))
    bias = (n_rows - 1) * (n_columns - 1) / (2 * max(documents, 1))
    return float((joint[present] * np.log(joint[present] / expected[present])).sum() - bias)


def kappa(table: Numbers) -> float:
    """Return how often rows and columns agree beyond chance, 1 at most."""
    joint = table / max(table.sum(), TINY)
    chance = joint.sum(1) @ joint.sum(0)
    return float((np.trace(joint) - chance) / max(1 - chance, TINY))
