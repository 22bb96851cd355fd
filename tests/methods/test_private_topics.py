"""Topics with a bound for each document: what each adds, and what follows from sums with noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.bounded import SHARES
from fedtopics.methods.private import clusters, contributions, sketches, words
from fedtopics.methods.private.settings import PrivateSettings
from fedtopics.privacy import Budget, Privacy
from fedtopics.privacy.accounting import mu_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.clusters import StoppedError, accuracy, labels_of, overheard, spread
from tests.helpers.encoders import unit
from tests.helpers.private_topics import (
    DIMENSION,
    MODES,
    PUBLIC,
    THEMES,
    half_of,
    install,
    planned,
    questions,
    themed,
)

OF_PRIVATE = "embeddings", "both", "words"
LEAST_REACHED = {"words": 0.6, "factors": 0.4}
ONE = 1 + 1e-6  # embeddings are float32


def trained(plan: Study, corpora: dict[str, Corpus], **how: Any) -> Any:
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    return train(plan, corpora, policies=policies, at_once=False, **how)


# What a document adds


def adversarial(rng: np.random.Generator) -> tuple[list[str], Any]:
    """A document that may be anything: of one word, all words or none, long, repeated, nowhere."""
    chosen = rng.choice(PUBLIC, rng.integers(0, len(PUBLIC) + 1), replace=False)
    text = np.repeat(chosen, rng.integers(1, 1000, len(chosen)) ** rng.integers(0, 2))
    vector = rng.normal(size=DIMENSION) * rng.choice([0.0, 1e-9, 1.0, 100.0])
    return text.tolist(), vector


@pytest.mark.parametrize("mode", MODES)
def test_a_document_more_changes_each_release_by_one_at_most(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    rng = np.random.default_rng(1)
    largest: dict[str, float] = {}
    for _ in range(12):
        others = [adversarial(rng) for _ in range(3)]
        asked, found = questions(mode, rng), []
        for documents in (others, [*others, adversarial(rng)]):
            texts, vectors = zip(*documents, strict=True)
            corpus = Corpus.of([*texts, ["x"]])  # one without a known word, so that none is empty
            vectors = np.array([*vectors, np.zeros(DIMENSION)], np.float32)
            half = half_of(corpus.with_embeddings(vectors), mode=mode)
            agreed = fingerprint(PUBLIC)
            replies = [getattr(half, name)(vocabulary=agreed, **how) for name, how in asked]
            found.append({field: reply[field] for reply in replies for field in reply})
        for field, before in found[0].items():
            change = float(np.linalg.norm(found[1][field] - before))
            assert change <= ONE, field
            largest[field] = max(largest.get(field, 0), change)
    # The bound is reached, but for sketches: noise is not larger than it need be.
    assert min(largest.values()) > LEAST_REACHED.get(mode, 0.9), largest


@pytest.mark.parametrize("mode", MODES)
def test_releases_share_one_budget(mode: Any) -> None:
    once, repeated = SHARES[mode].once, SHARES[mode].repeated
    assert sum((once | repeated).values()) == pytest.approx(1)
    recipe = planned(3, mode=mode).method.recipe
    budget = Budget(Privacy(epsilon=3), recipe.shares(mode))
    spent = sum(budget.sigma(name) ** -2 for name in budget.shares)
    assert spent == pytest.approx(mu_of(Privacy(epsilon=3)) ** 2, rel=1e-2)
    assert spent <= mu_of(Privacy(epsilon=3)) ** 2


def test_all_that_leaves_has_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a document, what is left is noise alone; vectors of words are public."""
    install(monkeypatch)
    messages = overheard(monkeypatch)
    nothing = Corpus.of([["x"]] * 4).with_embeddings(np.zeros((4, DIMENSION), np.float32))
    corpora = {"a": themed(4000), "b": themed(4000, 1), "empty": nothing}
    trained(planned(8, mode="both"), corpora)
    sums = [(f, r) for name, f, _, r in messages.calls if name == "empty" and f != "word_vectors"]
    assert [function for function, _ in sums] == [
        "extent", "key_words", "cluster_sums", "cluster_sums", "cluster_words", "topic_words",
        "topic_words",
    ]  # fmt: skip
    budget = Budget(Privacy(epsilon=8), PrivateSettings().recipe.shares("both"))
    part = budget.sigma("histogram") / np.sqrt(2)  # of three clients one may be missing
    assert np.std(sums[4][1]["counts"]) == pytest.approx(part, rel=0.2)
    assert np.std(sums[1][1]["words"]) == pytest.approx(budget.sigma("words") / np.sqrt(2), rel=0.3)


