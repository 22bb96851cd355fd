"""Clusters of short texts in the manner of scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fedtopics import ShortTextClustering, TopicModel
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.metrics import clustering_accuracy
from tests.helpers.clusters import CLUSTERS, DIMENSION, blobs, labels_of, spread

CORPUS = blobs(300)


def clustering(n_clusters: int | list[int] = CLUSTERS, **given: object) -> ShortTextClustering:
    defaults: dict[str, object] = {"embedding_dimension": DIMENSION, "coherence": "nothing"}
    return ShortTextClustering(n_clusters, **defaults | given)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["discriminative", "kmeans"])
def test_clusters_are_found_wherever_the_texts_are(method: str) -> None:
    given: dict[str, Any] = {"method": method, "min_persons_per_word": 1}
    alone = clustering(**given).fit(CORPUS)
    assert clustering_accuracy(labels_of(CORPUS), alone.labels_) > 0.95
    clients = spread(CORPUS, 3)
    together = clustering(**given).fit_clients(
        clients, policies=dict.fromkeys(clients, OPEN_POLICY)
    )
    np.testing.assert_array_equal(together.predict(CORPUS), alone.labels_)
    for name, corpus in clients.items():
        np.testing.assert_array_equal(together.labels_[name], alone.predict(corpus))


def test_what_is_told_of_the_clusters() -> None:
    clients = spread(CORPUS, 3)
    fitted = clustering(random_state=1).fit_clients(clients)
    assert fitted.n_clusters_ == CLUSTERS
    assert fitted.beta_.shape == (CLUSTERS, len(fitted.vocabulary_))
    for name, corpus in clients.items():
        largest = np.bincount(fitted.labels_[name], minlength=CLUSTERS)
        sure = fitted.transform(corpus).max(1) >= 0.5
        clear = np.bincount(fitted.labels_[name][sure], minlength=CLUSTERS)
        np.testing.assert_allclose(fitted.sizes_[name], np.where(clear >= 10, clear, 0), atol=9)
        assert (fitted.sizes_[name] % 10 == 0).all()
        assert largest.sum() == len(corpus)
        assert 0 <= fitted.unclear_[name] <= 1
    families = [{word[:-1] for word in words[:3]} for words in fitted.topics_]
    assert all(len(family) == 1 for family in families), "each is described by its own words"
    assert len(set().union(*families)) == CLUSTERS


def test_it_is_an_estimator(tmp_path: Path) -> None:
    given = clustering(3, method="fstc", preset="stc", network={"local_steps": 2}, max_rounds=1)
    assert clone(given).get_params() == given.get_params()
    fitted = given.fit(CORPUS)
    assert fitted.model_.info["rounds"] == 1
    again = TopicModel.from_pretrained(fitted.model_.save_pretrained(tmp_path / "model"))
    np.testing.assert_array_equal(again.main_topics(CORPUS), fitted.labels_)
    np.testing.assert_array_equal(given.fit_predict(CORPUS), fitted.labels_)
    with pytest.raises(NotFittedError):
        clustering().predict(CORPUS)


def test_groups_of_settings_are_mappings() -> None:
    one = clustering([3, 4], separation={"sizes": "free"}, start={"tries": 2})
    settings: Any = one._study(seed=0).method
    assert (settings.candidates, settings.separation.sizes) == ((3, 4), "free")
    assert (settings.start.tries, settings.start.rounds) == (2, 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_clusters": 1}, "n_components"),
        ({"n_clusters": [4, 3]}, "in ascending order"),
        ({"method": "kmeans", "sizes": "free"}, "There is no setting 'sizes'"),
        ({"method": "kmeans", "n_clusters": [2, 3]}, "takes one n_clusters"),
        ({"method": "kmean"}, "There is no method 'kmean'; did you mean 'kmeans'"),
        ({"preset": "paper"}, "Input should be 'default' or 'single'"),
        ({"method": "fsccl", "network": {"hiden": 8}}, "key 'method.network.hiden'; did you mean"),
        ({"settings": {"alignmnet": 1}}, "There is no setting 'alignmnet'"),
    ],
)
def test_wrong_parameters(given: dict[str, object], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        clustering(**given).fit(CORPUS)  # type: ignore[arg-type]
