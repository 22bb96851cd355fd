"""A client's part of the noise of a sum: whole numbers, from its own secret.

The sum of the parts is what protects: who adds sees it alone, so it goes with masks. A part is
normal noise, rounded to a grid of at least 2^20 steps a standard deviation, as is the client's sum;
where sums of hundreds of clients leave fewer bits, of 2^14, as 1,000 clients at epsilon 100 have.
That is less than the exact normal noise by little, for which `Budget` keeps a thousandth of epsilon
and of delta:

- rounding the client's sum lets a document change each of d numbers by a step more, so by
  sqrt(d) steps in all, and the noise is larger by as much;
- a rounded normal number is at least as likely, and at most, as the discrete normal one by
  (z^2 + 1) / 24 steps^-2 each, and sums of discrete normal numbers are such again (Kairouz, Liu and
  Steinke, theorem 12): 1e-7 of epsilon for a million numbers, 4e-4 with 2^14 steps;
- uniform numbers have 53 bits wherever they are, so that a step has 2^31 equally likely values
  and some of them one more, 5e-4 for a million numbers; the tails end where those of float64 do.

A client's sums are cut off at 2^24, which brings none further apart: so what they are written in is
the same for all documents, and no word about whether they fit leaves.

References
----------
Kairouz, Liu and Steinke, The Distributed Discrete Gaussian Mechanism for Federated Learning with
Secure Aggregation, ICML 2021.
"""

from __future__ import annotations

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
from fedtopics.inference.points import Numbers

STEPS = 20  # bits: of the grid, in a standard deviation of a client's part
LARGEST_SUM = 2.0**24  # of a client's sums
BOUND = 8 * LARGEST_SUM  # of those of all clients, with noise
BITS = 32  # behind the point, that a sum within it has for sure, but for those of its clients
MOST_CLIENTS = 1000  # whose sums have steps that are small beside their noise


class Noise:
    """What draws a client's parts of the noise.

    `derive` makes 32 bytes of the client's secret for a purpose and numbers. A third of the study's
    clients may be missing, or tell others their parts: those of the rest are enough.
    """

    def __init__(self, derive: Callable[..., bytes], clients: int) -> None:
        self._derive = derive
        self.fewest = clients - clients // 3  # clients whose parts are enough
        self._finest = 2.0 ** (math.ceil(math.log2(max(clients, 1))) - BITS)  # masks keep it
        self._answers: dict[tuple[Any, ...], bytes] = {}

    def added(self, values: Any, sigma: float, purpose: str, *numbers: int) -> Numbers:
        """Return values with this client's part of the noise, all on one grid.

        Values are the client's sum, which one document changes by at most 1, as one vector; sigma
        is the standard deviation of the noise of all clients' sums, 0 for none. The same purpose
        and numbers give the same noise, so of one purpose the same values leave each time:
        PolicyError if they are others, as the difference would be without noise.
        """
        exact = np.asarray(values, np.float64)
        if not sigma:
            return exact
        part = sigma / math.sqrt(self.fewest)
        step = max(2.0 ** (math.floor(math.log2(part)) - STEPS), self._finest)
        part *= 1 + math.sqrt(exact.size) * step
        noise = normal(self._derive("noise", purpose, *numbers), exact.size).reshape(exact.shape)
        exact = np.clip(exact, -LARGEST_SUM, LARGEST_SUM)
        found = np.rint(exact / step) + np.rint(noise * (part / step))
        self._check((purpose, *numbers), found)
        return found * step

    def _check(self, request: tuple[Any, ...], found: Numbers) -> None:
        digest = hashlib.sha256(found.tobytes()).digest()
        if self._answers.setdefault(request, digest) != digest:
            raise PolicyError(
                "Numbers with noise were asked for twice, and are others the second time; nothing "
                "has left. The documents have changed, or others ask for more than the study says."
            )


def normal(seed: bytes, size: int) -> Numbers:
    """Return standard normal numbers that follow from 32 bytes: quantiles, with a sign."""
    keystream = Cipher(AES256(seed), CTR(bytes(16))).encryptor()
    signs, tails = _drawn(keystream, size)
    quantiles: Numbers = ndtri(tails / 2)
    return np.where(signs, quantiles, -quantiles)


def _drawn(keystream: CipherContext, size: int) -> tuple[NDArray[np.bool_], Numbers]:
    """Draw signs, and numbers from 0 to 1 of 53 bits: a small one has more bits behind it."""
    words = np.frombuffer(keystream.update(bytes(8 * size)), "<u8")
    numbers = (words >> np.uint64(1)).astype(np.float64)
    small = np.flatnonzero(numbers < 2.0**52)
    if len(small):
        numbers[small] += _drawn(keystream, len(small))[1]
    return (words & np.uint64(1)).astype(bool), numbers * 2.0**-63
