"""What the command line shows: text, tables, JSON and the progress of a run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.status import Status
from rich.table import Table
from rich.text import Text

from fedtopics.escaping import as_json, for_encoding, for_terminal
from fedtopics.federation.progress import duration, end_of_wait
from fedtopics.text.languages import language_sentence

# Commands import slow modules when they run, so that --help is fast.
if TYPE_CHECKING:
    from fedtopics.model.topic_model import TopicModel


class Terminal(Console):
    """A console on which text of others can neither control the terminal nor act as markup."""

    def __init__(self, **how: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render text with escapes; only rich's own control sequences take effect."""
        for text, style, control in super().render(renderable, options):
            yield Segment(
                text if control else for_encoding(for_terminal(text), self.encoding), style, control
            )


console = Terminal()

_CONTINUED = "continuing from model {model:.16} of {method} after {rounds:,} rounds, "
SENTENCES = {
    "continued": _CONTINUED + "with a newly agreed vocabulary",
    "continued with its words": _CONTINUED + "with its vocabulary",
    "listening": "listening on {address} for {clients}",
    "waiting": "waiting for {missing}; {end}",
    "waits for": "has waited for {clients} for {seconds}: {end}",
    "continues": "all are there again; the run continues",
    "halted": "{client} stopped the run at step {step}: {reason}. All members start their commands "
    "again; this server continues",
    "already finished": "this study is finished: all members have the model",
    "left out": "{missing} has no part in the vocabulary or the description of the model",
    "candidate": "tried n_components = {n_components}: score {score:.3f}",
    "number chosen": "chose n_components = {reason}",
    "repeated": "round {round} is repeated without {missing}",
    "documents": "{client}: {documents:,} documents ({whose}; {empty:,} of them empty) from "
    "{source}; the first ones have {words} words",
    "vocabulary": "agreed on {words:,} words of {documents:,} documents{few}",
    "skipped": "round {round:,}: {client} takes no part: it has {documents:,} new documents, but "
    "needs {least:,}",
    "finished": "{received} have the model",
    "joined": "{client} has joined",
    "lost": "{client} is no longer connected",
    "declined": "{client} does not take part: {reason}",
    "bad reply": "round {round}: {client} {reason}",
    "clipped": "round {round}: {client} sent an update {times:,.0f} times as large per document as "
    "the others, so its weight is reduced",
    "excluded": "{client} is excluded: {reason}",
    "checkpoint failed": "round {round}: no checkpoint was written: {reason}; the run continues",
    "stopped": "stopped after round {round}: {reason}",
}
SIMULATION_SENTENCES = {
    name: SENTENCES[name]
    for name in (
        "candidate",
        "number chosen",
        "documents",
        "clipped",
        "continued",
        "continued with its words",
        "skipped",
        "stopped",
    )
} | {
    "vocabulary": "agreed on {words:,} words; {documents:,} documents, {without_known_word:,} of "
    "them without an agreed word"
}


def program_name() -> str:
    """Return how to call this program in the shell: its name, or its path if that is not found."""
    typed = Path(sys.argv[0])
    installed = shutil.which("fedtopics")
    return (
        "fedtopics"
        if typed.name != "fedtopics" or (installed and Path(installed).resolve() == typed.resolve())
        else str(typed)
    )


def say(text: str, style: str = "") -> None:
    """Print text without wrapping, with escapes for characters that do not print."""
    console.print(text, style=style, soft_wrap=True)


def print_json(content: Any) -> None:
    write(json_text(content))


def write(text: str) -> None:
    print(for_encoding(text, sys.stdout.encoding), end="", flush=True)


def json_text(content: Any) -> str:
    return as_json(content, indent=1) + "\n"


def status(text: str) -> Status:
    return console.status(
        Text(text), spinner="dots" if console.encoding.startswith("utf") else "line"
    )


@contextmanager
def embedding_status(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a spinner that counts embedded documents through the yielded callback."""
    with status(text) as shown:
        yield lambda done, n: shown.update(Text(f"Embeddings of {done:,} of {n:,} documents"))


def event_sentence(event: Mapping[str, Any], sentences: Mapping[str, str] = SENTENCES) -> str:
    kind = event["event"]
    if kind == "continued" and event["vocabulary"] == "keep":
        kind = "continued with its words"
    values = {key: listed(value) for key, value in event.items()}
    if kind == "waits for" and not event["clients"]:
        kind = "continues"
    elif kind in ("waiting", "waits for"):
        values["seconds"] = duration(event.get("seconds", 0.0))
        values["end"] = end_of_wait(event)
    return sentences.get(kind, "").format_map(values) or language_sentence(event)


def listed(value: Any) -> Any:
    """Return a value of an event as text: lists with commas, mappings with reasons."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({reason})" for name, reason in value.items())
    return ", ".join(map(str, value)) or "none of the clients" if isinstance(value, list) else value


def topic_news(event: Mapping[str, Any]) -> str:
    """Describe a round of F-LDA: documents by client, and which topics are new or vanished."""
    by_id = {topic["id"]: topic for topic in event["topics"]}
    names = {"new": [by_id[id_] for id_ in event["new"]], "vanished": event["vanished"]}
    arrived = ", ".join(f"{name} {n:,}" for name, n in event["arrived"].items())
    lines = [
        f"round {event['round']:,}: {len(by_id)} topics of {event['documents']:,} documents "
        f"({arrived}); topics with a cosine of at least {event['threshold']:.2f} count as the same"
    ]
    if "bytes_received" in event:
        sent, received = (event[f"bytes_{way}"] / 1000 for way in ("sent", "received"))
        lines[0] += f"; {received:,.0f} KB from all clients, {sent:,.0f} KB to them"
    lines += [
        f"  {kind}: {'; '.join(' '.join([str(t['id']), *t['words']]) for t in topics)}"
        for kind, topics in names.items()
        if topics and event["round"] > 1
    ]
    return "\n".join(lines)


def print_topics(model: TopicModel, words: int, relevance: float | None = None) -> None:
    for text, style in topic_lines(model, words, relevance):
        say(text, style)


def topic_lines(
    model: TopicModel, words: int, relevance: float | None = None
) -> Iterator[tuple[str, str]]:
    from fedtopics.model.labels import shown_label

    yield (
        "topic, its share of all documents, its words; below, its share of each client's documents",
        "",
    )
    is_merged = "merged" in model.info
    for row in model.get_topic_info(words, relevance):
        label = f"{shown_label(row)}: " if row["label"] else ""
        yield f"{row['topic']:>5} {row['share']:>6.1%}  {label}{' '.join(row['words'])}", ""
        shares = sorted(row["clients"].items(), key=lambda item: -item[1])
        # A model that was merged says nothing about topics of the others.
        measured = [f"{name} {share:.0%}" for name, share in shares if share or not is_merged]
        unknown = "  (others: unknown)" * (len(measured) < len(shares))
        yield " " * 14 + "  ".join(measured) + unknown, "dim"


def print_ledger(client: str, rows: list[dict[str, Any]]) -> None:
    """Print what a client sent and, if the ledger records it, what the client received."""
    table = Table(
        title=f"\nData sent by {client}", title_justify="left", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("function", no_wrap=True)  # other columns fold: names begin alike
    columns = [
        "replies",
        "documents",
        "values",
        "bytes",
        *(["totals", "bytes_of_totals"] if any(row["totals"] for row in rows) else []),
    ]
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right", overflow="fold")
    for row in rows:
        table.add_row(
            row["function"] + ("*" if row["masked"] else ""),
            *(f"{row[column]:,}" for column in columns),
        )
    console.print(table)
