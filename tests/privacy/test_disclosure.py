"""What a model discloses: words and topics of few persons, an attack, differences, noise."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer

from fedtopics import Corpus, TopicModel, disclosure
from fedtopics.errors import DataError
from fedtopics.privacy.disclosure import Difference, auc_interval
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import Vocabulary
from tests.helpers.models import made

WORDS = ["oak", "elm", "flu", "tea"]
TOPICS = np.array([[4, 4, 0, 0], [0, 0, 4, 1]])
TEXTS = ["oak elm", "oak", "oak elm", "flu", "flu tea", "quince", "oak"]
N = 60  # documents of each side of an attack


def patients(texts: list[str], names: str) -> Corpus:
    return Corpus.of(
        pa.table({"text": texts, "patient": [*names]}), Columns(text="text", person="patient")
    )


def test_persons_with_each_word_and_topic() -> None:
    about = disclosure(TOPICS, patients(TEXTS, "aabcccd"), words=WORDS, least=3)
    assert about.word_persons == {"oak": 3, "elm": 2, "flu": 1, "tea": 1}
    assert about.rare_words == ["flu", "tea", "elm"]
    assert (about.topic_persons, about.unread, about.unit) == ([3, 1], 1, "patients")
    assert about.contents == {"weights/pseudo_counts": (4, 2), "words": (4,)}
    assert about.to_check == [
        "Of 4 words, the number of those in documents of fewer than 3 patients is 3; the rarest is "
        "in documents of 1.",
        "The smallest group of patients with the same largest topic has 1; the number of topics "
        "without a group is 0.",
        "No attack on this model was tried, because it needs documents of the training and "
        "documents of others that were not used.",
        "Epsilon is none, because there is no differential privacy.",
    ]
    assert not any(word in repr(about) for word in WORDS)


def test_without_persons_documents_count() -> None:
    about = disclosure(TOPICS, TEXTS, words=WORDS, least=1)
    assert (about.topic_persons, [*about.word_persons.values()]) == ([4, 2], [4, 2, 2, 1])
    assert about.to_check[0].startswith("The documents have no column of persons, so each counts")
    assert disclosure(TOPICS, words=WORDS).to_check[0].startswith("The documents of the training")


@pytest.fixture(scope="module")
def texts() -> list[list[str]]:
    """Documents of five topics over 300 words: of the training, others, and further others."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number:03}" for number in range(300)])
    shares = rng.dirichlet(np.full(5, 0.3), 3 * N) @ rng.dirichlet(np.full(300, 0.05), 5)
    drawn = [" ".join(rng.choice(words, 40, p=share)) for share in shares]
    return [drawn[:N], drawn[N : 2 * N], drawn[2 * N :]]


def test_the_attack_finds_whom_a_model_was_trained_on(texts: list[list[str]]) -> None:
    training, others, further = texts
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(training)
    names = vectorizer.get_feature_names_out()
    lda = LatentDirichletAllocation(30, max_iter=10, random_state=0).fit(counts)
    for matrix, least in [(counts, 0.9), (lda.components_, 0.6)]:
        about = disclosure(matrix, training, words=names, others=others)
        unused = disclosure(matrix, others, words=names, others=further)
        assert about.attack is not None
        assert unused.attack is not None
        assert about.attack.auc_interval[0] > least
        assert unused.attack.auc_interval[0] < 0.5 < unused.attack.auc_interval[1]
        shown = ["separates 60 documents" in "".join(side.to_check) for side in (about, unused)]
        assert shown == [True, False]
    assert disclosure(matrix, Corpus.of_counts(counts, names), words=names).unread == 0


def test_a_person_is_one_trial() -> None:
    training = patients(["oak elm", "oak", "", "flu"], "aabb")
    others = patients(["tea", "yew", "yew tea"], "xyz")
    attack = disclosure([[2, 1, 1]], training, words=["oak", "elm", "flu"], others=others).attack
    assert attack is not None
    assert (attack.auc, attack.recognised, attack.members, attack.others) == (1, 1, 2, 3)


def test_intervals_are_those_of_the_paper() -> None:
    """Newcombe's method 5, whose interval is nearly the normal one for many persons."""
    low, high = auc_interval(0.5, 10_000, 10_000)
    assert (low + high, high - low) == pytest.approx((1, 2 * 1.96 * np.sqrt(1 / 6e4)), rel=0.01)
    assert auc_interval(1.0, 10, 10) == pytest.approx((0.8002, 1), abs=1e-4)


def test_differences_from_earlier_models() -> None:
    numbers = np.array([9, 9, 7, 9, 9])
    later = made(vocabulary=Vocabulary(("oak", "elm", "flu", "tea", "yew"), numbers, numbers))
    (difference,) = disclosure(
        later, [["oak", "yew"], ["elm", "yew"], ["tea"]], earlier=[made()]
    ).differences
    assert difference == Difference(
        words=["__init__", "yew"],
        fewest_persons=2,
        topics=2,
        changed_words=1,
        fewest_documents=2,
    )
    about = disclosure(later, earlier=[later, made()])
    assert [*about.remarks["differences"].values()] == [False, True]
    assert "the fewest documents with such a word are not known" in about.to_check[-2]


@pytest.mark.parametrize("seeded", [False, True])
def test_noise(seeded: bool) -> None:
    privacy = {"epsilon": 3.0, "delta": 1e-6, "unit": "person", "seeded": seeded}
    about = disclosure(made(info={"privacy": privacy}))
    ((sentence, concerning),) = about.noise.items()
    assert "epsilon 3, delta 1e-06" in sentence
    assert (concerning, sentence in about.to_check) == (seeded, seeded)
    assert about.contents["words/sums"] == (3, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": WORDS[:3]}, "have shape .2, 4., and there are 3 words"),
        ({"words": ["oak", "oak", "elm", "flu"]}, "of which 3 differ; give one word per column"),
        ({"model": TOPICS[0]}, "have shape .4,., and there are 4 words"),
        ({"model": TOPICS * np.nan}, "negative numbers, NaN or infinity"),
        ({"model": -TOPICS}, "negative numbers, NaN or infinity"),
        ({"model": [["oak"]]}, "not an array of numbers; give one row per topic"),
        ({"documents": []}, "The corpus is empty; give at least one document"),
        ({"documents": ["", "quince"]}, "No document contains a word of the model"),
        ({"others": ["oak"]}, "two or more others; give more documents"),
        (
            {"documents": patients(["oak"] * 3, "abc"), "others": patients(["oak"] * 2, "cd")},
            "^1 p",
        ),
    ],
)
def test_wrong_input(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        disclosure(**({"model": TOPICS, "documents": TEXTS, "words": WORDS} | changes))
    assert "quince" not in str(error.value)


def test_a_model_of_a_matrix_is_saved_and_read(tmp_path: Path) -> None:
    model = TopicModel.from_matrix(TOPICS, WORDS)
    assert model.beta == pytest.approx(TOPICS / TOPICS.sum(1, keepdims=True))
    assert np.array_equal(
        TopicModel.from_pretrained(model.save_pretrained(tmp_path / "model")).beta, model.beta
    )
