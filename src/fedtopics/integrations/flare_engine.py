"""Studies as jobs of NVIDIA FLARE, in its simulator or on a system of it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fedtopics.errors import FederationError, FedTopicsError, RunError, StudyError, refuse
from fedtopics.extras import require
from fedtopics.files import copy_folder, make_folder, read_text, write_durably
from fedtopics.terminal.display import say

if TYPE_CHECKING:
    from fedtopics.contract.events import OnEvent
    from fedtopics.federation.study import Study


@dataclass(frozen=True)
class FlareEngine:
    """Trains a study as a job of FLARE: in its simulator, or through an admin's startup kit."""

    keys: Path  # folder of the clients' keys, for the simulator
    kit: Path | None = None  # the administrator's startup kit; without one, the simulator

    def train(
        self, study: Study, folder: Path, resume: bool, on_event: OnEvent, **start: Any
    ) -> Path | None:
        require("Jobs of FLARE need", '"fedtopics[flare]"', ("nvflare", "nvflare"))
        refuse(
            {
                "FLARE cannot start from a model; leave out --from or --engine.": bool(start),
                "The study has no clients; add a table [clients.NAME] for each.": (
                    not study.clients
                ),
            },
            StudyError,
        )
        say("FLARE runs the study; its start and its end take half a minute each.")
        folder = folder.absolute()
        if self.kit is None:
            _simulate(study, folder, self.keys.absolute())
        else:
            _submit(study, folder, resume, self.kit)
        places = [folder, *sorted(folder.glob("clients/*"))]  # secure aggregation: clients have it
        return next((place for place in places if (place / "model").exists()), None)


def _simulate(study: Study, folder: Path, keys: Path) -> None:
    from fedtopics.federation.simulation import client_folder
    from fedtopics.integrations.flare import FAILURE, make_study_job
    from fedtopics.integrations.flare_jobs import simulate

    workspace = Path(tempfile.mkdtemp(prefix="fedtopics-"))
    folders = {name: client_folder(folder, name) for name in study.clients}
    for place in folders.values():
        (place / FAILURE).unlink(missing_ok=True)
    job = make_study_job(study, "simulation", workspace, folder, folders, keys)
    try:
        simulate(job, list(study.clients), workspace)
    except FederationError as error:
        failures = ((name, _read(place / FAILURE)) for name, place in folders.items())
        reasons = [s if repr(name) in s else f"Client {name!r}: {s}" for name, s in failures if s]
        reason = " ".join(reasons) or _read(folder / FAILURE)
        if not reason:  # only FLARE's logs can explain it
            raise
        shutil.rmtree(workspace, ignore_errors=True)
        raise FederationError(reason) from error
    shutil.rmtree(workspace, ignore_errors=True)


def _submit(study: Study, folder: Path, resume: bool, kit: Path) -> None:
    from fedtopics.integrations.flare import FAILURE, make_study_job
    from fedtopics.integrations.flare import FOLDER as BROUGHT
    from fedtopics.integrations.flare_jobs import submit

    note = folder / "flare.json"  # its name at the server
    name = f"{re.sub('[^A-Za-z0-9_-]+', '-', study.name)[:80]}-{uuid4().hex[:8]}"
    refuse(
        {
            f"{folder} has no submitted run to resume; leave out --resume.": (
                resume and not note.exists()
            ),
            f"{folder} has a run already; resume it with --resume, or choose another folder.": (
                note.exists() and not resume
            ),
        },
        error=RunError,
    )
    if resume:
        name = str(json.loads(read_text(note))["run"])
    with tempfile.TemporaryDirectory() as workspace:
        results = Path(workspace)
        job = make_study_job(study, name, results)
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
