"""What is opened of a masked sum when all have signed who is in it, and nothing else.

Of who is in the sum that is its own mask, of who is not the masks that it shared with the others:
never both of one client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, combinations, islice

from fedtopics.errors import FederationError
from fedtopics.secure.field import Residues
from fedtopics.secure.keys import DOMAIN, LENGTH, KeyPair, derive, framed
from fedtopics.secure.masks import mask, remove_self_mask, seeds_of_pairs
from fedtopics.secure.shares import SECRET, combine, seal, split, threshold, unseal

SHARE = SECRET + LENGTH  # bytes of a share
TRIES = 100  # groups of clients whose shares are tried: nearly all, where there are 9 of them
SEALED = 2 * SHARE + 28  # of both shares of a client for another one


@dataclass(frozen=True)
class Seeds:
    """What a client's masks of both kinds follow from in one sum, 16 bytes each."""

    pairs: bytes = field(repr=False)
    own: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes, context: bytes) -> Seeds:
        """Derive them from a client's secret: the same after a restart."""
        both = derive(secret, "seeds", context)
        return cls(both[:SECRET], both[SECRET:])

    @property
    def key(self) -> KeyPair:
        """The key whose secrets with others are the seeds of the masks of pairs."""
        return pair_key(self.pairs)

    def sealed(self, own: str, key: KeyPair, keys: Mapping[str, bytes], context: bytes) -> bytes:
        """Split both among the members of a sum; return shares, each for one of them to read."""
        members, least = sorted(keys), threshold(len(keys))
        shares = [split(seed, members, least) for seed in (self.pairs, self.own)]
        pieces = []
        for name in members:
            common = key.secret_with(keys[name], _to_read(context, own, name))
            pieces.append(seal(shares[0][name] + shares[1][name], common, context))
        return b"".join(pieces)


def pair_key(seed: bytes) -> KeyPair:
    """Return the key of a client's masks of pairs in one sum."""
    return KeyPair(derive(seed, "key of pairs"))


def own_seed(seed: bytes) -> bytes:
    """Return the seed of a client's own mask in one sum."""
    return derive(seed, "own mask")


def committed(seed: bytes) -> bytes:
    """Return what tells later that this was the seed of the own mask."""
    return hashlib.sha256(framed(DOMAIN, b"own mask", seed)).digest()


def _to_read(context: bytes, sender: str, reader: str) -> bytes:
    return framed(b"shares", context, sender.encode(), reader.encode())


@dataclass
class Opening:
    """A masked sum of the clients `counted`, of those who were `there` when masks were drawn.

    Shares of all seeds are split among the `members` of the exchange before; `prepared` is what
    each of those said then: its key of pairs, what commits it to its own mask, and the shares.
    """

    context: bytes
    members: Sequence[str]
    there: Sequence[str]
    counted: Sequence[str]
    prepared: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    seeds: dict[str, bytes] = field(default_factory=dict, repr=False)  # of whom one is opened
    fault: str = ""  # why it cannot be opened

    @property
    def lost(self) -> list[str]:
        """Whose masks of pairs are in the sum, without its reply."""
        return [name for name in self.there if name not in self.counted]

    @property
    def silent(self) -> list[str]:
        """Whose own mask is in the sum, and not known."""
        return [name for name in self.counted if name not in self.seeds]

    def take_own(self, answers: Mapping[str, Mapping[str, bytes]]) -> None:
        """Take what clients say of their own masks, if it is what they committed to."""
        for name in self.counted:
            if name in answers and committed(answers[name]["own"]) == self.prepared[name]["own"]:
                self.seeds[name] = answers[name]["own"]

    def shares(
        self, names: Sequence[str], reader: str, key: KeyPair, keys: Mapping[str, bytes]
    ) -> bytes:
        """Return what a client may tell of some others: of who is counted a share of its own mask.

        Of who is not, one of the masks of pairs.
        """
        place, found = sorted(self.members).index(reader), []
        for name in names:
            piece = self.prepared[name]["shares"][place * SEALED : (place + 1) * SEALED]
            common = key.secret_with(keys[name], _to_read(self.context, name, reader))
            both = bytes(2 * SHARE)  # that of who sealed nothing is a false one
            with suppress(FederationError):
                both = unseal(piece, common, self.context)
            found.append(both[SHARE:] if name in self.counted else both[:SHARE])
        return b"".join(found)

    def recover(self, names: Sequence[str], answers: Mapping[str, Mapping[str, bytes]]) -> None:
        """Learn the seeds of some clients from what enough others have of them, if that can be."""
        told = {n: answers[n]["shares"] for n in self.members if n in answers}
        for number, name in enumerate(names):
            part = slice(number * SHARE, (number + 1) * SHARE)
            try:
                self.seeds[name] = self._combined(name, {n: all_[part] for n, all_ in told.items()})
            except FederationError as error:
                self.fault = str(error)

    def _combined(self, name: str, shares: Mapping[str, bytes]) -> bytes:
        """Combine enough shares that fit together, of which some may be false."""
        names, least = sorted(shares), threshold(len(self.members))
        around = [(names[first:] + names[:first])[:least] for first in range(len(names))]
        for used in chain(around, islice(combinations(names, least), TRIES)):
            with suppress(FederationError):
                seed = combine({n: shares[n] for n in used}, self.members, least)
                if self._is_of(name, seed):
                    return seed
        raise FederationError(
            f"the masks of {name!r} cannot be opened, as too many shares of them are false, or it "
            "gave false ones"
        )

    def _is_of(self, name: str, seed: bytes) -> bool:
        said = self.prepared[name]
        if name in self.counted:
            return committed(seed) == said["own"]
        return pair_key(seed).public == said["key"]

    def opened(self, total: Residues) -> Residues | str:
        """Return a total without masks, or why they cannot be taken away."""
        if self.fault:
            return self.fault
        found = total.copy()
        for name in self.counted:
            remove_self_mask(found, own_seed(self.seeds[name]))
        for name in self.lost:
            keys = {n: self.prepared[n]["key"] for n in self.counted}
            key = pair_key(self.seeds[name])
            mask(found, name, seeds_of_pairs(name, key, keys, self.context))
        return found
