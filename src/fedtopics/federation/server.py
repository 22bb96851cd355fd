"""Run a study between machines: the server's part and a client's part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedtopics.engines.attendance import Rules
from fedtopics.engines.connections import Connections
from fedtopics.engines.grpc.client import Client, look
from fedtopics.engines.grpc.connection import (
    channel_credentials,
    check_loopback,
    join_address,
    server_credentials,
    speaks_tls,
    split_address,
)
from fedtopics.engines.grpc.server import Server
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.message_server import MessageServer
from fedtopics.engines.messages import Carrier
from fedtopics.engines.rounds import RemoteClients
from fedtopics.errors import FederationError, FedTopicsError, StudyError
from fedtopics.extras import VERSION
from fedtopics.federation.doctor import why_not
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.events import Allowed, Finished, Listening, OnEvent
from fedtopics.methods.registry import versions
from fedtopics.methods.warm_start import WarmStart, Words
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity
from fedtopics.text.arrivals import Follow
from fedtopics.text.corpus import Corpus

MODEL_PATIENCE = 120.0  # seconds for the clients to take the model


def serve(
    study: Study,
    identity: Identity | None,
    listen: str,
    out: Path,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    on_listen: Callable[[Server], None] | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
) -> TopicModel:
    """Run a study as its server over gRPC, as `lead` does over any engine; return the model.

    It listens on HOST:PORT, where port 0 takes a free one; without an identity it speaks no TLS, on
    this machine alone. `on_listen` gets the server, for a display of who is there. FederationError
    if the address cannot be listened on.
    """
    proposal = _proposal(study)
    if identity is None:
        check_loopback(listen)
    credentials = None if identity is None else server_credentials(identity)
    host, port = split_address(listen)
    address = join_address(host, port)
    server = Server(proposal, study.clients, address, credentials, _largest(study))

    def open_door(run: RunFolder) -> None:
        run.event(Listening(join_address(host, server.start()), list(study.clients)))
        if on_listen is not None:
            on_listen(server)

    return _conduct(study, server, out, resume, on_event, start, vocabulary, open_door)


def lead(
    study: Study,
    carrier: Carrier,
    out: Path,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
) -> TopicModel:
    """Run a study as its server, over an engine that carries messages; return the model.

    The clients get the model as well.

    Parameters
    ----------
    study : Study
        Names the clients; what it says of their documents is not used.
    carrier : Carrier
        Of the engine.
    out : path
        The run's folder.
    resume : bool
        Go on with the run in `out`.
    on_event : function, optional
        Called with each event of the run.
    start, vocabulary
        A model to begin with, and whether with its words; as of `simulation.train`.

    Raises
    ------
    FederationError
        If too few clients are left.
    StudyError, RunError, FedTopicsError
        If the study or the run's folder cannot be used, or the folder cannot be written.
    """
    server = MessageServer(_proposal(study), study.clients, carrier, _largest(study))
    return _conduct(study, server, out, resume, on_event, start, vocabulary)


def _conduct(
    study: Study,
    connections: Connections,
    out: Path,
    resume: bool,
    on_event: OnEvent | None,
    start: Any,
    vocabulary: Words,
    open_door: Callable[[RunFolder], None] = lambda _: None,
) -> TopicModel:
    warm_start = None if start is None else WarmStart.of(start, vocabulary)
    half = study.server_half(warm_start)
    identity, network = study.identity(warm_start), study.federation
    rules = Rules(study.min_clients, network.deadline, network.gather, network.wait)
    run = RunFolder(out, identity, study.checkpoint_every, resume, on_event, network.pause)
    reason, again = "", False
    try:
        run.describe(study, warm_start)
        open_door(run)
        model = half.train(RemoteClients(connections, rules, run.event), run)
        model = run.save(model if warm_start is None else warm_start.credited(model))
        received = connections.send_model(_files(model), MODEL_PATIENCE)
        run.event(Finished(received))
        return model
    except FedTopicsError as error:
        again = isinstance(error, FederationError)  # too few clients
        reason = "Too few clients are left; its operator may go on" if again else str(error)
        raise
    except OSError as error:
        reason, again = "Its disk failed; the run goes on when that is mended.", True
        raise FedTopicsError(
            f"The run in {out} cannot be written: {error.strerror}. Make room or mend the disk, "
            "then go on with --resume."
        ) from None
    finally:
        connections.stop(reason, again)
        run.close()


def _proposal(study: Study) -> Proposal:
    if not study.clients:
        raise StudyError("The study names no clients; add a table [clients.NAME] for each.")
    method = study.registration
    offered = study.agreed | {"name": study.name}  # clients name their folder after it
    return Proposal(VERSION, method.name, method.version, offered, study.fingerprint)


def _largest(study: Study) -> int:
    return study.federation.largest_message << 20


def _files(model: TopicModel) -> dict[str, Any]:
    """Return what clients get: the files of a model without the labels of the server's people."""
    with TemporaryDirectory() as name:
        replace(model, labels={}).save_pretrained(name)
        return {
            path.name: np.frombuffer(path.read_bytes(), np.uint8)
            for path in sorted(Path(name).iterdir())
        }


class GrpcParticipation(Participation):
    """A client's part in a study whose server listens at an address; else as `Participation`."""

    def __init__(
        self,
        address: str,  # HOST:PORT
        identity: Path | None,  # folder; None speaks without TLS, on this machine alone
        corpus: Corpus,
        policy: Policy,
        out: Path | None,
        name: str = "",  # with an identity, that of its certificate
        on_event: OnEvent | None = None,
        dry_run: bool = False,  # look at the offer, do not join
        embedding_model: str | None = None,
        growing: Follow | None = None,
    ) -> None:
        if identity is None:
            check_loopback(address)
            credentials = None
        else:
            loaded = Identity.load(identity, "client")
            name, credentials = loaded.name, channel_credentials(loaded)
        out = None if dry_run else out  # it writes nothing, so no folder is in its way
        super().__init__(name, corpus, policy, out, on_event, embedding_model, growing)
        self._address = join_address(*split_address(address))
        self._identity = identity
        self._credentials = credentials
        self._dry_run = dry_run

    def run(self) -> None:
        """Take part until the model is here; see `Client.run` for what it raises."""
        connection = (self._address, self._credentials, self.name, (VERSION, versions()))
        try:
            if self._dry_run:
                self.look(look(*connection))
                self.notify(Allowed())
            else:
                Client(*connection, self, self.notify).run()
        finally:
            self.close()

    def diagnose(self) -> str:
        """Say why there is no connection; raise if certificates do not fit or have ended."""
        if self._identity is not None:
            Identity.load(self._identity)
            return why_not(self._address, self._identity)
        if speaks_tls(self._address):
            raise FederationError(
                f"The server {self._address} speaks TLS; leave out --insecure and give --identity."
            )
        return ""
