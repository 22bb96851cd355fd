"""Commands for trained models: topics, transform, evaluate, compare, merge."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich.table import Table
from rich.text import Text

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError, ModelError, refuse
from fedtopics.files import check_output, write_output
from fedtopics.model.shown_words import CAPTION_WORDS, LINE_WORDS, WORDS_SHOWN
from fedtopics.terminal import display
from fedtopics.terminal.display import print_json, say, write

if TYPE_CHECKING:
    from fedtopics.model.comparison import Comparison
    from fedtopics.model.over_time import Grouped
    from fedtopics.model.topic_model import TopicModel
    from fedtopics.text.times import Unit

Row = Mapping[str, Any]
TOPICS_SHOWN = 5  # topics per group
PERIODS = ("year", "quarter", "month", "week", "day")  # copied, as `over_time` loads slowly
PHRASES = (
    "Suggested labels may contain phrases of these documents: read them before you share the model."
)
FORMATS: dict[str, tuple[str, Sequence[str]]] = {  # by suffix: name, first columns of a file
    ".md": ("md", ()),
    ".csv": ("csv", ("topic", "label", "share")),
    ".json": ("json", ("topic", "label", "suggested")),
    ".txt": ("table", ("topic", "its share of all documents")),
}


@click.command()
@click.argument("model", type=FOLDER)
@options.words
@options.relevance
@click.option(
    "--format",
    "format_",
    type=click.Choice([name for name, _ in FORMATS.values()]),
    help="Output format; by default that of --out's suffix, else a table.",
)
@options.output("--out", "-o", help="File to write instead of printing: .md, .csv, .json or .txt.")
@click.option("--suggest", is_flag=True, help="Suggest labels first, and save them in MODEL.")
@click.option(
    "--examples-from",
    "examples",
    type=FOLDER,
    help="With --suggest: your own documents, whose phrases may become labels.",
)
@options.columns("text", rules=False)
@click.option(
    "--match",
    type=FOLDER,
    metavar="TERMS",
    help="Show the terms of your ontology nearest to each topic. TERMS is a TOML file with "
    'lines such as J45 = ["asthma", "wheezing"], or a .csv with the columns term and synonym.',
)
@options.with_default(
    "--match-by",
    type=click.Choice(["words", "meaning"]),
    default="words",
    help="With --match: compare words, or embeddings.",
)
@click.option("--history", is_flag=True, help="F-LDA: show the topics of each round.")
@click.option(
    "--by",
    help="Show shares of topics by a column of the study, such as funded, or by two, such as "
    "funded:year; or the effects of a formula, such as 'funded + client'.",
)
@options.as_json
def topics(
    model: Path,
    words: int,
    relevance: float | None,
    format_: str | None,
    out: Path | None,
    suggest: bool,
    examples: Path | None,
    columns: dict[str, Any],
    match: Path | None,
    match_by: Literal["words", "meaning"],
    history: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Print a model's topics, with each client's share of them.

    You may edit labels in MODEL/topics.json. Suggested ones are marked until you confirm them.
    """
    if match is not None:
        return _print_matches(model, match, match_by, as_json)
    if history:
        from fedtopics.cli.flda import print_history

        return print_history(model, as_json)
    if by is not None:
        return _print_by(model, by, as_json)
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.exports import as_csv, as_markdown
    from fedtopics.model.folder import model_folder, write_labels

    refuse(
        {
            "--examples-from needs --suggest.": examples is not None and not suggest,
            f"--json and --format {format_} exclude each other.": (
                as_json and format_ not in (None, "json")
            ),
        },
        error=click.UsageError,
    )
    chosen = "json" if as_json else format_
    suffixes = [suffix for suffix, (name, _) in FORMATS.items() if chosen in (None, name)]
    names: Sequence[str] = ()
    model = model_folder(model)
    inputs = [examples, model / "topics.json"]
    if out is not None:  # checked first, so that labels are not saved if the file is refused
        chosen, names = FORMATS.get(out.suffix.lower(), ("", ()))
        check_output(out, suffixes, inputs, names)
    loaded = TopicModel.from_pretrained(model)
    if suggest:
        loaded = loaded.with_suggested_labels(
            examples and Corpus.read(examples, Columns(**columns))
        )
        write_labels(loaded, model)
    chosen = chosen or "table"
    if chosen == "table" and out is None:
        display.print_topics(loaded, words, relevance)
        return say(f"\n{PHRASES}") if examples else None
    if chosen == "table":
        shown = "".join(f"{line}\n" for line, _ in display.topic_lines(loaded, words, relevance))
    else:
        render = {"json": display.json_text, "csv": as_csv, "md": as_markdown}[chosen]
        shown = render(loaded.get_topic_info(words, relevance))
    if out is None:
        write(shown)
    else:
        write_output(out, shown.encode(), suffixes, inputs, names, public=True)
        say(f"{loaded.n_topics} topics are in {out}.")


