"""Commands on a trained model: use it, score it, train it further, compare and merge it."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.table import Table
from rich.text import Text

from fedtopics.cli import options
from fedtopics.cli.display import (
    RoundProgress,
    console,
    embedding_status,
    print_json,
    print_topics,
    say,
)
from fedtopics.cli.options import FOLDER
from fedtopics.cli.records import show_run
from fedtopics.errors import DataError, ModelError
from fedtopics.files import check_output
from fedtopics.harmless import file_name

if TYPE_CHECKING:
    from fedtopics.methods.core.plan import Words
    from fedtopics.model.comparison import Comparison
    from fedtopics.model.over_time import Grouped
    from fedtopics.model.topic_model import TopicModel
    from fedtopics.text.times import Unit

SHOWN = 8  # words of a topic
LARGEST = 5  # topics of a group that are printed
PERIODS = ("year", "quarter", "month", "week", "day")  # of `over_time`, which takes a second


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@options.output("--out", "-o", help="Table to write: .parquet, .csv or .jsonl.")
@click.option("--by", help="Column by whose values topics are shown, such as department.")
@click.option("--by-time", help="Column of times, by which topics are shown by period.")
@click.option("--period", type=click.Choice(PERIODS), help="Of --by-time.  [default: month]")
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
    model: Path, file: Path, out: Path | None, by: str | None, by_time: str | None,
    period: Unit | None, min_documents: int, as_json: bool, columns: dict[str, Any],
    embedding_model: str | None,
) -> None:  # fmt: skip
    """Find the topics of documents: a row a document, in their order, empty ones included.

    FILE is CSV, TSV, JSON lines, Parquet, or a folder of .txt files. With --by and --by-time the
    topics of its documents are shown by what a column says; all of it stays on this machine.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.finding import THETA, THETA_FILES
    from fedtopics.model.over_time import grouped_by_class, grouped_by_time
    from fedtopics.text.readers import read_table

    if not (out or by or by_time):
        raise click.UsageError("Name what to write with --out, or what to show with --by.")
    if out is not None:
        check_output(out, THETA_FILES, [file], THETA)
    loaded = TopicModel.from_pretrained(model)
    content = read_table(file)
    corpus = Corpus.of(content, Columns(**columns))
    values = {name: content.column(name).plain() for name in (by, by_time) if name}
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
        _print_groups(loaded, name, grouped, min_documents)


def _plain(grouped: Grouped) -> dict[str, Any]:
    rows = [
        {key: str(value) if key == "period" else value for key, value in row.items()}
        for row in grouped.rows
    ]
    numbers = {"without": grouped.without, "few": grouped.few, "unknown": grouped.unknown}
    return {"rows": rows, **numbers}


def _print_groups(model: TopicModel, name: str, grouped: Grouped, min_documents: int) -> None:
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
    model: Path, data: Path, columns: dict[str, Any], embedding_model: str | None,
    lambda_: float | None, by: Literal["windows", "documents"], as_json: bool,
) -> None:  # fmt: skip
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


@click.command("continue")
@click.argument("model", type=FOLDER)
@click.option("--study", type=FOLDER, required=True, help="The study file.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds more.  [default: as the study says]")
@options.vocabulary
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/NAME-continued]")
@options.resume
def continue_(
    model: Path, study: Path, rounds: int | None, vocabulary: Words | None, out: Path | None,
    resume: bool,
) -> None:  # fmt: skip
    """Train MODEL further: more rounds, new documents, with its words or such as are agreed anew.

    The study names the documents, as for `run`; MODEL stays as it is. With its own words the model
    goes on as it is and its rounds count on; with new ones its topics are carried over word by
    word. It keeps its words if the study has its method and rules of text.
    """
    from fedtopics import Study, TopicModel, train
    from fedtopics.methods.core.plan import usual_words

    plan = Study.read(study)
    plan = plan if rounds is None else plan.with_rounds(rounds)
    start = TopicModel.from_pretrained(model)
    folder = out or Path("runs") / f"{file_name(plan.name)}-continued"
    words = vocabulary or usual_words(start, plan.method, plan.text)
    with RoundProgress() as display:
        trained = train(
            plan, out=folder, resume=resume, on_event=display, start=start, vocabulary=words
        )
    show_run(trained, folder)
    say(f"What changed:  fedtopics compare {model} {folder}/model")


