"""Attacks of docs/threat-model.md, small: those that find nothing, and those that still do.

Who attacks has the study with its seed, the program, and all replies of a client or the totals.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pytest

from benchmarks.attacks import blind, by_method, one_reply, solving, summed, unmixing
from benchmarks.attacks.tapped import Tap, bag_of, documents_of, federate, vocabulary_of
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus

NETWORK = {"name": "gfedntm", "norm": "local", "hidden": [20, 20], "n_components": 10}
Played = tuple[Study, dict[str, Corpus], dict[str, Tap]]


@cache
def played(size: int, rounds: int, batch: int, network: bool = False, clients: int = 3) -> Played:
    """A study of clients with so many documents each, so many of which are in a minibatch."""
    corpora = documents_of(None, clients, size)
    study = solving.study_of(rounds, batch, clients, **(NETWORK if network else {}))
    keys = {name: hashlib.sha256(name.encode()).digest() for name in corpora}
    return study, corpora, federate(study, corpora, key=keys.__getitem__)[1]


def test_rounds_and_the_seed_do_not_tell_documents() -> None:
    """Minibatches were drawn from the study's seed: 120 of 120 documents, to the last count."""
    found = solving.attack_lda(*played(120, 200, 16))
    assert found.solved == 0
    assert found.recall <= found.guessing


def test_totals_and_the_seed_do_not_tell_documents() -> None:
    """The same from the totals alone, of all clients' documents."""
    found = solving.attack_lda_total(*played(24, 200, 10))
    assert found.solved == 0
    assert found.recall <= found.guessing


def test_words_of_minibatches_do_not_tell_those_of_documents() -> None:
    """A document's words are in all of its minibatches: recall was .85 of the words."""
    found = solving.attack_gfedntm(*played(120, 200, 16, network=True))
    assert found.solved == 0
    assert found.recall <= found.guessing + 0.02, "frequent words are in the most minibatches"


@pytest.mark.parametrize("network", [True, False])
def test_no_word_leaves_that_its_client_did_not_name(network: bool) -> None:
    """Rows of the first layer named words of one document that other clients' words agreed on."""
    rare, left, single = solving.rare_words(*played(120, 10, 52, network=network))
    assert rare > 20
    assert (left, single) == (0, 0)


@pytest.mark.parametrize("network", [True, False])
def test_one_reply_tells_documents_of_its_minibatch(network: bool) -> None:
    """This remains until replies are masked: who adds, sees the words of documents."""
    study, corpora, taps = played(120, 5, 10, network=network)
    told = one_reply.attack(study, corpora, taps)
    assert told.some > 0.5 * told.documents


def test_many_rounds_of_few_documents_tell_them_blindly() -> None:
    """This remains: no minibatch is known, but there are many more rounds than documents."""
    _, corpora, taps = played(40, 400, 10, clients=2)
    name = next(iter(corpora))
    counts = solving.minibatch_counts(taps[name])
    actual = bag_of(corpora[name], vocabulary_of(taps[name].calls))
    assert blind.attack(counts, actual, 10 / 40)[1] > 20
    few = counts[:36]  # rounds than documents
    assert blind.attack(few, actual, 10 / 40)[1] == 0


@pytest.mark.parametrize(("units", "least", "most"), [(30, 29, 30), (12, 0, 5)])
def test_a_sum_over_fewer_documents_than_hidden_units_tells_them(
    units: int, least: int, most: int
) -> None:
    """Masks hide whose documents they are, not the documents: 10 of each of three clients."""
    network = {
        "name": "gfedntm", "hidden": [units, units], "n_components": 5, "max_rounds": 1,
        "batch_size": 30,
    }  # fmt: skip
    told = by_method.of_gradients(summed.play(network, 3, 3, 60, None))
    assert least <= told.wholly <= most
    assert told.words == 1
    assert told.member > 0.9


def test_documents_are_the_corners_of_what_sums_span() -> None:
    """Whole numbers, as many documents as dimensions; what is beside words is a row of its own."""
    rng = np.random.default_rng(0)
    documents = (rng.random((20, 150)) < 0.1) * rng.integers(1, 4, (20, 150)) * 1.0
    projected = documents.T @ rng.normal(size=(20, 40))
    space = unmixing.space_of(projected, 1e-9, 20)
    found = unmixing.parts(space, 20, 10, by_method.counts)
    assert by_method.exactly(np.array(found), documents) == 20
    directions, own = rng.normal(size=projected.shape), rng.random(150)
    mended = unmixing.without_diagonal(projected - own[:, None] * directions, directions, 20)
    np.testing.assert_allclose(mended, projected, atol=1e-6)


def test_who_is_a_member_is_asked_by_counts() -> None:
    counts, usual = np.array([3.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0])
    in_it, not_in_it = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    scores = unmixing.likelihood(counts, True, usual, np.array([in_it, not_in_it]))
    assert scores[0] > 0 > scores[1]
    assert unmixing.area(scores[:1], scores[1:]) == 1
    assert unmixing.area(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.5
