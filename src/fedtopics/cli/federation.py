"""Commands for studies between machines: server, client, peer, doctor."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_json, say
from fedtopics.cli.members import ClientNews, PeerNews, ServerNews
from fedtopics.cli.options import FOLDER
from fedtopics.cli.participant import Given, insecure_option, json_lines, participant, print_event
from fedtopics.cli.privacy import show_exposure
from fedtopics.cli.report import show_run, write_beside
from fedtopics.errors import FederationError
from fedtopics.harmless import file_name

if TYPE_CHECKING:
    from fedtopics.federation.exposure import Exposure
    from fedtopics.federation.study import Study
    from fedtopics.methods.core.plan import Words
    from fedtopics.pki import Identity

server_option = click.option(
    "--server", "address", required=True, metavar="HOST:PORT", help="The server's address."
)


@click.command()
@click.argument("study", type=FOLDER)
@click.option("--pki", "authority", type=FOLDER, help="Folder that `pki create` made.")
@options.with_default(
    "--listen", default="0.0.0.0:7557", metavar="HOST:PORT", help="Where to wait for clients."
)
@options.out
@options.resume
@click.option(
    "--go-on", is_flag=True, help="Go on with the run in that folder, or begin it: for services."
)
@click.option("--start", "started", type=FOLDER, metavar="MODEL", help="Begin with a model.")
@options.vocabulary
@insecure_option
@json_lines
def server(
    study: Path,
    authority: Path | None,
    listen: str,
    out: Path | None,
    resume: bool,
    go_on: bool,
    started: Path | None,
    vocabulary: Words | None,
    insecure: bool,
    as_json: bool,
) -> None:
    """Run a study with clients on other machines. No text comes here, and no question leaves.

    The server waits for the clients that the study names, decides who is in a round, and adds up
    what they send. It trains with the sums, as every client does, and writes the model to the run's
    folder; no model travels. After an interruption, --resume goes on from the last checkpoint; the
    clients come back by themselves. With --start, training begins with a model, which the clients
    name as well.
    """
    from fedtopics import Study, TopicModel
    from fedtopics.federation.run_folder import has_run
    from fedtopics.federation.server import serve
    from fedtopics.methods.core.plan import usual_words

    if insecure == (authority is not None):
        raise click.UsageError("Give --pki DIR, or --insecure on one machine, not both.")
    if vocabulary is not None and started is None:
        raise click.UsageError("--vocabulary goes with --start MODEL.")
    identity = None if authority is None else _server_identity(authority)
    plan = Study.read(study)
    start = None if started is None else TopicModel.from_pretrained(started)
    words = vocabulary or usual_words(start, plan.method, plan.text)
    folder = out or Path("runs") / file_name(plan.name)
    news = ServerNews()
    with news:
        model = serve(
            plan, identity, listen, folder, resume=resume or (go_on and has_run(folder)),
            on_event=print_event if as_json else news, on_listen=None if as_json else news.watch,
            start=start, vocabulary=words,
        )  # fmt: skip
    show_run(model, folder, quiet=as_json)


@click.command()
@server_option
@click.option(
    "--wait",
    type=click.FloatRange(min=0, min_open=True),
    default=math.inf,
    metavar="SECONDS",
    help="Give up after so long without the server.  [default: never]",
)
@participant
def client(address: str, wait: float, given: Given) -> None:
    """Take part in a server's study with documents that stay on this machine.

    Shows what the study asks for, holds it against the policy, joins, and trains: this machine
    computes each step of the model itself, from sums over all clients, which the server adds up. It
    asks nothing else. A ledger says what left, and what came. When the connection breaks, the
    client comes back by itself. At the end the model is in the --out folder, with the topics of the
    client's own documents in theta.parquet.

    The documents are CSV, TSV, JSON lines, Parquet, or a folder of .txt files. With --follow they
    may still come: rows at the end of the file, or new files in the folder.
    """
    from fedtopics.federation.client import GrpcParticipation

    make = partial(GrpcParticipation, address, given.identity, wait=wait)
    folder = given.take_part(ClientNews, make)
    if not given.dry_run:
        write_beside(folder, quiet=given.as_json)


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


@click.command()
@server_option
@click.option("--identity", type=FOLDER, required=True, help="Folder with the certificate.")
@click.option("--data", type=FOLDER, help="The documents, to look whether the policy allows it.")
@options.columns("text", "tokens", "embedding", "author", "time")
@options.policy
@options.as_json
def doctor(
    address: str,
    identity: Path,
    data: Path | None,
    columns: dict[str, Any],
    policy: Path | None,
    as_json: bool,
) -> None:
    """Check what a client needs to take part: a line each, with what to do.

    Where all is fine, show what the study would tell of documents, as `fedtopics privacy` does.
    """
    from fedtopics.federation.doctor import examine

    if data is None and (policy is not None or any(columns.values())):
        raise click.UsageError("--policy and columns go with --data FILE.")
    look = None if data is None else _dry_run(address, identity, data, columns, policy)
    findings = []
    for finding in examine(address, identity, look):
        findings.append(finding)
        if not as_json:
            mark = "ok  " if finding.fine else "FAIL"
            say(f"{mark} {finding.check:<12} {finding.text}", "" if finding.fine else "bold red")
    shown = {f.check: _exposed(f.study) for f in findings if f.study is not None}
    if as_json:
        rows = [
            {"check": f.check, "fine": f.fine, "text": f.text}
            | ({"exposure": shown[f.check].plain()} if f.check in shown else {})
            for f in findings
        ]
        print_json(rows)
    for exposure in () if as_json else shown.values():
        show_exposure(exposure)
    if not all(finding.fine for finding in findings):
        raise FederationError("This client cannot take part yet; see the last line above.")


def _exposed(study: Study) -> Exposure:
    from fedtopics.federation.exposure import expose  # loads what the steps before need not

    return expose(study)


def _dry_run(
    address: str, identity: Path, data: Path, columns: dict[str, Any], policy: Path | None
) -> Callable[[], str]:
    """Read documents and policy; return what holds a server's study against them."""
    from fedtopics import Columns, Corpus, Policy
    from fedtopics.federation.client import GrpcParticipation
    from fedtopics.text.checks import language_sentence

    rules = Policy() if policy is None else Policy.read(policy)
    corpus = Corpus.read(data, Columns(**columns))
    told: list[str] = []

    def look() -> str:
        tell = lambda event: told.append(language_sentence(event))  # noqa: E731
        GrpcParticipation(address, identity, corpus, rules, None, "", tell, dry_run=True).run()
        return "; ".join(filter(None, told))

    return look


def _server_identity(authority: Path) -> Identity:
    """Load it from the authority's folder, or from the server's alone, which is all it needs."""
    from fedtopics.pki import Identity

    inside = authority / "server"
    return Identity.load(inside if inside.is_dir() else authority, "server")
