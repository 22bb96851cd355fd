"""What the command line shows: text, tables, JSON, the progress of a run."""

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

from fedtopics.federation.progress import Progress, duration
from fedtopics.harmless import as_json, for_encoding, for_terminal
from fedtopics.text.languages import language_sentence

# Commands import what needs torch when they run: --help answers at once.
if TYPE_CHECKING:
    from fedtopics.model.topic_model import TopicModel


class Terminal(Console):
    """A console on which no text, whoever wrote it, is a command to the terminal, or mark-up."""

    def __init__(self, **how: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render what is shown, of which rich's own commands alone have an effect."""
        for text, style, control in super().render(renderable, options):
            shown = for_encoding(for_terminal(text), self.encoding)
            yield Segment(text if control else shown, style, control)


console = Terminal()

_CONTINUED = "goes on with model {model:.16} of {method} after {rounds:,} rounds, "
_SENTENCES = {
    "continued": _CONTINUED + "in words agreed on anew",
    "continued with its words": _CONTINUED + "with its words",
    "listening": "listening on {address} for {clients}",
    "waiting": "waiting for {missing}; after {left} it goes on without, if there are enough",
    "waits for": "waiting for {clients} since {seconds}: {end}",
    "left out": "without {missing} in what is agreed on, or describes the model",
    "chosen": "the method is {method}, as {reason}; another one: name it in [method]",
    "repeated": "round {round} is repeated without {missing}",
    "documents": "{client}: {documents:,} documents, {empty:,} of them empty, from {source}; the "
    "first ones have {words} words",
    "vocabulary": "agreed on {words:,} words of {documents:,} documents",
    "skipped": "round {round:,}: {client} skips it, with {documents:,} new documents of at least "
    "{least:,}",
    "finished": "the model went to {received}",
    "joined": "{client} has joined",
    "lost": "{client} is not connected any more",
    "declined": "{client} does not take part: {reason}",
    "bad reply": "round {round}: {client} {reason}",
    "clipped": "round {round}: {client} moved the model {times:,.0f} times as far a document as "
    "the others, and counts for less",
    "excluded": "{client} is excluded: {reason}",
    "checkpoint failed": "round {round}: the checkpoint was not written: {reason}; the run goes on",
    "stopped": "stopped after round {round}: {reason}",
}


def program_name() -> str:
    """Return how this program is typed here: by its path if the shell would not find it."""
    typed = Path(sys.argv[0])
    found = shutil.which("fedtopics")
    if typed.name != "fedtopics" or (found and Path(found).resolve() == typed.resolve()):
        return "fedtopics"
    return str(typed)


def say(text: str, style: str = "") -> None:
    """Print text as it is: not wrapped, with what does not print as escapes."""
    console.print(text, style=style, soft_wrap=True)


def print_json(content: Any) -> None:
    """Print JSON for other programs."""
    write(json_text(content))


def write(text: str) -> None:
    """Write text for other programs as it is."""
    sys.stdout.write(for_encoding(text, sys.stdout.encoding))
    sys.stdout.flush()


def json_text(content: Any) -> str:
    """Return JSON for other programs."""
    return as_json(content, indent=1) + "\n"


def status(text: str) -> Status:
    """Show on a terminal that something is going on, in a with statement."""
    spinner = "dots" if console.encoding.startswith("utf") else "line"
    return console.status(Text(text), spinner=spinner)


@contextmanager
def embedding_status(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show the same, and of how many documents there are embeddings, with the callback given."""
    with status(text) as shown:
        yield lambda done, n: shown.update(Text(f"Embeddings of {done:,} of {n:,} documents"))


class RoundProgress(Progress):
    """Show rounds, loss and time left, and what else a simulation tells."""

    def __init__(self) -> None:
        super().__init__(console, say)

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        super().__call__(event)
        if kind == "vocabulary":
            unseen = f"{event['without_known_word']:,} of them without an agreed word"
            say(f"agreed on {event['words']:,} words; {event['documents']:,} documents, {unseen}")
        elif kind == "round" and "topics" in event:
            say(topic_news(event))
        elif kind in ("documents", "chosen", "clipped", "continued", "skipped", "stopped"):
            say(sentence(event))
        elif text := language_sentence(event):
            say(text)


def sentence(event: Mapping[str, Any]) -> str:
    """Say what an event of a run tells in one sentence, "" of others."""
    kind = event["event"]
    if kind == "continued" and event["vocabulary"] == "keep":
        kind = "continued with its words"
    values = {key: listed(value) for key, value in event.items()}
    if kind == "waiting":
        values["left"] = duration(event.get("left", 0.0))
    if kind == "waits for":
        values["seconds"], left = duration(event["seconds"]), event.get("left")
        ends = "" if left is None else f", or ends in {duration(left)}, to be resumed"
        values["end"] = f"the run continues when all are there{ends}"
    text = _SENTENCES.get(kind, "").format_map(values)
    return text or language_sentence(event)


def listed(value: Any) -> Any:
    """Return what an event says as a sentence has it: of a list, its parts with commas."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({reason})" for name, reason in value.items())
    return ", ".join(map(str, value)) or "none of the clients" if isinstance(value, list) else value


def topic_news(event: Mapping[str, Any]) -> str:
    """Say what a round of F-LDA brought."""
    by_id = {topic["id"]: topic for topic in event["topics"]}
    names = {"new": [by_id[id_] for id_ in event["new"]], "vanished": event["vanished"]}
    lines = [
        f"round {event['round']:,}: {len(by_id)} topics of {event['documents']:,} documents; the "
        f"same from a cosine of {event['threshold']:.2f}"
    ]
    if "bytes_received" in event:
        sent, received = (event[f"bytes_{way}"] / 1000 for way in ("sent", "received"))
        lines[0] += f"; {received:,.0f} KB from all clients, {sent:,.0f} KB to them"
    lines += [
        f"  {kind}: {'; '.join(' '.join(topic['words']) for topic in topics)}"
        for kind, topics in names.items()
        if topics and event["round"] > 1
    ]
    return "\n".join(lines)


def print_topics(model: TopicModel, words: int, lambda_: float | None = None) -> None:
    """Print topics, largest first, with each client's share of them."""
    for text, style in topic_lines(model, words, lambda_):
        say(text, style)


def topic_lines(
    model: TopicModel, words: int, lambda_: float | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the lines that show topics, each with its style."""
    from fedtopics.model.labels import shown_label

    yield (
        "topic, its share of all documents, its words; below, its share of each client's documents",
        "",
    )
    for row in model.get_topic_info(words, lambda_):
        label = f"{shown_label(row)}: " if row["label"] else ""
        yield f"{row['topic']:>5} {row['share']:>6.1%}  {label}{' '.join(row['words'])}", ""
        shares = sorted(row["clients"].items(), key=lambda item: -item[1])
        yield " " * 14 + "  ".join(f"{name} {share:.0%}" for name, share in shares), "dim"


def print_ledger(client: str, rows: list[dict[str, Any]]) -> None:
    """Print the table of what left a client, and of what came if that is written down."""
    table = Table(title=f"What left {client}", title_justify="left")
    table.add_column("function", overflow="fold")  # never cut: names begin alike
    columns = ["replies", "documents", "values", "bytes"]
    if any(row["totals"] for row in rows):
        columns += ["totals", "bytes_of_totals"]
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right", overflow="fold")
    for row in rows:
        name = row["function"] + ("*" if row["masked"] else "")
        table.add_row(name, *(f"{row[column]:,}" for column in columns))
    console.print(table)
