"""One corpus as several clients."""

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedtopics.datasets import split_clients
from fedtopics.errors import DataError, StudyError
from fedtopics.escaping import check_client_name
from fedtopics.text.corpus import Corpus


def corpus(n: int, n_labels: int = 4) -> Corpus:
    """Return documents "0", "1", ... sorted by label, as AgNews is."""
    return Corpus.of(
        pa.table(
            {
                "text": [str(i) for i in range(n)],
                "label": [f"label {i * n_labels // n}" for i in range(n)],
            }
        )
    )


def rows(split: dict[str, Corpus]) -> list[list[int]]:
    return [[int(text) for text in part.documents.to_pylist()] for part in split.values()]


def shares(split: dict[str, Corpus], n_labels: int = 4) -> np.ndarray:
    """Return each label's shares of clients, shape (n_labels, n_clients)."""
    names = [f"label {i}" for i in range(n_labels)]
    lists = [part.labels.to_pylist() for part in split.values()]
    counts = np.array([[labels.count(name) for labels in lists] for name in names])
    return counts / counts.sum(1, keepdims=True)


WAYS: list[dict[str, Any]] = [
    {"by": "even", "n_clients": 3},
    {"by": "proportions", "proportions": (7, 2, 1)},
    {"by": "dirichlet", "n_clients": 3, "alpha": 0.5},
]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way["by"])


@each_way
def test_every_document_is_at_one_client_in_its_order(way: dict[str, Any]) -> None:
    split = split_clients(corpus(101), **way)
    assert list(split) == ["client-1", "client-2", "client-3"]
    assert sorted(chain(*rows(split))) == list(range(101))
    assert all(part == sorted(part) for part in rows(split))
    for part in split.values():
        assert part.ids.to_pylist() == part.documents.to_pylist()
        assert part.labels.to_pylist() == [
            f"label {int(row) * 4 // 101}" for row in part.ids.to_pylist()
        ]


@each_way
def test_the_seed_is_all_that_is_random(way: dict[str, Any]) -> None:
    one, same, other = (rows(split_clients(corpus(101), **way, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("n_clients", "sizes"), [(1, {10}), (2, {5}), (4, {2, 3}), (8, {1, 2}), (10, {1})]
)
def test_even(n_clients: int, sizes: set[int]) -> None:
    split = split_clients(corpus(10), "even", n_clients=n_clients)
    assert len(split) == n_clients
    assert {len(part) for part in split.values()} == sizes


@pytest.mark.parametrize(
    ("proportions", "n", "sizes"),
    [
        ((6, 4), 8000, [4800, 3200]),
        ((7, 3), 8000, [5600, 2400]),
        ((8, 2), 8000, [6400, 1600]),
        ((9, 1), 8000, [7200, 800]),
        ((0.6, 0.4), 8, [5, 3]),  # 4.8 and 3.2
        (np.array([1, 2, 1]), 10, [3, 5, 2]),  # 2.5, 5 and 2.5
    ],
)
def test_proportions(proportions: Any, n: int, sizes: list[int]) -> None:
    split = split_clients(corpus(n), "proportions", proportions=proportions)
    assert [len(part) for part in split.values()] == sizes
    if n == 8000:
        np.testing.assert_allclose(shares(split), np.tile(np.array(sizes) / n, (4, 1)), atol=0.05)


def test_names_sort_as_numbers_do() -> None:
    names = list(split_clients(corpus(20), "even", n_clients=10))
    assert names == sorted(names)
    assert (names[0], names[9]) == ("client-01", "client-10")
    for name in names:
        check_client_name(name)


def test_a_small_alpha_gives_a_label_to_one_client() -> None:
    label_shares = shares(split_clients(corpus(4000, 20), "dirichlet", alpha=0.01), 20)
    assert np.median(label_shares.max(1)) > 0.99
    assert len(set(label_shares.argmax(1))) == 4


def test_shares_of_a_label_are_of_the_dirichlet_distribution() -> None:
    label_shares = shares(
        split_clients(corpus(40_000, 400), "dirichlet", alpha=0.5, n_clients=3), 400
    )
    # The variance of a component of Dirichlet(.5, .5, .5) is 1/3 * 2/3 / 2.5.
    np.testing.assert_allclose(label_shares.mean(0), 1 / 3, atol=0.04)
    np.testing.assert_allclose(label_shares.var(0), 2 / 9 / 2.5, rtol=0.15)


def test_labels_of_one_document_favour_no_client() -> None:
    split = split_clients(corpus(2000, 2000), "dirichlet", alpha=1e6)
    assert min(len(part) for part in split.values()) > 440


def test_labels_may_be_numbers_and_missing() -> None:
    table = pa.table({"text": [str(i) for i in range(90)], "label": [0, 1, None] * 30})
    for part in split_clients(table, "dirichlet", alpha=1e6, n_clients=3).values():
        labels = part.labels.to_pylist()
        assert all(9 <= labels.count(label) <= 11 for label in (0, 1, None))


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ({"by": "odd"}, "by='odd' is unknown; choose from even, proportions, dirichlet"),
        ({"by": "even", "n_clients": 0}, "10 documents .* over 0 clients; choose 1 to 10"),
        ({"by": "even", "n_clients": -3}, "over -3 clients; choose 1 to 10"),
        ({"by": "even", "n_clients": 11}, "over 11 clients; choose 1 to 10"),
        ({"by": "proportions"}, "proportions None cannot be used; give a number above 0"),
        ({"by": "proportions", "proportions": ()}, r"proportions \(\) cannot be used"),
        ({"by": "proportions", "proportions": (6, 0)}, r"proportions \(6, 0\) cannot be used"),
        ({"by": "proportions", "proportions": (6, float("nan"))}, r"\(6, nan\) cannot be used"),
        ({"by": "proportions", "proportions": [1] * 11}, "over 11 clients"),
        ({"by": "proportions", "proportions": (99, 1)}, "client-2 would .* closer proportions"),
        ({"by": "dirichlet"}, "alpha=None cannot be used; give a number above 0"),
        ({"by": "dirichlet", "alpha": -1}, "alpha=-1 cannot be used"),
        ({"by": "dirichlet", "alpha": float("inf")}, "alpha=inf cannot be used"),
        (
            {"by": "dirichlet", "alpha": 1e-6, "n_clients": 5},
            "client-.* would have no document; choose another seed or a larger alpha",
        ),
    ],
)
def test_arguments_that_cannot_be_used(way: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        split_clients(corpus(10), **way)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (["a", "b"], r"no labels; read it with Corpus.of\(data, Columns\("),
        (
            pa.table({"text": ["a", "b"], "label": [{"x": 1}, {"x": 2}]}),
            r"Row 1 of the labels is of type dict, or .*; give str",
        ),
    ],
)
def test_labels_that_cannot_be_used(data: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        split_clients(data, "dirichlet", n_clients=2, alpha=1)
