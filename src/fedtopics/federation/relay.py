"""The relay of a study between machines. It takes little memory: no method is loaded here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from fedtopics import errors
from fedtopics.errors import FederationError, FedTopicsError, IdentityError
from fedtopics.federation.server_plan import ServerPlan
from fedtopics.files import hold, make_folder, open_file, read_bytes, write_durably
from fedtopics.methods.core.events import Event, Finished, Listening, StatusChange
from fedtopics.protocol.exchange import Patience
from fedtopics.protocol.link import Service
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Key
from fedtopics.transport.grpc import GrpcServer

Notify = Callable[[Event], None]
Listen = Callable[[Any, Notify], AbstractContextManager[Any]]
"""What serves the members of a service while it is open."""
EVENTS = "events.jsonl"
PAUSE = 1.0  # seconds between two looks at who is done
HOST_STAYS = 600.0  # seconds that a member serves the others after it has the model itself


def read_apart(study: Path) -> ServerPlan:
    """Read a study in a process of its own: what that takes of memory ends with it."""
    command = [sys.executable, "-m", "fedtopics.federation.relay", str(study)]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603
    plan, error, why = msgspec.msgpack.decode(found, type=tuple[ServerPlan | None, str, str])
    if plan is None:
        raise getattr(errors, error)(why)
    return plan


def _write_plan(study: Path) -> None:
    """Write the plan of a study, or why there is none, to the process that asked for it."""
    from fedtopics.federation.study import Study

    try:
        found: Any = Study.read(study).server_plan, "", ""
    except FedTopicsError as refusal:
        found = None, type(refusal).__name__, str(refusal)
    with suppress(BrokenPipeError):  # who asked was killed
        sys.stdout.buffer.write(msgspec.msgpack.encode(found))


def relay_of(plan: ServerPlan, folder: Path) -> RelayService:
    """Return the relay of a study; it resumes from its file, one for each study."""
    make_folder(folder)
    path = folder / f"relay-{plan.fingerprint[:16]}"
    file = read_bytes(path) if path.exists() else b""
    relay = Relay(plan.roster.names, file, lambda content: write_durably(path, content))
    return RelayService(relay, plan.largest_message)


@contextmanager
def listening(
    plan: ServerPlan, key: Key, address: str, service: Service, notify: Notify
) -> Iterator[GrpcServer]:
    """Serve the members of a study at HOST:PORT, where port 0 takes a free one.

    FederationError if the address cannot be used.
    """
    if plan.certificate != key.certificate:
        raise IdentityError(
            f"The certificate of {key.name!r} is not the one that the study names for its server; "
            "give the server's key, or correct [server] in everybody's study file."
        )
    server = GrpcServer(service, address, key.pem, key.certificate, plan.roster.members)
    try:
        notify(Listening(server.address, plan.clients))
        yield server
    finally:
        server.stop()


def lead_relay(
    plan: ServerPlan, folder: Path, listen: Listen, notify: Notify,
    opened: Callable[[RelayService], None] = lambda service: None,
) -> None:  # fmt: skip
    """Serve a study as its relay over any transport, until all members have the model.

    `opened` gets the relay, for a display of whom it waits for.
    """
    service, notify = relay_of(plan, folder), _logged(folder / EVENTS, notify)
    with hold(folder), listen(service, notify):
        opened(service)
        here: set[str] = set()
        at, since, patience = None, 0.0, Patience(inf, notify)
        while service.wait_until_done(PAUSE):
            step, waiting = service.waiting()
            for name in sorted(service.present().keys() - here - service.relay.refused.keys()):
                here.add(name)
                notify(StatusChange("joined", name))
            if at != (at := (step, *waiting)):
                since = time.monotonic()
            patience.waits_for(waiting, since)
    notify(Finished(service.names))


def _logged(path: Path, notify: Notify) -> Notify:
    """Also write events to a file, for `fedtopics status`."""

    def both(event: Event) -> None:
        plain = {"event": event.kind, "time": time.time()} | event.plain()
        with suppress(OSError), open_file(path, "ab") as file:
            file.write(json.dumps(plain).encode() + b"\n")
        notify(event)

    return both


@contextmanager
def hosted(
    plan: ServerPlan, key: Key, address: str, folder: Path, notify: Notify
) -> Iterator[RelayService]:
    """Serve a study inside a member's process; stay at the end until the others have the model."""
    service = relay_of(plan, folder)
    with listening(plan, key, address, service, notify):
        yield service
        if missing := service.wait_until_done(HOST_STAYS):
            raise FederationError(
                f"This member has the model; {', '.join(missing)} did not fetch it within "
                f"{HOST_STAYS / 60:.0f} minutes. Start the same command again to serve them."
            )


if __name__ == "__main__":
    _write_plan(Path(sys.argv[1]))
