"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

import click

FOLDER = click.Path(path_type=Path)
FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)  # as click's

COLUMNS = {
    "text": "Column of the text.",
    "tokens": "Column of lists of words, taken as they are.",
    "id": "Column of identifiers.",
    "label": "Column of labels: adds purity, accuracy and NMI of the largest topics.",
    "embedding": "Column of embeddings, where they are needed.",
    "author": "Column of whose each document is, for studies with a bound for authors.",
    "time": "Column of when each was written, for studies that sum topics by period.",
    "round": "Column of rounds or times, for studies that use them.",
}

KEPT = "What is there is replaced only if fedtopics wrote it."  # see `files.check_output`


def output(*names: str, help: str, **how: Any) -> Callable[[FC], FC]:  # noqa: A002 - as of click
    """Return the option of a file to write; each command writes it by `files.write_output`."""
    return click.option(*names, type=FOLDER, metavar="FILE", help=f"{help} {KEPT}", **how)


with_default = partial(click.option, show_default=True)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
out = click.option("--out", type=FOLDER, help="Folder of the run.  [default: runs/NAME]")
resume = click.option("--resume", is_flag=True, help="Go on with the run in that folder.")
policy = click.option(
    "--policy", type=FOLDER, help="What may leave, a TOML file.  [default: see docs]"
)
embedding_model = click.option(
    "--embedding-model", help="The model of that column, or a folder with the model it is to be."
)
lambda_ = click.option(
    "--lambda", "lambda_", type=click.FloatRange(0, 1), help="1 by probability, 0 by lift."
)
words = with_default(
    "--words", type=click.IntRange(1), default=10, help="First words of each topic that are shown."
)
vocabulary = click.option(
    "--vocabulary",
    type=click.Choice(["keep", "agree"]),
    help="The model's own words, or such as clients agree on anew.  [default: keep, if the study "
    "has its method and rules of text]",
)
threshold = click.option(
    "--threshold",
    type=click.FloatRange(0, 1, min_open=True),
    help="Cosine from which topics are the same.  [default: found from the models]",
)


def columns(
    *names: str, rules: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each column of the documents, and for rules by which these become words.

    The command gets them as `columns`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**arguments: Any) -> None:
            columns = {name: arguments.pop(name) for name in names}
            if rules:
                from fedtopics.federation.study_tables import read_rules

                file = arguments.pop("rules")
                columns["rules"] = None if file is None else read_rules(file)
            command(columns=columns, **arguments)

        if rules:
            help_ = "Own rules for texts: TOML with keys of a study's [text]."
            click.option("--rules", type=FOLDER, help=help_)(called)
        for name in reversed(names):
            click.option(f"--{name}", help=COLUMNS[name])(called)
        return called

    return decorate
