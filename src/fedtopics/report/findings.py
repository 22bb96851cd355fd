"""What was found, in three sentences; what a client alone has, and what grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

Topic = Mapping[str, Any]
Change = dict[str, Any]
ALONE = 0.9  # of a topic's documents, from which it is one client's alone
NOTABLE = 0.005  # change of a share, from which it is one
ALL = 1 << 30  # clients, where nobody knows how many
FIRST = 5  # topics that are said to have so much together


def name_of(topic: Topic) -> str:
    """Return what a topic is called: its label, or its first words."""
    return topic["label"] or ", ".join(topic["words"][:3])


def parts(topic: Topic, documents: Mapping[str, int]) -> dict[str, float]:
    """Return how much of a topic's documents each client has, where its share is shown."""
    counts = {n: s * documents[n] for n, s in topic["clients"].items() if s is not None}
    total = max(topic["share"] * sum(documents.values()), 1e-12)
    return {name: min(count / total, 1.0) for name, count in counts.items()}


def owner(topic: Topic, documents: Mapping[str, int]) -> str | None:
    """Return the client that has a topic alone: nine in ten of its documents; or None."""
    held = parts(topic, documents)
    return next((n for n, part in held.items() if part >= ALONE), None)


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
    named["of"] = max(row["clients"] or ALL for row in rows or ())
    return named | {"first": _named(periods[0]), "last": _named(periods[-1]), "topics": topics}


def _halves(periods: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    if isinstance(periods[0], date):
        last = periods[-1].year
        years = [[p for p in periods if p.year == year] for year in (last - 1, last)]
        if all(years):
            return years[0], years[1]
    half = len(periods) // 2
    return list(periods[:half]), list(periods[half:])


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


def sentences(
    topics: Sequence[Topic], documents: Mapping[str, int], similarity: NDArray[np.float64],
    change: Change | None, kind: str, units: str = "documents",
) -> list[str]:  # fmt: skip
    """Say in three sentences what was found: what it is about, who differs, what changed."""
    said = [_about(topics, sum(documents.values()), kind, units)]
    if len(documents) > 1:
        said.append(_clients(topics, documents, similarity, kind))
    if change is not None:
        of_one = change["of"] == 1 < len(documents)
        said.append(_changed({t["topic"]: t for t in topics}, change, of_one))
    else:
        said.append(_shared(topics, documents, kind))
    return [sentence for sentence in said if sentence]


def _quoted(topic: Topic) -> str:
    mark = " (suggested)" if topic["label"] and topic.get("suggested") else ""
    return f"“{name_of(topic)}”{mark}"


def _about(topics: Sequence[Topic], total: int, kind: str, units: str) -> str:
    first = topics[0]
    among = f"{total:,} {units} have {len(topics)} {kind}s"
    largest = f"the largest is {_quoted(first)}, with {first['share']:.0%}"
    if len(topics) <= FIRST:
        return f"{among}; {largest}."
    most = sum(topic["share"] for topic in topics[:FIRST])
    return f"{among}; {largest}, and the {FIRST} largest have {most:.0%} together."


def _clients(
    topics: Sequence[Topic], documents: Mapping[str, int], similarity: NDArray[np.float64],
    kind: str,
) -> str:  # fmt: skip
    names = list(documents)
    pairs = np.triu(similarity + 1, 1)
    one, other = np.unravel_index(pairs.argmax(), pairs.shape)
    alike = f"{names[one]} and {names[other]} are the most alike" if len(names) > 2 else ""
    owned: dict[str, list[Topic]] = {}
    for topic in topics:
        if (client := owner(topic, documents)) is not None:
            owned.setdefault(client, []).append(topic)
    if not owned:
        return f"No {kind} is one client's alone" + (f"; {alike}." if alike else ".")
    most = sorted(owned, key=lambda name: -sum(topic["share"] for topic in owned[name]))
    said = [f"{client} alone has {_listed(owned[client])}" for client in most[:2]]
    return "; ".join([*said, *([alike] if alike else [])]) + "."


def _listed(topics: Sequence[Topic]) -> str:
    """Write the first two topics, and how many more there are."""
    rest = f" and {len(topics) - 2} more" if len(topics) > 2 else ""
    return (", " if rest else " and ").join(_quoted(topic) for topic in topics[:2]) + rest


def _changed(topics: Mapping[int, Topic], change: Change, of_one: bool) -> str:
    order, shares = grown(change), change["topics"]

    def said(topic: int, how: str) -> str:
        before, after = shares[topic]["before"], shares[topic]["after"]
        return f"{_quoted(topics[topic])} {how} most, from {before:.1%} to {after:.1%}"

    found = []
    if shares[order[0]]["after"] - shares[order[0]]["before"] >= NOTABLE:
        found.append(said(order[0], "grew"))
    if shares[order[-1]]["before"] - shares[order[-1]]["after"] >= NOTABLE:
        found.append(said(order[-1], "shrank"))
    when = f"{change['after']} against {change['before']}"
    when += ", in the documents of one client" if of_one else ""
    return f"{when}: {'; '.join(found)}." if found else f"{when}: nothing changed much."


def _shared(topics: Sequence[Topic], documents: Mapping[str, int], kind: str) -> str:
    if len(documents) < 2:
        return ""
    common = [t for t in topics if all(share is not None for share in t["clients"].values())]
    many = "All" if len(common) == len(topics) else f"{len(common) or 'None'} of"
    return f"{many} {len(topics)} {kind}s are common to all clients."
