"""What a federation shows: members, progress, the proposed study, and what it would reveal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from fedtopics.federation.progress import ProgressDisplay
from fedtopics.guarantees import not_promised
from fedtopics.terminal.display import SENTENCES, console, event_sentence, say, topic_news

if TYPE_CHECKING:
    from fedtopics.federation.exposure import Exposure

MEMBER_SENTENCES = {name: SENTENCES[name] for name in ("waits for", "continues")} | {
    "narrowed": "an update had too large numbers, so it was multiplied by {factor:.1e}",
    "documents": "{documents:,} documents ({whose}; {empty:,} of them empty) from {source}; they "
    "stay here. The first ones have {words} words",
    "memory": "{text}",
    "pending": "{approvals} of {needed} approvals of {page}; nothing of it has left. To approve: "
    "fedtopics approve {folder} --key KEY",
    "unreadable": "the documents cannot be read at present: {reason}",
    "listening": "the server of the study listens on {address}",
    "joined": "joined study {fingerprint:.16}; the run is in {folder}",
    "reconnecting": "{reason}; trying again in {seconds:.0f} s",
    "already finished": "this study is finished",
    "allowed": "the policy allows this study; nothing was sent. To join, leave out --dry-run.",
    "skipped": "takes no part in round {round:,}: it has {documents:,} new documents, but needs "
    "{least:,}",
    "defect": "round {round}: {function} failed with {error}; nothing was sent",
    "model": "the model is in {folder}; next to it, theta.parquet has the topics of {documents:,} "
    "documents (in {unknown:,} of them, the model knows nothing)",
}


class RunDisplay(ProgressDisplay):
    """Show the progress and the events of a run; lines of a member begin with its name."""

    def __init__(self, sentences: Mapping[str, str] = SENTENCES, name: str = "") -> None:
        super().__init__(console, lambda text: say(f"{name}: {text}" if name else text))
        self._sentences = sentences
        self._missing: Mapping[str, str] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        super().__call__(event)
        match event["event"]:
            case "offer":
                show_offer(event)
            case "allowed":
                show_exposure(event["exposure"])
            case "round":
                self._show_round(event)
        if text := event_sentence(event, self._sentences):
            self._say(text)

    def _show_round(self, event: Mapping[str, Any]) -> None:
        missing = event.get("missing", {})
        for client, reason in missing.items():
            if self._missing.get(client) != reason:
                self._say(f"round {event['round']} without {client}: {reason}")
        self._missing = missing
        if "topics" in event:
            self._say(topic_news(event))


def show_offer(event: Mapping[str, Any]) -> None:
    from fedtopics.federation.proposal import proposal_lines

    say("\n".join(proposal_lines(event["study"])))
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
    for line in not_promised(
        secure=study.is_secure,
        noise=study.differential_privacy is not None,
        draws=study.method.draws,
        **({} if exposure.persons is None else {"persons": exposure.unit != "documents"}),
    ):
        say(f"  - {line}")
    say("More: docs/concepts/threat-model.md.")
