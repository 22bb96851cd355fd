"""Pseudo-labels: transport against POT, a mixture against densities and planted mistakes."""

import math

import numpy as np
import ot
import pytest
import torch
from scipy import stats
from torch import Tensor

from fedtopics.methods.fstc.pseudo_labels import (
    GaussianUniformMixture,
    schedule,
    sharpen,
    transport,
    weighted_error,
    weights,
)

FLOAT = torch.float64


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=FLOAT)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def same(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("mass", [[1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0]])
def test_transport_is_that_of_pot(mass: list[float], epsilon: float) -> None:
    scores = normal(30, 4)
    sizes = np.array(mass) / sum(mass) * 30
    cost = -torch.log_softmax(scores, 1).numpy()
    expected = ot.bregman.sinkhorn_log(
        np.ones(30), sizes, cost, epsilon, numItermax=20_000, stopThr=1e-12
    )
    plan = transport(scores, torch.tensor(mass), epsilon, iterations=20_000, tolerance=1e-12)
    same(plan, torch.from_numpy(expected), 1e-6)


def test_two_documents_of_one_opinion_are_shared_out() -> None:
    """Of two that want the first cluster the one with more to lose gets it: u K v by hand."""
    scores = matrix([math.log(9), 0], [math.log(4), 0])
    plan = transport(scores, torch.ones(2), epsilon=1, tolerance=1e-14, iterations=1000)
    # Rows 9 v : 1 and 4 v : 1, and 9 v / (9 v + 1) + 4 v / (4 v + 1) = 1 where v = 1 / 6.
    same(plan, matrix([0.6, 0.4], [0.4, 0.6]))


def test_marginals() -> None:
    plan = transport(5 * normal(400, 7), torch.arange(1.0, 8.0), iterations=1000)
    same(plan.sum(1), torch.ones(400, dtype=FLOAT))
    assert (plan.sum(0) - 400 / 28 * torch.arange(1, 8)).abs().sum() / 2 <= 1e-6 * 400


@pytest.mark.parametrize("temperature", [1.0, 3.0, 10.0, 1000.0])
def test_fifty_iterations_come_close_however_confident_the_scores(temperature: float) -> None:
    rng = np.random.default_rng(1)
    clusters = rng.choice(20, 2000, p=rng.dirichlet(np.full(20, 3.0)))
    scores = normal(2000, 20)
    scores[torch.arange(2000), torch.from_numpy(clusters)] += 3
    plan = transport(temperature * scores, torch.ones(20))
    same(plan.sum(1), torch.ones(2000, dtype=FLOAT))
    assert (plan.sum(0) - 100).abs().sum() / 2 < 0.02 * 2000


HARD = {
    "two clusters": normal(9, 2),
    "200 clusters": normal(300, 200),
    "fewer documents than clusters": normal(3, 50),
    "one document": normal(1, 5),
    "all alike": torch.zeros(20, 4),
    "far apart": torch.where(normal(40, 6) > 0, 1e4, -1e4),
    "all for one cluster": torch.tensor([[1e4, -1e4, -1e4]]).repeat(12, 1),
    "a cluster without hope": torch.tensor([[-1e6, *[0.0] * 999]]).repeat(5, 1),
    "single precision": normal(10, 3).float(),
}


@pytest.mark.parametrize("scores", HARD.values(), ids=HARD.keys())
def test_no_scores_are_too_hard(scores: Tensor) -> None:
    n, n_clusters = scores.shape
    plan = transport(scores, torch.ones(n_clusters))
    assert (plan.dtype, plan.shape) == (FLOAT, scores.shape)
    assert (plan >= 0).all()
    for labels in plan, sharpen(plan):
        same(labels.sum(1), torch.ones(n, dtype=FLOAT))


def test_what_is_known_of_hard_plans() -> None:
    def even(n: int, n_clusters: int) -> Tensor:
        return torch.full((n, n_clusters), 1 / n_clusters, dtype=FLOAT)

    same(transport(HARD["all alike"], torch.ones(4)), even(20, 4))
    same(transport(HARD["all for one cluster"], torch.ones(3)), even(12, 3), 1e-9)
    same(transport(HARD["a cluster without hope"], torch.ones(1000)), even(5, 1000), 1e-8)
    same(transport(HARD["one document"], torch.ones(5)), even(1, 5))
    same(transport(HARD["one document"], torch.arange(5))[0], torch.arange(5).double() / 10)


@pytest.mark.parametrize("name", ["far apart", "two clusters", "one document"])
def test_a_cluster_of_size_zero_gets_nothing(name: str) -> None:
    scores = HARD[name]
    sizes = torch.ones(scores.shape[1])
    sizes[0] = 0
    plan = transport(scores, sizes)
    assert not plan[:, 0].any()
    same(plan.sum(1), torch.ones(len(scores), dtype=FLOAT))
    same(plan[:, 1:], transport(scores[:, 1:], sizes[1:]), 1e-9)


def test_sharpen() -> None:
    plan = matrix([0.5, 0.5, 0], [0.75, 0.25, 0], [0.2, 0.4, 0.4])
    same(sharpen(plan), matrix([0.5, 0.5, 0], [0.9, 0.1, 0], [1 / 9, 4 / 9, 4 / 9]))


RESIDUALS = matrix([0.1, -0.2], [0.3, 0.1], [-0.9, 0.8])


def test_responsibilities_are_those_of_the_densities() -> None:
    mixture = GaussianUniformMixture(0.7, torch.tensor([0.04, 0.09], dtype=FLOAT), math.log(0.3))
    _, responsibilities = mixture.step(RESIDUALS)
    density = stats.multivariate_normal([0, 0], np.diag([0.04, 0.09])).pdf(RESIDUALS.numpy())
    same(responsibilities, torch.from_numpy(0.7 * density / (0.7 * density + 0.3 * 0.3)))


def test_a_mixture_is_found_from_responsibilities() -> None:
    """The first two are right, the others wrong, but for a millionth."""
    residuals = matrix([0.01, 0.02], [0.03, -0.02], [1, 0.6], [-2, 0.8], [0.4, -1.4])
    mixture, responsibilities = GaussianUniformMixture(
        0.5, torch.full((2,), 1e-3, dtype=FLOAT), -9.0
    ).step(residuals)
    same(responsibilities, torch.tensor([1.0, 1, 0, 0, 0], dtype=FLOAT), 1e-4)
    assert mixture.prior == pytest.approx(0.4, abs=1e-4)
    same(mixture.variances, torch.tensor([0.0005, 0.0004], dtype=FLOAT), 1e-4)
    # Means -0.2 and 0, means of squares 5.16 / 3 and 2.96 / 3.
    widths = [2 * math.sqrt(3 * (5.16 / 3 - 0.04)), 2 * math.sqrt(2.96)]
    assert mixture.log_uniform == pytest.approx(-math.log(math.prod(widths)), abs=1e-3)


def test_the_uniform_is_never_narrower_than_the_gaussian() -> None:
    """A single wrong pseudo-label has no variance: 1 / gamma of equation 12 would be 0."""
    mixture, _ = GaussianUniformMixture(0.5, torch.full((2,), 1e-3, dtype=FLOAT), -9.0).step(
        matrix([0.01, 0.02], [0.03, -0.02], [1, 0.6])
    )
    deviations = mixture.variances.sqrt()
    assert mixture.log_uniform == pytest.approx(-float((6 * deviations).log().sum()), abs=1e-3)


def fitted(residuals: Tensor, steps: int) -> tuple[GaussianUniformMixture, Tensor]:
    mixture = GaussianUniformMixture.begin(residuals.shape[1])
    for _ in range(steps):
        mixture, responsibilities = mixture.step(residuals)
    return mixture, responsibilities


def test_bounds() -> None:
    perfect, responsibilities = fitted(torch.zeros(10, 3), 5)
    assert (responsibilities >= 0.5).all()
    assert perfect.prior == 0.95
    same(perfect.variances, torch.full((3,), 1e-6, dtype=FLOAT))
    few, _ = GaussianUniformMixture(0.5, torch.full((2,), 1e-3, dtype=FLOAT), -4.0).step(
        torch.cat([1e-3 * normal(1, 2), 5 * normal(99, 2)])
    )
    assert few.prior == 0.05


def planted(n_clusters: int, n_wrong: int) -> Tensor:
    """2,000 residuals; of the first so many the pseudo-labels are wrong."""
    rng = np.random.default_rng(n_clusters)
    wrong = rng.uniform(-1, 1, (n_wrong, n_clusters))
    right = 0.05 * rng.standard_normal((2000 - n_wrong, n_clusters))
    return torch.from_numpy(np.vstack([wrong, right]))


@pytest.mark.parametrize(("n_clusters", "missed"), [(2, 0.06), (5, 0.005), (20, 0), (200, 0)])
@pytest.mark.parametrize("n_wrong", [200, 800])
def test_planted_mistakes_are_found(n_clusters: int, missed: float, n_wrong: int) -> None:
    mixture, responsibilities = fitted(planted(n_clusters, n_wrong), 20)
    trusted = weights(responsibilities) > 0
    assert trusted[:n_wrong].double().mean() <= missed
    assert trusted[n_wrong:].double().mean() > 0.99
    assert mixture.prior == pytest.approx(1 - n_wrong / 2000, abs=0.02)
    assert mixture.variances.sqrt().mean() == pytest.approx(0.05, rel=0.05)
    assert mixture.log_uniform / n_clusters == pytest.approx(-math.log(2), abs=0.1)


@pytest.mark.parametrize("n_clusters", [4, 20, 200])
def test_wrong_labels_are_found(n_clusters: int) -> None:
    """Residuals as they occur: one-hot targets, every fifth of another cluster, less softmax."""
    rng = np.random.default_rng(0)
    scores = normal(1000, n_clusters)
    clusters = torch.from_numpy(rng.integers(n_clusters, size=1000))
    scores[torch.arange(1000), clusters] += 3 + math.log(n_clusters)
    labels = clusters.clone()
    labels[:200] += torch.from_numpy(rng.integers(1, n_clusters, size=200))
    targets = torch.nn.functional.one_hot(labels % n_clusters, n_clusters)
    _, responsibilities = fitted(targets - torch.softmax(scores, 1), 10)
    trusted = weights(responsibilities) > 0
    assert trusted[:200].double().mean() < 0.15
    assert trusted[200:].double().mean() > 0.85


@pytest.mark.parametrize("shape", [(1, 2), (1, 200), (2, 200), (50, 200), (5, 1)])
@pytest.mark.parametrize("scale", [0, 1e-9, 1, 1e4])
def test_no_residuals_are_too_hard(shape: tuple[int, int], scale: float) -> None:
    mixture, responsibilities = fitted(scale * normal(*shape), 10)
    assert torch.isfinite(mixture.variances).all()
    assert (mixture.variances >= 1e-6).all()
    assert math.isfinite(mixture.log_uniform)
    assert 0.05 <= mixture.prior <= 0.95
    assert ((responsibilities >= 0) & (responsibilities <= 1)).all()
    assert weights(responsibilities).any()


@pytest.mark.parametrize("steps", [0, 3])
def test_a_restored_mixture_goes_on_as_if_nothing_had_happened(steps: int) -> None:
    residuals = planted(4, 200)
    mixture = GaussianUniformMixture.begin(4)
    for _ in range(steps):
        mixture, _ = mixture.step(residuals)
    stored = {name: tensor.clone() for name, tensor in mixture.state().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
    assert shapes == {"prior": (), "log_uniform": (), "variances": (4,)}
    assert all(tensor.dtype == FLOAT for tensor in stored.values())
    expected, right = mixture.step(residuals)
    restored, again = GaussianUniformMixture.restore(stored).step(residuals)
    assert torch.equal(again, right)
    assert (restored.prior, restored.log_uniform) == (expected.prior, expected.log_uniform)
    assert torch.equal(restored.variances, expected.variances)


def test_weights() -> None:
    (trusted,) = weights(matrix([0, 0.49, 0.5, 0.9, 1])).tolist()
    assert trusted == [0, 0, 0.5, 0.9, 1]


def test_weighted_error() -> None:
    weight = torch.tensor([0.5, 1, 0], dtype=FLOAT)
    outputs = matrix([0.5, 0.5], [0, 0.8], [7, 7]).requires_grad_()
    error = weighted_error(matrix([1, 0], [0, 1], [1, 0]), outputs, weight)
    assert error.item() == pytest.approx((0.5 * 0.5 + 1 * 0.04) / 1.5)
    error.backward()
    # 2 w (O - Q) / sum of w
    same(outputs.grad, matrix([-0.5, 0.5], [0, -0.4], [0, 0]) / 1.5)
    outputs = torch.log(matrix([0.8, 0.2], [0.25, 0.75], [0.1, 0.9])).requires_grad_()
    error = weighted_error(matrix([1, 0], [0.5, 0.5], [1, 0]), outputs, weight, "cross_entropy")
    assert error.item() == pytest.approx((-0.5 * math.log(0.8) - 0.5 * math.log(0.25 * 0.75)) / 1.5)
    error.backward()
    # w (P - Q) / sum of w
    same(outputs.grad, matrix([-0.1, 0.1], [-0.25, 0.25], [0, 0]) / 1.5)


def test_schedule() -> None:
    assert schedule(400, 5) == [0, 16, 64, 144, 256]
    assert schedule(500, 5, first=100) == [100, 116, 164, 244, 356]
    assert schedule(10, 1, first=4) == [4]
    assert schedule(10, 100, first=6) == [6, 7, 8, 9]
    assert schedule(5, 3, first=5) == schedule(5, 0) == []
