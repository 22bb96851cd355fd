"""Pseudo-labels of a client's documents, and how far to trust each of them.

Computations use logarithms in float64, as densities in 200 dimensions and exponentials of confident
scores overflow.

References
----------
Federated short text clustering (FSTC): equations 1 to 14 and Algorithm 1. FSTC's mixture is from
Lathuilière et al., DeepGUM, ECCV 2018, and its schedule from Asano et al., ICLR 2020.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

ROUGH_ITERATIONS = 10  # of a transport that only starts the next one
ROUGH_TOLERANCE = 0.01  # likewise
SMALLEST_SUM = 1e-200  # smaller sums of exponentials lose digits
PRIOR = 0.8  # initial probability that a pseudo-label is right
PRIOR_RANGE = 0.05, 0.95
TRUSTED = 0.5  # the smallest responsibility that counts, equation 13
# Deviations of 0.001 in a probability: a closer fit is not a reason to distrust other targets.
SMALLEST_VARIANCE = 1e-6
# Minimum width of the uniform, in standard deviations of the Gaussian: three on each side. With the
# width of equation 12 only, typical documents of the Gaussian count as wrong in 200 dimensions, the
# variances shrink, and finally none of 2,000 documents remains; with a width of 6 all do.
SPAN = 6.0


def transport(
    scores: Tensor,
    column_mass: Tensor,
    epsilon: float = 0.1,
    iterations: int = 50,
    tolerance: float = 1e-6,
) -> Tensor:
    """Assign documents to clusters of fixed sizes by optimal transport: Algorithm 1, steps 1 to 9.

    The paper starts Sinkhorn's iterations from random numbers; we start from the solution for twice
    the epsilon. The result is the same, but with confident scores it takes fewer iterations (after
    50 iterations from v = 1, 5 to 18 % of documents were in a wrong cluster).
    """
    mass = column_mass.detach().to(scores.device, torch.float64)
    mass = mass / mass.sum() * len(scores)
    used = mass > 0
    cost = -torch.log_softmax(scores.detach().double()[:, used], 1)
    potential = torch.zeros_like(mass[used])
    coarse = float(cost.mean())
    while coarse > epsilon:
        potential = _balance(cost, mass[used], coarse, potential, ROUGH_ITERATIONS, ROUGH_TOLERANCE)
        coarse /= 2
    potential = _balance(cost, mass[used], epsilon, potential, iterations, tolerance)
    plan = torch.zeros_like(scores, dtype=torch.float64)
    plan[:, used] = torch.softmax((potential - cost) / epsilon, 1)
    return plan


def _balance(
    cost: Tensor, mass: Tensor, epsilon: float, potential: Tensor, iterations: int, tolerance: float
) -> Tensor:
    """Iterate equations 5 (the softmax of a row) and 6; return the potential g = epsilon log v."""
    kernel = -cost / epsilon
    log_v = potential / epsilon
    for _ in range(iterations):
        reached = torch.softmax(kernel + log_v, 1).sum(0)
        if (reached - mass).abs().sum() / 2 <= tolerance * len(cost):  # misplaced documents
            break
        log_reached = (
            reached.log()
            if reached.min() > SMALLEST_SUM
            else torch.logsumexp(torch.log_softmax(kernel + log_v, 1), 0)  # several times slower
        )
        log_v = log_v + mass.log() - log_reached
    return epsilon * log_v


def sharpen(plan: Tensor) -> Tensor:
    """Square a plan's entries and scale rows to sum to 1: the pseudo-labels Q of equation 7."""
    squares = plan.square()
    return squares / squares.sum(1, keepdim=True)


