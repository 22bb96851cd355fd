"""Topics by period or by class: how much of each is in such documents, by sums over clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError, check_keys, check_number
from fedtopics.model.finding import Finder
from fedtopics.text.corpus import Corpus, column_of
from fedtopics.text.times import Unit, as_array, as_column, begin_of, missing, times_of

Change = dict[str, Any]
MIN_DOCUMENTS = 10  # of a client in a period, as of a reply in the usual policy
ALL_CLIENTS = 1 << 30  # clients, where nobody knows how many


@dataclass(frozen=True)
class Grouped:
    """Topics of groups of documents, and how many documents are in no row."""

    rows: list[dict[str, Any]]
    without: int  # documents without a value
    few: int  # of groups in which their client has too few
    unknown: int  # of which the model sees nothing


def topics_over_time(
    model: Finder, documents: Any = None, timestamps: Any = None, *, by: Unit | None = None,
    nr_bins: int | None = None, min_documents: int = MIN_DOCUMENTS,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return a row a period and topic, in their order, by a model of any method.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, or a mapping of client to that, optional
        Without any, rows are those that the study has summed over all clients, if it has
        ``over_time``.
    timestamps : str, sequence, or a mapping of client to sequences
        Dates, times, or texts as 2026-03-01; or numbers, such as years. Or the name of their column
        in a table or a file of documents. A document without one is in no period.
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
    how: dict[str, Any] = {"by": by, "nr_bins": nr_bins, "min_documents": min_documents}
    return grouped_by_time(model, documents, timestamps, **how).rows


def topics_per_class(
    model: Finder, documents: Any, classes: Any, *, min_documents: int = MIN_DOCUMENTS
) -> list[dict[str, Any]]:
    """Return a row a class and topic: how much of each topic is in documents of a class.

    Parameters and rows are those of `topics_over_time`; ``class`` is what `classes` has of a
    document, such as its department, where that has the ``period``.
    """
    return grouped_by_class(model, documents, classes, min_documents=min_documents).rows


def grouped_by_time(
    model: Finder, documents: Any, timestamps: Any, *, by: Unit | None = None,
    nr_bins: int | None = None, min_documents: int = MIN_DOCUMENTS,
) -> Grouped:  # fmt: skip
    """Return the rows of `topics_over_time`, and how many documents are in none."""
    if documents is None:
        if model.periods is None:
            raise StudyError(
                "The study summed no topics by period; give documents and their times, or set "
                "over_time in its [method]."
            )
        return Grouped([*model.periods.rows()], 0, 0, 0)
    if by not in (None, *get_args(Unit)):
        raise StudyError(f"by={by!r} cannot be used; choose from {', '.join(get_args(Unit))}.")
    check_number(1 if nr_bins is None else nr_bins, "nr_bins")
    corpora, arrays = _by_client(documents, timestamps)
    times = {client: times_of(values, ~missing(values)) for client, values in arrays.items()}
    timed = [each for each in times.values() if len(each)]
    if len({each.dtype.kind == "M" for each in timed}) > 1:
        raise DataError("Some clients' timestamps are dates and some are numbers; give all alike.")
    edges = None if nr_bins is None or not timed else _edges(timed, nr_bins)
    begins = {client: begin_of(each, by, edges) for client, each in times.items()}
    found = _summed(model, corpora, arrays, begins, "period", min_documents)
    if not found.rows and found.few and edges is None and timed[0].dtype.kind != "M":
        raise DataError(
            f"Each number is a period of its own, and none has {min_documents} documents; give "
            "dates, or say how many periods with nr_bins."
        )
    return found


def grouped_by_class(
    model: Finder, documents: Any, classes: Any, *, min_documents: int = MIN_DOCUMENTS
) -> Grouped:
    """Return the rows of `topics_per_class`, and how many documents are in none."""
    corpora, arrays = _by_client(documents, classes)
    names = {
        client: np.array([*filter(None, as_column(values).names().to_pylist())], np.str_)
        for client, values in arrays.items()
    }
    return _summed(model, corpora, arrays, names, "class", min_documents)


def values_of(documents: Any, values: Any) -> Any:
    """Return what there is of each document: of a name, its column in the documents' tables."""
    if not isinstance(values, str):
        return values
    if isinstance(documents, Mapping):
        return {client: column_of(each, values) for client, each in documents.items()}
    return column_of(documents, values)


def _by_client(documents: Any, values: Any) -> tuple[dict[Any, Corpus], dict[Any, NDArray[Any]]]:
    """Return documents and what there is of each, by client."""
    values = values_of(documents, values)
    if not isinstance(documents, Mapping):
        documents, values = {"": documents}, {"": values}
    check_keys(values, documents, "client", DataError)
    corpora = {client: Corpus.of(each) for client, each in documents.items()}
    arrays = {client: as_array(values.get(client, ())) for client in corpora}
    for client, corpus in corpora.items():
        if arrays[client].shape != (len(corpus),):
            raise DataError(
                f"There are {len(corpus)} documents and {arrays[client].size} times or classes of "
                "them; give each document its own."
            )
    return corpora, arrays


