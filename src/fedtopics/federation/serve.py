"""Serve a study between machines: as a relay, or with plain aggregation as the trusted server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from fedtopics.errors import FederationError, IdentityError, StudyError
from fedtopics.extras import VERSION
from fedtopics.federation.program import finished, program_of
from fedtopics.federation.run_folder import MemberRun, has_run
from fedtopics.federation.study import Study
from fedtopics.files import hold, make_folder, read_bytes, write_durably
from fedtopics.methods.core.events import Event, Finished, Listening, OnEvent
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.link import Service
from fedtopics.protocol.plain import PlainClients
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_rounds import Rounds, Rules
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Key, Roster
from fedtopics.transport.grpc import GrpcLink, GrpcServer, split_address

Notify = Callable[[Event], None]
Listen = Callable[[Any, Notify], AbstractContextManager[Any]]
"""What serves the members of a service while it is open."""
MODEL_PATIENCE = 120.0  # seconds for the clients to come to the end as well
PAUSE = 1.0  # seconds between two looks at who is done
HOST_STAYS = 600.0  # seconds that a member serves the others after it has the model itself


def relay_of(study: Study, folder: Path) -> RelayService:
    """Return the relay of a study; it resumes from its file, one for each study."""
    make_folder(folder)
    path = folder / f"relay-{study.fingerprint[:16]}"
    file = read_bytes(path) if path.exists() else b""
    relay = Relay(roster_of(study).names, file, lambda content: write_durably(path, content))
    return RelayService(relay, study.federation.largest_message << 20)


def roster_of(study: Study) -> Roster:
    """Return the certificates of a study between machines; StudyError if it has none."""
    if study.roster is None:
        raise StudyError(
            "The study has no certificates, so it cannot be run between machines; each member "
            'makes a key with "fedtopics key create NAME", and the study names its certificate: '
            '[clients.NAME] certificate = "NAME.pem".'
        )
    return study.roster


def server_of(study: Study) -> bytes:
    """Return the certificate of a study's server; IdentityError if it has none."""
    if (certificate := roster_of(study).server) is None:
        raise IdentityError(
            "The study names no certificate of its server; add it to [server], or name a member "
            'that hosts the server: host = "NAME".'
        )
    return certificate


def software_of(study: Study, start: WarmStart | None) -> str:
    """Return what all sides of a study have to have."""
    method = study.registration
    return f"fedtopics {VERSION}, {method.name} {method.version}, study {study.identity(start)}"


def address_of(study: Study) -> str:
    """Return where the server of a study is; StudyError if the study does not say so."""
    if study.server.address is None:
        raise StudyError('The study has no server address; add [server] address = "HOST:PORT".')
    return study.server.address


def link_of(study: Study, key: Key) -> GrpcLink:
    """Return a member's link to the server of a study."""
    return GrpcLink(address_of(study), key.pem, key.certificate, server_of(study))


def listen_address(study: Study, given: str) -> str:
    """Return where to listen: as given, or at the port of the study's address on this machine."""
    return given or f"0.0.0.0:{split_address(address_of(study))[1]}"


@contextmanager
def listening(
    service: Service, study: Study, key: Key, address: str, notify: Notify
) -> Iterator[GrpcServer]:
    """Serve the members of a study at HOST:PORT, where port 0 takes a free one."""
    if server_of(study) != key.certificate:
        raise IdentityError(
            f"The certificate of {key.name!r} is not the one that the study names for its server; "
            "give the server's key, or correct [server] in everybody's study file."
        )
    server = GrpcServer(service, address, key.pem, key.certificate, roster_of(study).members)
    try:
        notify(Listening(server.address, list(study.clients)))
        yield server
    finally:
        server.stop()


def serve_relay(
    study: Study, key: Key, address: str, folder: Path, notify: Notify,
    opened: Callable[[RelayService], None] = lambda service: None,
) -> None:  # fmt: skip
    """Serve a study as its relay until all members have the model.

    `opened` gets the relay, for a display of whom it waits for. FederationError if the address
    cannot be used.
    """

    def listen(service: RelayService, notify: Notify) -> AbstractContextManager[Any]:
        return listening(service, study, key, address, notify)

    lead_relay(study, folder, listen, notify, opened)


def lead_relay(
    study: Study, folder: Path, listen: Listen, notify: Notify,
    opened: Callable[[RelayService], None] = lambda service: None,
) -> None:  # fmt: skip
    """Serve a study as its relay over any transport, until all members have the model."""
    service = relay_of(study, folder)
    with listen(service, notify):
        opened(service)
        while service.wait_until_done(PAUSE):
            pass
    notify(Finished(service.names))


@contextmanager
def hosted(
    study: Study, key: Key, address: str, folder: Path, notify: Notify
) -> Iterator[RelayService]:
    """Serve a study inside a member's process; stay at the end until the others have the model."""
    service = relay_of(study, folder)
    with listening(service, study, key, address, notify):
        yield service
        if missing := service.wait_until_done(HOST_STAYS):
            raise FederationError(
                f"This member has the model; {', '.join(missing)} did not fetch it within "
                f"{HOST_STAYS / 60:.0f} minutes. Start the same command again to serve them."
            )


def serve_plain(
    study: Study, key: Key, address: str, folder: Path, on_event: OnEvent | None = None,
    start: WarmStart | None = None, opened: Callable[[PlainServer], None] = lambda server: None,
) -> TopicModel:  # fmt: skip
    """Serve a study with plain aggregation: train as well, and return the model."""

    def listen(server: PlainServer, notify: Notify) -> AbstractContextManager[Any]:
        return listening(server, study, key, address, notify)

    return lead(study, folder, listen, on_event, start, opened)


def lead(
    study: Study, folder: Path, listen: Listen,
    on_event: OnEvent | None = None, start: WarmStart | None = None,
    opened: Callable[[PlainServer], None] = lambda server: None,
) -> TopicModel:  # fmt: skip
    """Run a study's program as its trusted server, over any transport; resume it if it has begun.

    `listen` serves the members while the program runs.
    """
    network = study.federation
    times = network.join_timeout, network.quorum_timeout, network.round_timeout
    program, identity = program_of(study, start), study.identity(start)
    with hold(folder):
        run = MemberRun(
            folder, identity, study.checkpoint_every, has_run(folder), on_event,
            network.round_interval,
        )  # fmt: skip
        position = run.position()
        with closing(run), closing(Log(folder / "log", position[0])) as log:
            run.describe(study, start)
            server = PlainServer(
                list(study.clients), software_of(study, start), log, network.largest_message << 20,
                run.state, run.event,
            )  # fmt: skip
            rules = Rules(study.quorum, *times, network.outliers or "clip")
            rounds = Rounds(server, rules, run.event)
            run.clients = clients = PlainClients(
                rounds, server.names, "", None, *position, run.event
            )
            run.after_checkpoint = log.cut
            with listen(server, run.event):
                opened(server)
                model = run.save(finished(study, start, program.train(clients, run)))
                missing = server.wait_until_done(MODEL_PATIENCE)
                run.event(Finished([name for name in server.names if name not in missing]))
            return model
