"""ProdLDA in the manner of scikit-learn: alone, centralised, federated."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fedtopics import (
    FLDA,
    LDA,
    CombinedTM,
    Corpus,
    MixtureTM,
    NeuralLDA,
    ProdLDA,
    ShortTextClustering,
    Study,
    TopicEstimator,
    ZeroShotTM,
)
from fedtopics.errors import StudyError
from fedtopics.methods import registry
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.metrics import purity
from tests.helpers.clients import ALL, BOATS, TEXTS, TREES, documents

UNIFORM = np.full(2, 0.5, np.float32)


def estimator(**parameters: Any) -> ProdLDA:
    return ProdLDA(**{"n_components": 2, "max_rounds": 200, "learning_rate": 0.02} | parameters)


def quick(**parameters: Any) -> ProdLDA:
    return estimator(**{"max_rounds": 3} | parameters)


def assert_separated(model: ProdLDA) -> None:
    """One topic is read in trees and one in boats, and the documents go where they belong."""
    of_trees = model.beta_[:, [model.vocabulary_.index(word) for word in TREES]].sum(1)
    trees = int(of_trees.argmax())
    assert of_trees[trees] > 0.8
    assert of_trees[1 - trees] < 0.2
    assert set(model.topics_[trees][:5]) <= set(TREES)
    assert set(model.topics_[1 - trees][:5]) <= set(BOATS)
    assert (model.transform(documents(TREES, 8)).argmax(1) == trees).all()
    assert (model.transform(documents(BOATS, 9)).argmax(1) == 1 - trees).all()


def test_centralised_and_federated_topics_are_the_subjects() -> None:
    assert_separated(estimator().fit(ALL))
    assert_separated(estimator(min_clients_per_word=1).fit_clients(TEXTS))


@pytest.mark.parametrize("kind", [NeuralLDA, CombinedTM, ZeroShotTM])
def test_other_networks(kind: type[ProdLDA]) -> None:
    """With embeddings that tell the subjects apart, for those that look at them."""
    sides = np.repeat([-1.0, 1.0], 40)[:, None] + np.random.default_rng(0).normal(size=(80, 3)) / 10
    corpus = Corpus.of(ALL).with_embeddings(sides.astype(np.float32))
    clients = {"boats": corpus.take(range(40)), "trees": corpus.take(range(40, 80))}
    parameters = {"max_rounds": 100, "learning_rate": 0.02, "embedding_dimension": 3}
    model = kind(2, min_clients_per_word=1, **parameters).fit_clients(clients)
    name = kind.__name__.lower()
    assert model.model_.inference.name == name
    assert purity(np.repeat([0, 1], 40), model.transform(corpus).argmax(1)) > 0.8
    assert model.get_feature_names_out().tolist() == [f"{name}{k}" for k in (0, 1)]
    assert clone(model).get_params() == model.get_params()


def test_a_row_for_each_document() -> None:
    theta = quick().fit(["", *ALL, ""]).transform(["", "oak fir", "unknown words", "ketch", "the"])
    assert theta.shape == (5, 2)
    assert theta.dtype == np.float32
    np.testing.assert_allclose(theta.sum(1), 1, rtol=1e-6)
    assert (theta == UNIFORM).all(1).tolist() == [True, False, True, False, True]


def test_random_state() -> None:
    first = quick(random_state=3).fit(ALL)
    assert quick(random_state=3).fit(ALL).beta_.tobytes() == first.beta_.tobytes()
    assert quick(random_state=4).fit(ALL).beta_.tobytes() != first.beta_.tobytes()


@pytest.mark.parametrize(
    "form",
    [
        lambda texts: pd.DataFrame({"text": texts, "n": 1}),
        lambda texts: np.array(texts, dtype=object),
        lambda texts: [text.split() for text in texts],
        Corpus.of,
    ],
    ids=["frame", "array", "tokens", "corpus"],
)
def test_forms_of_documents(form: Any) -> None:
    expected = quick().fit(ALL)
    model = quick().fit(form(ALL))
    assert model.beta_.tobytes() == expected.beta_.tobytes()
    np.testing.assert_array_equal(model.transform(form(ALL)), expected.transform(ALL))


NEURAL = {"name": "gfedntm", "network": "neurallda"}
COMBINED = {"name": "gfedntm", "network": "combinedtm"}


def test_what_is_not_given_is_the_studys() -> None:
    """A preset is the whole preset, and no default is declared a second time."""
    for estimator, method in [
        (ProdLDA(), {"name": "gfedntm"}),
        (NeuralLDA(), NEURAL),
        (NeuralLDA(preset="mixtures"), NEURAL | {"preset": "mixtures"}),
        (CombinedTM(preset="paper"), COMBINED | {"preset": "paper"}),
        (LDA(), {"name": "lda"}),
        (MixtureTM(), {"name": "mixture"}),
        (FLDA(preset="paper-pairwise"), {"name": "flda", "preset": "paper-pairwise"}),
        (ShortTextClustering(), {"name": "discriminative"}),
        (TopicEstimator(method="kmeans"), {"name": "kmeans"}),
        (TopicEstimator(), {}),
    ]:
        assert estimator._study() == Study.make(method=method)
    mixtures = NeuralLDA(preset="mixtures")._study().method
    assert isinstance(mixtures, GFedNTMSettings)
    assert (mixtures.initialisation, mixtures.learning_rate_decay) == ("anchors", "linear")
    assert (mixtures.alpha, mixtures.posterior_gain, mixtures.max_rounds) == (0.1, 1.5, 2500)


SETTINGS: dict[str, Any] = {
    "beta1": 0.5,
    "clients_per_round": 2,
    "layer_norm": True,
    "local_learning_rate": 0.1,
    "patience": 3,
    "precision": "float64",
    "validate_every": 7,
}


@pytest.mark.parametrize(
    "make",
    [
        lambda given: CombinedTM(3, embedding_model="m", settings=given),
        lambda given: CombinedTM(3, embedding_model="m", **given),
        lambda given: clone(CombinedTM(3, hidden=(9,))).set_params(embedding_model="m", **given),
    ],
    ids=["settings", "keywords", "set_params"],
)
def test_every_setting_of_a_study_can_be_given(make: Any) -> None:
    of_text = {"lowercase": False, "max_document_share": 0.9, "embedding_dimension": 8}
    model = make(SETTINGS | of_text | {"hidden": (50, 50)})
    embedding = {"model": "m", "dimension": 8}
    chosen = COMBINED | {"n_components": 3, "hidden": (50, 50)}
    method = SETTINGS | chosen | {"embedding": embedding}
    expected = Study.make(
        method=method, text={"lowercase": False}, vocabulary={"max_document_share": 0.9}
    )
    for copied in (model, clone(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert copied._study() == expected
        assert copied.get_params() == model.get_params()


def test_a_search_over_settings() -> None:
    estimator = LDA(2, max_rounds=2, max_document_share=1.0, coherence="nothing")
    how: Any = {"scoring": lambda model, texts: model.transform(texts).max(1).mean(), "cv": 2}
    search = GridSearchCV(estimator, {"alpha": [0.1, 5.0]}, **how).fit(ALL)
    assert search.best_params_ == {"alpha": 0.1}
    assert search.best_estimator_.model_.inference.settings.alpha == 0.1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 1}, "'method.n_components' is 1"),
        ({"n_components": 17}, "vocabulary has 16 words, fewer than n_components = 17"),
        ({"optimizer": "fedavg"}, "cannot be combined with local_steps 1"),
        ({"dropout": 1.0}, "'method.dropout' is 1.0"),
        ({"random_state": -1}, "'seed' is -1"),
        ({"hiden": (9, 9)}, "There is no setting 'hiden'; did you mean 'hidden'"),
        ({"settings": {"norm": "none"}}, "'method.norm' is 'none'"),
        ({"settings": ["norm"]}, "give a mapping of names to values"),
        ({"settings": {"max_rounds": 5}}, "max_rounds of ProdLDA is already 3; leave out 5"),
        ({"method": "lda"}, "method of ProdLDA is already 'gfedntm'; leave out 'lda'"),
    ],
)
def test_unusable_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        quick(**parameters).fit(ALL)


@pytest.mark.parametrize(
    ("words", "vectors", "method", "why"),
    [
        (15, 4, "nmf", "documents have 15.0 words on average, 15 or more"),
        (14, 4, "mixture", "documents have 14.0 words on average, fewer than 15, and have embed"),
        (14, 0, "nmf", "and some have no embedding, which short texts need"),
        (0, 4, "mixture", "documents have 0.0 words"),
    ],
)
def test_the_method_is_chosen_by_the_lengths_of_documents(
    words: int, vectors: int, method: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)  # without an embedding model
    of_texts = Corpus.of([" ".join(["oak"] * words)] * 4).with_embeddings(np.eye(4))
    of_tokens = Corpus.of([["oak"] * words] * 4).with_embeddings(np.eye(4) if vectors else None)
    chosen, reason = registry.choose_method([of_texts, of_tokens])
    assert chosen == method
    assert why in reason


@pytest.mark.parametrize(("times", "method"), [(1, "mixture"), (9, "nmf")])
def test_an_estimator_without_a_method_chooses_it(times: int, method: str) -> None:
    texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    vectors = np.array([[1, 0.1], [1, -0.1], [0.1, 1], [-0.1, 1]] * 20)
    corpus = Corpus.of([" ".join([text] * times) for text in texts]).with_embeddings(vectors)
    estimator = TopicEstimator(2, max_rounds=3, embedding_dimension=2)
    assert estimator.fit(corpus).model_.info["method"] == method
    assert estimator.fit_clients([corpus, corpus]).model_.info["method"] == method
