"""Models that were trained apart, merged by how similar their topics are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics import LDA, NMF, Corpus, MixtureTM, ProdLDA, TopicModel
from fedtopics.errors import StudyError
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.methods.flda.merged_models import merge_models
from fedtopics.text.vocabulary import TextRules, Vocabulary
from tests.helpers.models import made


def one_client(
    client: str, words: tuple[str, ...], sums: list[list[float]], share: list[float], **more: Any
) -> TopicModel:
    """A model of one client, of ten documents, whose topics are its words' sums."""
    counts = np.array(sums, np.float64)
    occurrences = counts.sum(0).astype(np.int64)
    return made(
        inference=VariationalLDA(len(words), LDAPrior(n_components=len(sums))),
        weights={"pseudo_counts": np.ascontiguousarray(counts.T + 1e-9)},
        vocabulary=Vocabulary(words, np.minimum(occurrences, 5), occurrences),
        shares={client: np.array(share)},
        documents={client: 10},
        word_sums=counts,
        coherence={},
        labels={},
        **more,
    )


NORTH = one_client("north", ("oak", "elm", "tea"), [[6, 4, 0], [0, 0, 5]], [0.75, 0.25])
SOUTH = one_client("south", ("elm", "oak", "flu"), [[0, 0, 9], [5, 4, 0]], [0.5, 0.5])


def test_numbers() -> None:
    """Oak and elm of both become one topic; tea is north's alone, flu south's."""
    merged = merge_models([NORTH, SOUTH], threshold=0.5)
    assert merged.vocabulary.words == ("oak", "elm", "flu", "tea")
    assert merged.vocabulary.occurrences.tolist() == [10, 9, 9, 5]
    assert merged.vocabulary.document_frequency.tolist() == [9, 9, 5, 5]
    assert merged.word_sums.tolist() == [[10, 9, 0, 0], [0, 0, 0, 5], [0, 0, 9, 0]]
    assert {name: share.tolist() for name, share in merged.shares.items()} == {
        "north": [0.75, 0.25, 0.0],
        "south": [0.5, 0.0, 0.5],
    }
    assert merged.documents == {"north": 10, "south": 10}
    np.testing.assert_allclose(merged.share, [0.625, 0.125, 0.25])
    assert [set(words[:n]) for words, n in zip(merged.topics(2), (2, 1, 1), strict=True)] == [
        {"oak", "elm"},
        {"tea"},
        {"flu"},
    ]


def test_documents_get_topics_by_words_of_all_models() -> None:
    merged = merge_models([NORTH, SOUTH], threshold=0.5)
    theta = merged.transform(["oak elm oak", "flu flu flu", "tea tea", "", "nothing known"])
    assert theta.argmax(1)[:3].tolist() == [0, 2, 1]
    assert (theta.max(1)[:3] > 0.6).all()
    np.testing.assert_allclose(theta[3:], 1 / 3)
    assert merged.main_topics(["oak", ""]).tolist() == [0, -1]


def test_a_number_of_topics() -> None:
    assert merge_models([NORTH, SOUTH], 3).word_sums.tolist() == [
        [10, 9, 0, 0],
        [0, 0, 0, 5],
        [0, 0, 9, 0],
    ]
    assert merge_models([NORTH, SOUTH], 1).word_sums.tolist() == [[10, 9, 9, 5]]


def test_topics_of_different_models_are_joined_before_those_of_one() -> None:
    """North's two topics of teas are nearer to each other than oak and elm are across models."""
    words = ("oak", "elm", "tea", "milk")
    north = one_client("north", words, [[9, 6, 0, 0], [0, 0, 9, 8], [0, 0, 8, 9]], [0.4, 0.3, 0.3])
    south = one_client("south", ("oak", "elm"), [[6, 9]], [1.0])
    merged = merge_models([north, south], 3)
    assert sorted(merged.word_sums.sum(1).tolist()) == [17, 17, 30]
    assert {name: share.round(1).tolist() for name, share in merged.shares.items()} == {
        "north": [0.4, 0.3, 0.3],
        "south": [1.0, 0.0, 0.0],
    }