def test_nearest_words() -> None:
    bag = sparse.csr_array(np.array([[3.0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 2]]))
    vectors = np.array([[0.0, 1], [1, 0], [0.8, 0.6], [0, 1]])
    found = contributions.nearest_words(bag, np.array([[1.0, 0], [1, 0], [1, 0]]), vectors, 2)
    half = 0.5**0.5
    np.testing.assert_allclose(found.todense(), [[0, half, half, 0], [0, 0, 0, 0], [0, 0, 0, 1]])


def test_a_triangle_is_as_long_as_the_matrix() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(5, 5))
    matrix += matrix.T
    triangle = contributions.packed(matrix)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(contributions.unpacked(triangle, 5), matrix)


def test_a_sketch_by_hand() -> None:
    """Of two words that occur once, each row is the other's in the projection, halved."""
    bag = sparse.csr_array(np.array([[1.0, 1.0, 0.0]]))
    projection = np.array([[0.6, 0], [0, 0.8], [5, 5]])
    found = contributions.sketched(bag, np.ones(3), projection, np.ones(1))
    np.testing.assert_allclose(found, [[0, 0.4], [0.3, 0], [0, 0]], atol=1e-12)


# What the program makes of sums


def test_what_noise_hides_is_what_was_expected() -> None:
    counts = np.array([[10.0, 2.0], [3.0, 7.0]])
    expected = np.array([[9.0, 3.0], [4.0, 6.0]])
    np.testing.assert_array_equal(words.shrunk(counts, expected, 0.0), counts)
    np.testing.assert_allclose(words.shrunk(counts, expected, 1e4), expected, atol=1e-3)
    half = expected**2 * 0.1  # the least variance: here the differences are as the noise
    by_hand = expected + half / (half + 1) * (counts - expected)
    np.testing.assert_allclose(words.shrunk(counts, expected, 1.0), by_hand)


def test_words_that_surely_occur() -> None:
    counts = np.array([9.0, 50.0, 3.9, 0.0, 4.1])
    assert words.surely_there(counts, 1.0, 10).tolist() == [1, 0, 4]
    assert words.surely_there(counts, 1.0, 2).tolist() == [1, 0]
    assert words.surely_there(counts, 0.0, 10).tolist() == [1, 0, 4, 2]


def test_a_cluster_that_noise_hides_keeps_its_centre() -> None:
    centres, directions = np.eye(2), np.eye(3)[:, :2]
    sums = np.array([[0.0, 30.0, 9.0], [1.0, 0.0, 40.0]])
    moved, alive = clusters.move(centres, sums, directions, 1.0)
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
    projection = sketches.projection(40, 5)
    sketch = contributions.sketched(bag, np.ones(40), projection, np.ones(600))
    found = sketches.first_topics(sketch, 0.0, 3)
    found /= found.sum(0)
    close = np.sqrt(found).T @ np.sqrt(topics)
    assert sorted(close.argmax(1).tolist()) == [0, 1, 2]
    assert close.max(1).min() > 0.95


def test_what_documents_are_seen_by() -> None:
    auto, three = PrivateSettings(), Privacy(epsilon=3)
    assert auto.recipe.choose(1e6, False, three)[0] == "words"
    assert auto.recipe.choose(10_000, True, three)[0] == "both"
    assert auto.recipe.choose(9_999, True, three)[0] == "embeddings"
    assert auto.recipe.choose(1e6, True, Privacy(epsilon=2.9))[0] == "embeddings"
    assert auto.recipe.choose(1e6, True, None)[0] == "both"
    assert PrivateSettings(mode="words").recipe.choose(1e6, True, three)[0] == "words"


# Studies


