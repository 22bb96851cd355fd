"""Topics put together: theta, topics, words and folders are those of the topics in them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import FLDA, LDA, NMF, Corpus, MixtureTM, ProdLDA, ShortTextClustering, TopicModel
from fedtopics.errors import StudyError
from fedtopics.model.shown_words import WordRanking
from tests.helpers.clients import ALL
from tests.helpers.models import BETA, edit_config, made, refused

SIDES = np.repeat([-1.0, 1.0], 40)[:, None] + np.random.default_rng(0).normal(size=(80, 3)) / 10
EMBEDDED = Corpus.of(ALL).with_embeddings(SIDES.astype(np.float32))
MODELS = [
    LDA(4, max_rounds=3),
    NMF(4),
    ProdLDA(4, max_rounds=3),
    FLDA(4, max_rounds=1, iterations=50, min_new_documents=1),
    MixtureTM(4, embedding_dimension=3),
    ShortTextClustering(4, embedding_dimension=3),
]


def test_topics_that_are_not_merged_keep_their_first_words() -> None:
    ranking = WordRanking(0.4, first=((2, 0, 1), (3, 1, 0), (1, 3, 2)))
    model = made(word_ranking=ranking)
    before = model.topics(3)
    merged = model.merge_topics([0, 2])
    assert merged.topics(3)[1] == before[1]
    assert len({*merged.topics(3)[0]}) == 3
    assert merged.word_ranking.first[1] == (3, 1, 0)


def test_numbers_of_a_merged_model() -> None:
    """Shares are .375, .4375 and .1875: the first and the last are .5625 together."""
    merged = made().merge_topics([2, 0])
    assert merged.n_topics == 2
    np.testing.assert_allclose(merged.beta, [(2 * BETA[0] + BETA[2]) / 3, BETA[1]])
    np.testing.assert_allclose(merged.share, [0.5625, 0.4375])
    assert {name: share.tolist() for name, share in merged.shares.items()} == {
        "north": [0.75, 0.25],
        "south": [0.0, 1.0],
    }
    assert merged.word_sums.tolist() == [[2, 0, 0, 0, 6], [1, 1, 1, 1, 0]]
    assert merged.coherence == {}


@pytest.mark.parametrize("estimator", MODELS, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.filterwarnings("ignore")
def test_every_method(estimator: Any, tmp_path: Path) -> None:
    model = estimator.fit(EMBEDDED).model_
    n = model.n_topics
    once = model.merge_topics([[0, n - 1]])
    theta = model.transform(EMBEDDED)
    expected = np.c_[theta[:, 0] + theta[:, n - 1], theta[:, 1 : n - 1]]
    np.testing.assert_allclose(once.transform(EMBEDDED), expected, atol=1e-6)
    both = once.merge_topics([0, 1]) if n > 2 else once
    np.testing.assert_allclose(both.beta, model.merge_topics([0, 1, n - 1]).beta, rtol=1e-12)
    np.testing.assert_allclose(both.beta.sum(1), 1)
    for merged in (once, both):
        back = TopicModel.from_pretrained(merged.save_pretrained(tmp_path / str(merged.n_topics)))
        assert back.beta.tobytes() == merged.beta.tobytes()
        assert back.transform(EMBEDDED).tobytes() == merged.transform(EMBEDDED).tobytes()
        assert back.topics() == merged.topics()
        assert back.info == merged.info
        back.to_pandas(), back._repr_html_()


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ([0, 3], "no topic 3; the model has topics 0 to 2"),
        ([-1, 0], "no topic -1"),
        ([[0, 1], [1, 2]], "Topic 1 is listed twice; list it once"),
        ([[0, 1], [2, 0]], "Topic 0 is listed twice"),
        ([[0], 1], "a list of topic numbers, or a list of such lists"),
        (["a"], "a list of topic numbers"),
    ],
)
def test_topics_that_cannot_be_merged(topics: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        made().merge_topics(topics)


def test_hierarchy_is_by_lost_information() -> None:
    """Of rows 4 3 1 1 1, 1 1 2 2 4 and 2 2 2 2 2 the last two are the nearest."""
    model = made(shares={"north": np.array([0.5, 0.3, 0.2])}, documents={"north": 40})
    joint = np.array([0.5, 0.3, 0.2])[:, None] * BETA

    def information(joint: Any) -> float:
        return float((joint * np.log(joint / (joint.sum(1, keepdims=True) * joint.sum(0)))).sum())

    first, last = model.hierarchy(3)
    assert (first["left"], first["right"], first["topics"]) == (1, 2, [1, 2])
    two = np.array([joint[0], joint[1] + joint[2]])
    assert first["distance"] == pytest.approx(information(joint) - information(two))
    assert last["distance"] == pytest.approx(information(two))
    assert (last["left"], last["right"], last["topics"]) == (0, 3, [0, 1, 2])
    assert [first["parent"], last["parent"]] == [3, 4]
    assert [first["share"], last["share"]] == pytest.approx([0.5, 1.0])
    assert first["name"] == "3___init___flu_tea_oak"
    assert first["words"] == ["__init__", "flu", "tea"]


def test_a_merged_model_begins_others_and_does_not_go_on() -> None:
    model = LDA(3, max_rounds=5).fit(ALL)
    merged = model.model_.merge_topics([0, 1])
    assert LDA(2, max_rounds=1, start=merged).fit(ALL).model_.n_topics == 2
    with pytest.raises(StudyError, match="The model has merged topics and cannot be"):
        model.merge_topics([0, 1]).partial_fit(ALL)


MERGED = made().merge_topics([0, 1])
WHOLE = MERGED.inference.settings.model_dump(mode="json")


@pytest.mark.parametrize(
    "settings",
    [
        {"groups": [0, 0]},
        {"groups": [0, 0, 0]},
        {"groups": [0, 2, 1]},
        {"inference": "nothing"},
        {"precision": "float1"},
        {"settings": {"n_components": 3, "alpha": -1}},
        {"n_components": 3},
        {"inference": "merged", "settings": WHOLE},
    ],
)
def test_damaged_folders(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = MERGED.save_pretrained(tmp_path)
    edit_config(folder, settings=WHOLE | settings)
    refused(folder)


def test_the_label_of_the_largest_part_survives() -> None:
    """Shares are .375, .4375 and .1875."""
    with pytest.warns(UserWarning, match=r"because a topic has one: Trees\.$"):
        merged = made(labels={0: "Trees", 1: "Flu", 2: "Tea"}).merge_topics([0, 1])
    assert merged.labels == {0: "Flu", 1: "Tea"}
    assert made(labels={2: "Tea"}).merge_topics([0, 2]).labels == {0: "Tea"}  # a part with none
    assert made(labels={0: "Tea", 2: "Tea"}).merge_topics([0, 2]).labels == {0: "Tea"}


def test_suggested_labels_give_way() -> None:
    model = made(labels={0: "Trees", 1: "Flu", 2: "Tea"}, unconfirmed=frozenset({0, 1}))
    merged = model.merge_topics([1, 2])
    assert (merged.labels, merged.unconfirmed) == ({0: "Trees", 1: "Tea"}, {0})
    merged = model.merge_topics([0, 1])
    assert (merged.labels, merged.unconfirmed) == ({1: "Tea"}, frozenset())
    with pytest.warns(UserWarning, match=r"because a topic has one: Oak, Tea\.$"):
        assert made(labels={0: "Oak", 1: "Flu", 2: "Tea"}).reduce_topics(1).labels == {0: "Flu"}
