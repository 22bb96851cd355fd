"""Words that tell embeddings: which are summed, what attacks read in sums, and the consensus."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from benchmarks.attacks import sums_by_word as attack
from fedtopics import Policy
from fedtopics.datasets import split_clients
from fedtopics.inference.clusters import Consensus, centred
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.discriminative import client as clients
from fedtopics.methods.discriminative import method
from fedtopics.methods.discriminative.client import distinct_words
from fedtopics.methods.discriminative.method import SUM_STEP, means_by_word
from fedtopics.methods.discriminative.separation import UNSEEN, votes_of
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    accuracy,
    blobs,
    corpus_of,
    half,
    planned,
    spread,
    trained,
)


def bag_of(*words: range | list[int], n: int = 200) -> sparse.csr_array:
    bag = np.zeros((n, len(words)))
    for column, rows in enumerate(words):
        bag[list(rows), column] = 2
    return sparse.csr_array(bag)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([range(30), range(9, 30), range(50, 60)], [True, False, True]),  # nine documents apart
        ([range(30), range(10, 30), range(50, 60)], [True, True, True]),  # ten
        ([range(9, 30), range(30)], [False, True]),  # the rarer one is left out
        ([range(20), range(20)], [True, False]),  # over clients, they may be apart by few
        ([range(5), range(5, 10), range(10, 14)], [True, True, False]),  # nothing in common
        ([range(30), range(5, 30), range(10, 30)], [True, False, True]),  # of those that are kept
    ],
)
def test_sums_of_two_words_differ_in_enough_documents(words: Any, expected: list[bool]) -> None:
    assert distinct_words(bag_of(*words), 10).tolist() == expected
    assert distinct_words(bag_of(*words), 1).all(), "where one document is enough"


def test_there_are_three_documents_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    bag = bag_of(*(range(i, i + 20 + i) for i in range(0, 100, 20)))
    assert distinct_words(bag, 10).all()
    monkeypatch.setattr(clients, "PER_WORD", 60)  # 200 documents: three words, the first ones
    mixed = sparse.csr_array(bag.toarray()[:, [0, 3, 1, 4, 2]])
    assert distinct_words(mixed, 10).tolist() == [False, True, False, True, True]


def test_so_do_sums_over_clients() -> None:
    """Of words that clients leave out by their own documents alone, whatever others have."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        words = rng.random((60, 8)) < 0.3
        clients = np.split(np.hstack([words, words ^ (rng.random(words.shape) < 0.04)]), 3)
        masks = [distinct_words(sparse.csr_array(has.astype(float)), 4) for has in clients]
        total = np.vstack([has & mask for has, mask in zip(clients, masks, strict=True)])
        total = total[:, total.sum(0) >= 4]
        apart = (total[:, :, None] ^ total[:, None]).sum(0)
        np.fill_diagonal(apart, 4)
        assert apart.min() >= 4
        assert total.shape[1] >= 6


@cache
def sums(guarded: bool) -> list[attack.Sums]:
    corpora = split_clients(attack.texts(None, ""), by="even", n_clients=3)
    return attack.played(list(corpora.values()), guarded=guarded)


@pytest.mark.parametrize("whose", [0, -1], ids=["one client", "total"])
def test_attacks_find_documents_without_the_guard_alone(whose: int) -> None:
    open_ = sums(False)[whose]
    closed = sums(True)[whose]
    read = attack.read_in_pairs(open_)
    (solved, share) = attack.solved(open_)
    assert len(read) >= 3
    assert solved >= read
    assert share == pytest.approx(1)
    few_documents = attack.few(open_.has)
    assert few_documents[2] > 20
    assert few_documents[attack.STEPS] > 20
    assert not attack.read_in_pairs(closed)
    assert attack.few(closed.has) == {2: 0, 3: 0, attack.STEPS: 0}
    nothing, largest = attack.solved(closed)
    assert not nothing
    assert largest < 0.6


def test_more_words_than_documents_solve_no_embedding() -> None:
    rng = np.random.default_rng(1)
    texts = [[f"w{w}" for w in np.flatnonzero(rng.random(150) < 0.3)] for _ in range(80)]
    corpus = corpus_of(rng.normal(size=(80, 40)), texts=texts)
    open_, closed = (attack.played([corpus], guarded=guarded)[0] for guarded in (False, True))
    assert len(attack.solved(open_)[0]) == 80
    assert closed.has.shape[1] == 26
    read, share = attack.solved(closed)
    assert not read
    assert share < 0.8


def test_combinations_of_three_words_are_looked_for() -> None:
    """A word that documents of two others have, who have nothing in common, and three more."""
    has = bag_of(range(20, 80), range(20, 50), range(53, 80), n=100).toarray() > 0
    assert attack.few(has.astype(np.int64)) == {2: 0, 3: 1, attack.STEPS: 1}


def test_a_client_sums_the_points_of_each_word() -> None:
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(40, DIMENSION))
    embeddings[3] = 0  # without one
    texts = [["many"] * 3 if i < 20 else ["few"] if i < 29 else ["ten"] for i in range(40)]
    texts[30] = ["ten", "many"]
    client = half(
        planned("discriminative"), corpus_of(embeddings, texts=texts), Policy(min_persons=10)
    )
    origin = rng.normal(size=DIMENSION)
    reply = client.function("embedding_sums_by_word")(origin)
    points = centred(np.asarray(client.corpus.embeddings), origin).astype(float)
    many = [i for i in range(20) if i != 3] + [30]
    expected = np.array([np.zeros(DIMENSION), points[many].sum(0), points[29:].sum(0)])
    np.testing.assert_allclose(reply["sums"], expected, atol=1e-12)
    np.testing.assert_array_equal(reply["sent"], [0, 20, 11])
    assert reply["documents"] == 39


