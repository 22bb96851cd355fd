"""Sums with noise: what each document adds, and what is estimated from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from fedtopics import Corpus, Study, train
from fedtopics.errors import DataError, StudyError
from fedtopics.federation.finished_model import privacy_summary
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import client_of
from fedtopics.federation.study_tables import ClientData
from fedtopics.methods.core.plan import ClientContext
from fedtopics.model.card import card, promise
from fedtopics.privacy import Privacy, PrivacySettings, contributions, estimates
from fedtopics.privacy.contributions import counted_once
from tests.helpers.encoders import unit
from tests.helpers.recipes import (
    DIMENSION,
    METHODS,
    PUBLIC,
    half_of,
    install,
    planned,
    questions,
    themed,
)

ONE = 1 + 1e-6  # embeddings are float32


def test_nearest_words() -> None:
    bag = sparse.csr_array(np.array([[3.0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 2]]))
    vectors = np.array([[0.0, 1], [1, 0], [0.8, 0.6], [0, 1]])
    nearest = contributions.nearest_words(bag, np.array([[1.0, 0], [1, 0], [1, 0]]), vectors, 2)
    half = 0.5**0.5
    np.testing.assert_allclose(nearest.todense(), [[0, half, half, 0], [0, 0, 0, 0], [0, 0, 0, 1]])


def test_a_triangle_is_as_long_as_the_matrix() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    matrix += matrix.T
    triangle = contributions.packed(matrix)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(contributions.unpacked(triangle, 5), matrix)


def test_a_sketch_by_hand() -> None:
    """Of two words that occur once, each row is the other's in the projection, halved."""
    bag = sparse.csr_array(np.array([[1.0, 1.0, 0.0]]))
    sketch = contributions.sketched(
        bag, np.ones(3), np.array([[0.6, 0], [0, 0.8], [5, 5]]), np.ones(1)
    )
    np.testing.assert_allclose(sketch, [[0, 0.4], [0.3, 0], [0, 0]], atol=1e-12)


def test_what_noise_hides_is_what_was_expected() -> None:
    counts = np.array([[10.0, 2.0], [3.0, 7.0]])
    expected = np.array([[9.0, 3.0], [4.0, 6.0]])
    np.testing.assert_array_equal(estimates.shrunk(counts, expected, 0.0), counts)
    np.testing.assert_allclose(estimates.shrunk(counts, expected, 1e4), expected, atol=1e-3)
    half = expected**2 * 0.1  # the least variance: here the differences are as the noise
    np.testing.assert_allclose(
        estimates.shrunk(counts, expected, 1.0), expected + half / (half + 1) * (counts - expected)
    )


def test_words_that_surely_occur() -> None:
    counts = np.array([9.0, 50.0, 3.9, 0.0, 4.1])
    assert estimates.surely_there(counts, 1.0, 10).tolist() == [1, 0, 4]
    assert estimates.surely_there(counts, 1.0, 2).tolist() == [1, 0]
    assert estimates.surely_there(counts, 0.0, 10).tolist() == [1, 0, 4, 2]


def test_a_cluster_that_noise_hides_keeps_its_centre() -> None:
    centres = np.eye(2)
    directions = np.eye(3)[:, :2]
    moved, alive = estimates.move(
        centres, np.array([[0.0, 30.0, 9.0], [1.0, 0.0, 40.0]]), directions, 1.0
    )
    np.testing.assert_allclose(moved, [[0, 1], [0, 1]])
    assert alive.tolist() == [True, False]


def test_topics_from_a_sketch() -> None:
    """Words of three topics, some of which two have in common, are told apart."""
    rng = np.random.default_rng(0)
    topics = np.zeros((40, 3))
    topics[:12, 0] = topics[10:26, 1] = topics[24:, 2] = 1
    topics /= topics.sum(0)
    texts = [rng.multinomial(30, topics[:, k]) for k in rng.integers(3, size=600)]
    bag = sparse.csr_array(np.array(texts, float))
    sketch = contributions.sketched(bag, np.ones(40), estimates.projection(40, 5), np.ones(600))
    estimated = estimates.estimate_topics(sketch, 0.0, 3)
    estimated /= estimated.sum(0)
    close = np.sqrt(estimated).T @ np.sqrt(topics)
    assert sorted(close.argmax(1).tolist()) == [0, 1, 2]
    assert close.max(1).min() > 0.95


def test_lengths_of_points_are_one_or_nothing() -> None:
    origin = unit(np.ones((1, 4)))[0] / 2
    points, nearest = contributions.placed(np.array([origin, 3 * origin]), origin, np.eye(4))
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [0, 1], atol=1e-6)
    assert nearest[1] == 0


MOST = 3
OF_AUTHORS = PrivacySettings(epsilon=3, unit="person", most_documents=MOST, words=PUBLIC)
Row = tuple[str, list[str], Any]  # person, text, embedding


def corpus_of(rows: list[Row]) -> Corpus:
    persons, texts, vectors = zip(*rows, strict=True)
    corpus = replace(Corpus.of(list(texts)), persons=pa.chunked_array([list(persons)]))
    return corpus.with_embeddings(np.array(vectors, np.float32))


