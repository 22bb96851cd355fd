"""Figures of topics and clients, by Altair: the same in a report and in a notebook.

Colours of text and lines are those of the page they are on (`currentColor`), light or dark.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import FedTopicsError
from fedtopics.extras import require
from fedtopics.harmless import as_json, for_scripts

if TYPE_CHECKING:
    import altair

NEEDED = (("altair", "altair"), ("vl_convert", "vl-convert-python"))
ACCENT, SECOND = "#3b7dd8", "#d9822b"
WIDTH, HEIGHT, MARGIN, CURVE, CELL = 560, 420, 40, 380, 26  # pixels
PANEL = 150  # pixels
PADDING = {"left": 40, "right": 20, "top": 20, "bottom": 5}  # a page's font may be wider than ours
TITLE_PADDING = 12  # for the same reason
PATIENCE = 300.0  # seconds for the figures of a report
_LINK_BASE = "https://vega.github.io/vega-datasets/#"  # where Vega resolves links without a host
Row = Mapping[str, Any]


def available() -> bool:
    """Whether what draws figures is installed."""
    return all(find_spec(module) is not None for module, _ in NEEDED)


def require_altair() -> None:
    """Refuse to begin where what draws figures is not installed."""
    require("Figures need", "'fedtopics[report]'", *NEEDED)


def topic_shares(rows: Sequence[Row]) -> altair.Chart:
    """Draw a bar a topic, for rows of `TopicModel.get_topic_info`: its share of all documents."""
    alt = _altair()
    chart = _chart([_shown(row) for row in rows]).mark_bar(color=ACCENT)
    encoded = chart.encode(
        x=alt.X("share:Q", title="share of documents", axis=alt.Axis(format="%", tickCount=5)),
        y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=320)),
        tooltip=_tooltip("name", "words", "share"),
    )
    return _finished(encoded.properties(width=WIDTH - 240))


def clients_by_topics(rows: Sequence[Row]) -> altair.Chart:
    """Draw the share that each topic has of each client's documents, where it is not None."""
    names = [_shown(row)["name"] for row in rows]
    clients = [*rows[0]["clients"]]
    cells = [
        _shown(row) | {"client": client, "of_client": share}
        for row in rows
        for client, share in row["clients"].items()
        if share is not None
    ]
    title = "share of the client's documents"
    return _heat_map(cells, ("client", clients), ("name", names), "of_client", title)


def topic_map(rows: Sequence[Row], positions: NDArray[np.float64]) -> altair.Chart:
    """Draw topics as circles at their positions: near if alike, as large as their share."""
    alt = _altair()
    places = [
        _shown(row) | {"x": float(x), "y": float(y), "link": f"#topic-{row['topic']}"}
        for row in rows
        for x, y in [positions[row["topic"]]]
    ]
    plain = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    # One scale for both directions: a distance is the same wherever it points.
    size = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    low, high = positions.min(0), positions.max(0)
    reach = (float(((high - low) / size).max()) or 1.0) * size / 2
    ends = np.column_stack([(low + high) / 2 - reach, (low + high) / 2 + reach])
    x, y = (alt.Scale(domain=end, padding=MARGIN, nice=False) for end in ends.tolist())
    base = _chart(places).encode(
        x=alt.X("x:Q", title=None, axis=plain, scale=x),
        y=alt.Y("y:Q", title=None, axis=plain, scale=y),
    )
    circles = base.mark_circle(color=ACCENT, opacity=0.45).encode(
        size=alt.Size("share:Q", legend=None, scale=alt.Scale(domainMin=0, range=[0, 3000])),
        tooltip=_tooltip("name", "words", "share"),
        href="link:N",
        description="name:N",
    )
    numbers = base.mark_text(color="currentColor", aria=False).encode(text="topic:N")
    return _finished((circles + numbers).properties(width=WIDTH, height=HEIGHT))


