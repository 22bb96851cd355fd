"""What `client` and `peer` have in common: options, documents, policy, the report at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fedtopics.cli import options
from fedtopics.cli.display import console, say
from fedtopics.cli.options import FOLDER
from fedtopics.harmless import as_json

if TYPE_CHECKING:
    from fedtopics.cli.members import ClientNews, PeerNews
    from fedtopics.federation.client import GrpcParticipation
    from fedtopics.federation.peer import PeerParticipation
    from fedtopics.methods.core.events import OnEvent

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

    @property
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
        news_of: Callable[[str], ClientNews | PeerNews],
        make: Callable[..., GrpcParticipation | PeerParticipation],
    ) -> Path:
        """Read policy and documents, take part by what `make` makes of them; return its folder."""
        name = self.client_name
        news = news_of(name)
        with news:
            return self._take_part(name, print_event if self.as_json else news, make)

    def _take_part(
        self, name: str, tell: OnEvent, make: Callable[..., GrpcParticipation | PeerParticipation]
    ) -> Path:
        from fedtopics import Columns, Corpus, Policy, TopicModel
        from fedtopics.methods.core.events import Unreadable
        from fedtopics.text.arrivals import Follow

        policy = Policy.read(self.policy) if self.policy else Policy()
        kinds = {key: column for key, column in self.columns.items() if key != "round"}
        columns = Columns(rounds=self.columns["round"], **kinds)
        growing = Follow(self.data, columns, lambda reason: tell(Unreadable(reason).plain()))
        corpus = growing() if self.follow else Corpus.read(self.data, columns)
        part = make(
            name=name, corpus=corpus, policy=policy, out=self.out, on_event=tell,
            dry_run=self.dry_run, embedding_model=self.embedding_model,
            growing=growing if self.follow else None, secret_from_seed=self.secret_from_seed,
            start=None if self.started is None else TopicModel.from_pretrained(self.started),
        )  # fmt: skip
        if not self.as_json:
            empty = f"{corpus.n_empty:,} of them empty"
            say(f"{name}: {len(corpus):,} documents, {empty}; they stay.")
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
    click.echo(as_json(plain, default=str, allow_nan=False))
    console.file.flush()
