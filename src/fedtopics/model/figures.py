"""Figures of a model's topics, for reports, notebooks and files."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isnan, log10
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray
from scipy.special import betaincinv

from fedtopics.errors import DataError, StudyError
from fedtopics.escaping import for_markdown, visible
from fedtopics.files import write_output
from fedtopics.model import figure_layout as layout
from fedtopics.model.effects import Effects, GroupTable
from fedtopics.model.finding import TopicFinder
from fedtopics.model.formulas import CLIENT
from fedtopics.model.labels import shown_label
from fedtopics.model.local_effects import effects
from fedtopics.model.merging import hierarchy
from fedtopics.model.over_time import Change, changes, grouped_by_time, grown, growth
from fedtopics.model.shown_words import CAPTION_WORDS, WORDS_SHOWN
from fedtopics.model.topics import Topics
from fedtopics.text.corpus import Corpus

STYLES = "colours.css", "figures.css"
OWN_SHARE = 0.9  # least share of a topic's documents to be its only owner
OF_OWNERS = 0.01  # chance that any client is called the only owner of a topic and is not
SPECIFIC = 3  # most specific topics listed for a client
MORE = 1.05  # a client's specific topics have at least so many times their overall share
EXAMPLES = 3  # documents of a word
LONGEST_TEXT = 160  # characters of a document's beginning
INTERCEPT = "Intercept"  # the term of a formula that compares nothing
PANEL = (  # a notebook's colours may differ from those that the browser prefers
    "background:var(--page);color:var(--text);padding:1rem;border-radius:.5rem;"
    "overflow-wrap:anywhere;"
    "font:1rem/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',sans-serif;"
)
Topic = Mapping[str, Any]
Point = tuple[float, float]
# Pixels of a panel of a chart, with its axes
WIDTH = 360
HEIGHT = 210
LEFT = 52
RIGHT = 14
TOP = 28
BOTTOM = 40
COLUMNS = 2


@dataclass(frozen=True, repr=False)
class Figure:
    """A figure (`content` is HTML): a notebook shows it, and `save` writes it as a page."""

    title: str
    content: str

    def __repr__(self) -> str:
        return f"Figure({self.title!r})"

    def _repr_html_(self) -> str:
        """Return the figure with its styles, which apply only within it."""
        environment = figure_templates(visible)
        rules = "".join(resource(environment, name) for name in STYLES).replace(":root", "&")
        return f'<div class="figure"><style>.figure {{{PANEL}{rules}}}</style>{self.content}</div>'

    def save(self, path: str | Path) -> Path:
        """Write the figure as an HTML page that loads nothing from other hosts."""
        page = figure_templates(visible).get_template("figure_page.html.j2").render(figure=self)
        return write_output(path, page.encode(), [".html"])


def plot_topics(model: Topics) -> Figure:
    """Draw the share of each topic in all documents, and which clients these belong to."""
    return _figure(model, "topics by share", "legend.html.j2", "topic_shares.html.j2")


def plot_clients(model: Topics) -> Figure:
    """Draw the share of each topic in each client's documents."""
    return _figure(model, "clients compared", "clients_by_topics.html.j2")


def plot_map(model: Topics) -> Figure:
    """Draw topics as circles as large as their share, near those with similar words."""
    return _figure(model, "map of topics", "legend.html.j2", "topic_map.html.j2")


def plot_over_time(
    model: TopicFinder, documents: object = None, timestamps: object = None, **how: Any
) -> Figure:
    """Draw which topics grew or shrank by period, from `topics_over_time`."""
    change = changes(grouped_by_time(model, documents, timestamps, **how))
    if change is None:
        raise DataError(
            "Fewer than two periods have min_documents documents; choose longer periods."
        )
    return _figure(model, "what grew, what shrank", "topic_change.html.j2", change=change)


def plot_words(model: TopicFinder, documents: object = None, n_words: int = WORDS_SHOWN) -> Figure:
    """Draw each topic's words, with their probability in the topic and in all documents.

    Leaves the client
        Nothing. With `documents`, the figure contains beginnings of texts: keep it with them.

    Parameters
    ----------
    documents : whatever `Corpus.of` takes, optional
        Your own documents. A click on a word then shows those that contain it, and have most of
        the topic.
    n_words : int
        Words of each topic.
    """
    columns = model.columns(model.word_ranking, n_words)
    texts = {} if documents is None else _texts_by_word(model, Corpus.of(documents), columns)
    rows = {
        topic: [
            {
                "word": model.vocabulary.words[column],
                "share": float(model.word_shares[topic, column]),
                "overall": float(model.vocabulary.frequency[column]),
                "texts": texts.get((topic, column), []),
            }
            for column in of_topic
        ]
        for topic, of_topic in enumerate(columns.tolist())
    }
    return _figure(model, "words of topics", "words.html.j2", words=rows, has_texts=bool(texts))


