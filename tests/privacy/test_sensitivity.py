"""What a document more or less changes, for any documents, at any place and for any question."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError, PolicyError
from fedtopics.inference import vectors
from fedtopics.methods.core.client import TopicClient
from fedtopics.privacy import contributions
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings
from tests.helpers.encoders import unit
from tests.helpers.recipes import (
    BY_WORDS,
    CENTRES,
    DIMENSION,
    METHODS,
    PUBLIC,
    WORDS,
    half_of,
    install,
    planned,
    questions,
)

ONE = 1 + 1e-6  # embeddings are float32
SETTINGS = EmbeddingSettings(model="themed", dimension=DIMENSION)
Document = tuple[list[str], Any]
LEAST_REACHED = {"lda": 0.6, "nmf": 0.4}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are computed with three at a time, so that one more moves others elsewhere."""
    install(monkeypatch)
    monkeypatch.setattr(vectors, "BLOCK", 3)
    monkeypatch.setattr(contributions, "ENTRIES", 4)


def anything(rng: np.random.Generator) -> Document:
    """A document that somebody made to stand out."""
    nowhere = np.zeros(DIMENSION)
    kinds: list[Document] = [
        ([], nowhere),
        ([], unit(rng.normal(size=(1, DIMENSION)))[0]),
        ([PUBLIC[0]], CENTRES[0]),
        ([PUBLIC[0]] * 100_000, CENTRES[1]),
        ([*PUBLIC], CENTRES[2]),
        ([word for word in PUBLIC for _ in range(300)], nowhere),
        (["unknown"] * 50, CENTRES[0]),
        (PUBLIC[:WORDS], 1e30 * CENTRES[0]),
        (PUBLIC[:2], 1e-30 * CENTRES[0]),
        (PUBLIC[:3], (CENTRES[0] + CENTRES[1]) / 2),  # as near to one as to the other
    ]
    chosen = rng.choice(PUBLIC, rng.integers(1, 12)).tolist()
    kinds.append((chosen, rng.normal(size=DIMENSION) * rng.exponential(3.0)))
    return kinds[rng.integers(len(kinds))]


def extreme(asked: list[tuple[str, dict[str, Any]]], rng: np.random.Generator) -> None:
    """Ask with centres of any length, some of them alike, words of any rarity, topics of no use."""
    for name, how in asked:
        if "centres" in how:
            how["centres"] = how["centres"] * rng.choice([1e-9, 1.0, 1e9])
            how["centres"][1] = how["centres"][0]
            how["origin"] = how["origin"] * rng.choice([0.0, 1.0, 1e6])
        if "rarity" in how:
            how["rarity"] = how["rarity"] ** rng.choice([-9, 1, 9]) + 1e-300
        if "topics" in how:
            how["topics"] = how["topics"] ** rng.choice([0.0, 1.0, 20.0]) + 1e-300
            if name == "noisy_factors":  # they need have no length
                how["topics"] = how["topics"] * rng.choice([1e-170, 1.0, 1e170])