def positions(beta: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return places, shape (n_topics, 2), with about the distances of topics (Hellinger)."""
    # Hellinger's distance is the Euclidean one of square roots: its classical scaling is their
    # principal components. What rounding errors leave of topics that are equal is nothing.
    roots = np.sqrt(np.asarray(beta, np.float64) / 2)
    left, sizes, _ = np.linalg.svd(roots - roots.mean(0), full_matrices=False)
    places = (left * sizes)[:, :2].round(9)
    largest = np.abs(places).argmax(0)
    places = places * np.where(places[largest, range(places.shape[1])] < 0, -1, 1)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))


def topics_over_time(rows: Sequence[Row], topics: Sequence[Row]) -> altair.Chart:
    """Draw a panel a topic, its share by period: for rows of `TopicModel.topics_over_time`.

    `topics` are rows of `TopicModel.get_topic_info`, in whose order the panels are.
    """
    alt = _altair()
    dates = hasattr(rows[0]["period"], "isoformat")
    points = [
        {"topic": row["topic"], "share": row["share"], "documents": row["documents"]}
        | {"period": row["period"].isoformat() if dates else row["period"]}
        for row in rows
    ]
    period, highest = f"period:{'T' if dates else 'Q'}", max(row["share"] for row in rows)
    panels = [
        _chart([point for point in points if point["topic"] == row["topic"]])
        .mark_line(color=ACCENT, point={"color": ACCENT})
        .encode(
            x=alt.X(period, title=None, axis=alt.Axis(tickCount=3, grid=False)),
            y=alt.Y(
                "share:Q",
                title=None,
                scale=alt.Scale(domain=[0, highest]),
                axis=alt.Axis(format="%", tickCount=3),
            ),
            tooltip=[period, alt.Tooltip("share:Q", format=".1%"), "documents:Q"],
        )
        .properties(
            width=PANEL,
            height=PANEL // 2,
            title=_head(_shown(row)["name"]),
        )
        for row in topics
    ]
    return _finished(alt.concat(*panels, columns=3))


def scores_by_topics(rows: Sequence[Row], scores: Mapping[str, str]) -> altair.Chart:
    """Draw how scores change with the number of topics: a panel for each, by its title."""
    alt = _altair()
    usable = {
        n: title for n, title in scores.items() if all(row.get(n) is not None for row in rows)
    }
    panels = []
    for name, title in usable.items():
        ends = [
            {"topics": row["topics"], "mean": row[name], "title": title,
             "low": row[name] - row[f"{name}_deviation"],
             "high": row[name] + row[f"{name}_deviation"]}
            for row in rows
        ]  # fmt: skip
        base = _chart(ends).encode(
            x=alt.X("topics:Q", title="topics", axis=alt.Axis(values=[r["topics"] for r in rows]))
        )
        scale = alt.Scale(zero=False)
        band = base.mark_area(color=ACCENT, opacity=0.2).encode(
            y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"
        )
        line = base.mark_line(color=ACCENT, point={"color": ACCENT}).encode(
            y=alt.Y("mean:Q", scale=scale)
        )
        panels.append((band + line).properties(width=CURVE - 120, height=150))
    return _finished(alt.concat(*panels, columns=2))


def probability_of_same(
    line: Sequence[Row], labels: Sequence[Row], threshold: float
) -> altair.Chart:
    """Draw "probability" by "cosine" of a line and labels; the threshold has one half."""
    alt = _altair()
    x = alt.X("cosine:Q", title="cosine of two topics", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("probability:Q", title="probability of the same topic")
    curve = _chart(line).mark_line(color=ACCENT).encode(x=x, y=y)
    points = _chart(labels).mark_circle(color=SECOND, size=60, opacity=0.5).encode(x=x, y=y)
    title = f"from a cosine of {threshold:.3f}"
    place = _chart([{"cosine": threshold, "probability": 0.5, "title": title}])
    rule = place.mark_rule(strokeDash=[6, 4], color="currentColor").encode(x=x)
    name = place.mark_text(align="left", dx=6, color="currentColor").encode(
        x=x, y=y, text="title:N"
    )
    return _finished((rule + curve + points + name).properties(width=WIDTH, height=300))


def svg(chart: altair.Chart) -> str:
    """Return a figure as SVG, to stand in a page; FedTopicsError if it cannot be drawn."""
    drawn = svgs([lambda: chart])[0]
    if drawn is None:
        raise FedTopicsError("The figure could not be drawn; all else is as it was without it.")
    return drawn


def svgs(charts: Sequence[Callable[[], altair.Chart]]) -> list[str | None]:
    """Make figures, and return them as SVG with links within the page; None where that fails.

    They are drawn in another process, since what draws them is native code, which can end its
    process: of the figures that are left then, a new one draws those behind the one that did it.
    """
    version = "_".join(_altair().SCHEMA_VERSION.split(".")[:2])  # of Vega-Lite
    left = []
    for make in charts:
        try:
            left.append(as_json(make().to_dict()))
        except Exception:  # of somebody else's library: almost any kind; drawing this fails as well
            left.append("")
    drawn: list[str | None] = []
    while left:
        done = _draw([version, *left])
        drawn += done if len(done) == len(left) else [*done, None]
        left = left[len(done) + 1 :]
    return [None if svg is None else svg.replace(_LINK_BASE, "#") for svg in drawn]


def _draw(lines: Sequence[str]) -> list[str | None]:
    """Return what a process has drawn before it ended, was ended, or had no more to draw."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("drawing.py"))]
    try:
        ended = subprocess.run(  # noqa: S603 - ours
            command, input="\n".join(lines), capture_output=True, encoding="utf-8",
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        written = ended.stdout
    except subprocess.TimeoutExpired as late:
        written = (late.stdout or b"").decode()
    except OSError:  # no process can be started
        written = ""
    return [json.loads(line) for line in written.split("\n")[:-1]]


def _heat_map(
    cells: Sequence[Row],
    columns: tuple[str, Sequence[str]],
    rows: tuple[str, Sequence[str]],
    value: str,
    title: str,
) -> altair.Chart:
    """Draw cells whose columns and rows are fields with these values, in this order."""
    alt = _altair()
    (x, across), (y, down) = columns, rows
    scales = [alt.Scale(domain=[*map(for_scripts, names)]) for names in (across, down)]
    above = alt.Axis(labelAngle=-45, orient="top")
    said = [{**cell, "said": f"{cell[y]}, {cell[x]}: {cell[value]:.0%}"} for cell in cells]
    encoded = _chart(said).encode(
        x=alt.X(f"{x}:N", title=None, sort=None, scale=scales[0], axis=above),
        y=alt.Y(f"{y}:N", title=None, sort=None, scale=scales[1], axis=alt.Axis(labelLimit=320)),
        tooltip=[*_tooltip(x, y), alt.Tooltip(f"{value}:Q", title=title, format=".0%")],
    )
    # One colour, more or less of it: legible on any page.
    shading = alt.Scale(domainMin=0, range=[0, 0.7])
    strength = alt.Opacity(f"{value}:Q", legend=None, scale=shading)
    shades = encoded.mark_rect(color=ACCENT).encode(opacity=strength, description="said:N")
    numbers = encoded.mark_text(color="currentColor", fontSize=10, aria=False).encode(
        text=alt.Text(f"{value}:Q", format=".0%")
    )
    width = max(len(across) * CELL * 1.5, 60)
    return _finished((shades + numbers).properties(width=width, height=alt.Step(CELL)))


def _shown(row: Row) -> dict[str, Any]:
    name = row.get("label") or " ".join(row["words"][:3])
    number, words = row["topic"], " ".join(row["words"])
    return {"topic": number, "name": f"{number} {name}", "words": words, "share": row["share"]}


def _head(text: str) -> Any:
    """Return the title of a panel."""
    how = {"color": "currentColor", "fontSize": 11, "fontWeight": "normal", "limit": PANEL}
    return _altair().Title(for_scripts(text), anchor="start", **how)


def _tooltip(*fields: str) -> list[Any]:
    alt = _altair()
    return [
        alt.Tooltip(f"{name}:Q", format=".1%") if name == "share" else alt.Tooltip(f"{name}:N")
        for name in fields
    ]


def _chart(rows: Sequence[Row]) -> Any:
    alt = _altair()
    return alt.Chart(alt.Data(values=[_harmless(row) for row in rows]))


def _harmless(row: Row) -> dict[str, Any]:
    """Return what JSON has, and a page's script can hold."""
    finite = {k: None if isinstance(x, float) and not isfinite(x) else x for k, x in row.items()}
    return {key: for_scripts(x) if isinstance(x, str) else x for key, x in finite.items()}


def _finished(chart: Any) -> altair.Chart:
    text = {"labelColor": "currentColor", "titleColor": "currentColor", "titleFontWeight": "normal"}
    faint = {"gridColor": "currentColor", "gridOpacity": 0.15, "domainColor": "currentColor"}
    finished: altair.Chart = (
        chart.configure(background="transparent", font="sans-serif", padding=PADDING)
        .configure_axis(**text, **faint, tickColor="currentColor", titlePadding=TITLE_PADDING)
        .configure_view(stroke=None)
    )
    return finished


def _altair() -> Any:
    require_altair()
    import altair

    return altair
