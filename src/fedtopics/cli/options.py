"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

FOLDER = click.Path(path_type=Path)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
