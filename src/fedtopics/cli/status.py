"""The command that says how a run stands, in the terminal or as a page on this machine."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from fedtopics.cli import options
from fedtopics.cli.display import console, print_json, say
from fedtopics.cli.options import FOLDER

if TYPE_CHECKING:
    from fedtopics.federation.followed import FollowedRun


@click.command()
@click.argument("run", type=FOLDER)
@click.option(
    "--watch",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Show it as a page on this machine, until Ctrl-C; 0 takes a free port.",
)
@options.as_json
def status(run: Path, watch: int | None, as_json: bool) -> None:
    """Say how a run stands: rounds, time left, who is there, topics as they form.

    RUN is the folder of a server's run, a client's or peer's part in one, or a simulation, in
    progress or ended. It is read, by this machine alone; nothing is asked of the process that works
    with it.
    """
    from fedtopics.federation.followed import FollowedRun

    if as_json and watch is not None:
        raise click.UsageError("--json and --watch exclude each other.")
    followed = FollowedRun(run)
    if as_json:
        print_json(followed.plain())
    elif watch is None:
        _print(followed)
    else:
        _serve(followed, watch)


def _print(run: FollowedRun) -> None:
    for line in run.status.told(run.running, time.time()):
        say(line)
    if run.status.clients:
        table = Table("client", "state")
        table.add_column("rounds", justify="right")
        for name, client in run.status.clients.items():
            table.add_row(name, client.state, f"{client.rounds:,}")
        console.print(table)
    forming = run.forming()
    say(forming.title)
    for number, words in enumerate(forming.words):
        say(f"{number:>5}  {' '.join(words)}")


def _serve(run: FollowedRun, port: int) -> None:
    from fedtopics.federation.local_http import HTML, LOOPBACK, serving
    from fedtopics.report.status import status_page

    one_at_a_time = threading.Lock()

    def page() -> tuple[HTTPStatus, str, str]:
        with one_at_a_time:
            return HTTPStatus.OK, HTML, status_page(run)

    with serving(LOOPBACK, port, {"/": page}) as address:
        say(f"{address}/ shows the run, on this machine alone, until Ctrl-C.")
        with suppress(KeyboardInterrupt):
            until_interrupted()


def until_interrupted() -> None:
    """Wait, while other threads work."""
    threading.Event().wait()