def released(rows: list[Row], asked: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    """All that leaves a client for these documents in a study of persons, but for the noise."""
    plan = planned(name, 3).model_copy(update={"differential_privacy": OF_AUTHORS})
    half: Any = client_of(plan, ClientContext("a", corpus_of(rows), OPEN_POLICY))
    half.noise.added = lambda values, *_: np.asarray(values, float)
    half.take(PUBLIC)
    replies = [getattr(half, function)(**how) for function, how in asked]
    fields = {field: reply[field] for reply in replies for field in reply}
    return fields | {"size": half.noisy_document_count()["size"]}


def writings(rng: np.random.Generator, person: str) -> list[Row]:
    """Documents of a person that may be any: none to many, alike or not, some more than once."""
    text = rng.choice(PUBLIC, rng.integers(1, len(PUBLIC)), replace=False).tolist()
    vector = rng.normal(size=DIMENSION)
    rows: list[Row] = []
    for _ in range(rng.integers(0, 3 * MOST)):
        if rng.random() < 0.5:
            text = rng.permutation(text * int(rng.integers(1, 3))).tolist()
        if rng.random() < 0.3:
            vector = rng.normal(size=DIMENSION) * rng.choice([0.0, 1e-9, 1.0, 100.0])
        rows.append((person, text, vector))
    return rows


@pytest.mark.parametrize("name", METHODS)
def test_an_author_more_changes_each_release_by_one_at_most(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    rng = np.random.default_rng(2)
    nobody: Row = "", ["x"], np.zeros(DIMENSION)  # so that no corpus is empty
    largest: dict[str, float] = {}
    for _ in range(12):
        asked = questions(name, rng)
        others = [nobody, *writings(rng, "b"), *writings(rng, ""), *writings(rng, "c")]
        both = [*others, *writings(rng, "a")]
        mixed = [both[i] for i in rng.permutation(len(both))]
        without = [row for row in mixed if row[0] != "a"]
        before, after = (released(rows, asked, name) for rows in (without, mixed))
        for field, values in before.items():
            change = float(np.linalg.norm(after[field] - values))
            assert change <= ONE, field
            largest[field] = max(largest.get(field, 0), change)
    # The bound is reached, but for sketches and shares: noise is not larger than it need be.
    largest.pop("products", None)
    assert min(largest.values()) > 0.6, largest


def test_documents_of_authors() -> None:
    tea = np.ones(2)
    milk = np.zeros(2)
    rows: list[Row] = [
        ("ann", ["tea"], tea),
        ("ben", ["tea"], tea),
        ("ann", ["tea"], tea),
        ("ann", ["tea"], milk),
        ("", ["tea"], tea),
        ("ann", ["ale"], tea),
        ("ann", ["gin"], tea),
        ("", ["ale"], tea),
        ("", ["tea"], tea),
    ]
    counted, weights = counted_once(corpus_of(rows), OF_AUTHORS)
    assert counted.tolist() == [0, 1, 3, 4, 5, 7]
    np.testing.assert_allclose(weights, [1 / 3, 1, 1 / 3, 1, 1 / 3, 1])
    for bound in (None, Privacy(epsilon=3)):
        counted, weights = counted_once(corpus_of(rows), bound)
        assert counted.tolist() == [0, 3, 5, 6], "a document counts once, whoever wrote it"
        assert weights.tolist() == [1, 1, 1, 1]


def test_a_document_again_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    corpus = themed(40)
    twice = Corpus.pool([corpus, corpus.take([5, 7, 7])])
    halves = [half_of(documents, "lda") for documents in (corpus, twice)]
    once, again = (half.noisy_word_counts()["words"] for half in halves)
    np.testing.assert_array_equal(once, again)
    assert [half.summed for half in halves] == [40, 40]


def test_a_study_of_authors(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that do not count have topics all the same; the model says how many persons."""
    install(monkeypatch)
    corpora = {}
    for seed, name in enumerate("abc"):
        corpus = themed(4000, seed)
        persons = [f"{name}{i // 5}" for i in range(3000)] + [f"{name}{i}" for i in range(1000)]
        corpora[name] = replace(corpus, persons=pa.chunked_array([persons]))
    plan = planned("lda", 8).model_copy(update={"differential_privacy": OF_AUTHORS})
    model = train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), at_once=False)
    assert abs(model.documents["all"] - 3000) < 300, "persons, not documents"
    assert model.transform(corpora["a"]).shape == (4000, 3)
    assert {len({word[:6] for word in topic}) for topic in model.topics(5)} == {1}
    told = replace(model, info={**model.info, **privacy_summary(plan)})
    assert "for each person of a client (at most 3 documents of each count): eps" in promise(told)
    assert "- Persons, counted with noise: " in card(told)


def test_authors_have_to_be_known() -> None:
    plan = planned("lda", 3).model_copy(update={"differential_privacy": OF_AUTHORS})
    with pytest.raises(DataError, match="name it with --columns person"):
        client_of(plan, ClientContext("a", themed(20), OPEN_POLICY))


@pytest.mark.parametrize(
    "wrong", [{"unit": "person"}, {"most_documents": 3}, {"unit": "person", "most_documents": 0}]
)
def test_an_author_has_so_many_documents(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError, match="most_documents"):
        Study.make(method={"name": "nmf"}, differential_privacy={"epsilon": 3, **wrong})


def test_a_study_names_the_column(tmp_path: Path) -> None:
    (tmp_path / "letters.csv").write_text("text,patient\noak elm,p7\nash,\n")
    data = ClientData(data=tmp_path / "letters.csv", person="patient")
    assert data.read("north").persons.to_pylist() == ["p7", ""]
