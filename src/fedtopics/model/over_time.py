"""Topics by period or by class, as sums over clients."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from fedtopics.errors import DataError, StudyError, check_choice, check_keys, check_number
from fedtopics.model.effects import Effects
from fedtopics.model.finding import TopicFinder
from fedtopics.model.formulas import one_hot
from fedtopics.model.local_effects import Part, pooled
from fedtopics.text.corpus import Corpus, column_of
from fedtopics.text.grouping import TIME
from fedtopics.text.times import (
    Times,
    Unit,
    as_array,
    as_column,
    begin_of,
    dated,
    missing,
    times_of,
)

Change = dict[str, Any]
CHANGE = "change"  # the estimate of how the last periods differ from those before
EARLIER = "earlier"
LATER = "later"
TIMES = "the documents' times"
REST = "rest"
MIN_DOCUMENTS = 10  # of a client in a period
ALL_CLIENTS = 1 << 30  # clients, if their number is unknown


@dataclass(frozen=True)
class Grouped:
    """Topics of groups of documents, and numbers of documents in no row."""

    rows: list[dict[str, Any]]
    without: int = 0  # documents without a value
    few: int = 0  # documents in groups where their client has too few
    unknown: int = 0  # documents that contain nothing the model knows
    change: Effects | None = None  # of the last periods to those before, within clients


def topics_over_time(
    model: TopicFinder,
    documents: Any = None,
    timestamps: Any = None,
    *,
    by: Unit | None = None,
    nr_bins: int | None = None,
    min_documents: int = MIN_DOCUMENTS,
    date_format: str | None = None,
) -> list[dict[str, Any]]:
    """Return one row per period and topic, in order; works with models of every method.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, or a mapping of client to that, optional
        Without documents, rows are the study's sums over all clients, if it has ``over_time``.
    timestamps : str, sequence, or a mapping of client to sequences
        Dates, times, texts such as 2026-03-01, or numbers such as years; or the name of their
        column in the documents' table or file. Documents without one are in no period.
    by : {"year", "quarter", "month", "week", "day"}, optional
        Period of dates; by default a month.
    nr_bins : int, optional
        Use this many periods of equal length instead, for dates or numbers.
    min_documents : int
        Leaves a client out of periods with fewer known documents, because shares of one or two
        documents would reveal what they are about.
    date_format : str, optional
        How texts write dates: codes of `datetime.strptime`, such as ``"%d/%m/%Y"``, or ``"excel"``
        for numbers of days.

    Returns
    -------
    list of dict
        ``period``, its beginning; ``topic``; its ``share`` of the period's documents, and the same
        as a ``count`` of documents; numbers of ``documents``, ``persons`` and ``clients`` in the
        period. Rows of a study have an interval, ``low`` to ``high``, and no number of clients.
    """
    return grouped_by_time(
        model,
        documents,
        timestamps,
        by=by,
        nr_bins=nr_bins,
        min_documents=min_documents,
        date_format=date_format,
    ).rows


def topics_per_class(
    model: TopicFinder,
    documents: Any = None,
    classes: Any = None,
    *,
    min_documents: int = MIN_DOCUMENTS,
) -> list[dict[str, Any]]:
    """Return one row per class and topic: the share of each topic in the documents of a class.

    Parameters and rows are those of `topics_over_time`, with ``class`` instead of ``period``:
    `classes` gives each document's class, such as a department. Without documents, rows are the
    study's sums over all clients by its column `classes`, such as "funded", or by two in the
    study's order, such as "time:funded".
    """
    return grouped_by_class(model, documents, classes, min_documents=min_documents).rows


def grouped_by_time(
    model: TopicFinder,
    documents: Any,
    timestamps: Any,
    *,
    by: Unit | None = None,
    nr_bins: int | None = None,
    min_documents: int = MIN_DOCUMENTS,
    date_format: str | None = None,
) -> Grouped:
    """Return the rows of `topics_over_time`, their change, and numbers of documents in no row."""
    if documents is None:
        change = next((of for of in model.estimates if of.formula == CHANGE), None)
        return Grouped([*rows_of_study(model, TIME)], change=change)
    check_choice(by, "by", (None, *get_args(Unit)))
    check_number(1 if nr_bins is None else nr_bins, "nr_bins")
    corpora, arrays = _by_client(documents, timestamps)
    arrays = {client: dated(values, date_format, TIMES) for client, values in arrays.items()}
    times = {client: times_of(values, ~missing(values)) for client, values in arrays.items()}
    timed = [values for values in times.values() if len(values)]
    if len({values.dtype.kind == "M" for values in timed}) > 1:
        raise DataError("Some clients have dates and some have numbers; give one kind for all.")
    edges = None if nr_bins is None or not timed else _edges(timed, nr_bins)
    grouped, parts = _grouped(
        model,
        corpora,
        arrays,
        groups={client: begin_of(values, by, edges) for client, values in times.items()},
        key="period",
        min_documents=min_documents,
    )
    if not grouped.rows and grouped.few and edges is None and timed[0].dtype.kind != "M":
        raise DataError(
            f"Each number is its own period, and none has {min_documents} documents; give dates, "
            "or set the number of periods with nr_bins."
        )
    return replace(grouped, change=_change(grouped.rows, parts))


def _change(rows: Sequence[Mapping[str, Any]], parts: Sequence[Part]) -> Effects | None:
    """Estimate how the last periods differ from those before, within clients."""
    periods = sorted({row["period"] for row in rows})
    if len(periods) < 2:
        return None
    spans = spans_of(periods)
    terms = [LATER, REST][: 1 + (REST in spans)]
    codes = dict(zip(periods, map([EARLIER, *terms].index, spans), strict=True))
    designs = [
        (
            one_hot(np.array([codes[group] for group in groups.tolist()]), 1 + len(terms))[:, 1:],
            theta,
            owners,
        )
        for groups, theta, owners in parts
        if len(groups)
    ]
    try:
        return pooled(CHANGE, terms, designs, within=True, scales=np.ones(len(terms)))
    except StudyError as error:
        return Effects.refusal(CHANGE, str(error))


def spans_of(periods: Sequence[Any]) -> list[str]:
    """Return for each period whether it is a later one, an earlier one, or of the rest."""
    earlier, later = halves(periods)
    return [LATER if p in later else EARLIER if p in earlier else REST for p in periods]


def rows_of_study(model: TopicFinder, column: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of the study's table of a column, or of two with a colon between them."""
    tables = {table.name: table for table in model.groups}
    if column not in tables:
        raise StudyError(
            f"The study has no shares of topics by {column}"
            f"{f', but by {quoted}' if (quoted := ', '.join(tables)) else ''}; give documents and "
            "their values, or name the column in the study's [method.by] or over_time."
        )
    key = "period" if column == TIME else "class"
    for row in tables[column].rows():
        group = row.pop("group")
        try:
            place = date.fromisoformat(group) if column == TIME else group
        except ValueError:
            continue  # documents without a time, or periods that are shown together
        yield {key: place} | row | {"count": row["share"] * row["documents"], "clients": None}