def _texts_by_word(
    model: TopicFinder, corpus: Corpus, columns: NDArray[np.int64]
) -> dict[tuple[int, int], list[str]]:
    """Return beginnings of the documents of a topic that contain a word, largest shares first."""
    counts, theta, _ = model.read(corpus)
    with_word = counts.tocsc()
    texts = [" ".join(text.split())[:LONGEST_TEXT] for batch in corpus.texts() for text in batch]

    def best(topic: int, column: int) -> list[str]:
        rows = with_word.indices[with_word.indptr[column] : with_word.indptr[column + 1]]
        order = np.argsort(-theta[rows, topic], kind="stable")[:EXAMPLES]
        return [texts[row] for row in rows[order]]

    return {
        (topic, column): best(topic, column)
        for topic, of_topic in enumerate(columns.tolist())
        for column in of_topic
    }


def plot_similarity(model: Topics) -> Figure:
    """Draw how similar each two topics are, with similar topics next to each other.

    The similarity is 1 for equal word probabilities, and 0 without a common word (Bhattacharyya's
    coefficient).
    """
    order = [leaf for group in _tree(model)["groups"] for leaf in group["topics"]]
    roots = np.sqrt(model.beta[order])
    similarity = np.minimum(roots @ roots.T, 1)
    return _figure(
        model,
        "similarity of topics",
        "topic_similarity.html.j2",
        ordered=order,
        similarity=similarity.tolist(),
        lowest=min(float(similarity.min()), 0.9),
    )


def plot_hierarchy(model: Topics) -> Figure:
    """Draw the tree of topics, from `hierarchy`."""
    return _figure(model, "tree of topics", "topic_tree.html.j2", tree=_tree(model))


def _tree(model: Topics) -> dict[str, Any]:
    leaf = {"topics": [0], "words": [], "share": None}
    return layout.tree(hierarchy(model), model.n_topics) or {
        "path": "",
        "height": layout.ROW,
        "groups": [leaf],
    }


def plot_effects(model: TopicFinder, formula: str, term: str | None = None) -> Figure:
    """Draw the estimates of a study's formula by topic, with their intervals.

    Parameters
    ----------
    formula : str
        As in the study, such as ``"funded + client"``; or ``"change"``: how the last periods differ
        from those before.
    term : str, optional
        One of the formula's terms; by default all.
    """
    facts = effect_facts(model, effects(model, formula))
    if term not in (None, *facts["terms"]):
        raise StudyError(f"There is no term {term!r}; choose from {', '.join(facts['terms'])}.")
    facts["terms"] = {n: title for n, title in facts["terms"].items() if term in (None, n)}
    return _figure(model, f"effects of {formula}", "effects.html.j2", e=facts)


def plot_groups(model: Topics, column: str) -> Figure:
    """Draw the share of each topic in the groups of a study's column, with intervals.

    Parameters
    ----------
    column : str
        Such as ``"funded"``, or two such as ``"time:funded"``.
    """
    tables = {table.name: table for table in model.groups}
    if column not in tables:
        raise StudyError(
            f"The study has no groups by {column!r}; choose from {', '.join(tables) or 'none'}."
        )
    return _figure(model, f"topics by {column}", "groups.html.j2", g=group_facts(tables[column]))


def effect_facts(model: Topics, estimate: Effects) -> dict[str, Any]:
    """Return what figures show of an estimate."""
    column = estimate.formula.removesuffix(f" + {CLIENT}")
    table = next((table for table in model.groups if table.name == column), None)
    titles = {
        term: f"{column} is {term}, compared with {first_group(table, estimate)}" if table else term
        for term in estimate.terms
        if term != INTERCEPT
    }
    return {
        "formula": estimate.formula,
        "refused": estimate.refused,
        "documents": estimate.documents,
        "persons": estimate.persons,
        "terms": titles,
        "rows": sorted(
            (row for row in estimate.rows() if row["term"] in titles),
            key=lambda row: -row["estimate"],
        ),
    }


