"""The commands, an experiment each."""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import click

from experiments.display import ModelProgress, finish, print_tables
from experiments.report import QUICK
from fedtopics.cli.options import FOLDER, as_json
from fedtopics.terminal.display import print_json, say


class Experiments(click.Group):
    """Commands; a name that is none of them is answered by the nearest ones."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a name."""
        if args[0] not in self.commands:
            near = get_close_matches(args[0], self.commands) or list(self.commands)
            raise click.UsageError(
                f"There is no experiment {args[0]!r}; there is {' or '.join(near)}."
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Experiments, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Repeat an experiment of a paper: tables, pictures, and which of its claims hold."""


def data(files: str) -> Callable[[Any], Any]:
    """Return the option of a folder with files."""
    return click.option("--data", type=FOLDER, help=f"Folder of {files}.")


def out(default: str) -> Callable[[Any], Any]:
    """Return the option of the folder of the results."""
    return click.option(
        "--out", type=FOLDER, help=f"Folder of the results.  [default: runs/{default}[-quick]]"
    )


def seeds(default: int, of: str, option: str = "--seeds") -> Callable[[Any], Any]:
    """Return the option of how many seeds."""
    return click.option(option, type=click.IntRange(1), default=default, show_default=True, help=of)


quickly = click.option("--quick", is_flag=True, help="See that it runs, on few documents.")


def files(folder: Path | None, quick: bool, names: tuple[str, ...], documents: int) -> Path:
    """Return the folder of the data; a quick run that names none gets synthetic files."""
    from experiments.made_up import write

    if folder is not None:
        return folder
    if not quick:
        raise click.UsageError("Missing option '--data'; --quick does without.")
    return write(Path("build/quick/data"), names, documents)


@group.command("gfedntm-amwmd")
@data("s2_tiny, m10 and news_outlets.parquet")
@out("gfedntm-amwmd-NETWORK-PRESET")
@seeds(3, "Of the federated models.")
@quickly
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
@as_json
def gfedntm_amwmd(
    data: Path | None,
    out: Path | None,
    seeds: int,
    quick: bool,
    network: str,
    preset: Literal["default", "paper"],
    as_json: bool,
) -> None:
    """gFedNTM, figure 4: whether federated topics cover what each client finds alone.

    Trains a model for each client alone, federated and centralised ones with 10 and 25 topics,
    and holds each client's topics against all of them and against controls. The files have
    columns node (the client) and tokens or text. What is trained already is not trained again.
    """
    from experiments.gfedntm.amwmd import Settings, reproduce
    from experiments.gfedntm.amwmd_claims import sentences, tables
    from experiments.gfedntm.amwmd_results import plain, write_results

    folder = files(data, quick, ("s2_tiny",), 90)
    settings = Settings(folder, out, seeds, quick, network, preset)
    with ModelProgress(hidden=as_json) as display:
        scores = reproduce(settings, display)
    written = write_results(settings, scores)
    if as_json:
        print_json(plain(settings, scores))
        return
    say(f"{QUICK}\n" if quick else "AMWMD, the mean over the client's topics: lower is closer.\n")
    for one in scores:
        print_tables(tables(one), () if quick else sentences(one))
        say("")
    names = ", ".join(path.name for path in written)
    say(f"Written to {settings.folder}: {names}, and all topics.")


@group.command("gfedntm-figure3")
@out("gfedntm-figure3")
@seeds(10, "Of LDA, and of NMF in the first setting.")
@seeds(3, "Of networks, and of NMF elsewhere.", "--few-seeds")
@quickly
@click.option("--model", "models", multiple=True, help="Train these only.  [default: all]")
@as_json
def gfedntm_figure3(
    out: Path | None,
    seeds: int,
    few_seeds: int,
    quick: bool,
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """gFedNTM, figure 3: what federating brings, on synthetic documents of known topics.

    Trains models of five clients together, of all documents in one place, and of each client alone,
    and holds their topics and their documents' similarities against the true ones. What is trained
    already is not trained again; the whole takes hours.
    """
    from experiments.gfedntm import figure3_results
    from experiments.gfedntm.figure3 import RECIPES, Settings, reproduce
    from fedtopics.errors import StudyError

    if unknown := set(models) - set(RECIPES):
        raise StudyError(f"There is no model {min(unknown)!r}; choose from: {', '.join(RECIPES)}.")
    settings = Settings(out, seeds, quick, few_seeds, models or tuple(RECIPES))
    finish(figure3_results, settings, reproduce, as_json)


FLDA = ("medical_questions", "depression_tweets")


@group.command("flda")
@data("medical_questions.parquet, depression_tweets.parquet")
@out("flda")
@seeds(5, "That are averaged.")
@quickly
@as_json
def flda(data: Path | None, out: Path | None, seeds: int, quick: bool, as_json: bool) -> None:
    """F-LDA: LDA pooled, alone and federated, guided and not, in three rounds of new documents.

    The files have a column text. What is trained already is not trained again.
    """
    from experiments.flda import results
    from experiments.flda.runs import Settings, reproduce

    settings = Settings(files(data, quick, FLDA, 600), out, seeds, quick)
    finish(results, settings, reproduce, as_json)


@group.command("flda-thresholds")
@data("medical_questions.parquet, depression_tweets.parquet")
@quickly
def flda_thresholds(data: Path | None, quick: bool) -> None:
    """F-LDA, figure 7: how its default threshold decides pairs that a person has labelled.

    A run of F-LDA on each data set, with a seed that is not in the table of `flda`; the labelled
    pairs are in benchmarks/results/flda.
    """
    from experiments.flda.runs import Settings, threshold_sentences

    for sentence in threshold_sentences(Settings(files(data, quick, FLDA, 600), quick=quick)):
        say(sentence)


@group.command("fstc")
@data("agnews.parquet, stackoverflow.parquet")
@out("fstc")
@seeds(5, "Of table 2; the other parts have three at most.")
@quickly
@click.option(
    "--only",
    help="Train these parts only, such as table2,lambda.  [parts: table2, ablation, lambda, "
    "clients, shares, skew, losses, noise, picture, views, encoders, tuning]",
)
@as_json
def fstc(
    data: Path | None, out: Path | None, seeds: int, quick: bool, only: str | None, as_json: bool
) -> None:
    """FSTC: clusters of short texts at some clients, beside the paper's baselines and controls.

    Repeats the paper's table 2 and figures 2, 3 and 4, takes FSTC apart, lets clients differ in
    their labels, damages words, and changes what networks are trained on and what embeds texts. The
    files have columns text and label; biomedical.parquet and searchsnippets.parquet are taken as
    well if they are there, 20ng.parquet and news_outlets.parquet for word vectors of other texts.
    What is trained already is not trained again.
    """
    from experiments.fstc import results
    from experiments.fstc.runs import reproduce
    from experiments.fstc.tasks import Settings

    parts = tuple(part.strip() for part in only.split(",")) if only else ()
    folder = files(data, quick, ("agnews", "stackoverflow"), 90)
    finish(results, Settings(folder, out, seeds, quick, parts), reproduce, as_json)


@group.command("pages")
@click.option("--write", is_flag=True, help="Write them anew.")
def pages(write: bool) -> None:
    """Make pages in benchmarks/results, and tables in docs/, again of rows; say which differ."""
    from experiments.pages import ROOT, differing

    paths = [path.relative_to(ROOT).as_posix() for path in differing(write)]
    differ = f"These differed from their rows: {', '.join(paths)}."
    say(differ if paths else "All are as their rows.")
    if paths and not write:
        raise SystemExit(1)
