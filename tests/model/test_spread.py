"""Intervals of scores: the t interval of a mean, and the jackknife of other scores."""

import numpy as np
import pytest

from fedtopics.model.spread import difference_text, jackknife_margin, margin, with_margin


def test_documents_of_one_person_are_left_out_together() -> None:
    values = np.repeat([0.0, 1.0, 5.0], 4)
    half = jackknife_margin(lambda rows: float(values[rows].mean()), np.repeat([7, 2, 5], 4))
    assert half == pytest.approx(margin([0.0, 1.0, 5.0]))
    assert half == pytest.approx(4.30265 * (7 / 3) ** 0.5, rel=1e-4), "a variance of 7"
    assert jackknife_margin(lambda _: 1.0, np.zeros(9, np.int64)) is None


def test_95_of_100_intervals_contain_the_truth() -> None:
    rng = np.random.default_rng(3)
    samples = rng.random((400, 60)) ** 2  # the mean is 1/3
    halves = [
        jackknife_margin(lambda rows, x=x: float(x[rows].mean()), np.arange(60)) for x in samples
    ]
    inside = np.abs(samples.mean(1) - 1 / 3) < np.array(halves)
    assert 0.92 <= inside.mean() <= 0.98


def test_texts() -> None:
    assert (with_margin(0.5, None), with_margin(None, None)) == ("0.500", "-")
    assert (difference_text(0.5, 0.25), difference_text(-0.1, None)) == (
        "+0.500 ± 0.250",
        "-0.100 (not beyond chance)",
    )
