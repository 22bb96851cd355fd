"""The command line. One message an error, no traceback; exit codes in `errors.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedtopics import __version__
from fedtopics.errors import FedTopicsError, RunError

# Commands import what needs torch when they run: --help answers at once.
if TYPE_CHECKING:
    from fedtopics.topics import TopicModel

app = typer.Typer(
    name="fedtopics",
    help="Find the topics in text that may not be pooled.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
console = Console()

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Words = Annotated[int, typer.Option("--words", min=1, help="Words a topic.")]


@app.command()
def demo(
    clients: Annotated[int, typer.Option(min=2, max=7, help="Number of clients.")] = 5,
    topics: Annotated[int, typer.Option(min=2, help="Number of topics.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 1000,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/demo"),
) -> None:
    """Train one topic model on five organisations' documents without pooling them.

    The documents are the documentation of installed Python packages, one package a client.
    """
    from fedtopics.datasets import package_documentation
    from fedtopics.simulation import train
    from fedtopics.study import Study

    folder = _unused(out)
    with console.status("Reading the documentation of installed packages"):
        corpora = package_documentation(clients)
    for name, corpus in corpora.items():
        console.print(f"client {name}: {len(corpus):,} documents stay with it", highlight=False)
    method = {
        "n_components": topics,
        "max_rounds": rounds,
        "batch_size": 64 * clients,
        "learning_rate": 0.005,
    }
    study = Study.make(name="demo", method=method)
    with _progress() as display:
        model = train(study, corpora, out=folder, on_event=display)
    _print_topics(model, 8)
    console.print(
        f"\nThe run is in {folder}.\nWhat left each client:  fedtopics ledger {folder}\n"
        f"The model's topics:     fedtopics topics {folder}/model",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def run(
    study: Annotated[Path | None, typer.Argument(help="The study file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run [runs/NAME].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an earlier run.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a commented study.")] = False,
) -> None:
    """Run a study with all its clients on this machine."""
    from fedtopics.study import Study, example as example_text

    if example:
        sys.stdout.write(example_text())
        return
    if study is None:
        raise click.UsageError("Name a study file, or print one with --example.")
    from fedtopics.simulation import train

    plan = Study.read(study)
    folder = out or Path("runs") / plan.name
    with _progress() as display:
        model = train(plan, out=folder, resume=resume, on_event=display)
    _print_topics(model, 8)
    console.print(f"\nThe run is in {folder}.", highlight=False, soft_wrap=True)


@app.command()
def topics(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    words: Words = 10,
    relevance: Annotated[
        float | None, typer.Option(min=0, max=1, help="1 reads by probability, 0 by lift.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a model's topics, largest first, with each client's share of them."""
    from fedtopics.topics import TopicModel

    found = TopicModel.from_pretrained(model)
    if as_json:
        _print_json(found.get_topic_info(words, relevance))
    else:
        _print_topics(found, words, relevance)