def released(
    documents: Sequence[Document], name: str, asked: list[tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """Return all that a client gives, without noise; the embeddings are as a study takes them."""
    texts = [text for text, _ in documents]
    vectors = [vector for _, vector in documents]
    corpus = Corpus.of([*texts, ["x"]])  # one without a known word, so that none is empty
    corpus = corpus.with_embeddings(np.array([*vectors, np.zeros(DIMENSION)], np.float32))
    corpus = corpus.with_embeddings(document_embeddings(corpus, SETTINGS))
    half = half_of(corpus, name)
    released_fields = {"noisy_document_count": half.noisy_document_count()["size"]}
    for function, how in asked:
        reply = getattr(half, function)(**how)
        released_fields |= {f"{function} {field}": value for field, value in reply.items()}
    return released_fields


@pytest.mark.parametrize("name", METHODS)
def test_a_document_more_changes_each_release_by_one_at_most(name: str) -> None:
    """Wherever it comes in, whatever others are there, and however the question is put."""
    rng = np.random.default_rng(7)
    largest = dict[str, float]()
    for trial in range(24):
        asked = questions(name, rng)
        if trial % 2:
            extreme(asked, rng)
        others = [anything(rng) for _ in range(rng.integers(0, 8))]
        others += others[: rng.integers(0, 3)]  # some of them twice
        place = rng.integers(0, len(others) + 1)
        with_it = [*others[:place], anything(rng), *others[place:]]
        before = released(others, name, asked)
        for field, value in released(with_it, name, asked).items():
            change = float(np.linalg.norm(value - before[field]))
            assert change <= ONE, f"{field} of {with_it[place]} at {place}"
            largest[field] = max(largest.get(field, 0), change)
    # The bound is reached, but for sketches: noise is not larger than it need be.
    assert min(largest.values()) > LEAST_REACHED.get(name, 0.9), largest


@pytest.mark.parametrize("name", METHODS)
def test_what_all_add_is_what_each_adds_alone(name: str) -> None:
    """No document decides what another one adds: not by its place, not by being there."""
    rng = np.random.default_rng(11)
    for trial in range(6):
        asked = questions(name, rng)
        if trial % 2:
            extreme(asked, rng)
        # A client may count a document once that it has twice.
        documents = list(
            {str(document): document for document in (anything(rng) for _ in range(7))}.values()
        )
        nothing = released([], name, asked)
        alone = [released([document], name, asked) for document in documents]
        for field, value in released(documents, name, asked).items():
            added = sum(np.asarray(reply[field]) - nothing[field] for reply in alone)
            np.testing.assert_allclose(value - nothing[field], added, atol=1e-9, err_msg=field)


def test_a_draw_between_clusters_depends_on_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where centres are alike but for rounding, whoever is by."""
    monkeypatch.setattr(vectors, "BLOCK", 4096)
    rng = np.random.default_rng(0)
    embeddings = unit(rng.normal(size=(500, 384)))
    centres = np.repeat(unit(rng.normal(size=(1, 384))).astype(float), 19, axis=0)
    centres += 1e-17 * rng.normal(size=centres.shape)
    drawn = contributions.placed(embeddings, np.zeros(384), centres)[1]
    for n in (1, 2, 33, 499):
        np.testing.assert_array_equal(
            contributions.placed(embeddings[-n:], np.zeros(384), centres)[1], drawn[-n:]
        )


def test_every_function_of_the_schedule_is_among_these() -> None:
    """What else leaves is public: the vectors of words."""
    for name in METHODS:
        asked = {function for function, _ in questions(name, np.random.default_rng(0))}
        settings = planned(name, 3).method
        half = half_of(Corpus.of([["x"]]).with_embeddings(np.zeros((1, DIMENSION))), name)
        assert isinstance(half, TopicClient)
        public = set() if name in BY_WORDS else {"word_vectors"}
        assert set(half.in_study(settings)) == asked | {"noisy_document_count"} | public


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("noisy_word_products", "rarity", np.inf),
        ("noisy_word_products", "rarity", np.nan),
        ("noisy_word_products", "columns", 3),
        ("noisy_topic_words", "topics", -1.0),
        ("noisy_topic_words", "topics", 0.0),
        ("noisy_topic_words", "topics", np.nan),
        ("noisy_topic_words", "columns", 3),
    ],
)
def test_questions_by_which_a_document_counts_twice(name: str, field: str, value: float) -> None:
    """Infinite weights of a word would say, by a reply that fails, whether a document has it."""
    half = half_of(Corpus.of([["x"]]), "lda")
    how = dict(questions("lda", np.random.default_rng(0)))[name]
    how[field] = np.where(np.arange(len(how[field])) < 2, value, how[field].T).T
    with pytest.raises(PolicyError, match="could count more than once"):
        getattr(half, name)(**how)


@pytest.mark.parametrize("document", [[], [PUBLIC[-1]]])
@pytest.mark.parametrize("name", METHODS)
def test_questions_of_another_shape_are_refused_whatever_documents_have(
    name: str, document: list[str]
) -> None:
    """Else it would be an error with a document, or a word would count twice: -1 is the last."""
    half = half_of(Corpus.of([document]).with_embeddings(CENTRES[:1]), name)
    last = np.array([len(PUBLIC) - 1, -1])
    for function, how in questions(name, np.random.default_rng(0)):
        other: list[dict[str, Any]] = []
        for field in how.keys() - {"number"}:
            value = how[field]
            wrong = [value[:1], value[None]]
            if field == "columns":
                of_words = {"rarity", "topics"} & how.keys()
                wrong = [value[None], value + 0.0, value + len(PUBLIC), 0 * value]
                other.append(how | {n: how[n][:2] for n in of_words} | {"columns": last})
            other += [how | {field: numbers} for numbers in wrong]
        for how in other:
            with pytest.raises(PolicyError, match="could count more than once"):
                getattr(half, function)(**how)


@pytest.mark.parametrize("number", [1e308, -1e308, 1.0, 2.6e-162, 1e-310])
@pytest.mark.parametrize("name", BY_WORDS)
def test_words_of_weights_at_the_end_of_numbers(name: str, number: float) -> None:
    """A document adds a number, of length 1 at most, however large or small weights are."""
    rng = np.random.default_rng(0)
    columns = np.arange(10)
    weights = {"columns": columns, "rarity": np.where(columns < 9, number, 1.0)}
    topics = 10 ** rng.uniform(-320, 308, (10, 3))
    topics[:3] = abs(number)
    asked: list[tuple[str, dict[str, Any]]] = [("noisy_word_products", weights)]
    if name == "nmf":
        asked.append(("noisy_factors", {"number": 1, **weights, "topics": topics}))
    else:
        asked.append(("noisy_topic_words", {"number": 1, "columns": columns, "topics": topics}))
    for words in (PUBLIC[:9], PUBLIC[:1] * 1000, PUBLIC[:10] * 9):
        with_it = released([(words, CENTRES[0])], name, asked)
        without = released([], name, asked)
        for field, value in with_it.items():
            assert np.linalg.norm(value - without[field]) <= ONE, field


@pytest.mark.parametrize("name", METHODS)
def test_each_sum_is_asked_for_in_one_way(name: str) -> None:
    """Whether another question has the same answer would be told without noise, by who refuses."""
    half = half_of(Corpus.of([["x"]]).with_embeddings(np.zeros((1, DIMENSION))), name, 3)
    for function, how in questions(name, np.random.default_rng(0)):
        first = getattr(half, function)(**how)
        again = getattr(half, function)(**how)
        assert all((first[field] == again[field]).all() for field in first)
        for field in how.keys() - {"number", "columns"}:  # of no word the same, of any question
            with pytest.raises(PolicyError, match="same was requested with other numbers before"):
                getattr(half, function)(**how | {field: how[field] * 2})
        if "number" in how:
            with pytest.raises(PolicyError, match="has no part of the budget"):
                getattr(half, function)(**how | {"number": 51})


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_embeddings_that_are_no_numbers_are_refused_before_anything_leaves(bad: float) -> None:
    corpus = Corpus.of([PUBLIC[:1]]).with_embeddings(np.full((1, DIMENSION), bad))
    with pytest.raises(DataError, match="NaN or infinite"):
        document_embeddings(corpus, SETTINGS)


def test_vectors_of_words_say_nothing_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of one word has left its embedding in the cache: that is not the word's."""
    word_vectors = []
    for folder, documents in ("without", [""]), ("with", [PUBLIC[0]]):
        monkeypatch.setenv("FEDTOPICS_CACHE", str(tmp_path / folder))
        corpus = Corpus.of(documents)
        corpus = corpus.with_embeddings(document_embeddings(corpus, SETTINGS))
        word_vectors.append(
            half_of(corpus, "kmeans").word_vectors(columns=np.arange(len(PUBLIC)))["vectors"]
        )
    np.testing.assert_array_equal(*word_vectors)
