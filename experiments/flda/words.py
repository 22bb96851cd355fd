"""Topics in words: the paper's figures 3, 4 and 9, and its table 1, of our sets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scipy.optimize import linear_sum_assignment

from experiments import report
from experiments.flda.models import DATA_SETS, MODELS
from experiments.flda.runs import IN_WORDS, PACKAGES, Settings
from experiments.report import Rows, Table, select
from fedtopics.metrics import cosines

MEANING = """\
Ten first words of each topic with their weights, seed 0, documents dealt out at random: what each
client finds alone in the first round, as in the paper's figures 3 and 4; what three rounds merged,
of M the ten largest; and guided LDA of all documents beside regular LDA, whose topics guide it. A
topic of guided LDA stands beside the regular one that it is most like; words that only one of the
two has are in italics."""
Words = Sequence[tuple[str, float]]


def tables(settings: Settings, all_rows: Rows) -> list[Table]:
    """Return all tables."""
    return list(_tables(all_rows))


def _tables(all_rows: Rows) -> Iterator[Table]:
    for data in DATA_SETS:
        of = {
            row["model"]: row["words"] for row in select(all_rows, data=data.name) if "words" in row
        }
        for client, topics in of.get("alone", {}).items():
            yield _listed(f"{data.name}, regular LDA of {client}, alone", topics)
        for name in IN_WORDS:
            if name in of and MODELS[name].where == "federated":
                (topics,) = of[name].values()
                yield _listed(f"{data.name}, merged: {MODELS[name].title}", topics)
        if {"pooled", "pooled-guided"} <= of.keys():
            (regular,), (guided,) = of["pooled"].values(), of["pooled-guided"].values()
            yield _beside(f"{data.name}, regular and guided LDA, pooled", regular, guided)


def _listed(title: str, topics: Sequence[Words]) -> Table:
    lines = [(str(number), _text(topic)) for number, topic in enumerate(topics, 1)]
    return Table(title, ("topic", "words"), tuple(lines))


def _beside(title: str, regular: Sequence[Words], guided: Sequence[Words]) -> Table:
    alike = cosines([dict(topic) for topic in regular], [dict(topic) for topic in guided])
    lines = []
    for one, other in zip(*linear_sum_assignment(-alike), strict=True):
        first = regular[one]
        second = guided[other]
        cells = _text(first, {word for word, _ in second}), _text(second, {w for w, _ in first})
        lines.append((str(one + 1), *cells, f"{alike[one, other]:.2f}"))
    return Table(title, ("topic", "regular LDA", "guided LDA", "cosine"), tuple(lines))


def _text(topic: Words, common: set[str] | None = None) -> str:
    """Return words with their weights; those that are not `common` in italics."""
    marked = [
        (word if common is None or word in common else f"*{word}*", weight)
        for word, weight in topic
    ]
    return ", ".join(f"{word} {weight:.3f}".replace(" 0.", " .") for word, weight in marked)


def plain(settings: Settings, all_rows: Rows) -> dict[str, Any]:
    """Return the topics for JSON."""
    keys = "data", "model", "seed", "words"
    rows = [{key: row[key] for key in keys} for row in all_rows if "words" in row]
    return report.plain(settings.command, PACKAGES, [], rows)


def page(settings: Settings, all_rows: Rows, content: Mapping[str, Any]) -> str:
    """Return the tables in Markdown."""
    return report.page("F-LDA: topics in words", MEANING, content, tables(settings, all_rows))
