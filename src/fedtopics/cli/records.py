"""Commands that read the records of a run: how it stands, its ledger, the form about it."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.table import Table

from fedtopics.cli import options
from fedtopics.cli.display import console, print_json, print_ledger, say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import RunError
from fedtopics.methods.registry import find_method

MARKS = {True: ("ok  ", ""), None: ("--  ", ""), False: ("FAIL", "bold red")}


@click.command()
@click.argument("run", type=FOLDER)
@options.as_json
def status(run: Path, as_json: bool) -> None:
    """Say how a run stands: rounds, time left, who is there, topics as they form.

    RUN is the folder of a server's run, a client's or peer's part in one, or a simulation, in
    progress or ended. It is read, by this machine alone; nothing is asked of the process that works
    with it.
    """
    from fedtopics.federation.run_status import read_run

    found = read_run(run)
    if as_json:
        print_json(found.plain())
        return
    for line in found.status.lines(found.running, time.time()):
        say(line)
    if found.status.clients:
        table = Table("client", "state")
        table.add_column("rounds", justify="right")
        for name, client in found.status.clients.items():
            table.add_row(name, client.state, f"{client.rounds:,}")
        console.print(table)
    say(found.topics.title)
    for number, words in enumerate(found.topics.words):
        say(f"{number:>5}  {' '.join(words)}")


@click.command()
@click.argument("run", type=FOLDER)
@options.as_json
def ledger(run: Path, as_json: bool) -> None:
    """Print what left each client, and the totals that came: how often, how many bytes.

    RUN is the folder of a run or of a client's part in one, or a ledger file.
    """
    from fedtopics.federation import ledger as kept
    from fedtopics.secure.said import ADDED, LEAVES

    paths = {kept.client_of(run): run} if run.is_file() else kept.find_ledgers(run)
    if not paths:
        raise RunError(f"There is no ledger in {run}; name the folder of a run.")
    summaries = {client: kept.summarise_ledger(path) for client, path in paths.items()}
    if as_json:
        print_json(summaries)
        return
    if seen := ", ".join(client for client, path in paths.items() if kept.is_seen(path)):
        say(f"Replies of {seen} were not masked: whoever added saw each one.\n")
    for client, rows in summaries.items():
        print_ledger(client, rows)
    say(
        "documents: each reply is a sum over at least so many. values: numbers or words in the "
        "largest reply. totals: of the clients' replies, as they came.\nThe ledger file has each "
        "reply's time, fields, shapes and SHA-256, and that of what it was computed from.\n"
    )
    if seeded := ", ".join(client for client, path in paths.items() if kept.is_seeded(path)):
        say(
            f"Draws of {seeded} followed from the study's seed (--secret-from-seed), which all "
            "participants know: for tests and demonstrations alone.\n"
        )
    if any(row["masked"] for rows in summaries.values() for row in rows):
        say(
            f"*: left in masked sums alone, as {ADDED}; a line has what was masked. Who adds saw "
            "what all of a round add up to.\n"
        )
    meanings = {row["function"]: row["method"] for rows in summaries.values() for row in rows}
    for function, method in meanings.items():
        say(f"{function}: {LEAVES.get(function) or find_method(method).leaves(function)}")


@click.command()
@click.argument("run", type=FOLDER)
@click.option("--certificate", type=FOLDER, help="The client's: its signatures alone count.")
@click.option("--head", default="", help="A digest of the last line, kept from an earlier time.")
@options.as_json
def verify(run: Path, certificate: Path | None, head: str, as_json: bool) -> None:
    """Check that a run's ledger and files are as they were written; nobody is asked.

    RUN is the folder of a client's part in a run, or of a simulation. Without --certificate, who
    has changed everything and signed it anew with a key of its own is not found; without --head,
    who has put everything back to an earlier state.
    """
    from fedtopics.federation.verify import verify as verified

    checks = list(verified(run, certificate, head))
    if as_json:
        print_json([{"what": c.what, "holds": c.holds, "text": c.text} for c in checks])
    else:
        for check in checks:
            mark, style = MARKS[check.holds]
            say(f"{mark} {check.what:<10} {check.text}", style)
    if any(check.holds is False for check in checks):
        raise RunError(f"What is in {run} is not what was written there; see the lines above.")


@click.command()
@click.argument("place", metavar="RUN|STUDY", type=FOLDER)
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    required=True,
    metavar="FILE",
    help="Ends in .md, or .html to print.",
)
@click.option("--audit", type=FOLDER, help="Of fedtopics audit.  [default: RUN/audit.json]")
def dpia(place: Path, out: Path, audit: Path | None) -> None:
    """Fill in a data protection impact assessment as far as the records know it.

    RUN is the folder of a client's part in a run, of a server, or of a simulation; STUDY a study's
    file, before there is a run. What only people know is marked. No document's text is in it.
    """
    from fedtopics.report.dpia import assess
    from fedtopics.report.dpia_document import write_document

    form = assess(place, audit)
    write_document(form, out)
    say(f"The form is {out}; {form.gaps} questions in it are left to people.")
