"""Commands that train on one machine, and show the topics of a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from fedtopics.cli import options
from fedtopics.cli.display import (
    RoundProgress,
    console,
    json_text,
    print_json,
    print_topics,
    program_name,
    say,
    status,
    topic_lines,
    write,
)
from fedtopics.cli.options import FOLDER
from fedtopics.cli.records import show_run
from fedtopics.files import check_output, write_durably, write_output
from fedtopics.harmless import file_name
from fedtopics.methods.registry import METHODS

# What the demo can train. A network that starts from sums needs a fraction of the rounds.
DEMONSTRATED: dict[str, dict[str, Any]] = {
    "neurallda": {
        "network": "neurallda", "preset": "mixtures", "initialisation": "nmf", "max_rounds": 60,
    },
    "prodlda": {"network": "prodlda", "max_rounds": 1000},
    "lda": {"name": "lda"},
    "nmf": {"name": "nmf"},
    "auto": {"name": "auto"},
}  # fmt: skip
DEMO = {
    "purpose": "To show what the documentation of Python packages is about, each package a client",
    "operator": "whoever typed fedtopics demo",
}


@click.command()
@options.with_default("--clients", type=click.IntRange(2, 7), default=5, help="How many.")
@options.with_default("--topics", type=click.IntRange(2), default=20, help="How many.")
@click.option(
    "--method",
    type=click.Choice(DEMONSTRATED),
    help="What to train: a network, or a method.  [default: neurallda; nmf without torch]",
)
@click.option("--rounds", type=click.IntRange(1), help="Of training.  [default: the method's]")
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/demo]")
def demo(
    clients: int, topics: int, method: str | None, rounds: int | None, out: Path | None
) -> None:
    """Train one topic model for several organisations without pooling a text.

    The documents are the documentation of installed Python packages, one package a client. By
    default a network learns them, NeuralLDA, from topics that a factorisation by sums has found; or
    the factorisation alone, where torch is not installed.
    """
    from fedtopics import Study, train
    from fedtopics.datasets import package_documentation
    from fedtopics.federation.simulation import first_folder

    has_torch = find_spec("torch") is not None
    method = method or ("neurallda" if has_torch else "nmf")
    settings = DEMONSTRATED[method] | {"n_components": topics}
    settings |= {"batch_size": 64 * clients} if "network" in settings else {}
    settings |= {"max_rounds": rounds} if rounds else {}
    study = Study.make(name="demo", about=DEMO, method=settings)
    folder = out or first_folder(Path("runs/demo"), lambda f: not (f / "events.jsonl").exists())
    with status("Reading the documentation of installed packages"):
        corpora = package_documentation(clients)
    for name, corpus in corpora.items():
        say(f"client {name}: {len(corpus):,} documents (they stay there)")
    with RoundProgress() as display:
        model = train(study, corpora, out=folder, on_event=display)
    show_run(model, folder)
    program = program_name()
    say(
        f"What each client sent:  {program} ledger {folder}\n"
        f"More words per topic:   {program} topics {folder}/model --words 20"
    )
    if has_torch and method != "prodlda":
        say(f"The same with ProdLDA:  {program} demo --method prodlda")


@click.command()
@click.argument("study", type=FOLDER, required=False)
@options.out
@options.resume
@click.option("--example", is_flag=True, help="Print a commented study file.")
@click.option("--method", type=click.Choice(METHODS.names), default="auto", help="Of the example.")
def run(study: Path | None, out: Path | None, resume: bool, example: bool, method: str) -> None:
    """Run a study with all its clients on this machine."""
    from fedtopics.federation.study import Study, example_study

    if example:
        write(example_study(method))
        return
    if study is None:
        raise click.UsageError("Name a study file, or print one with --example.")
    from fedtopics.federation.simulation import train

    plan = Study.read(study)
    folder = out or Path("runs") / file_name(plan.name)
    with RoundProgress() as display:
        model = train(plan, out=folder, resume=resume, on_event=display)
    show_run(model, folder)


PHRASES = (
    "Suggested labels may have phrases of these documents: read them before the model is given on."
)
FORMATS: dict[str, tuple[str, Sequence[str]]] = {  # by suffix; with how a file of it begins
    ".md": ("md", ()),
    ".csv": ("csv", ("topic", "label", "share")),
    ".json": ("json", ("topic", "label", "suggested")),
    ".txt": ("table", ("topic", "its share of all documents")),
}


@click.command()
@click.argument("model", type=FOLDER)
@options.words
@options.lambda_
@click.option(
    "--format",
    "format_",
    type=click.Choice([name for name, _ in FORMATS.values()]),
    help="By default as the name of FILE ends, else a table.",
)
@options.output("--out", "-o", help="Write there instead: .md, .csv, .json or .txt.")
@click.option("--suggest", is_flag=True, help="Suggest labels first, and keep them in MODEL.")
@click.option(
    "--with-documents", type=FOLDER, help="Of --suggest: own documents, for phrases of theirs."
)
@click.option("--text", help="Column of the text, of that file.")
@options.as_json
def topics(
    model: Path, words: int, lambda_: float | None, format_: str | None, out: Path | None,
    suggest: bool, with_documents: Path | None, text: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Print a model's topics, largest first, with each client's share of them.

    Labels of topics are in MODEL/topics.json, which is there to be edited. --json is --format json.
    Labels that rules suggest are marked so until somebody changes or confirms them.
    """
    from fedtopics import Columns, Corpus, TopicModel
    from fedtopics.model.exports import as_csv, as_markdown
    from fedtopics.model.folder import write_labels

    if with_documents and not suggest:
        raise click.UsageError("--with-documents goes with --suggest.")
    if as_json and format_ not in (None, "json"):
        raise click.UsageError(f"--json and --format {format_} exclude each other.")
    chosen = "json" if as_json else format_
    suffixes = [suffix for suffix, (name, _) in FORMATS.items() if chosen in (None, name)]
    names: Sequence[str] = ()
    kept = [with_documents, model / "topics.json"]
    if out is not None:
        chosen, names = FORMATS.get(out.suffix.lower(), ("", ()))
        check_output(out, suffixes, kept, names)
    loaded = TopicModel.from_pretrained(model)
    if suggest:
        corpus = with_documents and Corpus.read(with_documents, Columns(text=text))
        loaded = loaded.with_suggested_labels(corpus)
        write_labels(loaded, model)
    chosen = chosen or "table"
    if chosen == "table" and out is None:
        print_topics(loaded, words, lambda_)
        return say(f"\n{PHRASES}") if with_documents else None
    if chosen == "table":
        shown = "".join(f"{line}\n" for line, _ in topic_lines(loaded, words, lambda_))
    else:
        render = {"json": json_text, "csv": as_csv, "md": as_markdown}[chosen]
        shown = render(loaded.get_topic_info(words, lambda_))
    if out is None:
        write(shown)
    else:
        write_output(out, shown.encode(), suffixes, kept, names, public=True)
        say(f"{loaded.n_topics} topics are in {out}.")


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 2:
        raise click.BadParameter("give numbers from 2 on, with commas: 5,10,20")
    return numbers


