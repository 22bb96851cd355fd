"""Intervals of scores: the t interval of a mean, and the jackknife of other scores."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics.model.spread import difference_text, jackknife_margin, margin, with_margin


def margin_of_mean(values: NDArray[np.float64], units: NDArray[np.int64]) -> float | None:
    return jackknife_margin(lambda rows: float(values[rows].mean()), units)


def test_documents_of_one_person_are_left_out_together() -> None:
    result = margin_of_mean(np.repeat([0.0, 1.0, 5.0], 4), np.repeat([7, 2, 5], 4))
    assert result == pytest.approx(margin([0.0, 1.0, 5.0]))
    assert result == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-4), "a variance of 7"
    assert margin_of_mean(np.arange(9.0), np.zeros(9, np.int64)) is None, "one person"
    assert margin_of_mean(np.ones(9), np.arange(9)) is None, "1 without any of them"


def test_95_of_100_intervals_contain_the_truth() -> None:
    samples = np.random.default_rng(3).random((400, 60)) ** 2  # the mean is 1/3
    margins = np.array([margin_of_mean(sample, np.arange(60)) for sample in samples])
    assert 0.92 <= (np.abs(samples.mean(1) - 1 / 3) < margins).mean() <= 0.98


def test_texts() -> None:
    assert with_margin(None, None) == "-"
    assert difference_text(0.5, 0.25) + difference_text(-0.1, None) == (
        "+0.500 ± 0.250-0.100 (not beyond chance)"
    )