def test_the_order_of_models_changes_numbers_of_topics_alone() -> None:
    def sums(model: TopicModel) -> set[tuple[float, ...]]:
        columns = [model.vocabulary.index[word] for word in sorted(model.vocabulary.words)]
        return set(map(tuple, model.word_sums[:, columns].tolist()))

    one, other = (merge_models(list(pair)) for pair in ((NORTH, SOUTH), (SOUTH, NORTH)))
    assert sums(one) == sums(other)


OWN = {
    "north": ["oak elm fir", "fir elm larch", "tea milk sugar", "milk tea cup"] * 15,
    "south": ["oak fir elm larch", "larch oak elm", "flu fever cough", "cough flu pill"] * 15,
}


@pytest.mark.filterwarnings("ignore")
def test_models_of_any_method() -> None:
    """Whatever found the topics, also by embeddings: words find them in the merged model."""
    vectors = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    makers = [
        LDA(2, max_rounds=20),
        NMF(2),
        ProdLDA(2, max_rounds=2),
        MixtureTM(2, embedding_dimension=3),
    ]
    corpora = {name: Corpus.of(texts).with_embeddings(vectors) for name, texts in OWN.items()}
    models = [
        estimator.fit_clients({f"{name}-{n}": corpora[name]}).model_
        for n, estimator in enumerate(makers)
        for name in OWN
    ]
    merged = merge_models(models, 3)
    assert merged.n_topics == 3
    assert len(merged.documents) == 8
    theta = merged.transform([*OWN["north"], *OWN["south"]])
    assert theta.shape == (120, 3)
    np.testing.assert_allclose(theta.sum(1), 1, atol=1e-5)
    assert not merged.inference.sees_embedding


def test_a_training_begins_with_it() -> None:
    merged = merge_models([NORTH, SOUTH], threshold=0.5)
    begun = LDA(3, max_rounds=1, start=merged).fit([*OWN["north"], *OWN["south"]]).model_
    assert begun.info["continued"]["method"] == "merged"
    assert {words[0] for words in begun.topics(1)} == {"elm", "milk", "flu"}, "a theme each"


GERMAN = one_client("east", ("oak",), [[1]], [1.0], text=TextRules(stop_words="de"))


@pytest.mark.parametrize(
    ("models", "given", "says"),
    [
        ([NORTH], {}, "One model cannot be merged; name two or more"),
        ([NORTH, NORTH], {}, r"Two models have a client 'north'.* north=MODEL"),
        ([NORTH, GERMAN], {}, r"Model 2 .* different text settings: stop_words of \[text\]"),
        *(([NORTH, SOUTH], {"threshold": x}, "is not valid") for x in (0.0, 1.5, float("nan"))),
        ([NORTH, SOUTH], {"n_topics": 5}, "n_topics=5 cannot be used; give a whole number, 1 to 4"),
    ],
)
def test_what_cannot_be_merged(models: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(StudyError, match=says):
        merge_models(models, **given)


def test_labels_of_models_survive() -> None:
    """Oak and elm are three quarters of the north's documents, and half of the south's."""
    north = NORTH.with_labels({0: "Trees", 1: "Tea"})
    suggested = replace(SOUTH.with_labels({1: "Wood", 0: "Flu"}), unconfirmed=frozenset({0, 1}))
    merged = merge_models([north, suggested], threshold=0.5)
    assert (merged.labels, merged.unconfirmed) == ({0: "Trees", 1: "Tea"}, frozenset())
    with pytest.warns(UserWarning, match=r"because a topic has one: Wood\.$"):
        merged = merge_models([north, SOUTH.with_labels({1: "Wood", 0: "Flu"})], threshold=0.5)
    assert merged.labels == {0: "Trees", 1: "Tea", 2: "Flu"}
    assert merge_models([north, SOUTH], n_topics=4).labels == north.labels