@click.command()
@click.argument("model_a", type=FOLDER)
@click.argument("model_b", type=FOLDER)
@options.words
@options.threshold
@options.as_json
def compare(
    model_a: Path, model_b: Path, words: int, threshold: float | None, as_json: bool
) -> None:
    """Match the topics of two models one to one; say which are new in B, which of A are gone.

    By default two topics are the same from the cosine that one in a hundred pairs of different
    topics of one model reaches.
    """
    from fedtopics.model.comparison import compare as compared
    from fedtopics.model.topic_model import TopicModel

    a, b = (TopicModel.from_pretrained(folder) for folder in (model_a, model_b))
    comparison = compared(a, b, words, threshold)
    if as_json:
        print_json(asdict(comparison))
    else:
        _print_comparison(comparison)


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option("--out", "-o", type=FOLDER, required=True, help="Folder of the merged model.")
@click.option(
    "--topics",
    "n_topics",
    type=click.IntRange(1),
    help="Put the nearest together until so many are left.  [default: as many as differ]",
)
@options.threshold
def merge(
    models: tuple[str, ...], out: Path, n_topics: int | None, threshold: float | None
) -> None:
    """Merge models that were trained apart, without a study: topics that are alike become one.

    Each MODEL is a folder, or NAME=FOLDER to name the client of a model that has one. No document
    is needed, and none is read. The result finds topics by words. docs/models.md has scores of it
    beside those of a federation.
    """
    from fedtopics.methods.flda.merged_models import merge_models, read_models

    if n_topics is not None and threshold is not None:
        raise click.UsageError("--topics and --threshold exclude each other.")
    if (out / "config.json").exists():
        raise ModelError(f"There is a model in {out} already; name another folder.")
    parts = read_models(models)
    with warnings.catch_warnings(record=True) as caught:  # of labels that are lost
        warnings.simplefilter("always")
        merged = merge_models(parts, n_topics, threshold)
    merged.save_pretrained(out)
    print_topics(merged, 10)
    for warning in caught:
        say(f"\n{warning.message}")
    before = sum(part.n_topics for part in parts)
    say(f"\n{merged.n_topics} of {before} topics of {len(parts)} models are in {out}.")


def _print_comparison(comparison: Comparison) -> None:
    say(
        f"{len(comparison.pairs)} topics are the same, "
        f"from a cosine of {comparison.threshold:.2f} on"
        + (f"; on average {comparison.similarity:.2f}" if comparison.pairs else "")
        + f". {len(comparison.new)} are new in B, {len(comparison.removed)} of A are gone.\n"
        f"Words: {comparison.words_common:,} of both, {comparison.words_new:,} new, "
        f"{comparison.words_removed:,} gone.\n"
    )
    if comparison.pairs:
        say("  A    B  cosine   share of A   of B  words; + new among the first, - gone", "bold")
    for pair in comparison.pairs:
        changed = [f"+{word}" for word in pair.new] + [f"-{word}" for word in pair.removed]
        say(
            f"{pair.a:>3}  {pair.b:>3}  {pair.similarity:>6.2f}   {pair.share_a:>10.1%} "
            f"{pair.share_b:>6.1%}  {' '.join([*pair.common, *changed])}"
        )
    for title, topics in (("new in B", comparison.new), ("gone from A", comparison.removed)):
        if topics:
            say(f"\n{title}", "bold")
        for topic in topics:
            say(f"{topic.topic:>3} {topic.share:>6.1%}  {' '.join(topic.words)}")


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@click.option(
    "--by",
    type=click.Choice(["words", "meaning"]),
    default="words",
    show_default=True,
    help="Words in common, or embeddings.",
)
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="Terms a topic.")
@options.as_json
def terms(
    model: Path, file: Path, by: Literal["words", "meaning"], top: int, as_json: bool
) -> None:
    """Match MODEL's topics with the terms of FILE, an ontology of one's own; nothing leaves.

    FILE is TOML, a line a term with its synonyms, as J45 = ["asthma", "wheezing"], or a .csv with
    the columns term and synonym.
    """
    from fedtopics.model.search import read_terms
    from fedtopics.model.topic_model import TopicModel

    rows = TopicModel.from_pretrained(model).match_terms(read_terms(file), top, by=by)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        say(f"{row['topic']:>3}  {' '.join(row['words'][:SHOWN])}")
        near = "  ".join(f"{name} {near:.2f}" for name, near in row["terms"])
        say(f"     {near or 'no term has a word in common with it'}", "dim")
