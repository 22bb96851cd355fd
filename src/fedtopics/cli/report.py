"""The report of a run or a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_topics, program_name, say, status
from fedtopics.cli.options import FOLDER
from fedtopics.errors import DataError, FedTopicsError

if TYPE_CHECKING:
    from fedtopics.model.topic_model import TopicModel


@click.command()
@click.argument("run", type=FOLDER)
@click.option("--out", "-o", type=FOLDER, help="HTML file to write.  [default: RUN/report.html]")
@options.with_default(
    "--min-documents",
    type=click.IntRange(1),
    default=10,
    help="Leave out a client's share of a topic if it stands for fewer documents.",
)
@click.option(
    "--with-documents",
    type=FOLDER,
    help="File of one's own documents, for examples and a map; not to be shared.",
)
@click.option("--with-text", is_flag=True, help="On their map they say how they begin.")
@click.option("--text", help="Column of the text, of that file.")
@click.option(
    "--time",
    help="Column of times, of that file or, in a simulation, of the clients' own: what grew.",
)
@click.option(
    "--labels",
    type=FOLDER,
    help="File of names of topics, as the report's page saves it: the model's become these.",
)
def report(
    run: Path,
    out: Path | None,
    min_documents: int,
    with_documents: Path | None,
    with_text: bool,
    text: str | None,
    time: str | None,
    labels: Path | None,
) -> None:
    """Write what people look at: topics, clients, training and what left, in one HTML file.

    RUN is the folder of a run, of a client's part in one, or of a model. The file asks no host for
    anything and has no document's text, unless --with-documents puts some of one's own there.
    """
    from fedtopics import Columns, Corpus

    name = "report.html" if with_documents is None else "report-with-documents.html"
    columns = Columns(text=text)
    documents = with_documents and Corpus.read(with_documents, columns)
    if with_text and documents is None:
        raise click.UsageError("--with-text goes with --with-documents FILE.")
    if labels is not None:
        keep_labels(run, labels)
    own: dict[str, Any] = {"documents": documents, "with_text": with_text}
    dated = {"own": with_documents, "columns": columns, "time": time}
    page = write(run, out or run / name, dated, min_documents=min_documents, **own)
    say(f"The report is {page}; beside it, as Markdown, {page.with_suffix('.md')}.")
    if with_documents is not None:
        say("It has beginnings of documents: do not share it.")


def show_run(model: TopicModel, folder: Path, quiet: bool = False) -> None:
    """Show what a run that is done has led to; write its report."""
    if not quiet:
        print_topics(model, 8)
        say(f"\nThe run is in {folder}, the model in {folder}/model.")
    write_beside(folder, quiet)


def write_beside(run: Path, quiet: bool = False) -> None:
    """Write the report of a run that is done, into its folder, and say where it is.

    The run is not worth less if it cannot be written.
    """
    try:
        news = f"The report:             {write(run)}"
    except Exception as error:
        expected = isinstance(error, (FedTopicsError, OSError))
        reason = str(error) if expected else f"a defect of fedtopics, {type(error).__name__}."
        news = f"There is no report: {reason} Try again with: {program_name()} report {run}"
    if not quiet:
        say(news)


def keep_labels(run: Path, labels: Path) -> None:
    """Give the model of a run the names of topics that a file has."""
    from fedtopics.model.folder import model_folder, read_labels, write_labels
    from fedtopics.model.topic_model import TopicModel

    if not labels.is_file():
        raise DataError(f"There is no file {labels} of names; the report's page saves one.")
    folder = model_folder(run)
    model = TopicModel.from_pretrained(folder)
    names, suggested = read_labels(labels, model.n_topics)
    write_labels(replace(model, labels=names, suggested=suggested), folder)


def write(
    run: Path, page: Path | None = None, dated: dict[str, Any] | None = None, **how: Any
) -> Path:
    """Write the report of a run's folder; return its file.

    `dated` is what `over_time` takes, `how` what `summarise` does.
    """
    from fedtopics.model.topic_model import TopicModel
    from fedtopics.report import find_run, over_time, summarise, write_report

    with status("Writing the report"):
        folder, facts = find_run(run)
        model = TopicModel.from_pretrained(folder)
        rows = over_time(model, facts, **dated or {})
        summary = summarise(model, facts, over_time=rows, **how)
        return write_report(summary, page or run / "report.html")
