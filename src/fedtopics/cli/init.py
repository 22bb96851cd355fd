"""Commands that write a first study or policy."""

from pathlib import Path

import click

from fedtopics.cli.options import FOLDER, with_default
from fedtopics.errors import RunError
from fedtopics.files import write_durably
from fedtopics.methods.registry import DEFAULT_METHOD, METHODS
from fedtopics.terminal.display import say, write

STUDY = """\
name = "letters"

[method]
name = "{method}"{note}
n_components = 20      # number of topics

[clients.north]
data = "north.csv"     # CSV, JSON lines, Parquet, Excel, SPSS, Stata, or a folder of .txt files

[clients.south]
data = "south.csv"
"""
SHORT_TEXTS = "           # for texts of fewer than 15 words, take mixture"


@click.command()
@click.argument("file", type=FOLDER, default="study.toml")
@with_default("--method", type=click.Choice(METHODS.names), default=DEFAULT_METHOD, help="Method.")
@click.option("--all", "everything", is_flag=True, help="Write all settings, with their defaults.")
def study(file: Path, method: str, everything: bool) -> None:
    """Write a short study to FILE, by default study.toml; with - as FILE, print it."""
    from fedtopics.federation.study import example_study

    short = STUDY.format(method=method, note=SHORT_TEXTS if method == "nmf" else "")
    _write(file, example_study(method) if everything else short, "study")


@click.command()
@click.argument("file", type=FOLDER, default="policy.toml")
def policy(file: Path) -> None:
    """Write a policy with all keys to FILE, by default policy.toml; with - as FILE, print it."""
    from fedtopics import Policy
    from fedtopics.federation.study_tables import value_as_toml

    _write(file, value_as_toml(Policy(), example=True), "policy")


def _write(file: Path, content: str, what: str) -> None:
    if str(file) == "-":
        return write(content)
    if file.exists():
        raise RunError(f"The file {file} already exists; name another one for the {what}.")
    write_durably(file, content.encode())
    return say(f"The {what} is in {file}; edit it.")
