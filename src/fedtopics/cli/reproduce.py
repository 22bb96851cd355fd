"""Where the papers' experiments went, for who types their former command."""

from __future__ import annotations

import shlex

import click


@click.command(
    hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def reproduce(arguments: tuple[str, ...]) -> None:
    """Say where the papers' experiments are: in the repository."""
    command = shlex.join(arguments or ["--help"])
    raise click.UsageError(
        f"The papers' experiments are in the repository: python -m experiments {command}"
    )