def _print_matches(model: Path, file: Path, by: Literal["words", "meaning"], as_json: bool) -> None:
    from fedtopics.model.search import read_terms
    from fedtopics.model.topic_model import TopicModel

    rows = TopicModel.from_pretrained(model).match_terms(read_terms(file), by=by)
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            say(f"{row['topic']:>3}  {' '.join(row['words'][:LINE_WORDS])}")
            terms = "  ".join(f"{term} {cosine:.2f}" for term, cosine in row["terms"])
            say(f"     {terms or 'no term has a word in common with it'}", "dim")


@click.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@options.output("--out", "-o", help="Table to write: .parquet, .csv or .jsonl.")
@click.option("--by", help="Column to group topics by, such as department.")
@click.option("--by-time", help="Column of times, to show topics by period.")
@click.option("--period", type=click.Choice(PERIODS), help="Period of --by-time.  [default: month]")
@options.with_default(
    "--min-documents",
    type=click.IntRange(1),
    default=10,
    help="Leave out groups and periods with fewer documents than this.",
)
@options.as_json
@options.columns("text", "tokens", "id", "embedding", "date_format")
@options.embedding_model
def transform(
    model: Path,
    file: Path,
    out: Path | None,
    by: str | None,
    by_time: str | None,
    period: Unit | None,
    min_documents: int,
    as_json: bool,
    columns: dict[str, Any],
    embedding_model: str | None,
) -> None:
    """Find the topics of documents.

    The table has one row per document, in the order of FILE, also for empty documents. FILE is CSV,
    TSV, JSON lines, Parquet, a folder of .txt files, or (with fedtopics[files]) of Excel,
    LibreOffice, SPSS, Stata, or a query in a .sql file. --by and --by-time summarise topics by a
    column. Everything stays on this machine.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.finding import THETA, THETA_FILES
    from fedtopics.model.over_time import grouped_by_class, grouped_by_time
    from fedtopics.text.readers import read_table

    if not (out or by or by_time):
        raise click.UsageError("There is nothing to do; add --out, --by or --by-time.")
    if out is not None:
        check_output(out, THETA_FILES, [file], THETA)
    loaded = TopicModel.from_pretrained(model)
    roles = Columns(**columns)
    content = read_table(file, options=roles.options)
    corpus = Corpus.of(content, roles)
    values = {name: content.column(name).plain() for name in (by, by_time) if name}
    # Embeddings are computed once, for the table and for both summaries.
    with display.embedding_status("Finding topics") as on_progress:
        corpus = loaded.embedded(corpus, embedding_model, on_progress)
    if out is not None:
        unknown = loaded.write_theta(corpus, out)
        say(
            f"{len(corpus):,} documents are in {out}. In {unknown:,} of them the model knows no "
            f"word ({corpus.n_empty:,} are empty): their topic is null, their theta uniform."
        )
        if corpus.is_numbered:
            say("The ids are row numbers; to use a column, add --columns id=NAME.")
    summaries = {}
    if by:
        summaries[by] = grouped_by_class(loaded, corpus, values[by], min_documents=min_documents)
    if by_time:
        summaries[by_time] = grouped_by_time(
            loaded,
            corpus,
            values[by_time],
            by=period,
            min_documents=min_documents,
            date_format=roles.date_format,
        )
    if as_json:
        print_json({name: _plain(grouped) for name, grouped in summaries.items()})
    else:
        for name, grouped in summaries.items():
            _print_groups(loaded, name, grouped, min_documents)


def _print_by(model: Path, by: str, as_json: bool) -> None:
    """Print the study's shares by group, or its effects of a formula, with their intervals."""
    from fedtopics import TopicModel

    loaded = TopicModel.from_pretrained(model)
    table = next((table for table in loaded.groups if table.name == by), None)
    rows = loaded.effects(by).rows() if table is None else [*table.rows()]
    if as_json:
        return print_json(rows)
    if table is None:
        return _print_largest(
            loaded,
            rows,
            group="term",
            value="estimate",
            title=lambda row: f"{row['term']}: change of shares in points, with 95 % intervals",
            numbers=lambda row: _with_interval(row, f"{100 * row['estimate']:+6.3g}"),
        )
    if table.note:
        say(f"{table.note}.")
    return _print_largest(
        loaded,
        rows,
        group="group",
        value="share",
        title=lambda row: (
            f"{row['group']}: {row['documents']:,} documents of {row['persons']:,} persons; shares "
            "with 95 % intervals"
        ),
        numbers=lambda row: _with_interval(row, f"{100 * row['share']:6.3g}"),
    )


