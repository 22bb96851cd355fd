"""A client's part of the noise of a sum: whole numbers, drawn from its own secret.

Only all parts together protect, so secure aggregation is needed: the server sees only the sum. Each
part and the client's sum are rounded to a grid of at least 2^20 steps per standard deviation. Sums
of hundreds of clients leave fewer bits: 2^14 steps for 1,000 clients at epsilon 100.
The protection is slightly weaker than with exact normal noise, so `Budget` reserves a thousandth of
epsilon and of delta:

- rounding the client's sum lets a document change each of d numbers by one more step, together by
  sqrt(d) steps, and the noise is enlarged accordingly;
- the probability of a rounded normal number differs from that of the discrete normal one by at most
  (z^2 + 1) / 24 steps^-2, and sums of discrete normal numbers are discrete normal (Kairouz, Liu and
  Steinke, theorem 12): 1e-7 of epsilon for a million numbers, 4e-4 with 2^14 steps;
- uniform numbers have 53 bits everywhere, so that a step has 2^31 equally likely values and some
  steps one more, 5e-4 for a million numbers; the tails end where those of float64 do.

A client's sums are cut off at 2^24, which moves no two sums further apart. So their format is the
same for all documents, and does not reveal whether the sums were cut off.

References
----------
Kairouz, Liu and Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with
Secure Aggregation, ICML 2021.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray
from scipy.special import ndtri

from fedtopics.errors import PolicyError
from fedtopics.inference.vectors import Numbers

STEPS = 20  # bits: a standard deviation of a client's part has 2^20 steps of the grid
LARGEST_SUM = 2.0**24  # largest sum of a client
BOUND = 8 * LARGEST_SUM  # largest sum of all clients, with noise
BITS = 32  # bits after the point in a sum below the bound, less those for the number of clients
MOST_CLIENTS = 1000  # so that steps stay small compared with the noise


def needed_parts(clients: int) -> int:
    """Return how many clients' parts of the noise suffice for a study's bound."""
    return clients - clients // 3


class Noise:
    """A client's parts of the noise, drawn from its secret; two thirds of the clients suffice."""

    def __init__(self, derive: Callable[..., bytes], clients: int) -> None:
        self._derive = derive
        self.fewest = needed_parts(clients)
        self._finest = 2.0 ** (math.ceil(math.log2(max(clients, 1))) - BITS)  # kept by masks
        self.answers: dict[str, bytes] = {}  # digests of all sums so far, by purpose

    def added(self, values: Any, sigma: float, purpose: str) -> Numbers:
        """Return values, a vector that one document changes by at most 1, with its part of noise.

        `sigma` is the standard deviation of all clients' noise together. The same purpose
        gives the same noise. If the values have changed, PolicyError is raised, because their
        difference would have no noise.
        """
        exact = np.asarray(values, np.float64)
        part = sigma / math.sqrt(self.fewest)
        step = max(2.0 ** (math.floor(math.log2(part)) - STEPS), self._finest)
        part *= 1 + math.sqrt(exact.size) * step
        noise = exact_normal(self._derive("noise", purpose), exact.size).reshape(exact.shape)
        exact = np.clip(exact, -LARGEST_SUM, LARGEST_SUM)
        whole = np.rint(exact / step) + np.rint(noise * (part / step))
        self._check(purpose, whole)
        return whole * step

    def _check(self, purpose: str, answer: Numbers) -> None:
        digest = hashlib.sha256(answer.tobytes()).digest()
        if self.answers.setdefault(purpose, digest) != digest:
            raise PolicyError(
                "Nothing was sent: a second request for the same numbers would get a different "
                "answer; restore the documents with which this run began. If they have not "
                "changed, another participant requests more than the study allows."
            )


def exact_normal(seed: bytes, size: int) -> Numbers:
    """Return standard normal numbers derived from 32 bytes, as quantiles with random signs."""
    signs, tails = _drawn(Cipher(AES256(seed), CTR(bytes(16))).encryptor(), size)
    quantiles: Numbers = ndtri(tails / 2)
    return np.where(signs, quantiles, -quantiles)


def _drawn(keystream: CipherContext, size: int) -> tuple[NDArray[np.bool_], Numbers]:
    """Draw signs, and numbers from 0 to 1 with 53 significant bits, however small they are."""
    words = np.frombuffer(keystream.update(bytes(8 * size)), "<u8")
    numbers = (words >> np.uint64(1)).astype(np.float64)
    small = np.flatnonzero(numbers < 2.0**52)
    if len(small):
        numbers[small] += _drawn(keystream, len(small))[1]
    return (words & np.uint64(1)).astype(bool), numbers * 2.0**-63
