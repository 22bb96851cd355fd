"""The command for a study without a server: participants that are all alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from fedtopics.cli.members import PeerNews
from fedtopics.cli.options import FOLDER
from fedtopics.cli.participant import Given, participant
from fedtopics.cli.report import show_run


@click.command()
@click.argument("study", type=FOLDER)
@click.option(
    "--listen", default="", metavar="HOST:PORT",
    help="Where to wait for others.  [default: this client's address in the study]",
)  # fmt: skip
@participant
def peer(study: Path, listen: str, given: Given) -> None:
    """Take part in a study without a server, with documents that stay on this machine.

    STUDY is the same file at all participants; in [clients.NAME] it has the address of each that
    others can reach. All train, and one of them adds up what they send; when it is lost, the next
    one does. Nothing is decided without a majority: fewer wait. The same command again goes on
    where this participant was, with what it missed. At the end the model is in the --out folder,
    with the topics of the own documents in theta.parquet, the ledger and the report.
    """
    from fedtopics import Study, TopicModel
    from fedtopics.federation.peer import PeerParticipation

    shown: list[PeerNews] = []

    def news_of(name: str) -> PeerNews:
        shown.append(PeerNews(name))
        return shown[0]

    make = partial(
        PeerParticipation, Study.read(study), given.identity, listen,
        opened=lambda node: None if given.as_json else shown[0].watch(node),
    )  # fmt: skip
    folder = given.take_part(news_of, make)
    if not given.dry_run:
        show_run(TopicModel.from_pretrained(folder / "model"), folder, quiet=given.as_json)
