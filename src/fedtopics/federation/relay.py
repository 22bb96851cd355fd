"""The relay of a study between machines.

Look here for how a relay starts and ends, alone (lead_relay) or in a member's process (hosted).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from math import inf
from pathlib import Path
from typing import Any

from fedtopics import waiting
from fedtopics.contract import events
from fedtopics.errors import FederationError
from fedtopics.escaping import as_sentence
from fedtopics.federation.connection import require_server_key
from fedtopics.federation.progress import recording
from fedtopics.federation.study import Study
from fedtopics.files import EVENTS, LineFile, hold, make_folder, read_bytes, write_durably
from fedtopics.protocol.exchange import Patience
from fedtopics.protocol.link import Service
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Key
from fedtopics.transport.grpc import GrpcServer

Notify = Callable[[events.Event], None]
Listen = Callable[[Any, Notify], AbstractContextManager[Any]]
"""A server of the members, while its context is open."""


def _file_of(study: Study, folder: Path) -> Path:
    return folder / f"relay-{study.fingerprint[:16]}"


def relay_of(study: Study, folder: Path) -> RelayService:
    make_folder(folder)
    path = _file_of(study, folder)
    file = read_bytes(path) if path.exists() else b""
    return RelayService(
        Relay(study.members.names, file, lambda content: write_durably(path, content)),
        study.federation.largest_message << 20,
    )


@contextmanager
def listening(
    study: Study, key: Key, address: str, service: Service, notify: Notify
) -> Iterator[GrpcServer]:
    """Serve the members of a study at HOST:PORT; port 0 means any free port."""
    require_server_key(study, key)
    server = GrpcServer(
        service=service,
        address=address,
        key=key.in_pem(),
        certificate=key.certificate,
        members=study.members.members,
        study=study.fingerprint,
    )
    with closing(server):
        notify(events.Listening(server.address, [*study.clients]))
        yield server


def lead_relay(study: Study, folder: Path, listen: Listen, notify: Notify) -> None:
    """Serve a study as its relay until all members have the model."""
    with hold(folder):
        run = _file_of(study, folder)
        if (done := run.with_name(f"{run.name}-done")).exists():
            notify(events.AlreadyFinished(str(folder)))
            return
        # The events of another run end here.
        with closing(LineFile(folder / EVENTS, "ab" if run.exists() else "wb")) as log:

            def log_and_notify(event: events.Event) -> None:  # the log is for `fedtopics status`
                log.write({"time": time.time()} | event.plain())
                notify(event)

            with recording(log_and_notify):
                _lead(relay_of(study, folder), listen, log_and_notify)
        write_durably(done, b"")


def _lead(service: RelayService, listen: Listen, notify: Notify) -> None:
    with listen(service, notify):
        connected: set[str] = set()
        awaited = -1  # the step that the members wait for
        since = 0.0
        patience = Patience(inf, notify)
        halted = None
        while service.wait_until_done(waiting.CHECK):
            step, missing, stop = service.waiting()
            if stop is not None and stop is not halted:
                notify(events.Halted(stop.name, stop.step, as_sentence(stop.reason)))
            if halted is not None and stop is None:  # all have started again
                notify(events.WaitsFor({}, 0.0, None))
            halted = stop
            for name in sorted(service.present().keys() - connected - service.relay.ended.keys()):
                connected.add(name)
                notify(events.StatusChange("joined", name))
            if awaited != step:
                awaited = step
                since = time.monotonic()
            patience.waits_for(missing, since)
    notify(events.Finished(service.names))


@contextmanager
def hosted(
    study: Study, key: Key, address: str, folder: Path, notify: Notify
) -> Iterator[RelayService]:
    """Serve a study inside a member's process until the others have the model."""
    service = relay_of(study, folder)
    with listening(study, key, address, service, notify):
        yield service
        if missing := service.wait_until_done(waiting.HOST_STAYS):
            raise FederationError(
                f"This member has the model, but {', '.join(missing)} did not fetch it within "
                f"{waiting.HOST_STAYS / 60:.0f} minutes; start the same command again to serve "
                "them."
            )
