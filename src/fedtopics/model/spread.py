"""How far chance may move a score: half of its interval, shown after ±.

References
----------
Kott, The Delete-a-Group Jackknife, Journal of Official Statistics, 2001.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fedtopics.model.effects import LEVEL

GROUPS = 20  # of persons; each is left out once
DRAWS = 4_000  # of a bootstrap


def margin(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    """Return half of the t interval of a mean of independent values; None for fewer than two.

    Examples
    --------
    >>> round(margin([1.0, 2.0, 3.0]), 3)
    2.484
    """
    n = len(values)
    return (
        float(stdtrit(n - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / np.sqrt(n))
        if n > 1
        else None
    )


def jackknife_margin(
    score: Callable[[NDArray[np.bool_]], float], units: NDArray[np.int64]
) -> float | None:
    """Return half of the interval of a `score` that is not a mean over rows.

    Units are assigned at random, the same way at each call, to at most 20 groups, and the score is
    computed without each group. For a mean over so few units this is `margin`. It is None with
    fewer than two units, or if no group changes the score.

    Parameters
    ----------
    score : function
        Gets a mask of rows, of shape (n_rows,).
    units : array of shape (n_rows,)
        Which rows are not independent, such as the number of a document's person.
    """
    unique, row = np.unique(units, return_inverse=True)
    if len(unique) < 2:
        return None
    n_groups = min(len(unique), GROUPS)
    group = np.random.default_rng(0).permutation(len(unique))[row] % n_groups
    without = np.array([score(group != left_out) for left_out in range(n_groups)])
    # The spread of the jackknife's pseudo-values. A score that no group changes, such as a purity
    # of 1, may still be chance.
    return margin((n_groups - 1) * without) or None


def bootstrap_interval(
    score: Callable[[NDArray[np.int64]], float], n: int, seed: int = 0
) -> tuple[float, float] | None:
    """Return the percentile interval of a `score` of rows, of which n are drawn with replacement.

    It is None for fewer than two rows.

    Parameters
    ----------
    score : function
        Gets numbers of rows, of shape (n,).
    n : int
        Number of rows, such as topics.
    seed : int
        Of the draws.
    """
    if n < 2:
        return None
    drawn = np.random.default_rng(seed).integers(n, size=(DRAWS, n))
    ends = np.nanquantile([score(rows) for rows in drawn], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(ends[0]), float(ends[1])


def with_margin(value: float | None, reach: float | None, form: str = ".3f") -> str:
    """Return a score for people, with half of its interval if there is one."""
    if value is None:
        return "-"
    return f"{value:{form}}" + ("" if reach is None else f" ± {reach:{form.lstrip('+')}}")


def difference_text(value: float, reach: float | None) -> str:
    """Return a difference for people, and whether its interval excludes zero."""
    doubt = " (not beyond chance)" if reach is None or abs(value) <= reach else ""
    return f"{with_margin(value, reach, '+.3f')}{doubt}"
