"""The commands, an experiment each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from experiments.display import ModelProgress, finish, print_tables
from fedtopics.cli.display import print_json, say
from fedtopics.cli.options import FOLDER, as_json


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Repeat an experiment of a paper: tables, pictures, and which of its claims hold."""


def files(data: Path | None, quick: bool, names: tuple[str, ...], documents: int) -> Path:
    """Return the folder of the data; a quick run that names none gets made-up files."""
    from experiments.made_up import write

    if data is not None:
        return data
    if not quick:
        raise click.UsageError("Missing option '--data'; --quick does without.")
    return write(Path("build/quick/data"), names, documents)


@group.command("gfedntm-amwmd")
@click.option("--data", type=FOLDER, help="Folder of s2_tiny, m10 and news_outlets.parquet.")
@click.option(
    "--out",
    type=FOLDER,
    help="Folder of results and topics.  [default: runs/gfedntm-amwmd-NETWORK-PRESET[-quick]]",
)
@click.option(
    "--seeds", type=click.IntRange(1), default=3, show_default=True, help="Of the federated models."
)
@click.option("--quick", is_flag=True, help="See that it runs: s2_tiny, or made-up texts.")
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
    data: Path | None,
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
    from experiments.gfedntm.amwmd import Settings, reproduce
    from experiments.gfedntm.amwmd_claims import sentences, tables
    from experiments.gfedntm.amwmd_results import plain, write_results

    folder = files(data, quick, ("s2_tiny",), 90)
    settings = Settings(folder, out, seeds, quick, network, preset, vectors)
    with ModelProgress(hidden=as_json) as display:
        scores = reproduce(settings, display)
    written = write_results(settings, scores)
    if as_json:
        print_json(plain(settings, scores))
        return
    say("AMWMD, the mean over the client's topics: lower is closer.\n")
    for one in scores:
        print_tables(tables(one), sentences(one))
        say("")
    say(
        f"Written to {settings.folder}: {', '.join(path.name for path in written)}, and all topics."
    )


@group.command("gfedntm-figure3")
@click.option(
    "--out", type=FOLDER, help="Folder of the results.  [default: runs/gfedntm-figure3[-quick]]"
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Of LDA, and of NMF in the first setting.",
)
@click.option(
    "--few-seeds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Of networks, and of NMF elsewhere.",
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, few rounds.")
@click.option("--model", "models", multiple=True, help="Train these only.  [default: all]")
@as_json
def gfedntm_figure3(
    out: Path | None, seeds: int, few_seeds: int, quick: bool, models: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """gFedNTM, figure 3: what federating brings, on synthetic documents of known topics.

    Trains models of five clients together, of all documents in one place, and of each client alone,
    and holds their topics and their documents' similarities against the true ones. What is trained
    already is not trained again; the whole takes hours.
    """
    from experiments.gfedntm import figure3_results
    from experiments.gfedntm.figure3 import RECIPES, Settings, reproduce
    from fedtopics.errors import StudyError

    if unknown := set(models) - set(RECIPES):
        raise StudyError(f"There is no model {min(unknown)!r}; known: {', '.join(RECIPES)}.")
    settings = Settings(out, seeds, quick, few_seeds, models or tuple(RECIPES))
    with ModelProgress(hidden=as_json) as display:
        rows = reproduce(settings, display)
    finish(figure3_results, settings, rows, as_json)


@group.command("flda")
@click.option(
    "--data",
    type=FOLDER,
    help="Folder of medical_questions.parquet, depression_tweets.parquet.",
)
@click.option("--out", type=FOLDER, help="Folder of the results.  [default: runs/flda[-quick]]")
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, help="That are averaged."
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, or made-up ones.")
@as_json
def flda(data: Path | None, out: Path | None, seeds: int, quick: bool, as_json: bool) -> None:
    """F-LDA: LDA pooled, alone and federated, guided and not, in three rounds of new documents.

    The files have a column text. What is trained already is not trained again.
    """
    from experiments.flda import results
    from experiments.flda.runs import Settings, reproduce

    folder = files(data, quick, ("medical_questions", "depression_tweets"), 1100)
    settings = Settings(folder, out, seeds, quick)
    with ModelProgress(hidden=as_json) as display:
        found = reproduce(settings, display)
    finish(results, settings, found, as_json)


@group.command("fstc")
@click.option("--data", type=FOLDER, help="Folder of agnews.parquet, stackoverflow.parquet.")
@click.option("--out", type=FOLDER, help="Folder of the results.  [default: runs/fstc[-quick]]")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Of table 2; the other parts have three at most.",
)
@click.option("--quick", is_flag=True, help="See that it runs: few documents, or made-up ones.")
@click.option(
    "--only",
    help="Train these parts only, such as table2,lambda.  [parts: table2, ablation, lambda, "
    "clients, shares, skew, picture, views, encoders, tuning]",
)
@as_json
def fstc(
    data: Path | None, out: Path | None, seeds: int, quick: bool, only: str | None, as_json: bool
) -> None:
    """FSTC: clusters of short texts at some clients, beside the paper's baselines and controls.

    Repeats the paper's table 2 and figures 2, 3 and 4, takes FSTC apart, lets clients differ in
    their labels, and changes what networks are trained on and what embeds texts. The files have
    columns text and label; biomedical.parquet and searchsnippets.parquet are taken as well if they
    are there, 20ng.parquet and news_outlets.parquet for word vectors of other texts. What is
    trained already is not trained again.
    """
    from experiments.fstc import results
    from experiments.fstc.runs import reproduce
    from experiments.fstc.tasks import Settings

    parts = tuple(part.strip() for part in only.split(",")) if only else ()
    folder = files(data, quick, ("agnews", "stackoverflow"), 90)
    settings = Settings(folder, out, seeds, quick, parts)
    with ModelProgress(hidden=as_json) as display:
        found = reproduce(settings, display)
    finish(results, settings, found, as_json)


@group.command("pages")
@click.option("--write", is_flag=True, help="Write them anew.")
def pages(write: bool) -> None:
    """Make pages in benchmarks/results, and tables in docs/, again of rows; say which differ."""
    from experiments.pages import ROOT, differing

    found = [path.relative_to(ROOT).as_posix() for path in differing(write)]
    say(
        f"These differed from their rows: {', '.join(found)}."
        if found
        else "All are as their rows."
    )
    if found and not write:
        raise SystemExit(1)