@dataclass(frozen=True, eq=False)
class GaussianUniformMixture:
    """A mixture: right pseudo-labels have Gaussian residuals with mean 0, wrong ones uniform ones.

    We deviate from equations 8 to 13 where they cannot be computed or would reject all documents:
    Sigma is divided by the sum of responsibilities and is diagonal; pi stays within [0.05, 0.95];
    moments of the uniform distribution are divided by its responsibilities; the variances and the
    uniform distribution's width have lower bounds.
    """

    prior: float  # probability that a pseudo-label is right: pi
    variances: Tensor  # diagonal of the covariance matrix Sigma, float64 of shape (n_clusters,)
    log_uniform: float  # logarithm of the uniform density gamma

    @classmethod
    def begin(cls, n_clusters: int) -> GaussianUniformMixture:
        """Return a mixture that trusts every label; Algorithm 2's start would lead to 0/0."""
        return cls(PRIOR, torch.ones(n_clusters, dtype=torch.float64), -math.inf)

    def step(self, residuals: Tensor) -> tuple[GaussianUniformMixture, Tensor]:
        """Return the new mixture, and responsibilities (n,) for residuals Q - O, (n, n_clusters).

        A mixture that trusts no label is replaced by the one of `begin`, as no later step could
        change it.
        """
        delta = residuals.detach().double()
        variances = self.variances.to(delta)
        log_normal = -0.5 * (delta.square() / variances + (math.tau * variances).log()).sum(1)
        # The log odds that labels are right, from which equation 9 follows.
        log_odds = log_normal - self.log_uniform + math.log(self.prior / (1 - self.prior))
        if self.log_uniform > -math.inf and not (log_odds >= 0).any():
            return GaussianUniformMixture.begin(delta.shape[1]).step(residuals)
        right = torch.sigmoid(log_odds)
        return self._maximise(delta, right, wrong=torch.sigmoid(-log_odds)), right

    def _maximise(self, delta: Tensor, right: Tensor, wrong: Tensor) -> GaussianUniformMixture:
        variances = (right / right.sum() @ delta.square()).clamp(min=SMALLEST_VARIANCE)
        n_wrong = wrong.sum()
        # The smallest number avoids 0/0: if no label is wrong, the width is minimal.
        share = wrong / n_wrong.clamp(min=torch.finfo(wrong.dtype).tiny)
        spread = share @ (delta - share @ delta).square()  # C2 - C1^2, but never negative
        width = torch.maximum(2 * (3 * spread).sqrt(), SPAN * variances.sqrt())
        low, high = PRIOR_RANGE
        prior = min(max(float(right.mean()), low), high) if n_wrong > 0 else self.prior
        return GaussianUniformMixture(prior, variances, -float(width.log().sum()))

    def state(self) -> dict[str, Tensor]:
        return {n: torch.as_tensor(x, dtype=torch.float64) for n, x in vars(self).items()}

    @classmethod
    def restore(cls, state: Mapping[str, Tensor]) -> GaussianUniformMixture:
        return cls(float(state["prior"]), state["variances"], float(state["log_uniform"]))


def weights(responsibilities: Tensor) -> Tensor:
    """Set weights of pseudo-labels that are more likely wrong than right to 0, equation 13."""
    return torch.where(responsibilities >= TRUSTED, responsibilities, 0.0)


def weighted_error(
    targets: Tensor, outputs: Tensor, weights: Tensor, loss: str = "squared"
) -> Tensor:
    """Return the weighted mean squared distance of outputs from pseudo-labels, equation 14."""
    trust = weights.detach().to(outputs)
    labels = targets.detach().to(outputs)
    errors = (
        (labels - outputs).square().sum(1)
        if loss == "squared"
        else cross_entropy(outputs, labels, reduction="none")
    )
    total = trust.sum()
    return (trust * errors).sum() / torch.where(total > 0, total, 1.0)


def schedule(total: int, times: int, first: int = 0) -> list[int]:
    """Return the steps before which pseudo-labels are recomputed: often at first, then rarely.

    The steps are first + (total - first) (i / times)^2 for i < times, moved apart if they coincide.
    """
    span = max(total - first, 0)
    times = min(times, span)
    steps: list[int] = []
    for i in range(times):
        earliest = steps[-1] + 1 if steps else first
        steps.append(max(first + span * i * i // times**2, earliest))
    return steps
