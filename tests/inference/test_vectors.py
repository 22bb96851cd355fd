"""Numerics of clusters on arrays small enough to compute by hand."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy import sparse
from sklearn.metrics import pairwise_distances

from fedtopics import TopicModel
from fedtopics.errors import StudyError
from fedtopics.inference import INFERENCES, Inference, Layout, Weights, find, vectors
from fedtopics.inference.lda import VariationalLDA
from fedtopics.methods import registry
from fedtopics.methods.clusters import sums as sums_of_clusters
from fedtopics.methods.lda.method import METHOD
from fedtopics.networks.topic_networks import ProdLDA
from tests.helpers.models import made
from tests.helpers.registries import restored

POINTS = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 3.0], [4.0, 5.0], [0.0, 1.0]])
CENTRES = np.array([[0.0, 0.0], [4.0, 4.0], [9.0, 9.0]])
LABELS = np.array([0, 0, 1, 1, 0])


@pytest.fixture(params=["whole", "two rows a block"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "whole":
        monkeypatch.setattr(vectors, "BLOCK", 2)


both = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


def dense(array: Any) -> NDArray[np.float64]:
    return np.asarray(array.toarray() if sparse.issparse(array) else array)


@both
@pytest.mark.usefixtures("_blocks")
def test_nearest_centres(kind: Any) -> None:
    labels, distances = vectors.nearest_centres(kind(POINTS), CENTRES)
    assert labels.tolist() == LABELS.tolist()
    np.testing.assert_allclose(distances, [0, 1, 1, 1, 1])
    np.testing.assert_allclose(  # the order of distances, whatever a point's own length
        -2 * vectors.closeness(POINTS, CENTRES) + (POINTS**2).sum(1)[:, None],
        pairwise_distances(POINTS, CENTRES) ** 2,
    )


def test_a_point_between_two_centres_is_of_the_first() -> None:
    labels, distances = vectors.nearest_centres(np.array([[2.0, 2.0]]), CENTRES[:2])
    assert (labels.tolist(), distances.tolist()) == ([0], [8.0])
    labels, distances = vectors.nearest_centres(
        np.array([[0.1, 0.2, 0.3]]), np.array([[0.1, 0.2, 0.3]] * 2)
    )
    assert labels.tolist() == [0]
    assert 0 <= distances[0] < 1e-15, "a square is never negative"


@both
@pytest.mark.usefixtures("_blocks")
def test_sums_by_label(kind: Any) -> None:
    sums, counts = sums_of_clusters.sums_by_label(kind(POINTS), LABELS, 3)
    np.testing.assert_allclose(sums, [[1, 1], [8, 8], [0, 0]])
    np.testing.assert_array_equal(counts, [3, 2, 0])
    assert sums.dtype == counts.dtype == np.float64


@both
@pytest.mark.usefixtures("_blocks")
def test_sums_by_class(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = np.array([[1, 0], [0.5, 0.5], [0.25, 0.75], [0, 1], [0.5, 0.5]])
    points = kind(POINTS)
    monkeypatch.setattr(
        vectors.Discriminant,
        "memberships",
        lambda _, of: ((rows, shares[rows]) for rows, _ in vectors.blocks(of)),
    )
    arrays = {"projection": np.zeros((1, 2, 1)), "directions": np.zeros((1, 2, 1))}
    sums, weights, powers = sums_of_clusters.sums_by_class(
        points, 1.0, **arrays, bias=np.zeros((1, 2))
    )
    np.testing.assert_allclose(sums, [[[1.5, 1.25], [7.5, 7.75]]])
    np.testing.assert_allclose(weights, [[2.25, 2.75]])
    np.testing.assert_allclose(powers["squares"], [(shares**2).sum(0)])


def moved(before: Any, now: Any, least: int) -> list[int]:
    before = np.array(before)
    now = np.array(now)
    flows = sums_of_clusters.flows(before, now, max(*before, *now) + 1, None)
    return np.where(sums_of_clusters.may_move(flows, least)[before, now], now, before).tolist()


def test_a_group_moves_and_fewer_stay() -> None:
    assert moved([0] * 5, [1, 1, 1, 0, 0], 3) == [1, 1, 1, 0, 0]
    assert moved([0] * 5, [1, 1, 0, 0, 0], 3) == [0] * 5
    assert moved([0, 0, 1, 1], [1, 1, 0, 0], 4) == [1, 1, 0, 0], "who joins and who leaves count"
    assert moved([0] * 4, [1, 1, 2, 0], 2) == [1, 1, 0, 0], "a group may go without another"


@pytest.mark.parametrize("least", [1, 2, 5, 10])
def test_moves_of_random_labels(least: int) -> None:
    rng = np.random.default_rng(least)
    for share in (0.02, 0.1, 0.5):
        before = rng.integers(0, 6, 200)
        now = np.where(rng.random(200) < share, rng.integers(0, 6, 200), before)
        after = np.array(moved(before, now, least))
        assert ((after == before) | (after == now)).all()
        for cluster in range(6):
            changed = int(((after == cluster) != (before == cluster)).sum())
            assert changed == 0 or changed >= least
        # Asked again after this, the same: who was held back is as few as before.
        np.testing.assert_array_equal(moved(after, now, least), after)
        if least == 1:
            np.testing.assert_array_equal(after, now)


def moments_of(points: NDArray[np.float64]) -> sums_of_clusters.Moments:
    return sums_of_clusters.Moments.of(len(points), points.sum(0), points.T @ points)


def labelled(n: int = 300, n_clusters: int = 4, n_dimensions: int = 6) -> Any:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, n_clusters, n)
    points = 2 * rng.normal(size=(n_clusters, n_dimensions))[labels]
    return points + rng.normal(size=(n, n_dimensions)) @ rng.normal(
        size=(n_dimensions,) * 2
    ), labels


def scatters(points: Any, labels: Any, shrinkage: float) -> Any:
    """S_B and S_W by their definitions."""
    n_dimensions = points.shape[1]
    between, within = np.zeros((2, n_dimensions, n_dimensions))
    for k in np.unique(labels):
        members = points[labels == k]
        apart = members.mean(0) - points.mean(0)
        between += len(members) / len(points) * np.outer(apart, apart)
        within += (members - members.mean(0)).T @ (members - members.mean(0)) / len(points)
    ball = shrinkage * np.trace(np.cov(points.T, bias=True)) / n_dimensions
    return between, within + ball * np.eye(n_dimensions)


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3, 3.0])
def test_discriminants_are_those_of_scipy(shrinkage: float) -> None:
    points, labels = labelled()
    between, within = scatters(points, labels, shrinkage)
    values = scipy.linalg.eigh(between, within, eigvals_only=True)[::-1]
    sums, counts = sums_of_clusters.sums_by_label(points, labels, 4)
    projection, directions, apart = sums_of_clusters.discriminate(
        sums, weights=counts, moments=moments_of(points), shrinkage=shrinkage
    )
    assert apart == pytest.approx(values[:3].sum(), rel=1e-9)
    assert apart == pytest.approx(np.trace(np.linalg.solve(within, between)), rel=1e-9)
    assert projection.shape == (6, 3)
    np.testing.assert_allclose(projection.T @ within @ projection, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(
        projection.T @ between @ projection, np.diag(values[:3]), atol=1e-8 * values[0]
    )
    np.testing.assert_allclose(directions, vectors.unit_rows((sums / counts[:, None]) @ projection))


# Inferences by name: one that is registered from outside is saved and loaded like ours


class Halves(BaseModel):
    n_components: int = 2
    sharpness: float = 3.0


class FirstHalf(Inference):
    """Two groups: words of the first half of the vocabulary, and the others."""

    name: ClassVar[str] = "halves"
    settings_type: ClassVar[type[BaseModel]] = Halves
    shows: ClassVar[Any] = "clusters"

    def layout(self) -> Layout:
        return {"topics": ((2, self.n_words), self.precision)}

    def beta(self, weights: Weights, shared: Any) -> Any:
        return weights["topics"]

    def infer(self, weights: Weights, shared: Any, counts: Any, embeddings: Any) -> NDArray[Any]:
        scores = np.exp(self.settings.sharpness * (counts @ weights["topics"].T))
        return np.asarray(scores / scores.sum(1, keepdims=True))


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    with restored():
        yield


def test_a_registered_one_is_saved_and_loaded(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no network 'halves'"):
        find("halves")
    INFERENCES.register("halves", FirstHalf)
    model = made(
        inference=FirstHalf(5, Halves(sharpness=2.0)),
        word_sums=np.ones((2, 5)),
        coherence={},
        weights={"topics": np.array([[0.5, 0.5, 0, 0, 0], [0, 0, 0.5, 0.5, 0]])},
        labels={},
        shares={"a": np.array([0.25, 0.75])},
        documents={"a": 20},
    )
    back = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    assert isinstance(back.inference, FirstHalf)
    assert back.inference.settings == Halves(sharpness=2.0)
    e = np.exp(2)
    np.testing.assert_allclose(back.transform(["oak elm"]), [np.array([e, 1]) / (e + 1)], rtol=1e-6)


def test_a_method_brings_its_own() -> None:
    registry.register(replace(METHOD, name="mine", inferences=(FirstHalf,)))
    assert find("halves") is FirstHalf


def test_ours_and_networks_are_there_by_name() -> None:
    assert find("lda") is VariationalLDA
    assert find("prodlda") is ProdLDA
    assert find("consensus").name == "consensus"
    for name in INFERENCES.names:
        assert find(name).name == name
    other: Any = type("Other", (FirstHalf,), {"name": "lda"})
    with pytest.raises(StudyError, match="'lda', which fedto"):
        INFERENCES.register("lda", other)
