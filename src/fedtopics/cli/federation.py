"""Commands for studies between machines: server, client, peer, doctor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import print_json, say, sentence, write
from fedtopics.cli.news import ClientNews, PeerNews, ServerNews
from fedtopics.cli.options import FOLDER
from fedtopics.cli.privacy import show_exposure
from fedtopics.cli.records import show_run, write_beside
from fedtopics.errors import FederationError
from fedtopics.harmless import as_json as to_json
from fedtopics.harmless import file_name

if TYPE_CHECKING:
    from fedtopics.federation.client import GrpcParticipation
    from fedtopics.federation.peer import PeerParticipation
    from fedtopics.methods.core.events import OnEvent
    from fedtopics.methods.core.plan import Words

server_option = click.option(
    "--server", "address", required=True, metavar="HOST:PORT", help="The server's address."
)
json_lines = click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")
insecure_option = click.option(
    "--insecure", is_flag=True, help="Without TLS and certificates, on this machine alone."
)
_OPTIONS = (
    click.option("--identity", type=FOLDER, help="Folder with this client's certificate."),
    click.option("--data", type=FOLDER, required=True, help="The documents, which stay here."),
    options.columns("text", "tokens", "id", "embedding", "author", "time", "round"),
    options.embedding_model,
    options.policy,
    click.option(
        "--out", type=FOLDER, help="Folder of what it keeps.  [default: runs/CLIENT/STUDY]"
    ),
    click.option("--follow", is_flag=True, help="Each round takes what was added to --data since."),
    click.option("--dry-run", is_flag=True, help="Show what the study asks for; do not join."),
    click.option(
        "--start", "started", type=FOLDER, metavar="MODEL", help="What the study begins with."
    ),
    click.option("--name", help="This client's name, with --insecure."),
    insecure_option,
    click.option(
        "--secret-from-seed", is_flag=True,
        help="Draw minibatches and noise from the study's seed, which all know, not from a secret: "
        "for tests and demonstrations alone.",
    ),
    json_lines,
)  # fmt: skip


@dataclass(frozen=True)
class Given:
    """What is typed by who takes part with documents."""

    identity: Path | None
    data: Path
    columns: dict[str, Any]
    embedding_model: str | None
    policy: Path | None
    out: Path | None
    follow: bool
    dry_run: bool
    started: Path | None
    name: str | None
    insecure: bool
    secret_from_seed: bool
    as_json: bool

    @cached_property
    def client_name(self) -> str:
        """The name in the certificate, or the one that is given where there is none."""
        from fedtopics.pki import Identity

        if self.name and self.insecure and self.identity is None:
            return self.name
        if self.identity is not None and self.name is None and not self.insecure:
            return Identity.load(self.identity, "client").name
        raise click.UsageError("Give --identity DIR, or --insecure with --name on one machine.")

    def take_part(
        self,
        news: ClientNews | PeerNews,
        make: Callable[..., GrpcParticipation | PeerParticipation],
    ) -> Path:
        """Read policy and documents, take part by what `make` makes of them; return its folder."""
        from fedtopics import Columns, Corpus, Policy, TopicModel
        from fedtopics.methods.core.events import Documents, Unreadable
        from fedtopics.text.arrivals import Follow

        on_event: OnEvent = print_event if self.as_json else news
        kinds = {key: column for key, column in self.columns.items() if key != "round"}
        columns = Columns(rounds=self.columns["round"], **kinds)
        growing = Follow(self.data, columns, lambda reason: on_event(Unreadable(reason).plain()))
        with news:
            policy = Policy.read(self.policy) if self.policy else Policy()
            corpus = growing() if self.follow else Corpus.read(self.data, columns)
            part = make(
                name=self.client_name, corpus=corpus, policy=policy, out=self.out,
                on_event=on_event, dry_run=self.dry_run, embedding_model=self.embedding_model,
                growing=growing if self.follow else None, secret_from_seed=self.secret_from_seed,
                start=None if self.started is None else TopicModel.from_pretrained(self.started),
            )  # fmt: skip
            on_event(Documents.of(self.client_name, corpus).plain())
            part.run()
        return part.out


def participant(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of who takes part with documents; the command gets them as `given`."""

    @wraps(command)
    def called(**arguments: Any) -> None:
        own = {field.name: arguments.pop(field.name) for field in fields(Given)}
        command(given=Given(**own), **arguments)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def print_event(event: dict[str, Any]) -> None:
    """Print an event as a JSON line."""
    study = event.get("study")
    plain = event | {"study": getattr(study, "agreed", study)} if "study" in event else event
    plain |= {"exposure": event["exposure"].plain()} if "exposure" in event else {}
    write(to_json(plain, default=str, allow_nan=False) + "\n")


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
    from fedtopics.pki import Identity

    if insecure == (authority is not None):
        raise click.UsageError("Give --pki DIR, or --insecure on one machine, not both.")
    if vocabulary is not None and started is None:
        raise click.UsageError("--vocabulary goes with --start MODEL.")
    identity = None
    if authority is not None:  # its folder, or the server's alone, which is all that is needed
        inside = authority / "server"
        identity = Identity.load(inside if inside.is_dir() else authority, "server")
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
    folder = given.take_part(ClientNews(given.client_name), make)
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

    plan, news = Study.read(study), PeerNews(given.client_name)
    make = partial(
        PeerParticipation, plan, given.identity, listen,
        opened=lambda node: None if given.as_json else news.watch(node),
    )  # fmt: skip
    folder = given.take_part(news, make)
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
    dry_run = None if data is None else _dry_run(address, identity, data, columns, policy)
    findings = []
    for finding in examine(address, identity, dry_run):
        findings.append(finding)
        if not as_json:
            mark = "ok  " if finding.fine else "FAIL"
            say(f"{mark} {finding.check:<12} {finding.text}", "" if finding.fine else "bold red")
    rows = []
    for finding in findings:
        row: dict[str, Any] = {"check": finding.check, "fine": finding.fine, "text": finding.text}
        rows.append(row)
        if finding.study is not None:
            from fedtopics.federation.exposure import expose  # loads what the steps above need not

            exposure = expose(finding.study)
            row["exposure"] = exposure.plain()
            if not as_json:
                show_exposure(exposure)
    if as_json:
        print_json(rows)
    if not all(finding.fine for finding in findings):
        raise FederationError("This client cannot take part yet; see the last line above.")


def _dry_run(
    address: str, identity: Path, data: Path, columns: dict[str, Any], policy: Path | None
) -> Callable[[], str]:
    """Read documents and policy; return what checks a server's study against them."""
    from fedtopics import Columns, Corpus, Policy
    from fedtopics.federation.client import GrpcParticipation
    from fedtopics.methods.core.events import Documents

    rules = Policy() if policy is None else Policy.read(policy)
    corpus = Corpus.read(data, Columns(**columns))

    def run() -> str:
        events: list[Any] = [Documents.of("this client", corpus).plain()]
        add = events.append
        GrpcParticipation(address, identity, corpus, rules, None, "", add, dry_run=True).run()
        return "; ".join(filter(None, map(sentence, events)))

    return run
