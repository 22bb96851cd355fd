"""Run a study between machines as its server: it adds, and has no documents itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtopics.engines.adder import Rules
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.exchange import Door, Exchange
from fedtopics.engines.grpc.connection import (
    check_loopback,
    join_address,
    server_credentials,
    split_address,
)
from fedtopics.engines.grpc.transport import GrpcTransport, Listening
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.errors import FederationError, FedTopicsError, StudyError
from fedtopics.extras import VERSION
from fedtopics.federation.replicated_run import ReplicatedRun, begin, run_to_resume
from fedtopics.federation.study import Study, finished
from fedtopics.files import hold
from fedtopics.methods.core.events import Event, Finished, OnEvent
from fedtopics.methods.core.events import Listening as Listens
from fedtopics.methods.core.interfaces import Clients
from fedtopics.methods.core.plan import WarmStart, Words
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity, Signer
from fedtopics.secure.sum import SecureClients

ANYBODY = (
    "There are no certificates: any process on this machine can take part as any of the clients. "
    "Use --insecure for trials."
)
MODEL_PATIENCE = 120.0  # seconds for the clients to come to the end as well


def serve(
    study: Study,
    identity: Identity | None,
    listen: str,
    out: Path,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    on_listen: Callable[[Node], None] | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
) -> TopicModel:
    """Run a study as its server over gRPC, as `lead` does over any engine; return the model.

    It listens on HOST:PORT, where port 0 takes a free one; without an identity it speaks no TLS, on
    this machine alone. `on_listen` gets the node, for a display of who is there. FederationError if
    the address cannot be listened on.
    """
    if identity is None:
        check_loopback(listen)
    credentials = None if identity is None else server_credentials(identity)
    host, port = split_address(listen)
    place = Listening(join_address(host, port), credentials)
    largest = study.federation.largest_message << 20
    transport = GrpcTransport(place, (), len(study.clients), lambda _: None, largest, {})

    def opened(node: Node, notify: Callable[[Event], None]) -> None:
        unsigned = ANYBODY if identity is None else None
        notify(Listens(join_address(host, transport.port), list(study.clients), unsigned))
        if on_listen is not None:
            on_listen(node)

    signatures = Unsigned() if identity is None else Signer(identity)
    return lead(
        study, transport, out, signatures=signatures, resume=resume, on_event=on_event,
        start=start, vocabulary=vocabulary, opened=opened,
    )  # fmt: skip


def lead(
    study: Study,
    transport: Transport,
    out: Path,
    *,
    signatures: Signatures | None = None,
    resume: bool = False,
    on_event: OnEvent | None = None,
    start: Any = None,
    vocabulary: Words = "agree",
    opened: Callable[[Node, Callable[[Event], None]], None] = lambda node, notify: None,
) -> TopicModel:
    """Run a study as its server, over any engine; return the model, which all clients have as well.

    `out`, `resume`, `on_event`, `start` and `vocabulary` are as of `simulation.train`; the clients
    have to have the model to begin with as well. `opened` is called with the node and with what
    takes events, once the engine has begun. FedTopicsError if too few clients are left, or the
    study or the run's folder cannot be used or written.
    """
    warm_start = None if start is None else WarmStart.of(start, vocabulary)
    program = study.server_half(warm_start)
    proposed, identity = proposal(study, warm_start), study.identity(warm_start)
    every, pause = study.checkpoint_every, study.federation.pause
    held = hold(out)
    run = ReplicatedRun(out, identity, every, resume, on_event, pause)
    identifier = begin(out, run_to_resume(out) if resume else None)
    introduction = Introduction(SERVER, proposed, identifier, signatures or Unsigned())
    node = Node(SERVER, study.clients, transport, introduction, run.event)
    log = DiskLog(out / "log", origin(study, identifier))
    with held, _ending(node, log, run):
        run.describe(study, warm_start)
        exchange = exchange_of(run, node, rules(study))
        node.start(
            Replica(
                SERVER, [SERVER], list(study.clients), log, snapshot=run.snapshot, nonce=nonce(),
                now=node.now(),
            )
        )  # fmt: skip
        opened(node, run.event)
        model = program.train(gathered(study, exchange, run), run)
        model = run.save(finished(study, warm_start, model))
        run.event(Finished(node.wait_until_done(MODEL_PATIENCE)))  # all clients have it as well
        return model


def exchange_of(
    run: ReplicatedRun, node: Node, rules: Rules, own: str = "", door: Door | None = None
) -> Exchange:
    """Return the exchanges of a run's program, which goes on behind its checkpoint."""
    position = run.position()
    exchange = Exchange(node, rules, run.event, own, door, position.index, position.turn)
    exchange.kept, run.progress, run.forget = run.kept, exchange, node.cut
    return exchange


@contextmanager
def _ending(node: Node, log: DiskLog, run: ReplicatedRun) -> Iterator[None]:
    """Say to all clients why the study failed, if it did, and close everything."""
    reason, again = "", False
    try:
        yield
    except FedTopicsError as error:
        again = isinstance(error, FederationError)  # too few clients
        reason = "Too few clients are left; its operator may go on" if again else str(error)
        raise
    except OSError as error:
        reason, again = "Its disk failed; the run goes on when that is mended.", True
        raise FedTopicsError(
            f"The run in {run.folder} cannot be written: {error.strerror}. Make room or mend the "
            "disk, then go on with --resume."
        ) from None
    finally:
        node.stop(reason, again)
        log.close()
        run.close()


def proposal(study: Study, start: WarmStart | None) -> Proposal:
    """Return what is offered to the clients of a study."""
    if not study.clients:
        raise StudyError("The study names no clients; add a table [clients.NAME] for each.")
    method = study.registration
    offered = study.agreed | {"name": study.name}  # clients name their folder after it
    fingerprint = "" if start is None else start.fingerprint
    return Proposal(VERSION, method.name, method.version, offered, study.fingerprint, fingerprint)


def rules(study: Study) -> Rules:
    """Return when rounds of a study count."""
    network = study.federation
    waits = network.deadline, network.gather, network.wait
    robust = network.robust or ("none" if study.masked else "clip")
    return Rules(study.min_clients, *waits, robust)


def gathered(study: Study, exchange: Exchange, run: ReplicatedRun) -> Clients:
    """Return a study's clients as its program sees them, with masks or without."""
    if not study.masked:
        return exchange
    drawn = study.registration.drawn(study.method)
    return SecureClients(exchange, drawn, run.event, study.vocabulary, run.ranges)


def nonce() -> int:
    """Draw what tells this process from those before."""
    return 1 + int.from_bytes(os.urandom(6))


def origin(study: Study, run: bytes) -> bytes:
    """Return what the decisions of a run begin with."""
    return hashlib.sha256(study.fingerprint.encode() + run).digest()
