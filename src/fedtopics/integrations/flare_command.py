"""Commands for organisations that run NVIDIA FLARE."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from fedtopics.cli import options
from fedtopics.cli.display import say
from fedtopics.cli.options import FOLDER
from fedtopics.cli.records import show_run
from fedtopics.errors import FederationError, FedTopicsError, RunError, StudyError
from fedtopics.extras import require
from fedtopics.files import copy_folder, make_folder, read_text, write_durably

if TYPE_CHECKING:
    from fedtopics.federation.study import Study

RUN = "flare.json"  # in the folder of a submitted run: its name at the server


def run(study: Study, folder: Path, resume: bool, keys: Path, kit: Path | None) -> None:
    """Run a study as a job of FLARE: in its simulator, or through an admin's startup kit."""
    require("Jobs of FLARE need", '"fedtopics[flare]"', ("nvflare", "nvflare"))
    if not study.clients:
        raise StudyError("The study has no clients; add a table [clients.NAME] for each.")
    say("FLARE runs the study; its start and its end take half a minute each.")
    if kit is None:
        _simulate(study, folder, keys)
    else:
        _submit(study, folder, resume, kit)
    from fedtopics.model.topic_model import TopicModel

    places = [folder, *sorted(folder.glob("clients/*"))]  # secure aggregation: clients have it
    place = next((each for each in places if (each / "model").exists()), None)
    if place is None:
        say("The run has ended; each site has the model.")
    else:
        show_run(TopicModel.from_pretrained(place / "model"), place)


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--data", type=FOLDER, help="At a client's site: its documents, which stay there.")
@options.columns("text", "tokens", "id", "round", "embedding", "author", "time", rules=False)
@options.embedding_model
@options.policy
@click.option("--out", type=FOLDER, help="Folder for the runs.  [default: FOLDER/fedtopics]")
@click.option("--key", type=FOLDER, help="The site's key, made by `fedtopics key create`.")
@click.option("--insecure-seed", is_flag=True, help="Predictable random choices, only for tests.")
def allow(
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
    from fedtopics.integrations.flare_jobs import allow as allow_in
    from fedtopics.protocol.roster import Key

    paths = {"data": data, "policy": policy, "out": out, "key": key}
    settings: dict[str, Any] = {name: str(path.absolute()) for name, path in paths.items() if path}
    if key is not None:
        Key.load(key)
    if data is not None:
        if embedding_model and Path(embedding_model).is_dir():  # else it is a name
            embedding_model = str(Path(embedding_model).absolute())
        settings |= {kind: name for kind, name in columns.items() if name is not None}
        if embedding_model is not None:
            settings["embedding_model"] = embedding_model
        if insecure_seed:
            settings["insecure_seed"] = True
        own = {k: v for k, v in settings.items() if k in ClientData.model_fields}
        corpus = ClientData(**own).read(folder.name)
        if policy is not None:
            Policy.read(policy)
        say(f"The site has {len(corpus):,} documents in {data}.")
    say(f"Jobs of fedtopics are allowed in {allow_in(folder)}.")
    if data is not None or key is not None:
        lines = (f"{name} = {json.dumps(v, ensure_ascii=False)}\n" for name, v in settings.items())
        file = folder / "local" / SITE_FILE
        file.write_text("".join(lines), encoding="utf-8")
        say(f"The site's settings are in {file}.")


def _simulate(plan: Study, folder: Path, keys: Path) -> None:
    from fedtopics.federation.simulation import client_folder
    from fedtopics.integrations.flare import FAILURE, make_study_job
    from fedtopics.integrations.flare_jobs import simulate

    workspace = Path(tempfile.mkdtemp(prefix="fedtopics-"))
    folders = {name: client_folder(folder, name) for name in plan.clients}
    for place in folders.values():
        (place / FAILURE).unlink(missing_ok=True)
    job = make_study_job(plan, "simulation", workspace, folder, folders, keys)
    try:
        simulate(job, list(plan.clients), workspace)
    except FederationError as error:
        found = ((name, _read(place / FAILURE)) for name, place in folders.items())
        reasons = [s if repr(name) in s else f"Client {name!r}: {s}" for name, s in found if s]
        reason = " ".join(reasons) or _read(folder / FAILURE)
        if not reason:  # only FLARE's logs can explain it
            raise
        shutil.rmtree(workspace, ignore_errors=True)
        raise FederationError(reason) from error
    shutil.rmtree(workspace, ignore_errors=True)


def _submit(plan: Study, folder: Path, resume: bool, kit: Path) -> None:
    from fedtopics.integrations.flare import FAILURE, make_study_job
    from fedtopics.integrations.flare import FOLDER as BROUGHT
    from fedtopics.integrations.flare_jobs import submit

    note = folder / RUN
    name = f"{re.sub('[^A-Za-z0-9_-]+', '-', plan.name)[:80]}-{uuid4().hex[:8]}"
    if resume:
        if not note.exists():
            raise RunError(f"{folder} has no submitted run to resume; leave out --resume.")
        name = str(json.loads(read_text(note))["run"])
    elif note.exists():
        raise RunError(
            f"{folder} has a run already; resume it with --resume, or choose another folder."
        )
    with tempfile.TemporaryDirectory() as workspace:
        results = Path(workspace)
        job = make_study_job(plan, name, results)
        make_folder(folder)
        write_durably(note, (json.dumps({"run": name}) + "\n").encode())
        try:
            ended = submit(job, kit, results)
        except FedTopicsError:
            if not resume:
                note.unlink()
            raise
        if not ended:
            raise FederationError(
                "The connection to FLARE's server was lost before the job ended; when the server "
                "is back and the job has stopped, resume with --resume."
            )
        (folder / FAILURE).unlink(missing_ok=True)
        for brought in results.glob(f"*/workspace/{BROUGHT}"):
            copy_folder(brought, folder)
    if not [*folder.glob("events.jsonl"), *folder.glob("relay-*")]:  # nothing to resume
        note.unlink()
    if ended != "FINISHED:COMPLETED":
        raise FederationError(
            _read(folder / FAILURE) or f"The job ended as {ended}; see FLARE's logs."
        )


def _read(file: Path) -> str:
    return read_text(file).strip() if file.exists() else ""