def test_with_masks_enough_documents_of_all_have_a_word() -> None:
    texts = [["six"] if i < 6 else ["three"] if i < 9 else ["many"] for i in range(40)]
    plan = planned("discriminative")
    corpus = corpus_of(np.random.default_rng(0).normal(size=(40, DIMENSION)), texts=texts)
    client = half(plan, corpus, Policy(min_persons=10))
    client.guard.of_all = True
    ask = client.function("embedding_sums_by_word")
    counted = ask(np.zeros(DIMENSION), {"least": 10, "clients": 1})
    np.testing.assert_array_equal(counted["squares"], [31, 6, 0])  # in alphabetical order
    assert "sums" not in counted
    for total, sent in ((12, [31, 6, 0]), (9, [31, 0, 0])):
        persons = np.array([50, total, 20])
        counts = {"squares": persons, "fourths": persons}
        reply = ask(np.zeros(DIMENSION), {"least": 10, "clients": 1, "counted": counts})
        np.testing.assert_array_equal(reply["sent"], sent)
        np.testing.assert_array_equal(reply["sums"].any(1), np.array(sent) > 0)


CORPUS = blobs(300, spread=2.5)


def test_votes_are_how_often_memberships_go_together() -> None:
    evidence = votes_of(np.array([[8.0, 2.0, 5.0, 5.0], [0, 0, 0, 0]]), np.array([10.0, 0]))
    first = np.log([(8 + UNSEEN) / (10 + 2 * UNSEEN), (2 + UNSEEN) / (10 + 2 * UNSEEN), 0.5, 0.5])
    np.testing.assert_allclose(evidence["votes"], [first, np.log([0.5] * 4)])
    np.testing.assert_allclose(
        evidence["sizes"], np.log([(10 + UNSEEN) / (10 + 2 * UNSEEN), UNSEEN / (10 + 2 * UNSEEN)])
    )


def pooled(members: Any, k: int) -> Any:
    """The consensus in a few lines: from the first clustering on, until documents stay."""
    shares = members[:, :k]
    before = np.zeros(k)
    moved = len(members)
    while moved >= 1e-3 * len(members):
        sizes = shares.sum(0) + 0.01
        moved = np.abs(shares.sum(0) - before).sum()
        before = shares.sum(0)
        blocks = np.split(shares.T @ members + 0.01, 8, axis=1)
        votes = np.log(np.hstack([block / block.sum(1, keepdims=True) for block in blocks]))
        scores = np.exp(members @ votes.T) * sizes
        shares = scores / scores.sum(1, keepdims=True)
    return votes, shares


def test_fewer_than_a_thousand_documents_are_not_extended() -> None:
    model = trained(planned("discriminative", max_rounds=2), {"a": CORPUS})
    assert not model.weights["word_directions"].any()


def test_it_is_the_consensus_of_pooled_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "PER_DIRECTION", 20)
    plan = planned("discriminative", max_rounds=8)
    model = trained(plan, spread(CORPUS, 3))
    weights = model.weights
    embedded = np.asarray(plan.embedded(CORPUS).embeddings)
    bag = model.count_words(CORPUS)
    has = (bag > 0).astype(float)
    sums = has.T @ centred(embedded, np.zeros(DIMENSION)).astype(float)
    counts, means, origin = means_by_word(sums, has.sum(0))
    np.testing.assert_allclose(
        means + origin, sums / has.sum(0)[:, None], atol=3 * SUM_STEP / has.sum(0).min()
    )
    np.testing.assert_allclose(weights["word_origin"], origin, atol=1e-12)
    np.testing.assert_allclose(weights["word_means"], means, atol=1e-6)
    np.testing.assert_allclose(weights["rarity"], np.log(300 / counts))
    assert isinstance(model.inference, Consensus)
    rarity = np.log(300 / model.vocabulary.document_frequency)
    weighted = unit_rows((bag.log1p() * rarity).toarray())
    directions = weights["word_directions"] / rarity[:, None]
    values = np.linalg.eigvalsh(weighted.T @ weighted)[::-1]
    squared_lengths = np.square(weighted @ directions).sum(0)
    np.testing.assert_allclose(squared_lengths[:15], values[:15], rtol=1e-4)
    assert not squared_lengths[15:].any(), "20 documents for each direction"
    mixed = model.inference.mixed(embedded, bag, weights)
    assert not weights["origin"].any()
    points = model.inference.points(weights["origin"], None, mixed)
    members = model.inference.members(weights, points.astype(float))
    assert members.shape == (300, 8 * CLUSTERS)
    votes, shares = pooled(members, CLUSTERS)
    np.testing.assert_allclose(weights["votes"], votes, atol=1e-5)
    np.testing.assert_allclose(model.transform(CORPUS), shares, atol=1e-5)
    assert weights["bias"].any(1).tolist() == [True] * 4 + [False] * 4, "even ones first"


def test_words_separate_what_embeddings_do_not() -> None:
    """Two groups of one direction, each with words that also go with a direction of their own."""
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    centres = 2 * rng.normal(size=(3, DIMENSION))
    has_signal = rng.random(600) < 0.5  # of the others, embeddings are noise
    embeddings = centres[labels] * has_signal[:, None] + rng.normal(size=(600, DIMENSION))
    texts = [[f"{'abc'[k]}{w}" for w in rng.choice(12, 4, replace=False)] for k in labels]
    corpora = spread(corpus_of(embeddings, labels, texts), 3)
    plain, told = (
        trained(planned("discriminative", n_components=3, word_weight=weight), corpora)
        for weight in (0, 0.8)
    )

    assert accuracy(plain, corpora) < 0.75
    assert accuracy(told, corpora) > 0.97
