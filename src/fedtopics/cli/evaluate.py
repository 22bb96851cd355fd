"""The command that scores a model on documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
from rich.table import Table
from rich.text import Text

from fedtopics.cli import options
from fedtopics.cli.display import console, embedding_status, print_json, say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError


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
