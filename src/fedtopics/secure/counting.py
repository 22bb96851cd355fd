"""A client's part where clients agree on words: it has the key and its words; see `words`."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Payload
from fedtopics.secure.keys import KeyPair, derive, framed
from fedtopics.secure.said import CHOSEN, KEY, LISTED, NAMES, SAME, SIZED
from fedtopics.secure.shares import NONCE, seal, unseal
from fedtopics.secure.words import COLUMNS, COUNTS, SEALED, SIZES, TABLE, Integers, Words


class Counting:
    """A client's part: it has the key and its words, and says nothing that who adds can read.

    Parameters
    ----------
    name : str
        The client's.
    secret : bytes
        What its part of the key follows from.
    pair : KeyPair
        Its key of this run.
    """

    def __init__(self, name: str, secret: bytes, pair: KeyPair) -> None:
        self._name = name
        self._secret = secret
        self._pair = pair
        self.documents: Payload = {}  # what the documents' door lets out of them
        self._answers: Mapping[str, Callable[[Words, bytes], dict[str, bytes]]] = {
            KEY: self._sealed, SAME: self._same, SIZED: self._sized, NAMES: self._named,
            LISTED: self._listed, CHOSEN: self._chosen,
        }  # fmt: skip
        self._sums = {SIZES: self._sizes, TABLE: self._table, COUNTS: self._counts}

    def answer(self, stage: str, words: Words, context: bytes) -> dict[str, bytes]:
        """Return what this client says, for all to see."""
        return self._answers[stage](words, context)

    def reply(self, function: str, words: Words) -> dict[str, Any]:
        """Return what leaves masked."""
        return {"documents": self.documents["documents"], **self._sums[function](words)}

    # The key

    def _sealed(self, words: Words, context: bytes) -> dict[str, bytes]:
        """Draw a part of the key; seal it for each of the others."""
        part = derive(self._secret, "part of a key", context)
        pieces = [
            _sealed(part, self._common(words, name, self._name, name), context)
            for name in words.members
        ]
        return {"sealed": b"".join(pieces)}

    def _key(self, words: Words) -> bytes:
        """Return what the parts of all come to; another key where one cannot be read."""
        place, parts = list(words.members).index(self._name) * SEALED, []
        for name in sorted(words.parts):
            common, part = self._common(words, name, name, self._name), b""
            with suppress(FederationError):
                part = unseal(words.parts[name][place : place + SEALED], common, words.context)
            parts.append(part)
        return derive(framed(*parts), "key of words", words.context)

    def _common(self, words: Words, other: str, sender: str, reader: str) -> bytes:
        purpose = framed(b"part of a key", words.context, sender.encode(), reader.encode())
        return self._pair.secret_with(words.keys[other], purpose)

    def _same(self, words: Words, context: bytes) -> dict[str, bytes]:
        return {"same": derive(self._key(words), "same", context)}

    # Words

    @property
    def _own(self) -> Named:
        return next(each for each in self.documents.values() if isinstance(each, Named))

    def _places(self, words: Words) -> Integers:
        """Return the buckets of this client's words."""
        key = derive(self._key(words), "buckets")
        hashes = (hmac.digest(key, name.encode(), "sha256")[:8] for name in self._own.names)
        numbers = np.frombuffer(b"".join(hashes), "<u8") % np.uint64(words.buckets)
        return numbers.astype(np.int64)

    def _sizes(self, words: Words) -> dict[str, Any]:
        own = self._own
        return {"occurrences": int(own.values[:, 1].sum()), "words": len(own.names)}

    def _sized(self, words: Words, context: bytes) -> dict[str, bytes]:
        """Say whether this client alone has more than all: then another one has said what is false.

        A table for fewer words would let more of them pass.
        """
        own = self._sizes(words) | {"documents": self.documents["documents"]}
        exceeds = any(number > words.sizes[name] for name, number in own.items())
        return {"exceeds": b"\1" if exceeds else b"\0"}

    def _table(self, words: Words) -> dict[str, Any]:
        """Return for each bucket the most that is true of a word in it."""
        table = np.zeros((words.buckets, len(COLUMNS)), np.int64)
        np.maximum.at(table, self._places(words), self._own.values)
        return _by_column(table)

    def _named(self, words: Words, context: bytes) -> dict[str, bytes]:
        """Name the words of buckets that pass, for the other clients alone."""
        passes = np.isin(self._places(words), words.passing())
        names = [self._own.names[place] for place in np.flatnonzero(passes)]
        content = "\n".join(names).encode()
        room = next((each for each in words.rooms if len(content) <= each), 0)
        if not room:
            raise FederationError(
                "Many more words share a hash than is likely, and their names were not sent: a "
                "client may send false numbers. Begin a new run."
            )
        key = self._key_of_names(words, self._name, context)
        return {"names": _sealed(content.ljust(room, b"\n"), key, context)}

    def _key_of_names(self, words: Words, sender: str, context: bytes) -> bytes:
        return derive(self._key(words), "names", context, sender.encode())

    def _list(self, words: Words) -> list[str]:
        """Return all words that were named, in an order that tells nothing of them."""
        found = {""}
        for name, sealed in words.names.items():
            key = self._key_of_names(words, name, words.named)
            with suppress(FederationError, UnicodeDecodeError):  # the same at all who can read
                found.update(unseal(sealed, key, words.named).decode().split("\n"))
        key = derive(self._key(words), "order")
        return sorted(found - {""}, key=lambda name: hmac.digest(key, name.encode(), "sha256"))

    def _listed(self, words: Words, context: bytes) -> dict[str, bytes]:
        """Say how long the list is, and its digest, which tells nothing without the key."""
        names = self._list(words)
        key = derive(self._key(words), "list", context)
        digest = hmac.digest(key, "\n".join(names).encode(), "sha256")
        return {"length": len(names).to_bytes(8, "big"), "digest": digest}

    def _counts(self, words: Words) -> dict[str, Any]:
        """Return this client's counts of the words of the list."""
        place = {name: number for number, name in enumerate(self._list(words))}
        rows = [row for row, name in enumerate(self._own.names) if name in place]
        counted = np.zeros((len(place), len(COLUMNS)), np.int64)
        counted[[place[self._own.names[row]] for row in rows]] = self._own.values[rows]
        return _by_column(counted)

    def _chosen(self, words: Words, context: bytes) -> dict[str, bytes]:
        """Name the agreed words, for all, and say where in the list they are."""
        names = self._list(words)
        order = sorted(range(len(names)), key=names.__getitem__)
        kept = words.limits.chosen(words.counted[order], words.counts["documents"])
        rows = [order[row] for row in sorted(kept)]
        chosen = "\n".join(names[row] for row in rows)
        return {"rows": np.array(rows, "<u4").tobytes(), "words": chosen.encode()}


def _sealed(content: bytes, key: bytes, context: bytes) -> bytes:
    """Encrypt content, the same way after a restart: the nonce follows from it and the key."""
    return seal(content, key, context, derive(key, "nonce", content)[:NONCE])


def _by_column(counted: Integers) -> dict[str, Any]:
    return dict(zip(COLUMNS, np.ascontiguousarray(counted.T), strict=True))
