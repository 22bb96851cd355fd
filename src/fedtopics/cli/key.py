"""Commands for a member's key: create, show."""

from __future__ import annotations

from pathlib import Path

import click

from fedtopics.cli.display import say
from fedtopics.cli.options import FOLDER


@click.group("key")
def group() -> None:
    """Make and show the keys by which members recognise each other."""


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--out", type=FOLDER, default=Path(), help="Where the folder is made.  [default: here]"
)
def create(names: tuple[str, ...], out: Path) -> None:
    """Make a key: the folder NAME, which stays here, and NAME.pem, which the others get."""
    from fedtopics.protocol.roster import Key

    for name in names:
        key = Key.create(out / name, name)
        say(f"{out / name} is the private key of {name}: keep it on this machine.")
        say(f"{out / name}.pem is its certificate: send it to the other members.")
        say(f"SHA-256, to compare by telephone: {key.shown}")
    if len(names) > 1:
        say("Whoever made these keys can read everything that their members send: for trials.")


@group.command()
@click.argument("path", type=FOLDER)
def show(path: Path) -> None:
    """Show the name and the SHA-256 of a key's folder, or of a certificate."""
    from fedtopics.files import read_bytes
    from fedtopics.protocol.roster import Key, name_of, shown

    content = Key.load(path).certificate if path.is_dir() else read_bytes(path)
    say(f"{name_of(content, str(path))}  {shown(content)}")