def grouped_by_class(
    model: TopicFinder, documents: Any, classes: Any, *, min_documents: int = MIN_DOCUMENTS
) -> Grouped:
    """Return the rows of `topics_per_class`, and numbers of documents in no row."""
    if documents is None:
        return Grouped([*rows_of_study(model, str(classes))])
    corpora, arrays = _by_client(documents, classes)
    return _grouped(
        model,
        corpora,
        arrays,
        groups={
            client: np.array([*filter(None, as_column(values).names().to_pylist())], np.str_)
            for client, values in arrays.items()
        },
        key="class",
        min_documents=min_documents,
    )[0]


def values_of(documents: Any, values: Any) -> Any:
    """Return the value of each document; for a name, its column in the documents' tables.

    Without documents, the name is a column of the study.
    """
    if documents is None or not isinstance(values, str):
        return values
    return (
        {client: column_of(table, values) for client, table in documents.items()}
        if isinstance(documents, Mapping)
        else column_of(documents, values)
    )


def _by_client(documents: Any, values: Any) -> tuple[dict[Any, Corpus], dict[Any, Times]]:
    """Return documents and their values, by client."""
    values = values_of(documents, values)
    if not isinstance(documents, Mapping):
        documents = {"": documents}
        values = {"": values}
    check_keys(values, documents, "client", DataError)
    corpora = {client: Corpus.of(texts) for client, texts in documents.items()}
    arrays = {client: as_array(values.get(client, ())) for client in corpora}
    for client, corpus in corpora.items():
        if arrays[client].shape != (len(corpus),):
            raise DataError(
                f"There are {len(corpus)} documents but {arrays[client].size} times or classes; "
                "give one for each document."
            )
    return corpora, arrays


def _grouped(
    model: TopicFinder,
    corpora: Mapping[Any, Corpus],
    arrays: Mapping[Any, Times],
    groups: Mapping[Any, Times],
    key: str,
    min_documents: int,
) -> tuple[Grouped, list[Part]]:
    """Return rows by group and topic, and each client's groups, theta and persons of documents.

    `groups` has only the documents with a value.
    """
    parts: list[Part] = []
    check_number(min_documents, "min_documents", 0)
    without = few = unknown = 0
    for client, corpus in corpora.items():
        has_value = ~missing(arrays[client])
        _, theta, seen = model.read(corpus)
        without += int((~has_value).sum())
        unknown += int((~seen[has_value]).sum())
        values, places, sizes = np.unique(
            groups[client][seen[has_value]], return_inverse=True, return_counts=True
        )
        enough = (sizes >= max(min_documents, 1))[places]
        few += int((~enough).sum())
        rows = np.flatnonzero(has_value & seen)[enough]
        parts.append((values[places][enough], theta[rows], corpus.person_numbers[rows]))
    return Grouped([*_rows(parts, key)], without=without, few=few, unknown=unknown), parts