def first_group(table: GroupTable, estimate: Effects) -> str:
    """Return the group of a column with which its estimate compares the others."""
    return next((group for group in table.groups if group not in {*estimate.terms}), "")


def group_facts(table: GroupTable) -> dict[str, Any]:
    """Return what figures show of groups of documents."""
    return {"name": table.name, "note": table.note, "rows": [*table.rows()]}


def _figure(
    model: Topics, title: str, *templates: str, change: Change | None = None, **facts: Any
) -> Figure:
    environment = figure_templates(visible)
    summary = figure_facts(model) | {"positions": positions(model.beta), "change": change}
    context = {"s": summary, **drawn(summary), **facts}
    return Figure(
        title, "".join(environment.get_template(name).render(context) for name in templates)
    )


def figure_facts(model: Topics, min_documents: int = 0) -> dict[str, Any]:
    """Return what figures show of a model; shares below `min_documents` documents are None."""
    rows = model.get_topic_info()
    documents = {model.client_name(name): model.documents[name] for name in sorted(model.documents)}
    for row in rows:
        row["clients"] = {
            client: None if share * documents[client] < min_documents else share
            for client, share in row["clients"].items()
        }
    chance = OF_OWNERS / max(len(rows) * len(documents), 1)
    return {
        "kind": "cluster" if model.shows_clusters else "topic",
        "min_documents": min_documents,
        "topics": [
            {**row, "suggested": bool(row["suggested"]), **_held(row, documents, chance)}
            for row in rows
        ],
        "clients": [
            {"name": name, "documents": number, "specific": _specific(name, rows)}
            for name, number in documents.items()
        ],
    }


