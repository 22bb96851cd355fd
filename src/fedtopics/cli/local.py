"""Commands that train on one machine."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.escaping import file_name
from fedtopics.extras import require
from fedtopics.files import write_durably
from fedtopics.terminal.display import (
    SIMULATION_SENTENCES,
    console,
    print_json,
    program_name,
    say,
    status,
)
from fedtopics.terminal.run_display import RunDisplay
from fedtopics.terminal.run_report import show_run

if TYPE_CHECKING:
    from fedtopics.methods.core.plan import Words

# A network that starts from the topics of federated NMF needs far fewer rounds.
NETWORKS: dict[str, dict[str, Any]] = {
    "neurallda": {"preset": "mixtures", "initialisation": "nmf", "max_rounds": 60},
    "prodlda": {"max_rounds": 1000},
}
DEMO = {
    "purpose": "To show what the documentation of Python packages is about; each one is a client",
    "operator": "the person who ran fedtopics demo",
}


@click.command()
@options.with_default("--clients", type=click.IntRange(2, 7), default=5, help="Number of clients.")
@options.with_default("--topics", type=click.IntRange(2), default=20, help="Number of topics.")
@click.option(
    "--method",
    type=click.Choice([*NETWORKS, "lda", "nmf", "auto"]),
    help="What to train: a network, or a method.  [default: neurallda; nmf without torch]",
)
@click.option(
    "--rounds", type=click.IntRange(1), help="Rounds of training.  [default: the method's]"
)
@click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/demo]")
def demo(
    clients: int, topics: int, method: str | None, rounds: int | None, out: Path | None
) -> None:
    """Train a model for a few example organisations.

    The documents are the documentation of installed Python packages; each package is a client. By
    default the model is NeuralLDA, a network that starts from the topics of federated NMF. Without
    torch it is federated NMF.
    """
    from fedtopics import Study, train
    from fedtopics.datasets import package_documentation
    from fedtopics.federation.simulation import first_folder
    from fedtopics.methods.registry import choose_method

    has_torch = find_spec("torch") is not None
    method = method or ("neurallda" if has_torch else "nmf")
    with status("Reading the documentation of installed packages"):
        corpora = package_documentation(clients)
    for name, corpus in corpora.items():
        say(f"client {name}: {len(corpus):,} documents (they stay with the client)")
    if method == "auto":
        method, why = choose_method(corpora.values())
        say(f"The method is {method}, as {why}.")
    settings: dict[str, Any] = {"name": method, "n_components": topics}
    if method in NETWORKS:
        settings |= {
            "name": "gfedntm",
            "network": method,
            "batch_size": 64 * clients,
            **NETWORKS[method],
        }
    settings |= {"max_rounds": rounds} if rounds else {}  # else as many as the method has
    study = Study.make(name="demo", about=DEMO, method=settings)
    folder = out or first_folder(Path("runs/demo"), lambda f: not (f / "events.jsonl").exists())
    with RunDisplay(SIMULATION_SENTENCES) as display:
        model = train(study, corpora, out=folder, on_event=display)
    show_run(model, folder)
    program = program_name()
    say(
        f"What each client sent:  {program} audit log {folder}\n"
        f"More words per topic:   {program} topics {folder}/model --words 20"
    )
    if has_torch and method != "prodlda":
        say(f"The same with ProdLDA:  {program} demo --method prodlda")


@click.command()
@click.argument("study", type=FOLDER)
@options.out
@click.option("--resume", is_flag=True, help="Resume the run in the folder of --out.")
@options.from_model
@click.option("--rounds", type=click.IntRange(1), help="With --from: number of further rounds.")
@click.option(
    "--vocabulary",
    type=click.Choice(["keep", "agree"]),
    help="With --from: keep the model's words, or agree on new ones.  [default: keep, if the study "
    "has the model's method and text rules]",
)
@options.with_default(
    "--engine",
    type=click.Choice(["local", "flare", "dask"]),
    default="local",
    help="Train in this process, as a job of NVIDIA FLARE, or on the workers of Dask.",
)
@click.option("--keys", type=FOLDER, help="With FLARE's simulator: folder of the clients' keys.")
@click.option(
    "--startup-kit",
    "kit",
    type=FOLDER,
    metavar="DIR",
    help="Folder of an admin's startup kit: use that FLARE system, not the simulator.",
)
@click.option("--scheduler", metavar="ADDRESS", help="With Dask: an existing cluster's scheduler.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="With Dask and without --scheduler: number of processes.  [default: one per core]",
)
def train_command(
    study: Path,
    out: Path | None,
    resume: bool,
    start: Path | None,
    rounds: int | None,
    vocabulary: Words | None,
    engine: str,
    keys: Path | None,
    kit: Path | None,
    scheduler: str | None,
    workers: int | None,
) -> None:
    """Train a study with all its clients on this machine.

    With --from, training continues from MODEL with more rounds or new documents; MODEL does not
    change. If MODEL's words are kept, its weights and its count of rounds continue. If the clients
    agree on new words, its topics are carried over word by word.

    With --engine flare, the study runs in FLARE's simulator, or on a FLARE system. Its sites
    have the names of the study's clients and read their own documents (fedtopics init flare-site).

    With --engine dask, the workers read and keep the documents. If data is a pattern, such as
    parts/*.parquet, each file is read by one worker.
    """
    from fedtopics import Study, TopicModel
    from fedtopics.errors import refuse
    from fedtopics.federation.engines import ENGINES
    from fedtopics.federation.simulation import train as train_here
    from fedtopics.methods.core.plan import default_vocabulary

    refuse(
        {
            "--rounds and --vocabulary need --from MODEL.": not start and any([rounds, vocabulary]),
            "--keys and --startup-kit need --engine flare.": engine != "flare" and any([keys, kit]),
            "--scheduler and --workers need --engine dask.": (
                engine != "dask" and any([scheduler, workers])
            ),
            "An existing cluster has its own workers; leave out --workers.": (
                all([scheduler, workers])
            ),
        },
        error=click.UsageError,
    )
    if engine == "dask":
        require("The Dask engine needs", "'fedtopics[dask]'", ("distributed", "distributed"))
    plan = Study.read(study)
    folder = out or Path("runs") / f"{file_name(plan.name)}{'-continued' if start else ''}"
    plan = plan if rounds is None else plan.with_rounds(rounds)
    begin: dict[str, Any] = {}
    if start is not None:
        earlier = TopicModel.from_pretrained(start)
        begin = {
            "start": earlier,
            "vocabulary": vocabulary or default_vocabulary(earlier, plan.method, plan.text),
        }
    place: Path | None = folder
    with RunDisplay(SIMULATION_SENTENCES) as display:
        if engine == "local":
            train_here(plan, out=folder, resume=resume, on_event=display, **begin)
        else:
            settings: dict[str, dict[str, object]] = {
                "dask": {"scheduler": scheduler, "workers": workers},
                "flare": {"keys": keys or study.parent, "kit": kit},
            }
            place = ENGINES.find(engine)(**settings[engine]).train(
                plan, folder, resume=resume, on_event=display, **begin
            )
    if place is None:  # the sites of a FLARE system keep the model
        say("The run has ended; each member has the model.")
        return
    show_run(TopicModel.from_pretrained(place / "model"), place)
    if start is not None:
        say(f"To see what changed:  fedtopics models compare {start} {folder}/model")


def _numbers(_: click.Context, __: click.Parameter, value: str) -> list[int]:
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 2:
        raise click.BadParameter("give numbers of at least 2, separated by commas: 5,10,20")
    return numbers


@click.command()
@click.argument("study", type=FOLDER)
@options.with_default(
    "--topics", callback=_numbers, default="5,10,20,50", help="Numbers of topics, comma-separated."
)
@options.with_default(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    help="How often to train each number, with different seeds and samples of documents.",
)
@click.option("--out", type=FOLDER, help="Folder of the sweep.  [default: runs/NAME-sweep]")
@options.as_json
def sweep_command(
    study: Path, topics: list[int], seeds: int, out: Path | None, as_json: bool
) -> None:
    """Compare several numbers of topics.

    This trains a study once or more with each number, with all clients on this machine. A tenth of
    each client's documents is held out for scores. The same command resumes an interrupted sweep.
    """
    from fedtopics.federation.study import Study
    from fedtopics.federation.sweep import chart_of, recommend
    from fedtopics.federation.sweep import sweep as work

    plan = Study.read(study)
    folder = out or Path("runs") / f"{file_name(plan.name)}-sweep"
    with RunDisplay(SIMULATION_SENTENCES) as display:

        def tell(event: dict[str, Any]) -> None:
            if event["event"] == "model" and event["name"] and not as_json:
                say(f"{event['done'] + 1} of {event['models']}: {event['name']}")
            elif event["event"] in ("training", "round") and not as_json:
                display(event)

        summary = work(plan, topics, seeds, folder, on_event=tell)
    best, reasons = recommend(summary)
    result = {"scores": summary, "recommended": best, "reasons": reasons}
    write_durably(
        folder / "sweep.json", f"{json.dumps(result, indent=1, allow_nan=False)}\n".encode()
    )
    write_durably(folder / "sweep.svg", chart_of(summary).encode())
    if as_json:
        print_json(result)
    else:
        _print_scores(summary)
        say("\n".join(reasons))
        say(f"Recommended: {best} topics. Models, scores and plot are in {folder}.")


def _print_scores(summary: list[dict[str, Any]]) -> None:
    from fedtopics.federation.sweep import SHOWN_CRITERIA
    from fedtopics.model.spread import with_margin

    titles = ("topics", *(criterion.title for criterion in SHOWN_CRITERIA))
    table = Table(*(Column(title, justify="right") for title in titles))
    for row in summary:
        table.add_row(
            str(row["topics"]),
            *(with_margin(row.get(c.name), row.get(f"{c.name}_margin")) for c in SHOWN_CRITERIA),
        )
    console.print(table)
    say("±: half of the 95% interval of the mean over trainings.")