def _summed(
    model: Finder, corpora: Mapping[Any, Corpus], arrays: Mapping[Any, NDArray[Any]],
    groups: Mapping[Any, NDArray[Any]], name: str, min_documents: int,
) -> Grouped:  # fmt: skip
    """Return a row a group of documents and topic, of the groups that clients have a part in.

    The groups are of those documents for which something is given.
    """
    thetas: dict[Any, list[NDArray[np.float32]]] = {}  # by group, of each client with a part
    check_number(min_documents, "min_documents", 0)
    without = few = unknown = 0
    for client, corpus in corpora.items():
        there = ~missing(arrays[client])
        theta, seen = model.theta_and_seen(corpus)
        theta, seen = theta[there], seen[there]
        without, unknown = without + int((~there).sum()), unknown + int((~seen).sum())
        of_seen = np.unique(groups[client][seen], return_inverse=True, return_counts=True)
        values, places, sizes = of_seen
        theta = theta[seen][np.argsort(places, kind="stable")]  # those of a group side by side
        enough, ends = sizes >= max(min_documents, 1), np.cumsum(sizes)
        few += int(sizes[~enough].sum())
        for group, end, size in zip(values[enough], ends[enough], sizes[enough], strict=True):
            thetas.setdefault(group, []).append(theta[end - size : end])
    rows = [
        {name: group.item()} | row
        for group, of_clients in sorted(thetas.items())
        for row in _rows(of_clients)
    ]
    return Grouped(rows, without, few, unknown)


def _rows(thetas: Sequence[NDArray[np.float32]]) -> Iterator[dict[str, Any]]:
    """Yield what is said of each topic in a period, of its clients' thetas."""
    n_documents, n_clients = sum(map(len, thetas)), len(thetas)
    for topic, count in enumerate(sum(theta.sum(0) for theta in thetas).tolist()):
        share = count / n_documents
        whole = {"documents": n_documents, "clients": n_clients}
        yield {"topic": topic, "share": share, "count": count} | whole


def _edges(times: Sequence[NDArray[Any]], bins: int) -> NDArray[Any]:
    """Return where so many periods of equal length begin, and where the last one ends."""
    least, most = min(each.min() for each in times), max(each.max() for each in times)
    if times[0].dtype.kind == "M":
        first, last = np.array([least, most]).astype("datetime64[us]").astype(np.int64).tolist()
        return np.linspace(first, last, bins + 1).astype(np.int64).astype("datetime64[us]")
    return np.linspace(float(least), float(most), bins + 1)


def changes(rows: Sequence[Mapping[str, Any]] | None) -> Change | None:
    """Return how topics' shares changed, of rows by period as `topics_over_time` has them.

    Compared are the last year and the one before, or, where all is of one year or there are no
    dates, the later half of the periods and the earlier.

    Returns
    -------
    dict or None
        ``before`` and ``after``, what the two are called; ``topics``, by number, with the share
        ``before`` and ``after`` and the ``points``, pairs of when, from 0 to 1, and share;
        ``first`` and ``last``, the names of these periods; ``of``, how many clients' documents
        these are. None of fewer than two periods.
    """
    periods = sorted({row["period"] for row in rows or ()})
    if len(periods) < 2:
        return None
    earlier, later = _halves(periods)
    cells = {(row["topic"], row["period"]): row for row in rows or ()}
    start = _when(periods[0])
    reach = _when(periods[-1]) - start or 1.0  # of parts of one day

    def share(topic: int, among: Sequence[Any]) -> float:
        those = [cells[topic, period] for period in among]
        return float(sum(c["count"] for c in those) / max(sum(c["documents"] for c in those), 1))

    topics = {
        topic: {
            "before": share(topic, earlier),
            "after": share(topic, later),
            "points": [((_when(p) - start) / reach, cells[topic, p]["share"]) for p in periods],
        }
        for topic in sorted({row["topic"] for row in rows or ()})
    }
    named: Change = {"before": _span(earlier), "after": _span(later)}
    named["of"] = max(row["clients"] or ALL_CLIENTS for row in rows or ())
    return named | {"first": _named(periods[0]), "last": _named(periods[-1]), "topics": topics}


def _halves(periods: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    if isinstance(periods[0], date):
        last = periods[-1].year
        years = [[p for p in periods if p.year == year] for year in (last - 1, last)]
        if all(years):
            return years[0], years[1]
    middle = len(periods) // 2
    return list(periods[:middle]), list(periods[middle:])


def _when(period: Any) -> float:
    return float(period.toordinal()) if isinstance(period, date) else float(period)


def _named(period: Any) -> str:
    if not isinstance(period, date):
        return f"{period:g}"
    return f"{period:%b %Y}" if period.day == 1 else f"{period:%-d %b %Y}"


def _span(periods: Sequence[Any]) -> str:
    """Return what some periods are called: their year, or the first and the last."""
    if isinstance(periods[0], date) and len({p.year for p in periods}) == 1 and len(periods) > 1:
        return str(periods[0].year)
    first, last = _named(periods[0]), _named(periods[-1])
    return first if first == last else f"{first} to {last}"


def grown(change: Change) -> list[int]:
    """Return topics by how much their share changed, what grew most first."""
    topics = change["topics"]
    return sorted(topics, key=lambda k: topics[k]["before"] - topics[k]["after"])
