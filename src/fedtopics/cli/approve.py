"""Commands for people who approve what a member sends."""

from __future__ import annotations

from pathlib import Path

import click

from fedtopics.cli import options
from fedtopics.cli.federation import key_option
from fedtopics.cli.options import FOLDER
from fedtopics.files import write_output
from fedtopics.terminal.display import say


@click.command()
@click.argument("folder", type=FOLDER)
@key_option
@click.option(
    "--page",
    "chosen",
    default="",
    metavar="NAME",
    help="Only this page, such as study.md: all steps at once.  [default: ask for each page]",
)
@click.option("--refuse", metavar="REASON", help="Stop the run; all members learn the reason.")
@click.option("--replace", default="", metavar="NAME", help="Another approver, who leaves.")
@click.option("--by", type=FOLDER, metavar="PEM", help="Certificate of who follows --replace.")
@click.option("--yes", is_flag=True, help="Show the page of --page, but do not ask.")
def approve(
    folder: Path,
    key_folder: Path,
    chosen: str,
    refuse: str | None,
    replace: str,
    by: Path | None,
    yes: bool,
) -> None:
    """Approve what waits to leave, or refuse it.

    FOLDER is the OUTBOX of `fedtopics step`, or the folder of a run of `fedtopics join`. Each page
    says what would leave; your key signs the page that you saw. A step leaves when as many people
    have approved its page, or that of the whole study, as the policy requires.
    """
    from fedtopics.federation.approval import (
        STUDY,
        decide,
        newest,
        pages_in,
        propose_farewell,
        verdicts_in,
    )
    from fedtopics.protocol.roster import Key

    key = Key.load(key_folder)
    if replace:
        chosen = propose_farewell(folder, key, replace, by).name
    if (yes or refuse is not None) and not chosen:
        raise click.UsageError("--yes and --refuse need --page NAME, the page that you have read.")
    pages = pages_in(folder)
    names = [path.name for path in pages]
    if chosen and chosen not in names:
        raise click.UsageError(
            f"There is no page {chosen} in {folder}; choose from {', '.join(names)}."
        )
    what = "Approve" if refuse is None else "Refuse"
    for path, page in pages.items():
        mine = newest(verdicts_in(path.parent), page, {key.name: key.certificate})
        if path.name != chosen and (chosen or mine):
            continue
        say(page)
        if yes or _confirmed(f"{what} {path.name}{', all steps at once' * (path.name == STUDY)}?"):
            decide(path, page, key, refuse)
            say(f"You {what.lower()} {path.name}.")


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort:
        raise click.UsageError(
            "There was no answer, so this page was not signed; where there is no terminal, name "
            "the page that you have read with --page NAME --yes."
        ) from None


@click.command("open")
@click.argument("kept", type=FOLDER)
@key_option
@options.output("--out", "-o", required=True, help="File to write: .bin, the bytes of the update.")
def open_command(kept: Path, key_folder: Path, out: Path) -> None:
    """Decrypt an update that a member kept with --keep, for its approvers.

    The bytes are those of the page's keyed SHA-256, with the key that this command prints.
    """
    import hmac

    from fedtopics.federation.egress import opened
    from fedtopics.protocol.roster import Key

    secret, content = opened(kept, Key.load(key_folder))
    write_output(out, content, suffixes=[".bin"], inputs=[kept])
    keyed = hmac.digest(secret, content, "sha256").hex()
    say(f"{out} has {len(content):,} bytes; their keyed SHA-256, as on the page: {keyed}")


@click.command()
@click.argument("run", type=FOLDER)
@options.output("--out", "-o", required=True, help="JSON file to write.")
@click.option(
    "--crate",
    type=FOLDER,
    help="New folder for an RO-Crate: study, ledger, this record, and who approved which page.",
)
def egress(run: Path, out: Path, crate: Path | None) -> None:
    """List a member's outputs, and who approved them.

    RUN is the folder of a member. For each output, the file has the numbers of documents and
    persons behind it, its digests, its line in the ledger, and the page that people approved.
    """
    from fedtopics.report.egress_record import egress_record, write_crate

    record = egress_record(run)
    write_output(
        out,
        record.model_dump_json(indent=2).encode(),
        suffixes=[".json"],
        names=["study", "client"],
    )
    say(f"{out} has {len(record.outputs):,} outputs and {len(record.approvals):,} approved pages.")
    if crate is not None:
        write_crate(record, run, crate)
        say(f"{crate} is an RO-Crate with your ledger, so give it only to auditors.")
