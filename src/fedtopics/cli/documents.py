"""Commands that find the topics of one's own documents, on one's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import embedding_status, print_json, say
from fedtopics.cli.options import FOLDER

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
