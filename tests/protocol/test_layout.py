"""Updates as vectors of whole numbers, and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtopics.contract.payload import SparseRows
from fedtopics.contract.replies import Announced, Bounds, WordCountBounds, counts, sums
from fedtopics.errors import FederationError, StudyError
from fedtopics.protocol.layout import LARGEST_UNBOUNDED, UNBOUNDED, Layout
from fedtopics.protocol.masks import TOTAL_BOUND, is_inside

MEMBERS = ["a", "b", "c"]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=1, max_size=50),
    st.sampled_from(["float64", "float32"]),
)
def test_totals_of_bounded_numbers(values: list[list[float]], dtype: str) -> None:
    members = [f"m{i}" for i in range(len(values))]
    layout = Layout.of({"x": Bounds((2, 2), 9, -9, dtype=dtype)}, members, len(members))
    arrays = [np.array(rows, dtype).reshape(2, 2) for rows in values]
    vectors = [layout.encode({"x": array})[0] for array in arrays]
    assert all(is_inside(vector, len(members)) for vector in vectors)
    total = layout.decode(np.sum(vectors, axis=0))["x"]
    assert total.dtype == dtype
    expected = np.sum([array.astype(np.float64) for array in arrays], axis=0)
    np.testing.assert_allclose(total, expected, atol=1e-5 if dtype == "float32" else 1e-12)


def test_whole_numbers_stay_as_they_are() -> None:
    layout = Layout.of(
        {"documents": Announced({"a": 10, "b": 20, "c": 30}), "n": counts(3)}, MEMBERS, len(MEMBERS)
    )
    vector, factor = layout.encode({"documents": 7, "n": np.array([1, 2**40, 0])})
    assert factor == 1.0
    assert layout.decode(3 * vector) == {"documents": 21, "n": pytest.approx([3, 3 * 2**40, 0])}


def test_numbers_without_a_bound_are_scaled_down_as_a_whole() -> None:
    layout = Layout.of({"g": Bounds((2,), dtype="float32")}, MEMBERS, len(MEMBERS))
    vector, factor = layout.encode({"g": np.array([1.5, -2.5], np.float32)})
    assert factor == 1.0
    assert vector.tolist() == [1.5 * 2**UNBOUNDED, -2.5 * 2**UNBOUNDED]
    vector, factor = layout.encode({"g": np.array([1e9, -2e9], np.float32)})
    assert factor == pytest.approx(LARGEST_UNBOUNDED / 3 / 2e9)
    assert is_inside(vector, 3)
    np.testing.assert_allclose(layout.decode(vector)["g"], np.array([1e9, -2e9]) * factor)


def test_rows_maps_and_zeros() -> None:
    template = {
        "m": {"w": Bounds((3, 2), rows=True, dtype="float32")},
        "s": sums(2, per_document=1),
    }
    layout = Layout.of({"documents": Announced({"a": 9}), **template}, ["a"], 1)
    rows = SparseRows(np.array([2]), np.array([[1.0, -1.0]], np.float32), 3)
    vector, _ = layout.encode({"documents": 4, "m": {"w": rows}, "s": np.array([1.0, 3.0])})
    assert vector.shape == (layout.size,) == (9,)
    total = layout.decode(vector)
    assert total["documents"] == 4
    assert total["m"]["w"].index.tolist() == [2]
    assert total["m"]["w"].values.tolist() == [[1.0, -1.0]]
    np.testing.assert_allclose(total["s"], [1, 3], atol=1e-12)


@pytest.mark.parametrize(
    "value", [np.array([1.0, np.nan]), np.array([np.inf, 0]), np.array([9.1, 0]), np.zeros(3)]
)
def test_what_does_not_fit_does_not_leave(value: np.ndarray) -> None:
    layout = Layout.of({"x": Bounds((2,), 9, -9)}, MEMBERS, len(MEMBERS))
    with pytest.raises(FederationError, match="field 'x' of an update was not sent"):
        layout.encode({"x": value})


@pytest.mark.parametrize(
    "template", [{"w": WordCountBounds(3)}, {"x": Bounds(("n",))}, {"l": ["n"]}]
)
def test_what_secure_aggregation_cannot_hide(template: dict[str, object]) -> None:
    with pytest.raises(StudyError, match='trusted server, aggregation = "plain"'):
        Layout.of(template, MEMBERS, len(MEMBERS))


def test_members_compare_layouts() -> None:
    template = {"x": Bounds((2,), 1e6, -1e6)}
    digest = Layout.of(template, MEMBERS, len(MEMBERS)).digest
    assert digest == Layout.of(template, list("xyz"), 3).digest
    others = [
        {"y": Bounds((2,), 1e6, -1e6)},
        {"x": Bounds((1, 2), 1e6, -1e6)},
        {"x": Bounds((2,), 1e6, -1e6, dtype="float32")},
    ]
    digests = {Layout.of(other, MEMBERS, len(MEMBERS)).digest for other in others}
    assert len(digests | {digest, Layout.of(template, list("abcdefghij"), 10).digest}) == 5


def test_the_largest_totals_stay_below_the_limit() -> None:
    for n in (1, 3, 50, 1000):
        layout = Layout.of({"x": Bounds((1,), 1e6, -1e6)}, [f"{i}" for i in range(n)], n)
        vector, _ = layout.encode({"x": np.array([1e6])})
        assert n * int(vector[0]) < TOTAL_BOUND
        assert n * int(vector[0]) > TOTAL_BOUND / 5


def test_a_sum_of_some_members_fits_where_all_are_added() -> None:
    """Members that are not drawn add zeros, and everybody checks by the number of all."""
    layout = Layout.of({"g": Bounds((2,))}, ["a", "b", "c"], 20)
    vector, factor = layout.encode({"g": np.array([1e7, -1.0])})
    assert factor == pytest.approx(((1 << 24) - 1) / 20 / 1e7)
    assert is_inside(vector, 20)
