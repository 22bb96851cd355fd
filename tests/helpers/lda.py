"""LDA as it stands in the paper, to hold the package against."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln


def e_step(
    x: NDArray[np.float64], weights: NDArray[np.float64], alpha: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Blei, Ng and Jordan's loop as it stands in their paper, one document at a time."""
    k = weights.shape[1]
    counts = np.zeros(weights.shape)
    gammas = []
    bound = 0.0
    for row in x:
        gamma = np.full(k, alpha + row.sum() / k)
        for _ in range(steps):
            phi = weights * np.exp(digamma(gamma))
            phi /= phi.sum(1, keepdims=True)
            gamma = alpha + row @ phi
        theta = digamma(gamma) - digamma(gamma.sum())
        phi = weights * np.exp(theta)
        counts += row[:, None] * phi / phi.sum(1, keepdims=True)
        bound += row @ np.log(phi.sum(1)) + (alpha - gamma) @ theta + gammaln(gamma).sum()
        bound += gammaln(k * alpha) - k * gammaln(alpha) - gammaln(gamma.sum())
        gammas.append(gamma)
    return np.array(gammas), counts, bound
