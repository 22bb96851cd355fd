"""Jobs of NVIDIA FLARE without code: made, allowed at sites, run in a simulator or a system."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cryptography import x509
from nvflare.collab import CollabRecipe
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.recipe import SimEnv

from fedtopics import waiting
from fedtopics.errors import FederationError, RunError
from fedtopics.files import read_bytes, read_text, write_durably

# Classes that a site's FLARE has to allow.
ALLOWED = ("fedtopics.integrations.flare.", "nvflare.collab.runtime.")


class _Recipe(CollabRecipe):  # type: ignore[misc]
    """A job without code, so it needs no right to bring its own."""

    @staticmethod
    def _user_source_entries(objs: Sequence[object]) -> list[Any]:
        return []


def make_job(
    name: str, server: object, site: object, clients: Mapping[str, Mapping[str, Any]], study: Path
) -> CollabRecipe:
    """Make a job of a study, which begins when all clients are connected."""
    # The study is a file: FLARE would replace text in braces in a component's arguments.
    recipe = _Recipe(
        name,
        server=server,
        client=site,
        sync_task_timeout=round(waiting.FLARE_WORKER),
        min_clients=len(clients),
        max_call_threads_for_server=max(100, 4 * len(clients)),
    )
    recipe._job.set_app_packages(["fedtopics"])
    for party in ("server", *clients):
        recipe._job.add_file_to(str(study), party, app_folder_type="config")
    with _quiet():
        recipe.set_per_site_config({name: {"client": dict(to)} for name, to in clients.items()})
    return recipe


def simulate(recipe: CollabRecipe, clients: Sequence[str], workspace: Path) -> None:
    """Run a job in FLARE's simulator, with one process per client; FederationError if it fails."""
    local = workspace / recipe.job_name / "local"
    local.mkdir(parents=True)
    (local / "resources.json").write_text(
        json.dumps({"format_version": 2, "class_allow_list": list(ALLOWED)}), encoding="utf-8"
    )
    try:
        with _quiet(workspace / "output.txt"):
            recipe.run(
                SimEnv(clients=list(clients), workspace_root=str(workspace), log_config="ERROR")
            )
    except RuntimeError:
        raise FederationError(f"FLARE's simulator failed; see its logs in {workspace}.") from None


def submit(recipe: CollabRecipe, kit: Path, results: Path) -> str:
    """Run a job on a FLARE system; return how it ended, "" if the connection was lost before.

    RunError if `kit` is not an admin's startup kit, FederationError if the job is not accepted.
    """
    certificate = kit / "startup" / "client.crt"
    if not (kit / "startup" / "fed_admin.json").is_file() or not certificate.is_file():
        raise RunError(
            f"{kit} is not a FLARE startup kit that can submit jobs; use the folder of an admin, "
            "with startup/fed_admin.json in it."
        )
    subject = x509.load_pem_x509_certificate(read_bytes(certificate)).subject
    user = str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)
    # Not ProdEnv: if the server dies, its connection keeps the process from ending.
    with _quiet():
        recipe.export(str(results / "jobs"))
        session: Any = None
        try:
            session = new_secure_session(user, str(kit), timeout=waiting.FLARE_LOGIN)
            job = session.submit_job(str(results / "jobs" / recipe.job_name))
        except Exception as error:  # of many types
            with suppress(Exception):
                session.close()
            reason = (str(error) or type(error).__name__).splitlines()[0].removesuffix(".")
            raise FederationError(
                f"The FLARE system of {kit} refused the job: {reason}; check that its server runs."
            ) from None
        try:
            ended = str(session.wait_for_job(job)["status"])
            session.download_job_result(job, str(results))
            return ended
        except Exception:
            return ""
        finally:
            with suppress(Exception):  # the server may be gone
                session.close()


def allow(folder: Path) -> Path:
    """Let fedtopics run at a site or a server; return the file with this permission."""
    file = folder / "local" / "resources.json"
    source = file if file.exists() else file.with_name("resources.json.default")
    try:
        resources = json.loads(read_text(source))
        listed = resources.setdefault("class_allow_list", [])
        listed.extend(entry for entry in ALLOWED if entry not in listed)
    except (OSError, ValueError, AttributeError):
        raise RunError(
            f"{folder} is not the folder of a FLARE site or server: {source} cannot be read."
        ) from None
    write_durably(file, (json.dumps(resources, indent=2) + "\n").encode(), public=True)
    return file


@contextmanager
def _quiet(file: str | Path = os.devnull) -> Iterator[None]:
    """Keep output and warnings of FLARE and its processes off the terminal."""
    logging.getLogger("nvflare").setLevel(logging.ERROR)
    sys.stdout.flush()
    sys.stderr.flush()
    old_outputs = os.dup(1), os.dup(2)
    with Path(file).open("ab") as elsewhere, warnings.catch_warnings(action="ignore"):
        os.dup2(elsewhere.fileno(), 1)
        os.dup2(elsewhere.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in enumerate(old_outputs, 1):
                os.dup2(old, number)
                os.close(old)
