"""Whole numbers in residues: one in each, or one more than there are residues.

Of so many numbers each has a residue's lower bits, and one is cut into as many pieces, which have
the bits above. Pieces are added up each by itself, so all but the last have room for what is
carried.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedtopics.extras import compiled
from fedtopics.secure.field import PRIME

BITS = 60  # of a sum that a residue can hold: the prime has one more
_P = np.uint64(PRIME)


class Pieces(NamedTuple):
    """How `residues` of them hold a number more than they are."""

    residues: int
    bits: int  # of a sum of numbers
    piece: int  # bits of a piece of one number, but the last

    @classmethod
    def of(cls, members: int, enough: int) -> Pieces:
        """Return the smallest that leaves each of some members so many bits for a number."""
        carry = (members - 1).bit_length()
        residues, bits = 1, 0
        while bits < enough + carry:
            residues += 1
            bits = (BITS * residues - carry * (residues - 1)) // (residues + 1)
        return cls(residues, bits, BITS - bits - carry)

    def size(self, numbers: int) -> int:
        """Return how many residues hold so many numbers."""
        return -(-numbers * self.residues // (self.residues + 1))


@compiled
def rounded(numbers: Any, scale: Any) -> Any:
    """Return the whole numbers next to what numbers times a scale are."""
    whole = np.empty(len(numbers), np.int64)
    for place in range(len(numbers)):
        whole[place] = np.int64(np.rint(np.float64(numbers[place]) * scale))
    return whole


@compiled
def write_signed(whole: Any, residues: Any) -> None:
    """Write one number into each residue: the prime minus it below 0."""
    for place in range(len(whole)):
        number = whole[place]
        residues[place] = np.uint64(number) + (_P if number < 0 else np.uint64(0))


@compiled
def write_pieces(whole: Any, lowest: Any, residues: Any, n: Any, bits: Any, piece: Any) -> None:
    """Write numbers, counted from the lowest one: pieces of the last ones are in n residues."""
    for place in range(len(residues)):
        residues[place] = np.uint64(whole[place] - lowest)
    last, shift, above = np.uint64((1 << piece) - 1), np.uint64(piece), np.uint64(bits)
    for number in range(len(whole) - len(residues)):
        rest = np.uint64(whole[len(residues) + number] - lowest)
        for place in range(number * n, number * n + n - 1):
            residues[place] += (rest & last) << above
            rest >>= shift
        residues[number * n + n - 1] += rest << above


@compiled
def read_pieces(residues: Any, lowest: Any, whole: Any, n: Any, bits: Any, piece: Any) -> None:
    """Undo it, of a sum whose lowest number is that of all replies together."""
    lower, above = np.uint64((1 << bits) - 1), np.uint64(bits)
    for place in range(len(residues)):
        whole[place] = np.int64(residues[place] & lower) + lowest
    for number in range(len(whole) - len(residues)):
        found = np.uint64(0)
        for part in range(n):
            found += (residues[number * n + part] >> above) << np.uint64(part * piece)
        whole[len(residues) + number] = np.int64(found) + lowest
