"""Commands for organisations that run Flower."""

from pathlib import Path
from string import Template

import click

from fedtopics.cli.display import say
from fedtopics.cli.options import FOLDER
from fedtopics.errors import RunError, StudyError
from fedtopics.extras import require

PYPROJECT = """\
# A fedtopics study as a Flower app. Flower sends this folder to the SuperLink and the SuperNodes.
# The code is fedtopics itself, installed there with: pip install "fedtopics[flower]"
[project]
name = "fedtopics-study"
version = "1.0.0"
description = "A federated topic model"
license = "Apache-2.0"
dependencies = []  # a run installs nothing

[tool.flwr.app]
publisher = "fedtopics"

[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"

[tool.flwr.app.config]
out = ""  # the run's folder on the SuperLink's machine; default: runs/NAME in its working folder
keys = ""  # in a simulation, the folder with the clients' keys
"""

SERVER_APP = """\
from pathlib import Path

from fedtopics.integrations.flower import server_app

app = server_app(Path(__file__).with_name("study.toml"))
"""

CLIENT_APP = """\
from pathlib import Path

from fedtopics.integrations.flower import client_app

app = client_app(Path(__file__).with_name("study.toml"))
"""

README = Template("""\
# A topic model, through Flower

`study.toml` is the study that all agree on. The other files only call fedtopics. Install it
(`pip install "fedtopics[flower]"`) on the SuperLink's machine and on each SuperNode's.

Each SuperNode has a node configuration with its client's name and the place of its documents, in a
file `NAME.toml` that stays there:

    name = "$first"
    data = "/data/documents.csv"
    text = "text"
    policy = "/data/policy.toml"
    out = "/data/fedtopics"
    key = "/data/$first"

    flower-supernode ... --node-config NAME.toml

Clients of this study: $clients. Then, with the SuperLink's connection in Flower's configuration:

    flwr run . CONNECTION --stream

The same command resumes the run after an interruption. For a simulation, put each client's
documents into the study, and give the folder with the clients' keys:

    flwr run . local --stream --federation-config 'num-supernodes=$count' \\
      --run-config 'keys="/keys"'

For more, see flower.md in fedtopics' documentation.
""")


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
    clients: dict[str, dict[str, str]] = {"north": {}, "south": {}}
    plan = Study.read(study) if study else Study.make(name="example", clients=clients)
    if not plan.clients:
        raise StudyError(f"{study} has no clients; add a table [clients.NAME] for each.")
    names = sorted(plan.clients)
    files = {
        "pyproject.toml": PYPROJECT,
        "server_app.py": SERVER_APP,
        "client_app.py": CLIENT_APP,
        "study.toml": plan.to_toml(),
        "README.md": README.substitute(first=names[0], clients=", ".join(names), count=len(names)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    say(f"The app is in {folder}; its README.md explains how to run it.")
