"""The command for organisations that run NVIDIA FLARE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fedtopics.cli import options
from fedtopics.cli.options import FOLDER
from fedtopics.extras import require
from fedtopics.terminal.display import say


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--data", type=FOLDER, help="At a client's site: its documents, which stay there.")
@options.columns("text", "tokens", "id", "round", "embedding", "person", "time", rules=False)
@options.embedding_model
@options.policy
@click.option("--out", type=FOLDER, help="Folder for the runs.  [default: FOLDER/fedtopics]")
@click.option("--key", type=FOLDER, help="The site's key, made by `fedtopics key create`.")
@click.option("--insecure-seed", is_flag=True, help="Predictable random choices, only for tests.")
def allow_command(
    folder: Path,
    data: Path | None,
    columns: dict[str, str | None],
    embedding_model: str | None,
    policy: Path | None,
    out: Path | None,
    key: Path | None,
    insecure_seed: bool,
) -> None:
    """Let fedtopics run at a FLARE server or site.

    FOLDER is the server's or the site's, with `startup` and `local` in it. This adds the classes of
    fedtopics to the allowed classes in local/resources.json. With --data, it writes the options to
    local/fedtopics.toml, which jobs cannot change.
    """
    require("Jobs of FLARE need", '"fedtopics[flare]"', ("nvflare", "nvflare"))
    from fedtopics.federation.policy import Policy
    from fedtopics.federation.study_tables import ClientData
    from fedtopics.integrations.flare import SITE_FILE
    from fedtopics.integrations.flare_jobs import allow
    from fedtopics.protocol.roster import Key

    paths = {"data": data, "policy": policy, "out": out, "key": key}
    settings: dict[str, Any] = {name: str(path.absolute()) for name, path in paths.items() if path}
    if key is not None:
        Key.load(key)
    if data is not None:
        if embedding_model and Path(embedding_model).is_dir():  # else it is a name
            embedding_model = str(Path(embedding_model).absolute())
        further = {"embedding_model": embedding_model, "insecure_seed": insecure_seed or None}
        settings |= {name: v for name, v in (columns | further).items() if v is not None}
        corpus = ClientData(
            **{name: v for name, v in settings.items() if name in ClientData.model_fields}
        ).read(folder.name)
        if policy is not None:
            Policy.read(policy)
        say(f"The site has {len(corpus):,} documents in {data}.")
    say(f"Jobs of fedtopics are allowed in {allow(folder)}.")
    if data is not None or key is not None:
        file = folder / "local" / SITE_FILE
        file.write_text(
            "".join(
                f"{name} = {json.dumps(v, ensure_ascii=False)}\n" for name, v in settings.items()
            ),
            encoding="utf-8",
        )
        say(f"The site's settings are in {file}.")
