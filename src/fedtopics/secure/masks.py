"""Masks: each pair's, which are gone in the sum of all, and each member's own.

References
----------
Bonawitz and others, Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017,
sections 4.1 (masks of pairs) and 4.2 (double masks). There numbers are modulo any R; here modulo
2^61 - 1, so that totals can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedtopics.secure.field import Residues, add_stream
from fedtopics.secure.keys import KeyPair, framed


def seeds_of_pairs(
    own: str, key: KeyPair, keys: Mapping[str, bytes], context: bytes
) -> dict[str, bytes]:
    """Return the seeds that a member has in a context with each other one, of their public keys.

    Both names are part of what they follow from: who shows another's key as its own would have the
    same mask with a third member, once with plus and once with minus.
    """

    def of_both(name: str) -> bytes:
        return framed(context, *(each.encode() for each in sorted([own, name])))

    return {n: key.secret_with(keys[n], of_both(n)) for n in keys if n != own}


def mask(values: Residues, own: str, seeds: Mapping[str, bytes]) -> None:
    """Add the masks of a member's pairs in place: plus for each name after its own, else minus.

    The sum over all members has no mask left. Where a member was lost, the same call puts right the
    total of those that are left: `values` is the total, `own` the lost member's name, `seeds` its
    seeds with them.

    Parameters
    ----------
    values : residues, shape (n,)
    own : the member's name; names are in the order of their code points
    seeds : of 32 bytes, by the name of each other member; used for one vector only
    """
    for name, seed in seeds.items():
        add_stream(values, seed, 1 if name > own else -1)


def add_self_mask(values: Residues, seed: bytes) -> None:
    """Add a member's own mask in place, so that its pairs' seeds alone open nothing."""
    add_stream(values, seed, 1)


def remove_self_mask(total: Residues, seed: bytes) -> None:
    """Take the own mask of a member whose reply is in a total out of it, in place."""
    add_stream(total, seed, -1)