@click.command()
@click.argument("study", type=FOLDER)
@options.with_default(
    "--topics", callback=_numbers, default="5,10,20,50", help="Numbers of topics, with commas."
)
@options.with_default(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    help="Trainings of each number, which differ in their seed.",
)
@click.option("--out", type=FOLDER, help="Folder of the sweep.  [default: runs/NAME-sweep]")
@options.as_json
def sweep(study: Path, topics: list[int], seeds: int, out: Path | None, as_json: bool) -> None:
    """Train a study with several numbers of topics, and say which serve best.

    All clients' documents are on this machine; a tenth of each client's is held out. Typed again,
    it goes on where it was.
    """
    from fedtopics.federation.study import Study
    from fedtopics.federation.sweep import chart_of, recommend
    from fedtopics.federation.sweep import sweep as work

    plan = Study.read(study)
    folder = out or Path("runs") / f"{file_name(plan.name)}-sweep"
    with RoundProgress() as display:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "model" and event["name"] and not as_json:
                say(f"{event['done'] + 1} of {event['models']}: {event['name']}")
            elif event["event"] in ("training", "round") and not as_json:
                display(event)

        summary = work(plan, topics, seeds, folder, on_event=tell)
    good, reasons = recommend(summary)
    result = {"scores": summary, "recommended": good, "reasons": reasons}
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    write_durably(folder / "sweep.json", text.encode())
    write_durably(folder / "sweep.svg", chart_of(summary).encode())
    if as_json:
        print_json(result)
        return
    _print_scores(summary)
    say("\n".join(reasons))
    say(
        f"Recommended: {', '.join(map(str, good))} topics. Models, scores and plot are in {folder}."
    )


def _print_scores(summary: list[dict[str, Any]]) -> None:
    from fedtopics.federation.sweep import SHOWN

    table = Table()
    for title in ("topics", *(criterion.title for criterion in SHOWN)):
        table.add_column(title, justify="right")
    for row in summary:
        cells = [_cell(row.get(c.name), row.get(f"{c.name}_deviation")) for c in SHOWN]
        table.add_row(str(row["topics"]), *cells)
    console.print(table)


def _cell(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.3f} ± {deviation:.3f}" if deviation else f"{mean:.3f}"
