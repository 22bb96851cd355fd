"""Commands that find the topics of one's own documents, or score a model on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.table import Table
from rich.text import Text

from fedtopics.cli import options
from fedtopics.cli.display import console, embedding_status, print_json, say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError

if TYPE_CHECKING:
    from fedtopics.model.over_time import Grouped, Unit
    from fedtopics.model.topic_model import TopicModel

LARGEST = 5  # topics of a group that are printed
PERIODS = ("year", "quarter", "month", "week", "day")  # of `over_time`, which takes a second


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@click.option("--out", "-o", type=FOLDER, help="Parquet file to write.")
@click.option("--by", help="Column by whose values topics are shown, such as department.")
@click.option("--by-time", help="Column of times, by which topics are shown by period.")
@options.with_default("--period", type=click.Choice(PERIODS), default="month", help="Of --by-time.")
@options.with_default(
    "--min-documents",
    type=click.IntRange(1),
    default=10,
    help="Leave out values and periods of fewer documents.",
)
@options.as_json
@options.columns("text", "tokens", "embedding")
@options.embedding_model
def transform(
    model: Path,
    file: Path,
    out: Path | None,
    by: str | None,
    by_time: str | None,
    period: Unit,
    min_documents: int,
    as_json: bool,
    columns: dict[str, Any],
    embedding_model: str | None,
) -> None:
    """Find the topics of documents: a row a document, in their order, empty ones included.

    FILE is CSV, TSV, JSON lines, Parquet, or a folder of .txt files. With --by and --by-time the
    topics of its documents are shown by what a column says; all of it stays on this machine.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.over_time import grouped_by_class, grouped_by_time
    from fedtopics.text.corpus import column_of

    if not (out or by or by_time):
        raise click.UsageError("Name what to write with --out, or what to show with --by.")
    loaded = TopicModel.from_pretrained(model)
    corpus = Corpus.read(file, Columns(**columns))
    values = {name: column_of(file, name) for name in (by, by_time) if name}
    with embedding_status("Finding topics") as on_progress:
        corpus = loaded.embedded(corpus, embedding_model, on_progress)
    if out is not None:
        unknown = loaded.write_theta(corpus, out)
        say(
            f"{len(corpus):,} documents to {out}; {unknown:,} have nothing that the "
            f"model knows ({corpus.n_empty:,} are empty): their topic is null and their theta even."
        )
    least: dict[str, Any] = {"min_documents": min_documents}
    found = {}
    if by:
        found[by] = grouped_by_class(loaded, corpus, values[by], **least)
    if by_time:
        found[by_time] = grouped_by_time(loaded, corpus, values[by_time], by=period, **least)
    if as_json:
        print_json({name: _plain(grouped) for name, grouped in found.items()})
        return
    for name, grouped in found.items():
        _print(loaded, name, grouped, min_documents)


def _plain(grouped: Grouped) -> dict[str, Any]:
    rows = [
        {key: str(value) if key == "period" else value for key, value in row.items()}
        for row in grouped.rows
    ]
    numbers = {"without": grouped.without, "few": grouped.few, "unknown": grouped.unknown}
    return {"rows": rows, **numbers}


def _print(model: TopicModel, name: str, grouped: Grouped, min_documents: int) -> None:
    """Print the largest topics of each group."""
    from fedtopics.model.labels import shown_label

    called = {
        row["topic"]: shown_label(row) or " ".join(row["words"][:3])
        for row in model.get_topic_info()
    }
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in grouped.rows:
        groups.setdefault(str(row.get("period", row.get("class"))), []).append(row)
    say(f"Topics by {name}", "bold")
    for group, rows in groups.items():
        say(f"\n{group}: {rows[0]['documents']:,} documents")
        for row in sorted(rows, key=lambda row: -row["share"])[:LARGEST]:
            say(f"  {row['share']:>6.1%}  {row['topic']:>3}  {called[row['topic']]}")
    say(
        f"\nIn none of these are {grouped.without:,} documents without a value, {grouped.few:,} "
        f"where there are fewer than {min_documents:,}, and {grouped.unknown:,} with nothing that "
        "the model knows."
    )


@click.command()
@click.argument("model", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="The documents.")
@options.columns("text", "tokens", "label", "embedding")
@options.embedding_model
@options.lambda_
@options.with_default(
    "--by",
    type=click.Choice(["windows", "documents"]),
    default="windows",
    help="Where words occur together; documents if the order of words is lost.",
)
@options.as_json
def evaluate(
    model: Path,
    data: Path,
    columns: dict[str, Any],
    embedding_model: str | None,
    lambda_: float | None,
    by: Literal["windows", "documents"],
    as_json: bool,
) -> None:
    """Score a model's topics on documents: coherence, diversity, agreement with labels.

    Coherence is of the ten words shown of each topic. Documents without a label, or of which the
    model sees nothing, are left out of these scores, and counted.

    The documents are CSV, TSV, JSON lines, Parquet, or a folder of .txt files.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.evaluation import evaluate as score

    loaded = TopicModel.from_pretrained(model)
    corpus = Corpus.read(data, Columns(**columns))
    if columns["label"] is None:
        corpus = replace(corpus, labels=None)  # a column that happens to be called so
    elif corpus.labels is None:
        raise DataError(
            f"{data} has no columns, so no labels {columns['label']!r}; give a table with them."
        )
    with embedding_status(f"Scoring {len(corpus):,} documents") as on_progress:
        scores = score(
            loaded,
            corpus,
            by=by,
            lambda_=lambda_,
            embedding_model=embedding_model,
            on_progress=on_progress,
        )
    if as_json:
        print_json(scores)
    else:
        _print_scores(model, scores)


def _print_scores(model: Path, scores: dict[str, Any]) -> None:
    from fedtopics.metrics import METRICS

    say(
        f"{model}: {scores['topics']} topics, read with lambda {scores['lambda']:g}, on "
        f"{scores['documents']:,} documents; words together in the same {scores['by'][:-1]}"
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    metrics = [METRICS.find(name) for name in METRICS.names if name in scores]
    for title in dict.fromkeys(metric.group for metric in metrics):
        table.add_row(Text(title, "bold"))
        for metric in metrics:
            if metric.group == title:
                value = scores[metric.name]
                table.add_row(f"  {metric.title}", "-" if value is None else f"{value:.3f}")
    console.print(table)
    if "labelled" in scores:
        say(
            f"Labels: {scores['labelled']:,} documents count; left out are "
            f"{scores['without_label']:,} without a label and {scores['unseen']:,} of which the "
            "model sees nothing."
        )