@pytest.mark.parametrize("mode", OF_PRIVATE)
def test_without_noise_it_is_the_training_of_one_client(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    corpus = themed(300)
    plan = planned(mode=mode)
    alone = trained(plan.model_copy(update={"secure": False}), {"all": corpus})
    several = trained(plan, spread(corpus, 3))
    # Rounding may say which topic of a sketch is found first.
    order = [np.argsort([topic[0] for topic in model.topics()]) for model in (alone, several)]
    np.testing.assert_allclose(several.beta[order[1]], alone.beta[order[0]], rtol=1e-4)
    assert several.documents == {"all": 300}
    assert accuracy(several, spread(corpus, 3)) > 0.9
    for topic in several.topics():
        assert len({word[:6] for word in topic}) == 1, "ten words of a theme"


@pytest.mark.parametrize("mode", MODES)
def test_with_noise_the_themes_are_found(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    model = trained(planned(3, mode=mode), corpora)
    assert accuracy(model, corpora) > 0.9
    assert {len({word[:6] for word in topic}) for topic in model.topics(5)} == {1}
    assert model.documents["all"] != 12_000, "their number has noise as well"
    assert abs(model.documents["all"] - 12_000) < 300
    assert model.share.sum() == pytest.approx(1)
    assert model.transform(corpora["a"].take(range(3))).shape == (3, THEMES)
    assert len(labels_of(corpora["a"])) == 4000


def test_a_model_is_read_as_it_was_saved(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    for mode in ("embeddings", "words"):
        model = trained(planned(mode=mode), spread(themed(300), 3))
        read = type(model).from_pretrained(model.save_pretrained(tmp_path / mode))
        assert read.topics() == model.topics()
        assert read.documents == model.documents


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_a_run_goes_on_without_asking_twice(
    stop: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    corpora, plan = spread(themed(9000), 3), planned(8, mode="both")
    whole = trained(plan, corpora)

    def happen(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == stop:
            raise StoppedError

    with pytest.raises(StoppedError):
        trained(plan, corpora, out=tmp_path, on_event=happen)
    messages = overheard(monkeypatch)
    resumed = trained(plan, corpora, out=tmp_path, resume=True)
    assert len([call for call in messages.calls if call[0] == "client-1"]) == 7 - stop + 1
    for name, weight in whole.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], weight)


def test_too_few_documents_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    for mode in MODES:
        with pytest.raises(StudyError, match=r"at epsilon 1 noise hides the rest. Ask for fewer"):
            trained(planned(1, mode=mode), spread(themed(90), 3))


def test_words_alone_where_not_all_have_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr("fedtopics.methods.private.settings.find_spec", lambda _: None)
    corpora = spread(themed(300), 3)
    corpora["client-2"] = corpora["client-2"].with_embeddings(None)
    events: list[dict[str, Any]] = []
    model = trained(planned(), corpora, on_event=events.append)
    assert model.inference.name == "lda"
    chosen = next(event for event in events if event["event"] == "chosen")
    assert chosen["method"] == "words"
    assert chosen["reason"] == "not all clients have embeddings"


def test_a_half_has_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    half = half_of(themed(20), mode="words")
    with pytest.raises(StudyError, match="begin a new run"):
        half.take("embeddings", PUBLIC)


def test_public_words_of_an_encoder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = (
        '{"model": {"type": "%s", "vocab": {"[CLS]": 0, "the": 1, "of": 2, "tea": 3, "##s": 4}}}'
    )

    class Folder:
        folder = tmp_path

    monkeypatch.setattr("fedtopics.methods.bounded.sentence_encoder", lambda _: Folder())
    (tmp_path / "tokenizer.json").write_text(pieces % "WordPiece", "utf-8")
    assert PrivateSettings().recipe.public_words(TextRules()) == ["tea"], (
        "no stop word, no part of a word"
    )
    assert PrivateSettings(words=("milk",)).recipe.public_words(TextRules()) == ["milk"]
    PrivateSettings().check(TextRules())
    (tmp_path / "tokenizer.json").write_text(pieces % "BPE", "utf-8")
    with pytest.raises(StudyError, match="give a public list of words"):
        PrivateSettings().recipe.public_words(TextRules())


def test_a_study_without_public_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence says why, and what to do, before anything leaves."""

    def missing(model: str) -> None:
        raise StudyError(f"The model {model!r} cannot be loaded.")

    monkeypatch.setattr("fedtopics.methods.bounded.sentence_encoder", missing)
    for ask in (PrivateSettings().check, PrivateSettings(mode="words").recipe.public_words):
        with pytest.raises(StudyError, match="and this one names none: give a list") as told:
            ask(TextRules())
        assert str(told.value).endswith("cannot be loaded.")
    PrivateSettings(words=("milk",)).check(TextRules())


@pytest.mark.parametrize(
    "wrong",
    [{"clients_per_round": 2}, {"coherence": "windows"}, {"stop_when": {"loss": 1.0}},
     {"max_rounds": 3}, {"words": ["tea", "tea"]}],
)  # fmt: skip
def test_settings_that_have_no_part_of_the_budget_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(StudyError):
        Study.make(method={"name": "private", **wrong})


def test_lengths_of_points_are_one_or_nothing() -> None:
    origin = unit(np.ones((1, 4)))[0] / 2
    points, nearest = contributions.placed(np.array([origin, 3 * origin]), origin, np.eye(4))
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [0, 1], atol=1e-6)
    assert nearest[1] == 0
