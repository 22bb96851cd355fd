"""Topics by period or by class: how much of each is in such documents, by sums over clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.model.topics import Finder
from fedtopics.text.corpus import Corpus

Unit = Literal["year", "quarter", "month", "week", "day"]
MIN_DOCUMENTS = 10  # of a client in a period, as of a reply in the usual policy
CODES = {"year": "Y", "month": "M", "day": "D"}  # of numpy's dates
THURSDAY = 3  # 1970 began with one; a week begins with Monday


def topics_over_time(
    model: Finder,
    documents: Any,
    timestamps: Any,
    *,
    by: Unit | None = None,
    nr_bins: int | None = None,
    min_documents: int = MIN_DOCUMENTS,
) -> list[dict[str, Any]]:
    """Return a row a period and topic, in their order, by a model of any method.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, or a mapping of client to that
    timestamps : sequence, or a mapping of client to sequences
        Dates, times, or texts as 2026-03-01; or numbers, such as years. Each document has one.
    by : {"year", "quarter", "month", "week", "day"}, optional
        Period of dates; by default a month.
    nr_bins : int, optional
        So many periods of equal length instead, of dates or numbers.
    min_documents : int
        A client has no part in periods in which it has fewer documents that the model sees
        something of: of one or two, shares would say what is in them.

    Returns
    -------
    list of dict
        ``period``, when it begins; ``topic``; its ``share`` of the period's documents, and the
        ``count`` of documents that this is; number of all its ``documents`` and of ``clients``.
    """
    if by not in (None, *get_args(Unit)) or (nr_bins is not None and nr_bins < 1):
        raise StudyError(
            f"by={by!r}, nr_bins={nr_bins!r} cannot be used; choose by from "
            f"{', '.join(get_args(Unit))}, or one or more nr_bins."
        )
    corpora, given = _by_client(documents, timestamps)
    times = {client: _times(given[client]) for client in corpora}
    if len({each.dtype.kind == "M" for each in times.values()}) > 1:
        raise DataError("Some clients' timestamps are dates and some are numbers; give all alike.")
    edges = None if nr_bins is None else _edges([*times.values()], nr_bins)
    begins = {client: _begins(each, by, edges) for client, each in times.items()}
    return _summed(model, corpora, begins, "period", min_documents)


def topics_per_class(
    model: Finder, documents: Any, classes: Any, *, min_documents: int = MIN_DOCUMENTS
) -> list[dict[str, Any]]:
    """Return a row a class and topic: how much of each topic is in documents of a class.

    Parameters and rows are those of `topics_over_time`; ``class`` is what `classes` has of a
    document, such as its department, where that has the ``period``.
    """
    corpora, given = _by_client(documents, classes)
    names = {client: np.array([*map(str, each)]) for client, each in given.items()}
    return _summed(model, corpora, names, "class", min_documents)


def _by_client(documents: Any, values: Any) -> tuple[dict[Any, Corpus], dict[Any, NDArray[Any]]]:
    """Return documents and what there is of each, by client."""
    if not isinstance(documents, Mapping):
        documents, values = {"": documents}, {"": values}
    corpora = {client: Corpus.of(each) for client, each in documents.items()}
    arrays = {client: np.asarray(values.get(client, ())) for client in corpora}
    for client, corpus in corpora.items():
        if arrays[client].shape != (len(corpus),):
            raise DataError(
                f"There are {len(corpus)} documents and {arrays[client].size} times or classes of "
                "them; give each document its own."
            )
    return corpora, arrays


def _summed(
    model: Finder,
    corpora: Mapping[Any, Corpus],
    groups: Mapping[Any, NDArray[Any]],
    name: str,
    min_documents: int,
) -> list[dict[str, Any]]:
    """Return a row a group of documents and topic, of the groups that clients have a part in."""
    thetas: dict[Any, list[NDArray[np.float32]]] = {}  # by group, of each client with a part
    for client, corpus in corpora.items():
        for group, theta in _by_group(model, corpus, groups[client]).items():
            if len(theta) >= min_documents:
                thetas.setdefault(group, []).append(theta)
    return [
        {name: group.item()} | row
        for group, of_clients in sorted(thetas.items())
        for row in _rows(of_clients)
    ]


def _rows(thetas: Sequence[NDArray[np.float32]]) -> Iterator[dict[str, Any]]:
    """Yield what is said of each topic in a period, of its clients' thetas."""
    n_documents, n_clients = sum(map(len, thetas)), len(thetas)
    for topic, count in enumerate(np.sum([theta.sum(0) for theta in thetas], axis=0).tolist()):
        share = count / n_documents
        whole = {"documents": n_documents, "clients": n_clients}
        yield {"topic": topic, "share": share, "count": count} | whole


def _times(values: NDArray[Any]) -> NDArray[Any]:
    """Return times as numpy's, or numbers; refuse those that are none."""
    if values.dtype == object:  # of whatever time zone, days are those where it was written
        zoned = (getattr(value, "tzinfo", None) for value in values)
        pairs = zip(values, zoned, strict=True)
        values = np.array([v if zone is None else v.replace(tzinfo=None) for v, zone in pairs])
    try:
        times = values if values.dtype.kind in "iufM" else values.astype("datetime64[us]")
    except (TypeError, ValueError):
        times = np.array(["NaT"], "datetime64[us]")
    missing = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
    if missing.any():
        raise DataError(
            "Some timestamps cannot be read as times; give dates, times, texts as 2026-03-01, or "
            "numbers, one for each document."
        )
    return times


def _begins(times: NDArray[Any], by: Unit | None, edges: NDArray[Any] | None) -> NDArray[Any]:
    """Return when the period of each time begins."""
    if edges is not None:
        place = np.searchsorted(edges, times, "right") - 1
        return np.asarray(edges[np.clip(place, 0, len(edges) - 2)])
    if times.dtype.kind != "M":
        return times
    unit = by or "month"
    if unit == "quarter":
        months = times.astype("datetime64[M]").astype(np.int64)
        return np.asarray((months // 3 * 3).astype("datetime64[M]").astype("datetime64[D]"))
    if unit == "week":
        days = times.astype("datetime64[D]").astype(np.int64)
        return np.asarray(((days + THURSDAY) // 7 * 7 - THURSDAY).astype("datetime64[D]"))
    return np.asarray(times.astype(f"datetime64[{CODES[unit]}]").astype("datetime64[D]"))


def _edges(times: Sequence[NDArray[Any]], bins: int) -> NDArray[Any]:
    """Return where so many periods of equal length begin, and where the last one ends."""
    least, most = min(each.min() for each in times), max(each.max() for each in times)
    if times[0].dtype.kind == "M":
        first, last = np.array([least, most]).astype("datetime64[us]").astype(np.int64).tolist()
        return np.linspace(first, last, bins + 1).astype(np.int64).astype("datetime64[us]")
    return np.linspace(float(least), float(most), bins + 1)


def _by_group(
    model: Finder, corpus: Corpus, groups: NDArray[Any]
) -> dict[Any, NDArray[np.float32]]:
    """Return theta of each group's documents of which the model sees something."""
    theta, seen = model.theta_and_seen(corpus)
    return {group: theta[seen & (groups == group)] for group in np.unique(groups)}
