"""Groups of documents, such as clusters and topics: the sum of few documents tells them.

Where each reply is seen, a client leaves out groups of fewer of its own documents than its policy
asks for. Where masks hide replies and sums over all clients are what is seen, the documents of all
are counted first, in a masked sum as well, and groups of too few of them are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import Numbers

Groups = Mapping[str, Any]
"""What a client is told of groups: nothing where its reply is seen. Else `least`, the fewest
documents of a group, and what was `counted` of all clients' documents; without that it is to count
its own, and gives no sum yet."""
Enough = NDArray[np.bool_]
Result = TypeVar("Result")
SEEN: Groups = {}
ROUNDING = 1e-9


class Guard:
    """Which groups of documents a client's half sums.

    `least` is the fewest documents of a group by its policy: of all clients if it counts `of_all`
    and they count together, else of its own.
    """

    def __init__(self, least: int, of_all: bool) -> None:
        self.least = least
        self.of_all = of_all
        self._last: tuple[bytes, Any] = (b"", None)

    @property
    def stated(self) -> int:
        """The fewest documents that a group of all clients' has to have for this one."""
        return self.least if self.of_all else 1

    def shares(self, groups: Groups) -> bool:
        """Whether groups are those of all clients' documents here, and of enough of them."""
        return self.of_all and groups.get("least", 0) >= self.least

    def reply(
        self, groups: Groups, rule: Callable[..., Enough], own: Mapping[str, Numbers],
        summed: Callable[[Enough], dict[str, Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Return the counts of its `own` groups if these are asked for, else what is `summed`.

        `rule` says by counts which groups have enough documents. Where it goes by its own alone,
        a client counts for others what it gives.
        """
        enough = rule(**own, least=self.least)
        shares = self.shares(groups)
        if is_count(groups):
            return {name: count if shares else count * enough for name, count in own.items()}
        return summed(rule(**groups["counted"], least=groups["least"]) if shares else enough)

    def by_topic(
        self, groups: Groups, given: Any, compute: Callable[[], tuple[Numbers, dict[str, Numbers]]]
    ) -> dict[str, Any]:
        """Return the sums by topic that are computed, a row a topic, of what `enough_have`."""
        sums, own = self.once(groups, ("by topic", given), compute)
        return self.reply(groups, enough_have, own, lambda enough: {"sums": sums * enough[:, None]})

    def once(self, groups: Groups, given: Any, compute: Callable[[], Result]) -> Result:
        """Compute what both counts and sums are of once: what is summed is what was counted."""
        if not groups:
            return compute()
        digest = digest_of(given)
        if self._last[0] != digest:
            self._last = digest, compute()
        found: Result = self._last[1]
        return found


def is_count(groups: Groups) -> bool:
    """Whether a client is to count its groups, and to sum none."""
    return bool(groups) and "counted" not in groups


def as_many(counts: Numbers, least: int) -> Enough:
    """Return which groups have as many documents, or as much weight; where one is enough, all."""
    return np.asarray(counts >= (least if least > 1 else 0))


def enough_have(shares: Numbers, squares: Numbers, least: int) -> Enough:
    """Return which topics as many documents have as asked for, each by how much of it is there.

    Their number is (sum of shares)^2 / sum of squared shares: one document with nine that hardly
    have the topic is one.
    """
    return np.asarray(shares**2 >= least * squares * (1 - ROUNDING))


def digest_of(value: Any) -> bytes:
    """Return a digest of arrays, by name or in a row."""
    hashed = hashlib.sha256()
    for part in _bytes(value):
        hashed.update(part)
    return hashed.digest()


def _bytes(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from (name.encode(), *_bytes(value[name]))
    elif isinstance(value, tuple):
        for each in value:
            yield from _bytes(each)
    else:
        yield np.ascontiguousarray(value).tobytes()