def drawn(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what templates need to draw figures."""
    topics = summary["topics"]
    places = np.asarray(summary["positions"])
    colour = layout.colours(summary["clients"])
    return {
        "kind": summary["kind"],
        "by_number": {topic["topic"]: topic for topic in topics},
        "colour": colour,
        "strips": {topic["topic"]: layout.strip(topic, colour) for topic in topics},
        "maps": [layout.topic_map(topics, places, size) for size in layout.SIZES],
        "order": [] if summary["change"] is None else grown(summary["change"]),
    }


def _specific(client: str, rows: Sequence[Topic]) -> list[dict[str, Any]]:
    """Return topics whose share at a client most exceeds that over all clients."""
    ratio = {
        row["topic"]: row["clients"][client] / max(row["share"], 1e-12)
        for row in rows
        if row["clients"][client] is not None
    }
    return [
        {"topic": topic, "times": ratio[topic]}
        for topic in sorted(ratio, key=lambda topic: -ratio[topic])[:SPECIFIC]
        if ratio[topic] > MORE
    ]


def positions(distributions: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return places, (n_rows, 2), whose distances approximate the rows' Hellinger distances."""
    # Hellinger's distance is the Euclidean one of square roots, so classical scaling gives their
    # principal components. Rounding removes numerical noise between equal rows.
    roots = np.sqrt(np.asarray(distributions, np.float64) / 2)
    left, sizes, _ = np.linalg.svd(roots - roots.mean(0), full_matrices=False)
    places = (left * sizes)[:, :2].round(9)
    largest = np.abs(places).argmax(0)
    places = places * np.where(places[largest, range(places.shape[1])] < 0, -1, 1)
    return np.pad(places, ((0, 0), (0, 2 - places.shape[1])))


def topic_name(topic: Topic) -> str:
    """Return a topic's label, or its first words."""
    return topic["label"] or ", ".join(topic["words"][:CAPTION_WORDS])


def _held(topic: Topic, documents: Mapping[str, int], chance: float) -> dict[str, Any]:
    """Return clients' parts of a topic's documents, where shown, and the owner of nine in ten.

    A client is the owner if its part is below 0.9 only by this chance. Parts are taken as binomial,
    with the documents of the topic (Clopper and Pearson 1934): most uncertain, if each document has
    a single topic.
    """
    counts = {n: s * documents[n] for n, s in topic["clients"].items() if s is not None}
    total = max(topic["share"] * sum(documents.values()), 1e-12)
    parts = {name: min(count / total, 1.0) for name, count in counts.items()}
    least = {
        name: betaincinv(max(part * total, 1e-12), (1 - part) * total + 1, chance)
        for name, part in parts.items()
    }
    return {"parts": parts, "owner": next((n for n in parts if least[n] >= OWN_SHARE), None)}


def figure_templates(
    show: Callable[[str], str], *templates: BaseLoader, in_report: bool = False
) -> Environment:
    """Return an environment that escapes all text; `in_report`, figures link to the topics."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("fedtopics.model"), *templates]),
        autoescape=show is not for_markdown,  # noqa: S701 - it escapes marks of its own
        finalize=lambda value: show(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["in_report"] = in_report
    environment.filters |= {
        "growth": growth,
        "in_points": in_points,
        "intervals": layout.intervals,
        "isnan": isnan,
        "line": layout.line,
        "name": topic_name,
        "percent": "{:.1%}".format,
        "shown_label": shown_label,
    }
    return environment


def resource(environment: Environment, name: str) -> str:
    """Return a file next to the templates."""
    assert environment.loader is not None  # noqa: S101 - for mypy: it was given above
    return environment.loader.get_source(environment, name)[0]


def in_points(share: float) -> str:
    """Write a share in percentage points, with two digits."""
    return np.format_float_positional(
        round(100 * share, 4), precision=2, fractional=False, trim="-"
    )


@dataclass(frozen=True)
class Panel:
    """A line with its axes."""

    title: str  # of the vertical axis
    across: str
    line: Sequence[Point]
    deviations: Sequence[float] = ()  # of the line's points: a band
    dots: Sequence[Point] = ()
    mark: tuple[float, str] | None = None  # horizontal position and name


def chart(panels: Sequence[Panel]) -> str:
    """Return panels as SVG, two side by side."""
    placed = [
        (WIDTH * (place % COLUMNS), HEIGHT * (place // COLUMNS), _drawn(panel))
        for place, panel in enumerate(panels)
    ]
    environment = figure_templates(visible)
    # Programs that show SVG know no variables of CSS. Colours of the day come first.
    pairs = re.findall(r"--(\w+): (#\w+)", resource(environment, "colours.css").partition("}")[0])
    return environment.get_template("chart.svg.j2").render(
        width=WIDTH * min(COLUMNS, len(panels)),
        height=HEIGHT * ceil(len(panels) / COLUMNS),
        panels=placed,
        colour=dict(pairs),
    )


def _drawn(panel: Panel) -> dict[str, Any]:
    """Return the pixels of a panel's line, band, dots, mark and ticks."""
    spread = panel.deviations or [0.0] * len(panel.line)
    upper = [(x, y + d) for (x, y), d in zip(panel.line, spread, strict=True)]
    lower = [(x, y - d) for (x, y), d in zip(panel.line, spread, strict=True)]
    points = [*upper, *lower, *panel.dots]
    left, low = map(float, np.min(points, axis=0))
    right, high = map(float, np.max(points, axis=0))

    # `or 1.0`: a line with one value only has no range, and is drawn at the axis.
    def x_of(value: float) -> float:
        return round(LEFT + (value - left) / ((right - left) or 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def y_of(value: float) -> float:
        up = (value - low) / ((high - low) or 1.0) * (HEIGHT - TOP - BOTTOM)
        return round(HEIGHT - BOTTOM - up, 1)

    def path(points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{x_of(x)} {y_of(y)}" for x, y in points)

    return {
        "title": panel.title,
        "across": panel.across,
        "box": (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
        "line": path(panel.line),
        "band": f"{path([*upper, *reversed(lower)])}Z" if panel.deviations else "",
        "dots": [(x_of(x), y_of(y)) for x, y in panel.dots],
        "mark": panel.mark and (x_of(panel.mark[0]), panel.mark[1]),
        "x_ticks": [(x_of(value), f"{value:.4g}") for value in ticks(left, right)],
        "y_ticks": [(y_of(value), f"{value:.4g}") for value in ticks(low, high)],
    }


def ticks(low: float, high: float) -> list[float]:
    """Return at most six round numbers between two; one if they are equal."""
    if not high > low:
        return [low]
    power = 10.0 ** floor(log10((high - low) / 5))
    step = next(n * power for n in (1, 2, 5, 10) if (high - low) / (n * power) <= 5.001)
    return [
        round(number * step, 12)
        for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]
