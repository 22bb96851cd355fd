"""Messages through NVIDIA FLARE: the carrier, and what FLARE calls at the server and at a site.

This and `flare_jobs` alone import nvflare, and nothing imports them before a job is made or run.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from nvflare.collab import collab

from fedtopics.errors import FederationError

logger = logging.getLogger("fedtopics")

SIMULATED = "simulate_job"  # FLARE's name of every job in its simulator
PAUSE = 1.0  # seconds between two looks whether FLARE ended the job


@dataclass(frozen=True)
class JobContext:
    """Where a component of a job runs, and what the job says to it."""

    site: str  # its name, "server" for the server
    simulated: bool  # whether this is FLARE's simulator
    workspace: Path  # the site's FLARE folder, which outlives jobs; `local` is its operator's
    job: Path  # the job's folder in it; the server's is brought to who submitted the job
    config: Path  # what the job brought along
    settings: Mapping[str, Any]  # what the job says to this site


class FlareCarrier:
    """Messages to a job's sites; a `Carrier`.

    `context` is that of a collab call, in the server's main function; `patience` is how many
    seconds FLARE waits for an answer.
    """

    def __init__(self, context: Any, patience: float) -> None:
        self._context = context
        self._patience = patience
        self._sites = {proxy.name: proxy for proxy in context.clients}
        self._arrived: SimpleQueue[tuple[str, bytes | None]] = SimpleQueue()

    def addresses(self) -> Collection[str]:
        """Name the sites: all those of the job, which FLARE ends when it loses one."""
        return list(self._sites)

    def send(self, address: str, message: bytes) -> None:
        """Call a site in a thread of its own: FLARE's calls wait for their answers."""
        threading.Thread(target=self._ask, args=(address, message), daemon=True).start()

    def _ask(self, address: str, message: bytes) -> None:
        answer = None
        try:
            answer = self._sites[address](timeout=self._patience).answer(message)
        except Exception as error:
            logger.warning("%s did not answer: %s", address, type(error).__name__)
        self._arrived.put((address, answer if isinstance(answer, bytes) else None))

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Return what has come; wait up to `seconds` for the first.

        A `FederationError` if FLARE has ended the job, or a site failed: it cannot come back.
        """
        ends = time.monotonic() + seconds
        while True:
            if self._context.is_aborted():
                raise FederationError(
                    "FLARE has ended the job, as it does when a site's worker dies or an operator "
                    "aborts it. Go on with --resume when all sites are back."
                )
            left = max(0.0, ends - time.monotonic())
            with suppress(Empty):
                arrived = [self._arrived.get(timeout=min(PAUSE, left))]
                while not self._arrived.empty():
                    arrived.append(self._arrived.get())
                if failed := sorted(name for name, answer in arrived if answer is None):
                    raise FederationError(
                        f"{', '.join(failed)} failed; the log and failure.txt there say why."
                    )
                return arrived
            if not left:
                return []


class ServerPart(ABC):
    """The server's component of a job."""

    patience = 3600.0

    @abstractmethod
    def lead(self, carrier: FlareCarrier, context: JobContext) -> None:
        """Run the study; whatever it raises fails the job."""

    @collab.main  # type: ignore[untyped-decorator]
    def main(self) -> None:
        """Start; FLARE calls this when all sites are there."""
        self.lead(FlareCarrier(collab.context, self.patience), _job_context({}))


class SitePart(ABC):
    """A site's component of a job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @abstractmethod
    def handle(self, message: bytes, context: JobContext) -> bytes:
        """Answer a message."""

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, message: bytes) -> bytes | None:
        """Answer the server; None if that failed.

        FLARE sends the traceback of an error to the server, and it could quote a document: none
        gets there.
        """
        with self._lock:
            try:
                return self.handle(message, _job_context(collab.get_app_prop("client", {})))
            except Exception as error:
                logger.error("A defect of fedtopics: %s", type(error).__name__)
                return None


def _job_context(settings: Mapping[str, Any]) -> JobContext:
    paths, job = collab.workspace, collab.fl_ctx.get_job_id()
    root, folder = Path(paths.get_root_dir()), Path(paths.get_run_dir(job))
    config = Path(paths.get_app_config_dir(job))
    return JobContext(collab.site_name, job == SIMULATED, root, folder, config, settings)
