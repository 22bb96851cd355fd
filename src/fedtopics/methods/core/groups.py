"""Groups of documents (clusters, topics), without groups whose sums reveal persons.

With plain aggregation, a client omits groups of fewer of its own persons than its policy requires.
With secure aggregation, a first sum counts the persons of all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.payload import Payload, digest_of
from fedtopics.inference.vectors import Numbers

GroupRequest = Mapping[str, Any]
"""What a client receives about groups: nothing with plain aggregation; otherwise `least`, the
fewest persons of a group, `clients`, its fewest clients, and in the second exchange also `counted`,
the counts over all clients."""
Enough = NDArray[np.bool_]
Grouped = tuple[Mapping[str, Numbers], Callable[[Enough], dict[str, Any]]]
"""Counts of a client's groups, and a function that returns the sums of the large enough ones."""
Thetas = Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]
Result = TypeVar("Result")
SEEN: GroupRequest = {}
ROUNDING = 1e-9
POWERS = {"squares": 1, "fourths": 2}  # of squared shares
HAS = 0.5**4  # fourth power of a person's share of a group, from which a client has it


class GroupThreshold:
    """Decides which groups a client sums, by their persons; with `of_all`, over all clients.

    Then groups of fewer clients than `clients` are left out as well. Where replies are `masked`,
    the smallest other group is company for those left out; see `with_company`.
    """

    def __init__(self, least: int, of_all: bool, clients: int = 1, masked: bool = False) -> None:
        self.least = least
        self.of_all = of_all
        self.clients = clients
        self.masked = masked
        self._last: tuple[str, Any] = ("", None)

    def shares(self, groups: GroupRequest) -> bool:
        """Whether group sizes are over all clients, with a minimum that this client accepts."""
        fewest = groups.get("least", 0), groups.get("clients", 1)
        return self.of_all and fewest[0] >= self.least and fewest[1] >= self.clients

    def sums(
        self,
        groups: GroupRequest,
        request: Payload,
        rule: Callable[..., Enough],
        compute: Callable[[], Grouped],
    ) -> dict[str, Any]:
        """Return the counts of the client's groups if requested, else sums of groups by `rule`."""
        counts, summed = self.once(groups, request, compute)
        enough = rule(**counts, least=self.least)
        if self.masked or rule is as_many:
            enough = with_company(enough, sizes_of(counts))
        shares = self.shares(groups)
        if is_count(groups):
            sent = {name: count if shares else count * enough for name, count in counts.items()}
            return sent | clients_in(groups, [*sent.values()][-1])
        if not shares:
            return summed(enough)
        totals = {name: groups["counted"][name] for name in counts}
        enough = rule(**totals, least=groups["least"])
        return summed(of_enough_clients(groups, enough, sizes_of(totals)))

    def once(self, groups: GroupRequest, request: Payload, compute: Callable[[], Result]) -> Result:
        """Compute counts and sums only once, so that both are of the same documents."""
        if not groups:
            return compute()
        digest = digest_of(request)
        if self._last[0] != digest:
            self._last = digest, compute()
        return cast("Result", self._last[1])


def is_count(groups: GroupRequest) -> bool:
    return bool(groups) and "counted" not in groups


def clients_in(groups: GroupRequest, counts: Numbers) -> dict[str, Numbers]:
    """Return which groups a client has, if clients are counted: a share of at least one half."""
    return {} if groups["clients"] == 1 else {"clients": (counts >= HAS).astype(np.float64)}


def of_enough_clients(
    groups: GroupRequest, enough: Enough, sizes: Numbers, clustering: Any = ...
) -> Enough:
    """Leave out groups of too few clients, and company for all that are left out."""
    if groups["clients"] > 1:
        enough = enough & (groups["counted"]["clients"][clustering] >= groups["clients"] - ROUNDING)
    return with_company(enough, sizes)


def with_company(enough: Enough, sizes: Numbers) -> Enough:
    """Leave out the smallest other group, too, if some are omitted.

    Otherwise the total of all documents less the sums of the other groups would be that of the
    omitted ones, perhaps of one person.
    """
    has_omitted = (~enough & (sizes > ROUNDING)).any(-1, keepdims=True)
    smallest = np.where(enough, sizes, np.inf).argmin(-1, keepdims=True)
    return np.asarray(enough & ~(has_omitted & (np.arange(enough.shape[-1]) == smallest)))


def sizes_of(counts: Mapping[str, Numbers]) -> Numbers:
    """Return by what groups are compared to find the smallest one, as company for omitted ones."""
    return next(iter(counts.values()))


def as_many(counts: Numbers, least: int) -> Enough:
    """Return which groups have at least `least` persons; all do if 1 is enough."""
    return np.asarray(counts >= (least if least > 1 else 0))


def enough_have(squares: Numbers, fourths: Numbers, least: int) -> Enough:
    """Return which groups have `least` persons: (sum of squares)^2 / sum of fourth powers.

    This is the number of persons whose largest shares m are alike. Whatever the shares, the others'
    sum of m^2 is at least (sqrt(least) - 1) times the largest, as the sum of m^4 is at least max
    m^4: one document of share 1 is not hidden by a thousand of share .01.
    """
    return np.asarray(squares**2 >= least * fourths * (1 - ROUNDING))


def persons_by_label(
    labels: NDArray[np.int64], n: int, owners: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Count the persons with documents of each label, (n,)."""
    if owners is not None:
        labels = np.unique(owners * n + labels) % n
    return np.bincount(labels, minlength=n)


class PersonShares:
    """Persons' shares of groups: each counts once, by the largest share of any of her documents."""

    def __init__(self, owners: NDArray[np.int64] | None, n_groups: int) -> None:
        n_persons = 0 if owners is None else int(owners.max(initial=-1)) + 1
        self._owners = owners
        self._largest = np.zeros((n_persons, n_groups))
        self._sums = {name: np.zeros(n_groups) for name in POWERS}

    def add(self, rows: NDArray[np.int64] | slice, shares: Numbers) -> None:
        """Take the shares of documents, (n_rows, n_groups); each row comes once."""
        if self._owners is None:
            self._sums = self._added(shares)
        else:
            np.maximum.at(self._largest, self._owners[rows], shares)

    def powers(self) -> dict[str, Numbers]:
        """Return sums of squares and of fourth powers over persons, as `enough_have` needs."""
        return self._added(self._largest)

    def _added(self, shares: Numbers) -> dict[str, Numbers]:
        squares = np.square(shares, dtype=np.float64)
        return {name: self._sums[name] + (squares**n).sum(0) for name, n in POWERS.items()}
