"""The command line. One message an error, no traceback; exit codes in `errors.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from fedtopics import __version__
from fedtopics.errors import FedTopicsError, RunError

# Commands import what needs torch when they run: --help answers at once.
if TYPE_CHECKING:
    from fedtopics.topics import TopicModel

console = Console(highlight=False)
FOLDER = click.Path(path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedtopics")
def app() -> None:
    """Find the topics in text that may not be pooled."""


@app.command()
@click.option("--clients", type=click.IntRange(2, 7), default=5, show_default=True)
@click.option("--topics", type=click.IntRange(2), default=20, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/demo]")
def demo(clients: int, topics: int, rounds: int, out: Path | None) -> None:
    """Train one topic model for several organisations without pooling a text.

    The documents are the documentation of installed Python packages, one package a client.
    """
    from fedtopics.datasets import package_documentation
    from fedtopics.simulation import train
    from fedtopics.study import Study

    folder = out or _unused(Path("runs/demo"))
    with console.status("Reading the documentation of installed packages"):
        corpora = package_documentation(clients)
    for name, corpus in corpora.items():
        console.print(f"client {name}: {len(corpus):,} documents, which stay with it")
    method = {
        "n_components": topics,
        "max_rounds": rounds,
        "batch_size": 64 * clients,
        "learning_rate": 0.005,
    }
    study = Study.make(name="demo", method=method)
    with _Progress() as display:
        model = train(study, corpora, out=folder, on_event=display)
    _print_topics(model, 8)
    _say(
        f"\nThe run is in {folder}.\nWhat left each client:  fedtopics ledger {folder}\n"
        f"More of the topics:     fedtopics topics {folder}/model --words 20"
    )


@app.command()
@click.argument("study", type=FOLDER, required=False)
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/NAME]")
@click.option("--resume", is_flag=True, help="Go on with the run in that folder.")
@click.option("--example", is_flag=True, help="Print a commented study file.")
def run(study: Path | None, out: Path | None, resume: bool, example: bool) -> None:
    """Run a study with all its clients on this machine."""
    from fedtopics.study import Study, example_study

    if example:
        click.echo(example_study(), nl=False)
        return
    if study is None:
        raise click.UsageError("Name a study file, or print one with --example.")
    from fedtopics.simulation import train

    plan = Study.read(study)
    folder = out or Path("runs") / plan.name
    with _Progress() as display:
        model = train(plan, out=folder, resume=resume, on_event=display)
    _print_topics(model, 8)
    _say(f"\nThe run is in {folder}.")


@app.command()
@click.argument("model", type=FOLDER)
@click.option("--words", type=click.IntRange(1), default=10, show_default=True)
@click.option("--relevance", type=click.FloatRange(0, 1), help="1 by probability, 0 by lift.")
@as_json
def topics(model: Path, words: int, relevance: float | None, as_json: bool) -> None:
    """Print a model's topics, largest first, with each client's share of them."""
    from fedtopics.topics import TopicModel

    found = TopicModel.from_pretrained(model)
    if as_json:
        _print_json(found.get_topic_info(words, relevance))
    else:
        _print_topics(found, words, relevance)


@app.command()
@click.argument("model", type=FOLDER)
@click.argument("file", type=FOLDER)
@click.option("--out", "-o", type=FOLDER, required=True, help="Parquet file to write.")
@click.option("--text", help="Column of the text.")
def transform(model: Path, file: Path, out: Path, text: str | None) -> None:
    """Find the topics of documents: a row a document, in their order, empty ones included.

    FILE is CSV, TSV, JSON lines, Parquet, or a folder of .txt files.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fedtopics.corpus import Columns, Corpus
    from fedtopics.topics import TopicModel

    found = TopicModel.from_pretrained(model)
    corpus = Corpus.read(file, Columns(text=text))
    counts = found.count(corpus)
    theta = found.transform_counts(counts)
    known = counts.sum(1)
    main_topic = pa.array(theta.argmax(1), pa.int64(), mask=known == 0)
    columns = {"id": corpus.ids, "known_words": known.astype("int64"), "topic": main_topic}
    columns |= {f"theta_{k}": theta[:, k] for k in range(found.n_topics)}
    pq.write_table(pa.table(columns), out)
    _say(
        f"{len(corpus):,} documents to {out}; {int((known == 0).sum()):,} have no word that the "
        f"model knows ({corpus.n_empty:,} are empty): their topic is null and their theta even."
    )


@app.command()
@click.argument("run", type=FOLDER)
@as_json
def ledger(run: Path, as_json: bool) -> None:
    """Print what left each client: which numbers, how often, how many bytes.

    RUN is the folder of a run, or one client's ledger file.
    """
    from fedtopics.methods import what_leaves
    from fedtopics.privacy import summarise_ledger

    files = [run] if run.is_file() else sorted(run.glob("clients/*/ledger.jsonl"))
    if not files:
        raise RunError(f"There is no ledger in {run}; name the folder of a run.")
    summaries = {path.parent.name: summarise_ledger(path) for path in files}
    if as_json:
        _print_json(summaries)
        return
    for client, rows in summaries.items():
        _print_ledger(client, rows)
    _say(
        "documents: each reply is a sum over at least so many. values: numbers or words in the "
        "largest reply.\nThe ledger file has each reply's time, fields, shapes and SHA-256.\n"
    )
    meanings = {row["function"]: row["method"] for rows in summaries.values() for row in rows}
    for function, method in meanings.items():
        _say(f"{function}: {what_leaves(method, function)}")


class _Progress:
    """Show rounds, loss, documents per second and time left, on a terminal."""

    def __enter__(self) -> _Progress:
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
                f"{event['without_known_word']:,} of them without an agreed word"
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
    _say(
        "topic, its share of all documents, its words; below, its share of each client's documents"
    )
    for row in model.get_topic_info(words, relevance):
        _say(f"{row['topic']:>5} {row['share']:>6.1%}  {' '.join(row['words'])}")
        shares = sorted(row["clients"].items(), key=lambda item: -item[1])
        _say(" " * 14 + "  ".join(f"{name} {share:.0%}" for name, share in shares), "dim")


def _print_ledger(client: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"What left {client}", title_justify="left")
    columns = ("function", "replies", "documents", "values", "bytes")
    for column in columns:
        table.add_column(column, justify="left" if column == "function" else "right")
    for row in rows:
        table.add_row(row["function"], *(f"{row[column]:,}" for column in columns[1:]))
    console.print(table)


def _say(text: str, style: str = "") -> None:
    console.print(text, style=style, soft_wrap=True, markup=False)


def _print_json(content: Any) -> None:
    click.echo(json.dumps(content, indent=1, ensure_ascii=False))


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
        code = app(standalone_mode=False) or 0
    except FedTopicsError as error:
        code = _complain(str(error), error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        code = _complain(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        code = _complain("Interrupted; a run goes on with: fedtopics run STUDY --resume", 130)
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
