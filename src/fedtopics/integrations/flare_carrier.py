"""Messages from the server of a FLARE job to its sites, and the context of its components."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from nvflare.collab import collab

from fedtopics import waiting
from fedtopics.errors import FederationError

logger = logging.getLogger("fedtopics")

SIMULATED = "simulate_job"  # FLARE's name of every job in its simulator


@dataclass(frozen=True)
class JobContext:
    """The environment of a job's component, and its settings from the job."""

    site: str  # its name, "server" for the server
    simulated: bool  # whether this is FLARE's simulator
    workspace: Path  # the site's FLARE folder, which outlives jobs; `local` is its operator's
    job: Path  # the job's folder in it; the server's is sent to the submitter of the job
    config: Path  # files of the job
    settings: Mapping[str, Any]  # the job's settings for this site


class FlareCarrier:
    """Messages to a job's sites, for the server's main function; a `Carrier`."""

    def __init__(self, context: Any, patience: float) -> None:
        self._context = context
        self._patience = patience
        self._sites = {proxy.name: proxy for proxy in context.clients}
        self._arrived: SimpleQueue[tuple[str, bytes | None]] = SimpleQueue()

    def addresses(self) -> Collection[str]:
        """Return all sites of the job; FLARE ends the job when it loses one."""
        return list(self._sites)

    def send(self, address: str, message: bytes) -> None:
        """Call a site in a new thread: FLARE's calls wait for their answers."""
        threading.Thread(target=self._ask, args=(address, message), daemon=True).start()

    def _ask(self, address: str, message: bytes) -> None:
        answer = None
        try:
            answer = self._sites[address](timeout=self._patience).answer(message)
        except Exception as error:
            logger.warning("%s did not answer: %s", address, type(error).__name__)
        self._arrived.put((address, answer if isinstance(answer, bytes) else None))

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """See `Carrier.receive`; a failed site cannot return, so it ends the run."""
        ends = time.monotonic() + seconds
        while True:
            if self._context.is_aborted():
                raise FederationError(
                    "FLARE has ended the job: a site's worker died, or an operator aborted it; "
                    "resume with --resume when all sites are back."
                )
            left = max(0.0, ends - time.monotonic())
            with suppress(Empty):
                arrived = [self._arrived.get(timeout=min(waiting.CHECK, left))]
                while not self._arrived.empty():
                    arrived.append(self._arrived.get())
                if failed := sorted(name for name, answer in arrived if answer is None):
                    raise FederationError(
                        f"{', '.join(failed)} failed; see the log and failure.txt there."
                    )
                return arrived
            if not left:
                return []


def job_context(settings: Mapping[str, Any]) -> JobContext:
    """Return the context of the component that FLARE calls now."""
    paths = collab.workspace
    job = collab.fl_ctx.get_job_id()
    return JobContext(
        site=collab.site_name,
        simulated=job == SIMULATED,
        workspace=Path(paths.get_root_dir()),
        job=Path(paths.get_run_dir(job)),
        config=Path(paths.get_app_config_dir(job)),
        settings=settings,
    )
