"""Commands for studies between machines: server, client, doctor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import console, print_json, say
from fedtopics.cli.members import ClientNews, ServerNews
from fedtopics.cli.options import FOLDER
from fedtopics.cli.report import show_run, write_beside
from fedtopics.errors import FederationError

if TYPE_CHECKING:
    from fedtopics.methods.warm_start import Words
    from fedtopics.pki import Identity

server_option = click.option(
    "--server", "address", required=True, metavar="HOST:PORT", help="The server's address."
)
secret_option = click.option(
    "--secret-from-seed", is_flag=True,
    help="Draw from the study's seed, which all know: for demonstrations.",
)  # fmt: skip
json_lines = click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
insecure_option = click.option(
    "--insecure", is_flag=True, help="Without TLS and certificates, on this machine alone."
)


@click.command()
@click.argument("study", type=FOLDER)
@click.option("--pki", "authority", type=FOLDER, help="Folder that `pki create` made.")
@options.with_default(
    "--listen", default="0.0.0.0:7557", metavar="HOST:PORT", help="Where to wait for clients."
)
@options.out
@options.resume
@click.option("--start", "started", type=FOLDER, metavar="MODEL", help="Begin with a model.")
@options.vocabulary
@options.track
@insecure_option
@json_lines
def server(
    study: Path,
    authority: Path | None,
    listen: str,
    out: Path | None,
    resume: bool,
    started: Path | None,
    vocabulary: Words | None,
    track: tuple[str, ...],
    insecure: bool,
    as_json: bool,
) -> None:
    """Run a study with clients on other machines. No text comes here.

    The server waits for the clients that the study names, trains, writes the model to the run's
    folder and gives it back to the clients. After an interruption, --resume goes on from the last
    checkpoint; the clients come back by themselves. With --start, training begins with a model, as
    `continue` does on one machine.
    """
    from fedtopics import Study, TopicModel
    from fedtopics.federation.server import serve
    from fedtopics.methods.warm_start import usual_words

    if insecure == (authority is not None):
        raise click.UsageError("Give --pki DIR, or --insecure on one machine, not both.")
    if vocabulary is not None and started is None:
        raise click.UsageError("--vocabulary goes with --start MODEL.")
    plan = Study.read(study)
    start = None if started is None else TopicModel.from_pretrained(started)
    words = vocabulary or usual_words(start, plan.method, plan.text)
    identity = None if authority is None else _server_identity(authority)
    folder = out or Path("runs") / plan.name
    news = ServerNews()
    with news, options.tracked(track, folder, _print_event if as_json else news) as on_event:
        model = serve(
            plan,
            identity,
            listen,
            folder,
            resume=resume,
            on_event=on_event,
            on_listen=None if as_json else news.watch,
            start=start,
            vocabulary=words,
        )
    show_run(model, folder, quiet=as_json)


@click.command()
@server_option
@click.option("--identity", type=FOLDER, help="Folder with this client's certificate.")
@click.option("--data", type=FOLDER, required=True, help="The documents, which stay here.")
@options.columns("text", "tokens", "id", "embedding", "round")
@options.embedding_model
@options.policy
@click.option("--out", type=FOLDER, help="Folder of what it keeps.  [default: runs/CLIENT/STUDY]")
@click.option("--follow", is_flag=True, help="Each round takes what was added to --data since.")
@click.option("--dry-run", is_flag=True, help="Show what the study asks for; do not join.")
@click.option(
    "--start", "started", type=FOLDER, metavar="MODEL", help="What the study begins with."
)
@click.option("--name", help="This client's name, with --insecure.")
@insecure_option
@secret_option
@json_lines
def client(
    address: str,
    identity: Path | None,
    data: Path,
    columns: dict[str, str | None],
    embedding_model: str | None,
    policy: Path | None,
    out: Path | None,
    follow: bool,
    dry_run: bool,
    started: Path | None,
    name: str | None,
    insecure: bool,
    secret_from_seed: bool,
    as_json: bool,
) -> None:
    """Take part in a server's study with documents that stay on this machine.

    Shows what the study asks for, holds it against the policy, joins, and keeps a ledger of all
    that leaves. When the connection breaks, the client comes back by itself. At the end the model
    is in the --out folder, with the topics of the client's own documents in theta.parquet.

    The documents are CSV, TSV, JSON lines, Parquet, or a folder of .txt files. With --follow they
    may still come: rows at the end of the file, or new files in the folder.
    """
    from fedtopics import Columns, Corpus, Policy, TopicModel
    from fedtopics.federation.client import GrpcParticipation
    from fedtopics.methods.events import Unreadable
    from fedtopics.text.arrivals import Follow

    client_name = _client_name(identity, name, insecure)
    rules = Policy.read(policy) if policy else Policy()
    kinds = Columns(rounds=columns.pop("round"), **columns)
    news = ClientNews(client_name)
    tell: Callable[[dict[str, Any]], None] = _print_event if as_json else news
    arrivals = Follow(data, kinds, lambda reason: tell(Unreadable(reason).plain()))
    growing = arrivals if follow else None
    corpus = growing() if growing else Corpus.read(data, kinds)
    part = GrpcParticipation(
        address, identity, corpus, rules, out, client_name, tell, dry_run,
        embedding_model=embedding_model, growing=growing, secret_from_seed=secret_from_seed,
        start=None if started is None else TopicModel.from_pretrained(started),
    )  # fmt: skip
    with news:
        if not as_json:
            empty = f"{corpus.n_empty:,} of them empty"
            say(f"{client_name}: {len(corpus):,} documents, {empty}; they stay.")
        part.run()
        if not dry_run:
            write_beside(part.out, quiet=as_json)


@click.command()
@server_option
@click.option("--identity", type=FOLDER, required=True, help="Folder with the certificate.")
@options.as_json
def doctor(address: str, identity: Path, as_json: bool) -> None:
    """Check what a client needs to take part: a line each, with what to do."""
    from fedtopics.federation.doctor import examine

    findings = []
    for finding in examine(address, identity):
        findings.append(finding)
        if not as_json:
            mark = "ok  " if finding.fine else "FAIL"
            say(f"{mark} {finding.check:<12} {finding.text}", "" if finding.fine else "bold red")
    if as_json:
        print_json([{"check": f.check, "fine": f.fine, "text": f.text} for f in findings])
    if not all(finding.fine for finding in findings):
        raise FederationError("This client cannot take part yet; see the last line above.")


def _server_identity(authority: Path) -> Identity:
    """Load it from the authority's folder, or from the server's alone, which is all it needs."""
    from fedtopics.pki import Identity

    inside = authority / "server"
    return Identity.load(inside if inside.is_dir() else authority, "server")


def _client_name(identity: Path | None, name: str | None, insecure: bool) -> str:
    """Return the name in the client's certificate, or the one that it has without any."""
    from fedtopics.pki import Identity

    if name and insecure and identity is None:
        return name
    if identity is not None and name is None and not insecure:
        return Identity.load(identity, "client").name
    raise click.UsageError("Give --identity DIR, or --insecure with --name on one machine.")


def _print_event(event: dict[str, Any]) -> None:
    study = event.get("study")
    plain = event | {"study": getattr(study, "agreed", study)} if "study" in event else event
    click.echo(json.dumps(plain, ensure_ascii=False, default=str))
    console.file.flush()
