"""A client's part of the noise: enough without a third, each time the same, in whole steps."""

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import kstest

from fedtopics.errors import PolicyError
from fedtopics.methods.core.plan import Secret
from fedtopics.privacy import MOST_CLIENTS, Noise
from fedtopics.privacy.client import noisy
from fedtopics.privacy.noise import LARGEST_SUM, _drawn, exact_normal
from fedtopics.protocol.layout import Layout

SIZE = 200_000


def noise_of(client: str, clients: int) -> Noise:
    return Noise(Secret.from_seed(0, client).derive, clients)


def test_numbers_are_normal() -> None:
    drawn = exact_normal(bytes(range(32)), SIZE)
    assert kstest(drawn, "norm").pvalue > 0.01
    assert np.unique(drawn).size == SIZE


@pytest.mark.parametrize("clients", [1, 3, 5, 10])
def test_the_parts_of_two_thirds_are_enough(clients: int) -> None:
    noises = [noise_of(f"client-{number}", clients) for number in range(clients - clients // 3)]
    deviation = np.sum(
        [noise.added(np.zeros(SIZE), 4.0, "words") for noise in noises], axis=0
    ).std()
    assert 4.0 * (1 - 4 / np.sqrt(2 * SIZE)) < deviation < 4.0 * 1.02


def assert_masked_exactly(added: Any, clients: int) -> None:
    """Nothing is rounded, nor scaled, in what masks hide."""
    layout = Layout.of(noisy(sums=added.shape), [f"{n}" for n in range(clients)], clients)
    vector, factor = layout.encode({"sums": added})
    assert factor == 1.0
    np.testing.assert_array_equal(layout.decode(vector)["sums"], added)


def test_sums_stay_on_a_grid_that_masks_keep_exactly() -> None:
    added = noise_of("north", 5).added(np.linspace(0, 1000, 1001), 2.5, "words 1")
    assert (added * 2**30 == np.rint(added * 2**30)).all()


@pytest.mark.parametrize("clients", [3, 300, MOST_CLIENTS])
@pytest.mark.parametrize("sigma", [0.1, 2.5])
def test_masks_round_nothing_more_in_sums_of_many(clients: int, sigma: float) -> None:
    """What was rounded once more would change by more with a document than is counted on."""
    assert_masked_exactly(
        noise_of("north", clients).added(np.linspace(-9, 9, 1001), sigma, "words"), clients
    )


def test_the_same_is_said_the_same_way_and_nothing_else_is_said_with_its_noise() -> None:
    noise = noise_of("north", 5)
    values = np.arange(10.0)
    first = noise.added(values, 1.0, "sums 3")
    assert np.array_equal(noise.added(values, 1.0, "sums 3"), first)
    assert not np.array_equal(noise.added(values, 1.0, "sums 4"), first)
    with pytest.raises(PolicyError, match="a second request for the same numbers"):
        noise.added(values + 1, 1.0, "sums 3")


def test_other_clients_have_other_noise() -> None:
    parts = [noise_of(name, 5).added(np.zeros(SIZE), 1.0, "sums") for name in ("north", "south")]
    assert abs(np.corrcoef(*parts)[0, 1]) < 5 / np.sqrt(SIZE)


class Words:
    """A stream of given words."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def update(self, asked: bytes) -> bytes:
        words = self.words[: len(asked) // 8]
        self.words = self.words[len(asked) // 8 :]
        return np.array(words, "<u8").tobytes()


def test_tails_do_not_end() -> None:
    """A number of which 63 bits say little has others behind them: noise of 9.2 is not the most."""
    half = 1 << 63
    stream: Any = Words(half, 7, 0, half, 1, half)
    signs, numbers = _drawn(stream, 3)
    assert signs.tolist() == [False, True, False]
    assert numbers.tolist() == [0.5, 3.5 * 2.0**-63, 2.0**-127]
    assert -ndtri(numbers[2] / 2) > 12.9


def test_what_masks_write_numbers_in_does_not_depend_on_them() -> None:
    """However large a client's sums: one that did not fit would say so in the clear."""
    noise = noise_of("north", 3)
    sums = np.array([1e12, LARGEST_SUM, -1e12, 0.0])
    added = noise.added(sums, 2.0, "sums")
    np.testing.assert_allclose(added, np.clip(sums, -LARGEST_SUM, LARGEST_SUM), atol=20)
    assert_masked_exactly(added, 3)
