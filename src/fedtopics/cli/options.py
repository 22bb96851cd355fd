"""Options that several commands have."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fedtopics.errors import StudyError, nearest_names, refuse
from fedtopics.model.shown_words import WORDS_SHOWN

if TYPE_CHECKING:
    from fedtopics import Policy

FOLDER = click.Path(path_type=Path)
FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)  # as click's

COLUMNS = {
    "text": "the text",
    "tokens": "lists of words, used unchanged",
    "id": "identifiers",
    "label": "labels, to compare with each document's largest topic (purity, accuracy, NMI)",
    "embedding": "embeddings, for methods that need them",
    "person": "whose document it is; without it, each document is a person",
    "time": "when each document was written, for topics by period",
    "by": "by.COLUMN=NAME, a column of the study's [method.by]",
    "round": "each document's round or time, for methods that take new data",
    "date_format": "how times are written, such as %d/%m/%Y",
    "encoding": "the encoding of a text that is not UTF-8, such as cp1252",
    "sheet": "the sheet of a workbook",
}
OF_FILES = "encoding", "sheet"  # what every file can need
NEXT_COLUMN = re.compile(r",(?=[\w.]+=)")  # column names may contain commas

OVERWRITES = "Only files that fedtopics wrote are replaced."  # see `files.check_output`


def output(*names: str, help: str, **how: Any) -> Callable[[FC], FC]:  # noqa: A002 - as of click
    """Return the option of an output file, which `files.write_output` writes."""
    return click.option(*names, type=FOLDER, metavar="FILE", help=f"{help} {OVERWRITES}", **how)


with_default = partial(click.option, show_default=True)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
out = click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/NAME]")
policy = click.option(
    "--policy", type=FOLDER, help="TOML file that limits what is shared.  [default: see docs]"
)
embedding_model = click.option(
    "--embedding-model", help="Model that made the embeddings column, or the folder of the study's."
)
key = click.option("--key", type=FOLDER, metavar="FOLDER", help="Folder of the client's key.")
relevance = click.option(
    "--relevance", type=click.FloatRange(0, 1), help="Rank words: 1 by probability, 0 by lift."
)
words = with_default(
    "--words", type=click.IntRange(1), default=WORDS_SHOWN, help="Number of words per topic."
)
from_model = click.option(
    "--from", "start", type=FOLDER, metavar="MODEL", help="Model to start training from."
)


def memory_of(policy: Policy, key: Path | None) -> Path:
    """Return the file of the memory that a policy names, or else that of a key."""
    from fedtopics.federation.memory import default_place
    from fedtopics.protocol.roster import Key

    if policy.memory is None and key is None:
        raise StudyError("The policy names no memory; add --key with the folder of your key.")
    return policy.memory or default_place(Key.load(str(key)).name)


def columns(
    *kinds: str, rules: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --columns and --text-rules; the command gets `columns` by kind, or None."""
    dates = ("date_format",) if "time" in kinds else ()
    kinds = (*kinds, *dates, *OF_FILES)

    def parsed(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
        names: dict[str, Any] = dict.fromkeys(kinds)
        for pair in (pair for value in values for pair in NEXT_COLUMN.split(value)):
            kind, equals, name = pair.partition("=")
            is_group = "by" in kinds and kind.startswith("by.")
            refuse(
                {
                    f"{kind!r} is not a kind of column of this command; "
                    f"{nearest_names(kind, kinds)}": kind not in kinds and not is_group,
                    f"give {kind} a value, as in {kind}=NAME": not (equals and name),
                },
                error=click.BadParameter,
            )
            if is_group:
                names["by"] = {**(names["by"] or {}), kind.removeprefix("by."): name}
            else:
                names[kind] = name
        return names

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(columns: dict[str, Any], **arguments: Any) -> None:
            if rules:
                # Not imported above, as it loads slowly, and --help needs these options.
                from fedtopics.federation.study_tables import read_rules

                file = arguments.pop("text_rules")
                columns = {**columns, "rules": None if file is None else read_rules(file)}
            command(columns=columns, **arguments)

        if rules:
            click.option(
                "--text-rules",
                type=FOLDER,
                help="Your own text rules: a TOML file with keys of a study's [text].",
            )(called)
        meanings = "; ".join(f"{kind}: {COLUMNS[kind]}" for kind in kinds)
        return click.option(
            "--columns",
            metavar="KIND=NAME,...",
            multiple=True,
            callback=parsed,
            help=f"Columns of the documents. {meanings}.",
        )(called)

    return decorate
