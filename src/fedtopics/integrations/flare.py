"""A study as a job of NVIDIA FLARE, which creates the server's and sites' parts by class name."""

import logging
import re
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from fedtopics import waiting
from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import ClientData, explain
from fedtopics.files import make_folder, read_toml, shortened, write_durably
from fedtopics.integrations.carrier import (
    CarriedLink,
    SiteSettings,
    join_carried,
    lead_carried,
)
from fedtopics.integrations.flare_carrier import FlareCarrier, JobContext, job_context, logger
from fedtopics.integrations.flare_jobs import make_job
from fedtopics.protocol.roster import Key
from fedtopics.terminal.display import event_sentence
from fedtopics.terminal.run_display import MEMBER_SENTENCES

FAILURE = "failure.txt"  # in a run's folder: one sentence
FOLDER = "fedtopics"  # of all runs in a FLARE workspace, and of a job's results
STUDY_FILE = "study.toml"
SITE_FILE = "fedtopics.toml"  # in a site's `local`, and in the server's


class StudyServer:
    """The server's part of a job; `run` stays the same when a job is resumed."""

    def __init__(self, run: str, out: str = "") -> None:
        self.run = _checked(run)
        self.out = out

    @collab.main  # type: ignore[untyped-decorator]
    def main(self) -> None:
        """Start; FLARE calls this when all sites are there."""
        self.lead(FlareCarrier(collab.context, waiting.FLARE_SITE), job_context({}))

    def lead(self, carrier: FlareCarrier, context: JobContext) -> None:
        """Run the study; copy the run, or the reason of a failure, to the job's results."""
        folder = (
            Path(self.out)
            if self.out and context.simulated
            else context.workspace / FOLDER / self.run
        )
        (folder / FAILURE).unlink(missing_ok=True)
        try:
            lead_carried(Study.read(context.config / STUDY_FILE), folder, carrier, _log)
        except FedTopicsError as error:
            _fail(folder, str(error))
            raise
        finally:
            if not context.simulated and folder.is_dir():
                shutil.copytree(
                    folder,
                    context.job / FOLDER,
                    ignore=shutil.ignore_patterns("checkpoints"),
                    dirs_exist_ok=True,
                )


def _log(event: dict[str, Any]) -> None:
    if event["event"] == "round":
        logger.info("round %s", event["round"])
    elif text := event_sentence(event):
        logger.info("%s", text)


class StudySite:
    """A site's part of a study.

    Except in the simulator, `local/fedtopics.toml` of the site's FLARE folder has its settings: a
    job that chose files and policies would decide which data is sent.
    """

    def __init__(self, run: str) -> None:
        self.run = _checked(run)
        self._link: CarriedLink | None = None
        self._lock = threading.Lock()

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, message: bytes) -> bytes | None:
        """Answer the server; None after an error, whose traceback could quote a document."""
        with self._lock:
            try:
                return self.handle(message, job_context(collab.get_app_prop("client", {})))
            except Exception as error:
                logger.error("A defect of fedtopics: %s", type(error).__name__)
                return None

    def handle(self, message: bytes, context: JobContext) -> bytes:
        """Answer a message; join with the first one.

        Leaves the client
            Only data that `federation.door.Door` permits; about a failure, only that it happened.
        """
        if self._link is None:
            folder = context.workspace / FOLDER / self.run
            try:
                settings = site_settings(context)
                if settings.out is not None:
                    folder = settings.out if context.simulated else settings.out / self.run
                (folder / FAILURE).unlink(missing_ok=True)
                key = Key.load(settings.key or context.workspace / "local" / context.site)
                study = Study.read(context.config / STUDY_FILE)
            except FedTopicsError as error:
                _fail(folder, str(error))
                raise
            self._link = CarriedLink(
                key, study.fingerprint, partial(_take_part, key, settings, folder, study)
            )
        return self._link.answer(message)


def _take_part(
    key: Key, settings: SiteSettings, folder: Path, study: Study, link: CarriedLink
) -> None:
    """Take part in a study; log the reason of a failure here, and raise."""

    def tell(event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "offer":
            logger.warning("%s: %s %s", key.name, event["seen"], event["policy"])
        elif text := event_sentence(event, MEMBER_SENTENCES):
            logger.log(
                logging.ERROR if kind == "defect" else logging.INFO, "%s: %s", key.name, text
            )

    try:
        join_carried(study, folder, link, tell, key, settings)
    except FedTopicsError as error:
        _fail(folder, str(error))
        raise
    except Exception as error:
        logger.error("A defect of fedtopics: %s", type(error).__name__)
        raise


def site_settings(context: JobContext) -> SiteSettings:
    """Read a site's own settings; StudyError if they cannot be used."""
    file = context.workspace / "local" / SITE_FILE
    # A server could name its job like the simulator's, but a simulator has no operator's files.
    provisioned = file.exists() or (context.workspace / "startup" / "client.crt").exists()
    try:
        settings = _read(file) if provisioned or not context.simulated else context.settings
        return SiteSettings(**settings)
    except (OSError, ValueError) as error:
        raise StudyError(
            f"The settings of site {context.site!r} in {file} cannot be used: "
            f"{explain(error, SiteSettings)} Write them with: fedtopics init "
            "flare-site FOLDER --data FILE"
        ) from None


def _checked(run: str) -> str:
    """Refuse a name that leads out of the folder of all runs: the job comes from elsewhere."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", run):
        raise StudyError(
            "The job's run has no valid name for a folder; use: fedtopics train --engine flare"
        )
    return run


def _read(file: Path) -> dict[str, Any]:
    settings = read_toml(file)
    paths = {"data", "policy", "out", "key"} & settings.keys()
    return settings | {key: file.parent.resolve() / str(settings[key]) for key in paths}


def _fail(folder: Path, reason: str) -> None:
    """Write a readable sentence to the log, and to a file that is easy to find."""
    logger.error("%s", reason)
    with suppress(OSError):
        make_folder(folder)
        write_durably(folder / FAILURE, f"{reason}\n".encode())


def make_study_job(
    study: Study,
    run: str,
    workspace: Path,
    out: Path | None = None,
    folders: Mapping[str, Path] | None = None,
    keys: Path | None = None,
) -> Any:
    """Make the job of a study; it has the clients' tables and keys only for the simulator."""
    file = workspace / STUDY_FILE
    members = {name: ClientData(certificate=c.certificate) for name, c in study.clients.items()}
    file.write_text(study.model_copy(update={"clients": members}).to_toml(), encoding="utf-8")
    clients: dict[str, dict[str, Any]] = {name: {} for name in study.clients}
    for name, folder in (folders or {}).items():
        clients[name] = {
            **study.clients[name].model_dump(mode="json", exclude_none=True),
            "out": str(folder),
            "insecure_seed": True,
            **({} if keys is None else {"key": str(keys / name)}),
        }
    return make_job(
        f"fedtopics-{shortened(study.fingerprint)}",
        server=StudyServer(run, "" if out is None else str(out)),
        site=StudySite(run),
        clients=clients,
        study=file,
    )
