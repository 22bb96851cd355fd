"""A reader of two models, one of them without a document: what their difference tells."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedtopics import Corpus, Study, TopicModel
from fedtopics.federation.simulation import train
from fedtopics.methods.clusters.program import ORIGIN_STEP
from fedtopics.text.rounding import at_most, rounded, steps_of

RNG = np.random.default_rng(5)
WORDS = np.array([f"word{i:03}x" for i in range(500)])
CHANCES = 1 / (20 + np.arange(500))
TEXTS = [RNG.choice(WORDS, 40, p=CHANCES / CHANCES.sum()).tolist() for _ in range(450)]
GONE = TEXTS[7]
POINTS = RNG.normal(size=(450, 6)) + 3 * np.eye(6)[np.arange(450) % 3]
POINTS = (POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)).astype(np.float32)
CLUSTERS = {"n_components": 3, "max_rounds": 8, "embedding": {"dimension": 6}}
METHODS: dict[str, dict[str, Any]] = {
    "nmf": {"name": "nmf", "n_components": 4, "max_rounds": 4},
    "lda": {"name": "lda", "n_components": 4, "max_rounds": 6, "batch_size": 100},
    "lda, batch": {"name": "lda", "n_components": 4, "max_rounds": 4, "learning": "batch"},
    "gfedntm": {"name": "gfedntm", "n_components": 4, "max_rounds": 5},
    "kmeans": {"name": "kmeans", **CLUSTERS},
    "mixture": {"name": "mixture", **CLUSTERS},
    "discriminative": {"name": "discriminative", **CLUSTERS},
}


@pytest.fixture(scope="module", params=METHODS)
def models(request: Any) -> list[TopicModel]:
    trained = []
    for without in (False, True):
        corpora = {}
        for place, name in enumerate("abc"):
            own = [row for row in range(place, 450, 3) if not (without and row == 7)]
            corpora[name] = Corpus.of([TEXTS[row] for row in own]).with_embeddings(POINTS[own])
        method = {**METHODS[request.param], "coherence": "nothing"}
        trained.append(train(Study.make(seed=1, method=method).here(corpora), corpora))
    return trained


def arrays(model: TopicModel) -> dict[str, Any]:
    """What follows from an array by word: the numbers that were exact counts before."""
    by_word = {
        "documents": model.vocabulary.document_frequency,
        "occurrences": model.vocabulary.occurrences,
        "sums": model.word_sums.sum(0),
    }
    if "pseudo_counts" in model.weights:
        by_word["pseudo-counts"] = np.asarray(model.weights["pseudo_counts"]).sum(1)
    for name in ("rarity", "origin"):
        if np.shape(model.weights.get(name)) == (len(model.vocabulary),):
            by_word[name] = -np.asarray(model.weights[name])
    return by_word


def test_falling_counts_tell_no_word(models: list[TopicModel]) -> None:
    """Of the words whose count falls, not many more are in the document than of all words."""
    first, second = models
    words = [word for word in first.vocabulary.words if word in second.vocabulary.index]
    places = [[model.vocabulary.index[word] for word in words] for model in models]
    is_there = np.isin(words, GONE)
    after = arrays(second)
    for name, before in arrays(first).items():
        told = before[places[0]] - after[name][places[1]] > 1e-9
        if told.sum() > 20:  # of few words, chance may tell any share
            assert is_there[told].mean() < 2.2 * is_there.mean(), name


def test_no_word_follows_from_its_shares_of_topics(models: list[TopicModel]) -> None:
    """Sums are rounded topic by topic, so their ratios change by chance as well."""
    words = [word for word in models[0].vocabulary.words if word in models[1].vocabulary.index]
    ratios = []
    for model in models:
        sums = model.word_sums[:, [model.vocabulary.index[word] for word in words]]
        ratios.append(sums / np.maximum(sums.sum(0), 1))
    counts = np.array([models[0].vocabulary.index[word] for word in words])
    change = np.abs(ratios[0] - ratios[1]).sum(0) * models[0].vocabulary.occurrences[counts]
    assert roc_auc_score(np.isin(words, GONE), change) < 0.85


def test_no_number_is_exact(models: list[TopicModel]) -> None:
    model = models[0]
    vocabulary = model.vocabulary
    for counts in (vocabulary.document_frequency, vocabulary.occurrences):
        assert (counts % 10 == 0).all()
        assert (counts >= 10).all()
    assert (vocabulary.occurrences >= vocabulary.document_frequency).all()
    sums = model.word_sums.sum(0)
    assert np.allclose(sums, np.round(sums / 10) * 10)
    for share in model.shares.values():
        assert np.allclose(share, np.round(share, 3))
    for sizes in model.info.get("sizes", {}).values():
        assert not np.any(np.array(sizes) % 10)


def test_no_embedding_is_in_the_difference(models: list[TopicModel]) -> None:
    """The origin, from which points are measured, and means by word are rounded by lot."""
    first, second = ({**model.weights} for model in models)
    if "origin" in first and len(first["origin"]) == 6:
        for model in models:
            documents = rounded(np.array(sum(model.documents.values())))
            steps = np.asarray(model.weights["origin"]) * documents / ORIGIN_STEP
            np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
    if "word_means" in first:
        pairs = [np.asarray(weights["word_means"]) for weights in (first, second)]
        summed = np.logical_and(*(means.any(1) for means in pairs))
        counts = models[0].vocabulary.document_frequency[summed]
        fall = np.linalg.norm(pairs[0] - pairs[1], axis=1)[summed] * counts
        is_there = np.isin(models[0].vocabulary.words, GONE)[summed]
        assert 0.25 < roc_auc_score(is_there, fall) < 0.75, "by chance, with few words"


def test_rounding() -> None:
    counts = np.arange(0, 3000)
    numbers = rounded(counts)
    assert (np.abs(numbers - counts)[10:] < steps_of(counts)[10:]).all()
    assert (numbers[1:] >= 10).all()
    assert numbers[0] == 0
    assert np.array_equal(numbers, rounded(counts)), "the same counts, the same coins"
    assert (counts <= at_most(numbers)).all()
    assert abs((numbers - counts)[10:].mean()) < 2, "to itself on average"
    assert (rounded(counts + (counts == 1234)) != numbers).mean() > 0.2, "all coins are others"


def test_counts_of_an_example_are_exact() -> None:
    """So few documents of one client are an example, not a study."""
    corpora = {"a": Corpus.of([["oak", "elm"], ["oak", "fir", "fir"]] * 20)}
    plan = Study.make(
        method={"name": "nmf", "n_components": 2}, vocabulary={"max_document_share": 1}
    )
    model = train(plan.here(corpora), corpora)
    assert dict(
        zip(model.vocabulary.words, model.vocabulary.occurrences.tolist(), strict=True)
    ) == {
        "oak": 40,
        "fir": 40,
        "elm": 20,
    }