@app.command()
def transform(
    model: Annotated[Path, typer.Argument(help="Folder of a model.")],
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON lines, Parquet, or a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file to write.")],
    text: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
) -> None:
    """Find the topics of documents: a row a document, in their order, empty ones included."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fedtopics.corpus import Columns, Corpus
    from fedtopics.topics import TopicModel

    found = TopicModel.from_pretrained(model)
    corpus = Corpus.read(file, Columns(text=text))
    counts = found.count(corpus)
    theta = found.transform_counts(counts)
    known = counts.sum(1)
    main = pa.array(theta.argmax(1), pa.int64(), mask=known == 0)
    columns = {"id": corpus.ids, "known_words": known.astype("int64"), "topic": main}
    columns |= {f"theta_{k}": theta[:, k] for k in range(found.n_topics)}
    pq.write_table(pa.table(columns), out)
    nothing = int((known == 0).sum())
    console.print(
        f"{len(corpus):,} documents to {out}; {nothing:,} have no word that the model knows "
        f"({corpus.n_empty:,} are empty): their topic is null and their theta even.",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def ledger(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or a ledger file.")],
    as_json: Json = False,
) -> None:
    """Print what left each client: which numbers, how often, how many bytes."""
    from fedtopics.privacy import summarise_ledger

    files = [run] if run.is_file() else sorted(run.glob("clients/*/ledger.jsonl"))
    if not files:
        raise RunError(f"There is no ledger in {run}; name the folder of a run.")
    summaries = {path.parent.name: summarise_ledger(path) for path in files}
    if as_json:
        _print_json(summaries)
        return
    for client, rows in summaries.items():
        table = Table(title=f"What left {client}", title_justify="left")
        for column in ("function", "what", "replies", "documents", "values", "bytes"):
            right = column in ("replies", "documents", "values", "bytes")
            table.add_column(column, justify="right" if right else "left", no_wrap=right)
        for row in rows:
            table.add_row(
                row["function"],
                ", ".join(row["fields"]),
                f"{row['replies']:,}",
                f"{row['fewest_documents']:,}+",
                f"{row['values']:,}",
                f"{row['bytes']:,}",
            )
        console.print(table)
    console.print(
        "values: numbers or words in the largest reply; documents: each reply is a sum over at "
        "least so many.\nEach reply's time, shapes and SHA-256 are in the ledger file itself.",
        highlight=False,
    )


@app.command()
def version() -> None:
    """Print the version."""
    console.print(__version__, highlight=False)


class _progress:  # noqa: N801 - used like a function
    """Show rounds, loss, documents per second and time left, on a terminal."""

    def __enter__(self) -> _progress:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self._bar = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.2f}  {task.fields[speed]:,.0f} documents/s  left"),
            Remaining(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, loss=float("nan"), speed=0.0)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "training":
            self._bar.update(self._task, total=event["rounds"], completed=event["done"])
        elif event["event"] == "vocabulary":
            console.print(
                f"agreed on {event['words']:,} words; {event['documents']:,} documents, "
                f"{event['without_known_word']:,} of them without an agreed word",
                highlight=False,
            )
        elif event["event"] == "stopped":
            console.print(f"stopped after round {event['round']}: {event['reason']}")
        elif event["event"] == "round":
            speed = event["documents"] / max(event["seconds"], 1e-9)
            before = self._bar.tasks[0].fields["speed"] or speed
            self._bar.update(
                self._task,
                completed=event["round"],
                loss=event["loss"],
                speed=0.95 * before + 0.05 * speed,
            )


def _print_topics(model: TopicModel, words: int, relevance: float | None = None) -> None:
    table = Table()
    table.add_column("topic", justify="right")
    table.add_column("share", justify="right")
    table.add_column("words", ratio=1)
    for name in model.shares:
        table.add_column(name, justify="right")
    for row in model.get_topic_info(words, relevance):
        table.add_row(
            str(row["topic"]),
            f"{row['share']:.1%}",
            Text(" ".join(row["words"])),
            *(f"{share:.0%}" for share in row["clients"].values()),
        )
    console.print(table)


def _print_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _unused(folder: Path) -> Path:
    """Return the folder, or the first of its numbered neighbours that holds no run."""
    number, candidate = 1, folder
    while (candidate / "events.jsonl").exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate


def main() -> None:
    """Run the command line; turn every error into one line and an exit code."""
    try:
        code = app(standalone_mode=False)
    except FedTopicsError as error:
        code = _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        code = _complain(error.format_message(), 2)
    except click.ClickException as error:
        code = _complain(error.format_message(), 2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = _complain("Interrupted; a run goes on with --resume.", 130)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        code = _complain(f"{error.strerror or type(error).__name__}{where}.", 1)
    except Exception as error:
        if os.environ.get("FEDTOPICS_DEBUG"):
            raise
        code = _complain(
            f"A defect of fedtopics: {type(error).__name__}. Set FEDTOPICS_DEBUG=1 to see where, "
            "and please report it.",
            70,
        )
    sys.exit(code)


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"fedtopics: {message}\n")
    return code
