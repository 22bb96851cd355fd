"""Groups of clients, with a masked sum each, by which who says what is false is narrowed down.

Who is in which group follows from names and the round's number, so no one in the run decides it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence

from fedtopics.secure.keys import DOMAIN, framed
from fedtopics.secure.said import FEWEST, Groups

GROUPED = 3 * FEWEST  # clients, of whom there are three groups: their median is none of one


class Search:
    """What the void totals of a round tell of who says what is false.

    Parameters
    ----------
    names : sequence of str
        All clients of the study.
    number : int
        The round's.
    always : bool
        Whether there are groups before any total was void.
    """

    def __init__(self, names: Sequence[str], number: int, always: bool = False) -> None:
        self._names = names
        self._number = number
        self._always = always
        self._suspects: set[str] = set()
        self.voids = 0  # attempts since the beginning, or since somebody was left out

    def groups(self, members: Sequence[str], anew: bool, narrow: bool = False) -> Groups:
        """Return the groups of an attempt: one of all, as long as nothing has to be narrowed down.

        Where documents are drawn `anew`, so are groups, with suspects in as many of them as can be.
        Else they are the same in all of a run, so that sums of none of them differ by a client.
        """
        if not (self._always or self.voids or narrow):
            return [members]
        if anew:
            chance = _chance(str(self._number), str(self.voids))
            order = sorted(members, key=lambda name: (name not in self._suspects, chance(name)))
            return _dealt(order)
        return _joined(_dealt(sorted(self._names, key=_chance())), members)

    def narrow(self, failing: Groups) -> list[str]:
        """Take whose totals are void; return who is the only one that can have voided one.

        Who was in another group has said what is true this time. If that is so of all suspects,
        another one has begun to lie.
        """
        among = [set(group) & self._suspects or set(group) for group in failing]
        self._suspects = set().union(*among)
        return sorted(name for each in among if len(each) == 1 for name in each)

    @property
    def suspects(self) -> list[str]:
        """Of whom at least one has said what is false."""
        return sorted(self._suspects)

    def is_in_vain(self, members: Collection[str]) -> bool:
        """Whether clients that always lie would be known by now: some lie and do not, in turns."""
        return self.voids > 2 * len(members).bit_length()

    def begin_again(self) -> None:
        """Begin anew, without those that were found."""
        self.voids, self._suspects = 0, set()


def _chance(*of: str) -> Callable[[str], bytes]:
    """Return what puts names into an order that nobody has chosen."""

    def digest(name: str) -> bytes:
        parts = (part.encode() for part in (*of, name))
        return hashlib.sha256(framed(DOMAIN, b"groups", *parts)).digest()

    return digest


def _dealt(order: Sequence[str]) -> Groups:
    """Deal names to as many groups as each has members: two rounds of them find one of all."""
    number = max(1, min(len(order) // FEWEST, math.isqrt(max(len(order) - 1, 0)) + 1))
    return [sorted(order[first::number]) for first in range(number)]


def _joined(groups: Groups, members: Collection[str]) -> Groups:
    """Return the groups of who is there; one of too few is joined to another one."""
    found: list[list[str]] = []
    for group in groups:
        there = [name for name in group if name in members]
        if found and min(len(there), len(found[-1])) < FEWEST:
            found[-1] = sorted([*found[-1], *there])
        else:
            found.append(there)
    return found
