"""How many topics: a study with several numbers of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from fedtopics.cli import options
from fedtopics.cli.display import RoundProgress, console, print_json, say
from fedtopics.cli.options import FOLDER
from fedtopics.files import write_durably
from fedtopics.harmless import file_name


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
    _print(summary)
    say("\n".join(reasons))
    say(
        f"Recommended: {', '.join(map(str, good))} topics. Models, scores and plot are in {folder}."
    )


def _print(summary: list[dict[str, Any]]) -> None:
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
