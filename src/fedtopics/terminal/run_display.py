"""What a federation shows: members, progress, the proposed study, and what it would reveal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedtopics.federation.progress import SHOWN_EVENTS, ProgressDisplay
from fedtopics.files import shortened
from fedtopics.guarantees import not_promised
from fedtopics.terminal.display import SENTENCES, console, event_sentence, say, status, topic_news

if TYPE_CHECKING:
    from fedtopics.federation.exposure import Exposure
    from fedtopics.protocol.plain_server import PlainServer
    from fedtopics.protocol.relay import RelayService

_NEWS = {name: SENTENCES[name] for name in ("waits for", "continues")} | {  # of a client
    "narrowed": "an update had too large numbers, so it was multiplied by {factor:.1e}",
    "documents": "{documents:,} documents ({whose}; {empty:,} of them empty) from {source}; they "
    "stay here. The first ones have {words} words",
    "memory": "{text}",
    "unreadable": "the documents cannot be read at present: {reason}",
    "listening": "the server of the study listens on {address}",
    "joined": "joined study {fingerprint:.16}; the run is in {folder}",
    "reconnecting": "{reason}; trying again in {seconds:.0f} s",
    "already finished": "this study is finished",
    "allowed": "the policy allows this study; nothing was sent. To join, leave out --dry-run.",
    "defect": "round {round}: {function} failed with {error}; nothing was sent",
    "model": "the model is in {folder}; next to it, theta.parquet has the topics of {documents:,} "
    "documents (in {unknown:,} of them, the model knows nothing)",
}


class ServerNews:
    """Show a live table of the clients on a terminal; elsewhere, lines."""

    def __init__(self) -> None:
        self._service: RelayService | PlainServer | None = None
        self._round: dict[str, Any] = {}
        self._progress = ProgressDisplay(console, say, bar=False)
        self._counted: Counter[str] = Counter()
        self._missing: dict[str, str] = {}
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._progress.close()

    def watch(self, service: RelayService | PlainServer) -> None:
        self._service = service
        if console.is_terminal:
            self._live.start()

    def __call__(self, event: dict[str, Any]) -> None:
        self._progress(event)
        if event["event"] == "round":
            self._round = event
            self._counted.update(event["clients"])
            for client, reason in event["missing"].items():
                if self._missing.get(client) != reason:
                    say(f"round {event['round']} without {client}: {reason}")
            self._missing = event["missing"]
            if "topics" in event:
                say(topic_news(event))
        elif text := event_sentence(event):
            say(text)

    def _table(self) -> Table:
        event = self._round
        progress = "waiting for the clients"
        if event:
            traffic = (event["bytes_sent"] + event["bytes_received"]) / 1e6
            progress = f"{self._progress}   {event['seconds']:.2f} s, {traffic:.1f} MB per round"
        table = Table("client", "state", title=progress, title_justify="left")
        table.add_column("rounds", justify="right")
        service = self._service
        present = service.present() if service else {}
        for name in service.names if service else ():
            seconds = present.get(name)
            table.add_row(
                name,
                "not connected" if seconds is None else f"called {seconds:.0f} s ago",
                f"{self._counted[name]:,}",
            )
        return table


class MemberNews:
    """Show the study before a member joins, then the progress."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._status = status(f"{name}: starting")
        self._progress = ProgressDisplay(console, lambda line: say(f"{name}: {line}"), bar=False)

    def __enter__(self) -> MemberNews:
        if console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._progress.close()

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        self._progress(event)
        if kind in SHOWN_EVENTS:
            self._status.update(Text(f"{self._name}: {self._progress}"))
        if kind == "reconnecting":
            event = event | {"seconds": max(1, event["seconds"])}
        if kind == "skipped":
            say(event_sentence(event))
        elif kind == "arrived":
            news = f"round {event['round']:,}: {event['documents']:,} documents"
            self._status.update(Text(f"{self._name}: {news}"))
        elif kind == "offer":
            show_offer(event)
        elif text := client_sentence(event):
            if kind == "allowed":
                show_exposure(event["exposure"])
            say(f"{self._name}: {text}")


def client_sentence(event: dict[str, Any]) -> str:
    return event_sentence(event, _NEWS)


def show_offer(event: dict[str, Any]) -> None:
    study = event["study"]
    network = study.described["settings"].get("method.network")
    network = f" with {network}" if network else ""
    say(
        f"Study {shortened(study.fingerprint)}: {study.method.method_name}{network}, "
        f"{study.method.number} topics, clients {', '.join(study.clients)}."
    )
    for name, text in study.about.rows():
        say(f"  {name}: {text}")
    say(f"{event['seen']}\n{event['policy']}")
    if event["known"]:
        return say("What it shares was shown before; `fedtopics check` shows it again.")
    return show_data_sent(event["data_sent"])


def show_data_sent(rows: Sequence[Mapping[str, Any]]) -> None:
    """Show the table of data sent, and below it what each function sends."""
    table = Table("data sent", "who sees it", box=None, padding=(0, 2, 0, 0))
    sizes = {"calls": "times", "numbers": "numbers", "bytes": "bytes"}
    for title in sizes.values():
        table.add_column(title, justify="right", overflow="fold")
    for row in rows:
        table.add_row(
            row["short"],
            row["seen"],
            *("?" if row[key] is None else f"{row[key]:,}" for key in sizes),
        )
    console.print(table)
    say(
        "times: at most, in the whole study. numbers, bytes: sent once, at most; ? if that is not "
        "known before the run.\n"
    )
    explain_functions(rows)


def explain_functions(rows: Sequence[Mapping[str, Any]]) -> None:
    """Say of each function when it is called, who sees what it sends, and within which bounds."""
    for row in rows:
        say(f"{row['function']} ({row['often']}; from {row['over']}; seen by {row['seen']})")
        say(f"  {row['data_sent']}")
        if row["bounds"]:
            say(f"  Bounds: {row['bounds']}.", "dim")


def show_exposure(exposure: Exposure) -> None:
    """Show what would be sent, what others could learn from it, and what is not promised."""
    study = exposure.study
    say("\nWhat would be sent", "bold")
    if exposure.words:
        say(f"Words: {exposure.words:,} occur in enough of these documents.")
    show_data_sent([row.plain() for row in exposure.rows])
    unknown = ", ".join(row.short for row in exposure.rows if row.bytes is None)
    without = f", not counting: {unknown}" if unknown else ""
    say(
        f"\nIn all at most {exposure.steps:,} steps and {exposure.bytes:,} bytes{without}. "
        f"Rounds: at most {study.method.max_rounds:,}."
    )
    say("\nWhat others could learn", "bold")
    for who, learns in exposure.adversaries.items():
        say(f"  - {who}: {learns}")
    say("\nWhat is not promised", "bold")
    has = {
        "secure": study.is_secure,
        "noise": study.differential_privacy is not None,
        "draws": study.method.draws,
    }
    if exposure.persons is not None:
        has["persons"] = exposure.unit != "documents"
    for line in not_promised(**has):
        say(f"  - {line}")
    say("More: docs/concepts/threat-model.md.")