def _with_interval(row: Row, number: str) -> str:
    return f"{number} ({100 * row['low']:.3g} to {100 * row['high']:.3g})".ljust(24)


def _print_largest(
    model: TopicModel,
    rows: Iterable[Row],
    group: str,
    value: str,
    title: Callable[[Row], str],
    numbers: Callable[[Row], str],
    style: str = "bold",
) -> None:
    """Print the topics with the largest values in each group of rows."""
    from fedtopics.model.labels import shown_label

    names = {
        row["topic"]: shown_label(row) or " ".join(row["words"][:CAPTION_WORDS])
        for row in model.get_topic_info()
    }
    for _, of_group in groupby(rows, itemgetter(group)):
        listed = sorted(of_group, key=lambda row: -abs(row[value]))[:TOPICS_SHOWN]
        say(f"\n{title(listed[0])}", style)
        for row in listed:
            say(f"  {numbers(row)}  {row['topic']:>3}  {names[row['topic']]}")


def _plain(grouped: Grouped) -> dict[str, Any]:
    return {key: getattr(grouped, key) for key in ("without", "few", "unknown")} | {
        "rows": [
            {key: str(value) if key == "period" else value for key, value in row.items()}
            for row in grouped.rows
        ]
    }


def _print_groups(model: TopicModel, name: str, grouped: Grouped, min_documents: int) -> None:
    say(f"Topics by {name}", "bold")
    key = "period" if any("period" in row for row in grouped.rows) else "class"
    _print_largest(
        model,
        grouped.rows,
        group=key,
        value="share",
        title=lambda row: f"{row[key]}: {row['documents']:,} documents",
        numbers=lambda row: f"{row['share']:>6.1%}",
        style="",
    )
    say(
        f"\nLeft out: {grouped.without:,} documents without a value, {grouped.few:,} in groups of "
        f"fewer than {min_documents:,}, and {grouped.unknown:,} in which the model knows nothing."
    )


