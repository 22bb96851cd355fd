"""Sums that do not depend on the order of arrival, and the server's optimisers."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from fedtopics.aggregation import OptimizerName, Rows, ServerOptimizer, add_up
from fedtopics.errors import FedTopicsError


def rows(index: list[int], values: list[list[float]], n_rows: int = 4) -> Rows:
    return Rows(np.array(index, np.int64), np.array(values, np.float32), n_rows)


# Sums


def test_numbers() -> None:
    total = add_up({"a": {"n": 2, "loss": 0.5}, "b": {"n": 3, "loss": 0.25}})
    assert total == {"n": 5, "loss": 0.75}
    assert isinstance(total["n"], int)


def test_arrays() -> None:
    a, b = np.array([[1.0, 2.0]], np.float32), np.array([[0.5, 0.25]], np.float32)
    total = add_up({"a": {"x": a}, "b": {"x": b}})["x"]
    assert total.tolist() == [[1.5, 2.25]]
    assert total.dtype == np.float64
    assert a.tolist() == [[1.0, 2.0]]  # what a client sent is not changed


def test_arrays_of_integers_stay_exact() -> None:
    total = add_up({"a": {"x": np.array([2**53], np.int64)}, "b": {"x": np.array([1], np.int32)}})
    assert total["x"].tolist() == [2**53 + 1]
    assert total["x"].dtype == np.int64


def test_float64_arrays_are_not_changed() -> None:
    a = np.array([1.0, 2.0])
    add_up({"a": {"x": a}, "b": {"x": a}})
    assert a.tolist() == [1.0, 2.0]


def test_arrays_without_dimension() -> None:
    assert add_up({"a": {"x": np.array(1.0)}, "b": {"x": np.array(2.0)}})["x"].shape == ()


def test_maps() -> None:
    total = add_up({"a": {"m": {"x": 1, "y": {"z": 2}}}, "b": {"m": {"x": 10, "y": {"z": 20}}}})
    assert total == {"m": {"x": 11, "y": {"z": 22}}}


def test_rows() -> None:
    total = add_up(
        {
            "a": {"x": rows([0, 3], [[1, 2], [3, 4]])},
            "b": {"x": rows([2, 3], [[5, 6], [7, 8]])},
            "c": {"x": Rows(np.zeros(0, np.int64), np.zeros((0, 2), np.float32), 4)},
        }
    )["x"]
    assert total.index.tolist() == [0, 2, 3]
    assert total.values.tolist() == [[1, 2], [5, 6], [10, 12]]
    assert total.n_rows == 4
    assert total.dense().tolist() == [[1, 2], [0, 0], [5, 6], [10, 12]]


def test_sums_are_of_double_precision() -> None:
    """In float32 the small values vanish beside the large one, whatever the order."""
    values = {"a": 2.0**24, "b": 1.0, "c": 1.0}
    arrays = {name: {"x": np.array([v], np.float32)} for name, v in values.items()}
    assert add_up(arrays)["x"].tolist() == [2.0**24 + 2]
    sparse = {name: {"x": rows([1], [[v]])} for name, v in values.items()}
    assert add_up(sparse)["x"].values.tolist() == [[2.0**24 + 2]]


def test_the_order_of_arrival_changes_no_bit() -> None:
    values = {"a": 1e30, "b": 3.0, "c": -1e30, "d": 1 / 3, "e": 7e-9}  # any two orders differ
    replies = {
        name: {"n": v, "x": np.array([v, -v]), "r": rows([1], [[v]]), "m": {"y": np.array(v)}}
        for name, v in values.items()
    }
    seen = set()
    for names in permutations(replies):
        total = add_up({name: replies[name] for name in names})
        seen.add(
            (
                np.float64(total["n"]).tobytes(),
                total["x"].tobytes(),
                total["r"].values.tobytes(),
                total["m"]["y"].tobytes(),
            )
        )
    assert len(seen) == 1


def test_the_reply_of_one_client_is_returned_as_it_is() -> None:
    reply = {"x": np.array([1.5], np.float32), "r": rows([1], [[2]]), "name": "not a number"}
    total = add_up({"a": reply})
    assert total == reply
    assert total["x"] is reply["x"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x": np.zeros(2)}, {"x": np.zeros(3)}),
        ({"x": np.zeros((1, 2))}, {"x": np.zeros(2)}),
        ({"x": np.zeros(1)}, {"x": np.zeros(3)}),
        ({"x": rows([0], [[1, 2]])}, {"x": rows([1], [[1, 2, 3]])}),
        ({"x": rows([0], [[1]], n_rows=4)}, {"x": rows([1], [[1]], n_rows=5)}),
        ({"x": rows([0], [[1]], n_rows=4)}, {"x": rows([4], [[1]], n_rows=5)}),
    ],
)
def test_shapes_must_agree(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(FedTopicsError, match="different shapes"):
        add_up({"a": first, "b": second})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x": 1, "y": 1}, {"x": 1}),
        ({"x": 1}, {"x": 1, "y": 1}),
        ({"x": {"y": 1}}, {"x": {"z": 1}}),
        ({"x": np.zeros(2)}, {"x": 1.0}),
        ({"x": np.zeros(2, np.int64)}, {"x": np.zeros(2)}),
        ({"x": "one"}, {"x": "two"}),
    ],
)
def test_fields_must_agree(first: dict[str, Any], second: dict[str, Any]) -> None:
    with pytest.raises(FedTopicsError, match=r"do not run the same study|cannot be added up"):
        add_up({"a": first, "b": second})


# Optimisers

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


def test_the_first_adam_step_by_hand() -> None:
    w = {"w": torch.tensor([1.0, 2.0, 3.0])}
    ServerOptimizer("adam", w, 0.5, 0.9).step({"w": np.array([4.0, -0.01, 0.0])}, documents=2)
    assert w["w"].tolist() == pytest.approx([0.5, 2.5, 3.0], abs=1e-5)  # the rate, by the sign


@pytest.mark.parametrize("name", ["adam", "fedadam"])
@pytest.mark.parametrize("beta1", [0.9, 0.99])
def test_adam_is_that_of_torch(name: OptimizerName, beta1: float) -> None:
    ours, theirs = weights(), weights()
    optimizer = ServerOptimizer(name, ours, 0.01, beta1)
    parameters = [torch.nn.Parameter(tensor) for tensor in theirs.values()]
    adam = torch.optim.Adam(parameters, lr=0.01, betas=(beta1, 0.999))
    for step in range(5):
        found = gradients(step)
        optimizer.step({key: value * 8 for key, value in found.items()}, documents=8)
        for parameter, value in zip(parameters, found.values(), strict=True):
            parameter.grad = torch.from_numpy(value).float()
        adam.step()
    for parameter, tensor in zip(parameters, ours.values(), strict=True):
        torch.testing.assert_close(tensor, parameter.data, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_rows_are_a_dense_gradient_with_zeros(name: OptimizerName) -> None:
    """The other rows have gradient zero: Adam's moments still move them."""
    dense, sparse = weights(), weights()
    of_dense = ServerOptimizer(name, dense, 0.1, 0.9)
    of_rows = ServerOptimizer(name, sparse, 0.1, 0.9)
    for step, index in enumerate([[0, 2], [1], [], [0, 1, 2]]):
        found = gradients(step)
        part = Rows(np.array(index, np.int64), found["w"][index], 3)
        of_rows.step({"w": part, "b": found["b"]}, documents=2)
        of_dense.step({"w": part.dense(), "b": found["b"]}, documents=2)
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
    again.restore({key: tensor.clone() for key, tensor in optimizer.state().items()})
    for step in range(3, 6):
        optimizer.step(gradients(step), documents=2)
        again.step(gradients(step), documents=2)
    assert {key: tensor.tolist() for key, tensor in first.items()} == {
        key: tensor.tolist() for key, tensor in second.items()
    }


def test_names_of_the_state() -> None:
    optimizer = ServerOptimizer("adam", weights(), 0.1, 0.9)
    assert optimizer.state() == {}
    optimizer.step(gradients(0), documents=1)
    expected = {f"{name}.{key}" for name in "wb" for key in ("step", "exp_avg", "exp_avg_sq")}
    assert set(optimizer.state()) == expected
    assert float(optimizer.state()["w.step"]) == 1.0
