"""Commands that repeat the papers' experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from rich import box
from rich import table as rich_table

from fedtopics.cli.display import console, print_json, say
from fedtopics.cli.options import FOLDER, as_json

if TYPE_CHECKING:
    from experiments.report import Table


@click.group("reproduce")
def group() -> None:
    """Repeat an experiment of a paper: tables, pictures, and which of its claims hold."""


@group.command("gfedntm-amwmd")
@click.option(
    "--data", type=FOLDER, required=True, help="Folder of s2_tiny.parquet, news_outlets.parquet."
)
@click.option(
    "--out",
    type=FOLDER,
    help="Folder of results and topics.  [default: runs/gfedntm-amwmd-NETWORK-PRESET[-quick]]",
)
@click.option(
    "--seeds", type=click.IntRange(1), default=3, show_default=True, help="Of the federated models."
)
@click.option("--quick", is_flag=True, help="See that it runs: s2_tiny, one seed, few rounds.")
@click.option(
    "--network",
    type=click.Choice(["prodlda", "neurallda", "combinedtm", "zeroshottm"]),
    default="combinedtm",
    show_default=True,
    help="The paper's is combinedtm.",
)
@click.option(
    "--preset",
    type=click.Choice(["default", "paper"]),
    default="default",
    show_default=True,
    help="Our settings of training, or the paper's.",
)
@click.option("--vectors", type=FOLDER, help="word2vec file.  [default: all-MiniLM-L6-v2]")
@as_json
def gfedntm_amwmd(
    data: Path,
    out: Path | None,
    seeds: int,
    quick: bool,
    network: str,
    preset: Literal["default", "paper"],
    vectors: Path | None,
    as_json: bool,
) -> None:
    """gFedNTM, figure 4: whether federated topics cover what each client finds alone.

    Trains a model for each client alone, federated and centralised ones with 10 and 25 topics,
    and holds each client's topics against all of them and against controls. The files have
    columns node (the client) and tokens or text. What is trained already is not trained again.
    """
    from experiments.amwmd_claims import sentences, tables
    from experiments.amwmd_results import plain, write_results
    from experiments.gfedntm_amwmd import Settings, reproduce

    settings = Settings(data, out, seeds, quick, network, preset, vectors)
    with ModelProgress(hidden=as_json) as display:
        scores = reproduce(settings, display)
    written = write_results(settings, scores)
    if as_json:
        print_json(plain(settings, scores))
        return
    say("AMWMD, the mean over the client's topics: lower is closer.\n")
    for one in scores:
        _print(tables(one), sentences(one))
        say("")
    say(
        f"Written to {settings.folder}: {', '.join(path.name for path in written)}, and all topics."
    )


@group.command("gfedntm-figure3")
@click.option(
    "--out", type=FOLDER, help="Folder of the results.  [default: runs/gfedntm-figure3[-quick]]"
)
@click.option(
    "--seeds", type=click.IntRange(1), default=3, show_default=True, help="Of K' = 10, eta = 0.01."
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, few rounds.")
@click.option("--model", "models", multiple=True, help="Train these only.  [default: all]")
@as_json
def gfedntm_figure3(
    out: Path | None, seeds: int, quick: bool, models: tuple[str, ...], as_json: bool
) -> None:
    """gFedNTM, figure 3: what federating brings, on synthetic documents of known topics.

    Trains models of five clients together, of all documents in one place, and of each client alone,
    and holds their topics and their documents' similarities against the true ones. What is trained
    already is not trained again; the whole takes hours.
    """
    from experiments.gfedntm_figure3 import RECIPES, Settings, reproduce

    from experiments import figure3_results
    from fedtopics.errors import StudyError

    if unknown := set(models) - set(RECIPES):
        raise StudyError(f"There is no model {min(unknown)!r}; known: {', '.join(RECIPES)}.")
    settings = Settings(out, seeds, quick, models or tuple(RECIPES))
    with ModelProgress(hidden=as_json) as display:
        rows = reproduce(settings, display)
    _finish(figure3_results, settings, rows, as_json)


@group.command("flda")
@click.option(
    "--data",
    type=FOLDER,
    required=True,
    help="Folder of medical_questions.parquet, depression_tweets.parquet.",
)
@click.option("--out", type=FOLDER, help="Folder of the results.  [default: runs/flda[-quick]]")
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, help="That are averaged."
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, one seed.")
@as_json
def flda(data: Path, out: Path | None, seeds: int, quick: bool, as_json: bool) -> None:
    """F-LDA: LDA pooled, alone and federated, guided and not, in three rounds of new documents.

    The files have a column text. What is trained already is not trained again.
    """
    from experiments.flda_runs import Settings, reproduce

    from experiments import flda_results

    settings = Settings(data, out, seeds, quick)
    with ModelProgress(hidden=as_json) as display:
        found = reproduce(settings, display)
    _finish(flda_results, settings, found, as_json)


@group.command("fstc")
@click.option(
    "--data", type=FOLDER, required=True, help="Folder of agnews.parquet, stackoverflow.parquet."
)
@click.option("--out", type=FOLDER, help="Folder of the results.  [default: runs/fstc[-quick]]")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Of table 2; the other parts have three at most.",
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, one seed.")
@click.option(
    "--only",
    help="Train these parts only, such as table2,lambda.  [parts: table2, ablation, lambda, "
    "clients, shares, skew, picture]",
)
@as_json
def fstc(
    data: Path, out: Path | None, seeds: int, quick: bool, only: str | None, as_json: bool
) -> None:
    """FSTC: clusters of short texts at some clients, beside the paper's baselines and controls.

    Repeats the paper's table 2 and figures 2, 3 and 4, takes FSTC apart, and lets clients differ
    in their labels. The files have columns text and label; biomedical.parquet and
    searchsnippets.parquet are taken as well if they are there. What is trained already is not
    trained again.
    """
    from experiments.fstc_runs import reproduce
    from experiments.fstc_tasks import Settings

    from experiments import fstc_results

    parts = tuple(part.strip() for part in only.split(",")) if only else ()
    settings = Settings(data, out, seeds, quick, parts)
    with ModelProgress(hidden=as_json) as display:
        found = reproduce(settings, display)
    _finish(fstc_results, settings, found, as_json)


class ModelProgress:
    """Show which model is being trained, and how many are left; a line a model if not a terminal.

    Parameters
    ----------
    hidden : bool
        Show nothing.
    """

    def __init__(self, hidden: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._hidden = hidden
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=hidden or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._model = ""

    def __enter__(self) -> ModelProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show an event of the experiment or of a training."""
        if event["event"] == "model":
            self._model = event["name"]
            self._bar.update(
                self._task,
                description=self._model,
                completed=event["done"],
                total=event["models"],
            )
            if not self._hidden and not console.is_terminal and self._model:
                say(f"{event['done'] + 1} of {event['models']}: {self._model}")
        elif event["event"] == "embedding":
            description = f"embedding {event['client']}"
            done, documents = event["done"], event["documents"]
            self._bar.update(self._task, description=description, completed=done, total=documents)
            if not self._hidden and not console.is_terminal and done == documents:
                say(f"{description}: {documents:,} documents")
        elif event["event"] == "round":
            description = f"{self._model}, round {event['round']:,}"
            self._bar.update(self._task, description=description)


def _finish(results: Any, settings: Any, rows: Any, as_json: bool) -> None:
    """Write an experiment's results, by its module of results, and print them."""
    written = results.write_results(settings, rows)
    if as_json:
        print_json(results.plain(settings, rows))
        return
    _print(results.tables(settings, rows), results.sentences(settings, rows))
    say(f"\nWritten to {settings.folder}: {', '.join(path.name for path in written)}.")


def _print(tables: Iterable[Table], sentences: Iterable[str]) -> None:
    """Print what an experiment found."""
    for table in tables:
        _print_table(table)
    for sentence in sentences:
        say(f"- {sentence}")


def _print_table(table: Table) -> None:
    """Print a table with its numbers to the right."""
    say(table.title, "bold")
    shown = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, cells in enumerate(zip(table.header, *table.rows, strict=True)):
        side: Literal["left", "right"] = "right" if number else "left"
        shown.add_column(cells[0], justify=side, min_width=max(map(len, cells)))
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown, crop=False)  # a narrow terminal folds it, which is better than less