@click.command()
@click.argument("model", type=FOLDER)
@click.option(
    "--data",
    type=FOLDER,
    required=True,
    multiple=True,
    help="File or folder of documents; repeat the option for each further one.",
)
@options.columns("text", "tokens", "label", "embedding", "person")
@options.embedding_model
@options.relevance
@options.with_default(
    "--by",
    type=click.Choice(["windows", "documents"]),
    default="windows",
    help="Count words together in windows or, if the order of words is lost, in documents.",
)
@options.as_json
def evaluate_command(
    model: Path,
    data: tuple[Path, ...],
    columns: dict[str, Any],
    embedding_model: str | None,
    relevance: float | None,
    by: Literal["windows", "documents"],
    as_json: bool,
) -> None:
    """Score a model's topics on documents.

    The scores are nearness of documents to the topics that they have (if there are embeddings),
    coherence (of each topic's first ten words), diversity (each score names the
    words), and agreement with labels. Documents without a label, or without a word that the model
    knows, are not scored for agreement; their number is shown. Scores have a 95% interval over
    topics (coherence) or persons (agreement), but diversity is exact.

    The documents are CSV, TSV, JSON lines, Parquet, or a folder of .txt files.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.evaluation import evaluate as score

    loaded = TopicModel.from_pretrained(model)
    corpus = Corpus.pool([Corpus.read(file, Columns(**columns)) for file in data])
    if columns["label"] is None:
        corpus = replace(corpus, labels=None)  # the user did not name a column of labels
    elif corpus.labels is None:
        raise DataError(
            f"Not all of {', '.join(map(str, data))} have labels {columns['label']!r}; give tables "
            "with labels."
        )
    with display.embedding_status(f"Scoring {len(corpus):,} documents") as on_progress:
        scores = score(
            loaded,
            corpus,
            by=by,
            relevance=relevance,
            embedding_model=embedding_model,
            on_progress=on_progress,
        )
    if as_json:
        print_json(scores)
    else:
        _print_scores(model, scores)


def _print_scores(model: Path, scores: dict[str, Any]) -> None:
    from fedtopics.metrics import METRICS
    from fedtopics.model.nearness import NOT_MEASURED
    from fedtopics.model.spread import difference_text, with_margin

    say(
        f"{model}: {scores['topics']} topics on {scores['documents']:,} documents; words ranked "
        f"with relevance {scores['relevance']:g}, and counted together in {scores['by'][:-1]}s"
    )
    if nearness := scores["nearness"]:
        say(f"Nearness, the mean over topics: {nearness['mean']:.3f} ({scores['nearness_basis']})")
    else:
        say(NOT_MEASURED)
    table = Table(show_header=False, box=None, pad_edge=False)
    metrics = [METRICS.find(name) for name in METRICS.names if name in scores]
    for title in dict.fromkeys(metric.group for metric in metrics):
        table.add_row(Text(title, "bold"))
        for metric in [metric for metric in metrics if metric.group == title]:
            table.add_row(
                f"  {metric.title}",
                with_margin(scores[metric.name], scores[f"{metric.name}_margin"]),
            )
            # Below it is the score on the documents of the training, to compare.
            if (in_training := scores.get(f"{metric.name}_in_training")) is not None:
                table.add_row(
                    f"    compared with {in_training:.3f} in training",
                    difference_text(
                        scores[f"{metric.name}_change"],
                        scores[f"{metric.name}_change_margin"],
                    ),
                )
    display.console.print(table)
    say(
        f"±: half of the 95% interval, over topics (coherence) or {scores['unit']} (agreement). "
        "Diversity is exact."
    )
    if scores["absent"]:
        say(
            f"Of {scores['absent']} topics, most words occur in none of these documents, so they "
            "have the lowest coherence."
        )
    if "labelled" in scores:
        say(
            f"Labels: {scores['labelled']:,} documents were scored, leaving out "
            f"{scores['without_label']:,} that have no label and {scores['unseen']:,} in which the "
            "model knows no word."
        )


@click.command()
@click.argument("model_a", type=FOLDER)
@click.argument("model_b", type=FOLDER)
@options.words
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="Least cosine of topics that count as the same.  [default: 0.6, best on labelled corpora]",
)
@options.as_json
def compare_command(
    model_a: Path, model_b: Path, words: int, threshold: float | None, as_json: bool
) -> None:
    """Match the topics of two models one to one; the others are new in B or missing from B."""
    from fedtopics.model.comparison import SAME_TOPIC
    from fedtopics.model.comparison import compare as compared
    from fedtopics.model.topic_model import TopicModel

    a, b = (TopicModel.from_pretrained(folder) for folder in (model_a, model_b))
    comparison = compared(a, b, words, threshold or SAME_TOPIC)
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
    help="Merge the nearest topics until this many are left.  [default: merge similar topics]",
)
@click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="Least cosine at which two topics count as the same.  [default: computed from the models]",
)
def merge(
    models: tuple[str, ...], out: Path, n_topics: int | None, threshold: float | None
) -> None:
    """Merge models that were trained separately.

    Similar topics become one. Each MODEL is a folder, or NAME=FOLDER to name the client of a model
    with one client. No documents are read. The merged model finds topics only by words.
    docs/how-to/choose-a-model.md compares its scores with those of a federation.
    """
    from fedtopics.methods.flda.merged_models import merge_models, read_models

    if n_topics is not None and threshold is not None:
        raise click.UsageError("--topics and --threshold exclude each other.")
    if (out / "config.json").exists():
        raise ModelError(f"There is a model in {out} already; name another folder.")
    parts = read_models(models)
    with warnings.catch_warnings(record=True) as caught:  # about lost labels
        warnings.simplefilter("always")
        merged = merge_models(parts, n_topics, threshold)
    merged.save_pretrained(out)
    display.print_topics(merged, WORDS_SHOWN)
    for warning in caught:
        say(f"\n{warning.message}")
    say(
        f"\n{merged.n_topics} topics (merged from {sum(part.n_topics for part in parts)} of "
        f"{len(parts)} models) are in {out}."
    )


def _print_comparison(comparison: Comparison) -> None:
    from fedtopics.model.spread import difference_text, with_margin

    say(
        f"{len(comparison.pairs)} topics are the same "
        f"(cosine of at least {comparison.threshold:.2f}"
        + (f", on average {comparison.similarity:.2f}" if comparison.pairs else "")
        + f"). {len(comparison.new)} are new in B, {len(comparison.removed)} of A are missing.\n"
        f"Words: {comparison.words_common:,} in both, {comparison.words_new:,} new, "
        f"{comparison.words_removed:,} missing.\n"
    )
    if comparison.coherence is not None:  # both trainings measured it, each on its own documents
        change = difference_text(comparison.coherence, comparison.coherence_margin)
        say(f"NPMI of these topics in B's training, compared with A's: {change}.\n")
    if comparison.pairs:
        say(
            "Changes of shares are in percentage points. Those within ± (half of the 95% interval, "
            "at most, if documents are independent) are no changes beyond chance.\n"
        )
        say("  A    B  cosine   share of A   of B        change  top words; + new, - gone", "bold")
    for pair in comparison.pairs:
        changed = [f"+{word}" for word in pair.new] + [f"-{word}" for word in pair.removed]
        change = with_margin(100 * (pair.share_b - pair.share_a), 100 * pair.share_margin, "+.1f")
        say(
            f"{pair.a:>3}  {pair.b:>3}  {pair.similarity:>6.2f}   {pair.share_a:>10.1%} "
            f"{pair.share_b:>6.1%}  {change:>12}  {' '.join([*pair.common, *changed])}"
        )
    for title, topics in (("new in B", comparison.new), ("missing from B", comparison.removed)):
        if topics:
            say(f"\n{title}", "bold")
        for topic in topics:
            say(f"{topic.topic:>3} {topic.share:>6.1%}  {' '.join(topic.words)}")
