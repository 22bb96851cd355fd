"""The server's optimisers take the steps that torch's take, by sums over documents."""

import numpy as np
import pytest
import torch

from fedtopics.contract.payload import SparseRows
from fedtopics.methods.gfedntm.optimizer import OptimizerName, ServerOptimizer

START = {"w": [[1.0, -2.0], [0.5, 0.0], [3.0, 1.0]], "b": [0.25, -0.5]}


def weights() -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values) for name, values in START.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {name: rng.normal(size=np.shape(values)) for name, values in START.items()}


@pytest.mark.parametrize("name", ["sgd", "fedavg"])
def test_sgd_by_hand(name: OptimizerName) -> None:
    w = {"w": torch.tensor([1.0, 2.0])}
    optimizer = ServerOptimizer(name, w, 0.5, 0.9)
    optimizer.step({"w": np.array([4.0, -8.0])}, documents=4)  # the mean is 1, -2
    assert w["w"].tolist() == [0.5, 3.0]
    optimizer.step({"w": np.array([2.0, 0.0])}, documents=2)
    assert w["w"].tolist() == [0.0, 3.0]


@pytest.mark.parametrize("name", ["adam", "fedadam"])
@pytest.mark.parametrize("beta1", [0.9, 0.99])
def test_adam_is_that_of_torch(name: OptimizerName, beta1: float) -> None:
    ours = weights()
    theirs = weights()
    optimizer = ServerOptimizer(name, ours, 0.01, beta1)
    parameters = [torch.nn.Parameter(tensor) for tensor in theirs.values()]
    adam = torch.optim.Adam(parameters, lr=0.01, betas=(beta1, 0.999))
    for step in range(5):
        gradient = gradients(step)
        optimizer.step({key: value * 8 for key, value in gradient.items()}, documents=8)
        for parameter, value in zip(parameters, gradient.values(), strict=True):
            parameter.grad = torch.from_numpy(value).float()
        adam.step()
    for parameter, tensor in zip(parameters, ours.values(), strict=True):
        torch.testing.assert_close(tensor, parameter.data, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_rows_are_a_dense_gradient_with_zeros(name: OptimizerName) -> None:
    """The other rows have gradient zero: Adam's moments still move them."""
    dense = weights()
    sparse = weights()
    of_dense = ServerOptimizer(name, dense, 0.1, 0.9)
    of_rows = ServerOptimizer(name, sparse, 0.1, 0.9)
    for step, index in enumerate([[0, 2], [1], [], [0, 1, 2]]):
        gradient = gradients(step)
        part = SparseRows(np.array(index, np.int64), gradient["w"][index], 3)
        of_rows.step({"w": part, "b": gradient["b"]}, documents=2)
        of_dense.step({"w": part.dense(), "b": gradient["b"]}, documents=2)
        assert sparse["w"].tolist() == dense["w"].tolist()
        assert sparse["b"].tolist() == dense["b"].tolist()


@pytest.mark.parametrize("name", ["adam", "sgd", "fedavg", "fedadam"])
def test_a_restored_optimiser_goes_on_identically(name: OptimizerName) -> None:
    first = weights()
    optimizer = ServerOptimizer(name, first, 0.1, 0.9)
    for step in range(3):
        optimizer.step(gradients(step), documents=2)
    second = {key: tensor.clone() for key, tensor in first.items()}
    again = ServerOptimizer(name, second, 0.1, 0.9)
    again.restore({key: array.copy() for key, array in optimizer.state().items()})
    for step in range(3, 6):
        optimizer.step(gradients(step), documents=2)
        again.step(gradients(step), documents=2)
    assert all(torch.equal(tensor, second[key]) for key, tensor in first.items())


def test_a_step_of_adam_is_bounded_whatever_the_total() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": torch.zeros(50)}
    optimizer = ServerOptimizer("adam", weights, 0.002, 0.99)
    before = weights["w"].clone()
    largest = 0.0
    for number in range(300):
        size = 10.0 ** rng.integers(-8, 16)  # of a total that an adder makes up
        total = size * rng.standard_normal(50).astype(np.float32)
        optimizer.step({"w": total}, documents=1 + number % 3)
        largest = max(largest, float((weights["w"] - before).abs().max()))
        before = weights["w"].clone()
    assert 0.001 < largest <= 0.002 * (1 + 1e-5)
