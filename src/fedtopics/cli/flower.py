"""Commands for organisations that run Flower."""

from pathlib import Path
from string import Template

import click

from fedtopics.cli.options import FOLDER
from fedtopics.errors import RunError, StudyError
from fedtopics.extras import require
from fedtopics.files import read_text
from fedtopics.terminal.display import say

TEMPLATES = Path(__file__).with_name("templates")
APP = """\
from pathlib import Path

from fedtopics.integrations.flower import {kind}_app

app = {kind}_app(Path(__file__).with_name("study.toml"))
"""


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--study", type=FOLDER, help="Study file.  [default: an example]")
def init(folder: Path, study: Path | None) -> None:
    """Write a Flower app, for `flwr run DIR`.

    It consists of the study and two files that call fedtopics. DIR is a new or empty folder. The
    study has the clients' certificates; each SuperNode configures its own documents and key.
    """
    from fedtopics.federation.study import Study

    require("Flower apps need", '"fedtopics[flower]"', ("flwr", "flwr"))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not an empty folder; choose another one.")
    plan = (
        Study.read(study)
        if study
        else Study.make(name="example", clients={"north": {}, "south": {}})
    )
    if not plan.clients:
        raise StudyError(f"{study} has no clients; add a table [clients.NAME] for each.")
    names = sorted(plan.clients)
    files = {
        "pyproject.toml": read_text(TEMPLATES / "flower_pyproject.toml"),
        **{f"{kind}_app.py": APP.format(kind=kind) for kind in ("server", "client")},
        "study.toml": plan.to_toml(),
        "README.md": Template(read_text(TEMPLATES / "flower_readme.md")).substitute(
            first=names[0], clients=", ".join(names), count=len(names)
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    say(f"The app is in {folder}; its README.md explains how to run it.")