def _rows(parts: Sequence[Part], key: str) -> Iterator[dict[str, Any]]:
    """Yield the row of each group and topic, from all clients' documents."""
    sums: dict[Any, list[tuple[Any, int, int]]] = {}  # theta, documents, persons: one per client
    for groups, theta, owners in parts:
        values, places = np.unique(groups, return_inverse=True)
        by_value = np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places))[:-1])
        for value, rows in zip(values.tolist(), by_value, strict=False):
            persons = len(np.unique(owners[rows]))
            sums.setdefault(value, []).append((theta[rows].sum(0), len(rows), persons))
    for value, of_clients in sorted(sums.items()):
        counts, documents, persons = (sum(column) for column in zip(*of_clients, strict=True))
        for topic, count in enumerate(np.asarray(counts).tolist()):
            yield {
                key: value,
                "topic": topic,
                "share": count / documents,
                "count": count,
                "documents": documents,
                "persons": persons,
                "clients": len(of_clients),
            }


def _edges(times: Sequence[Times], bins: int) -> Times:
    """Return the beginnings of periods of equal length, and the end of the last one."""
    least = min(values.min() for values in times)
    most = max(values.max() for values in times)
    if times[0].dtype.kind == "M":
        first, last = np.array([least, most]).astype("datetime64[us]").astype(np.int64).tolist()
        return np.linspace(first, last, bins + 1).astype(np.int64).astype("datetime64[us]")
    return np.linspace(float(least), float(most), bins + 1)


def changes(of: Grouped) -> Change | None:
    """Return how topics' shares changed, from rows by period; None below two periods."""
    rows = of.rows
    periods = sorted({row["period"] for row in rows})
    if len(periods) < 2:
        return None
    # The last year and the one before; within one year or without dates, the halves.
    earlier, later = halves(periods)
    cells = {(row["topic"], row["period"]): row for row in rows}
    start = _when(periods[0])
    reach = _when(periods[-1]) - start or 1.0  # zero within one day

    def share(topic: int, among: Sequence[Any]) -> float:
        chosen = [cells[topic, period] for period in among]
        return float(sum(c["count"] for c in chosen) / max(sum(c["documents"] for c in chosen), 1))

    intervals = {
        row["topic"]: row for row in (of.change.rows() if of.change else ()) if row["term"] == LATER
    }
    topics = {
        topic: {
            "before": share(topic, earlier),
            "after": share(topic, later),
            "points": [((_when(p) - start) / reach, cells[topic, p]["share"]) for p in periods],
            "within": intervals.get(topic),
        }
        for topic in sorted({row["topic"] for row in rows})
    }
    return {
        "before": _span(earlier, periods),
        "after": _span(later, periods),
        "estimated": of.change.clients if of.change else 0,  # clients in the estimate
        "of": max(row["clients"] or ALL_CLIENTS for row in rows),
        "first": _span(periods[:1], periods),
        "last": _span(periods[-1:], periods),
        "documents": [
            sum(cells[rows[0]["topic"], p]["documents"] for p in span) for span in (earlier, later)
        ],
        "persons": max(cells[rows[0]["topic"], p]["persons"] for p in earlier),  # or more
        "topics": topics,
    }


def halves(periods: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the periods before the last ones, and the last ones: years, or halves."""
    if isinstance(periods[0], date):
        later = [p for p in periods if p.year == periods[-1].year]
        seasons = {(p.month, p.day) for p in later}  # only half a year may be there
        before = [p for p in periods if p.year == periods[-1].year - 1]
        earlier = [p for p in before if (p.month, p.day) in seasons] or before
        if earlier:
            return earlier, later
    middle = len(periods) // 2
    return list(periods[:middle]), list(periods[middle:])


def _when(period: Any) -> float:
    return float(period.toordinal()) if isinstance(period, date) else float(period)


def _period_name(period: Any) -> str:
    if not isinstance(period, date):
        return f"{period:g}"
    return f"{period:%b %Y}" if period.day == 1 else f"{period.day} {period:%b %Y}"


def _span(periods: Sequence[Any], among: Sequence[Any]) -> str:
    """Name some periods: their year, or the first and the last."""
    if all(isinstance(p, date) and (p.month, p.day) == (1, 1) for p in among):  # years
        return " to ".join(dict.fromkeys(str(p.year) for p in (periods[0], periods[-1])))
    first = _period_name(periods[0])
    last = _period_name(periods[-1])
    if isinstance(periods[0], date) and len({p.year for p in periods}) == 1 and len(periods) > 1:
        begin = periods[0]
        end = periods[-1] + min((b - a for a, b in pairwise(periods)), default=timedelta())
        if begin.month == 1 and end >= date(begin.year, 12, 28):
            return str(begin.year)
        first = first.removesuffix(f" {begin.year}")
    return first if first == last else f"{first} to {last}"


def grown(change: Change) -> list[int]:
    """Return topics by change of share, the largest growth first; within clients, if estimated."""
    return sorted(change["topics"], key=lambda k: -growth(change["topics"][k]))


def growth(of_topic: Mapping[str, Any]) -> float:
    """Return the change of a topic's share: within clients, if it was estimated."""
    within = of_topic["within"]
    return float(of_topic["after"] - of_topic["before"] if within is None else within["estimate"])
