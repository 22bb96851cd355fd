"""What is shown to who answers for personal data: a run's records checked, and the form."""

from __future__ import annotations

from pathlib import Path

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_json, say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import RunError

MARKS = {True: ("ok  ", ""), None: ("--  ", ""), False: ("FAIL", "bold red")}


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
