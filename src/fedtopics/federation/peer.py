"""A participant of a study without a server: all run the program, and one of them adds."""

from __future__ import annotations

import hashlib

from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.grpc.connection import (
    channel_credentials,
    check_loopback,
    join_address,
    server_credentials,
    split_address,
)
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.handshake import Introduction, Signatures, Unsigned
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.errors import StudyError
from fedtopics.federation.participant import Participation
from fedtopics.federation.replicated_run import ReplicatedRun
from fedtopics.federation.server import MODEL_PATIENCE, nonce, origin, proposal, rules
from fedtopics.federation.study import Study
from fedtopics.methods.events import Finished
from fedtopics.methods.events import Listening as Listens
from fedtopics.methods.warm_start import WarmStart
from fedtopics.pki import Identity, Signer
from fedtopics.pki.names import peer_host

LONGEST_PAUSE = 5.0  # seconds between two attempts to connect: the next adder needs a majority


def run_of_peers(study: Study) -> bytes:
    """Return the run of a study without a server: there is one, which all know from the study."""
    return hashlib.sha256(f"peers {study.fingerprint}".encode()).digest()[:16]


def take_part_with_peers(
    part: Participation,
    study: Study,
    identity: Identity | None = None,
    listen: str = "",
    transport: Transport | None = None,
) -> None:
    """Take part in a study without a server, until the model is there and all others have it.

    It listens where the study says that others reach it, unless `listen` names another HOST:PORT,
    and connects to those before it in the order of adders. Without an identity it speaks no TLS, on
    this machine alone. With a `transport`, it uses that.

    Raises
    ------
    StudyError
        If the study does not name this participant, or nobody has an address.
    FedTopicsError
        As `Participation.take_part`.
    """
    if part.name not in study.clients or not study.addresses:
        raise StudyError(
            f"The study has no participant {part.name!r}, or no addresses; each is a table "
            '[clients.NAME], with address = "HOST:PORT" for those that others can reach.'
        )
    start = None if part.start is None else WarmStart.of(part.start)
    proposed, run = proposal(study, start), run_of_peers(study)
    part.look(proposed, signed=identity is not None)
    door, state = part.consider(study, run)
    signatures: Signatures = Unsigned() if identity is None else Signer(identity)
    introduction = Introduction(part.name, proposed, run, signatures)
    carrier = transport or _transport(part, study, identity, listen)
    node = Node(part.name, study.clients, carrier, introduction, part.notify)
    log = DiskLog(state / "log", origin(study, run))

    def begin(run: ReplicatedRun) -> None:
        replica = Replica(
            part.name, study.adders, (), log, can_add=list(study.addresses),
            nonce=nonce(), now=node.now(), snapshot=run.snapshot,
            install=lambda state: run.install(state.content, node),
        )  # fmt: skip
        node.start(replica)
        if isinstance(carrier, GrpcTransport) and carrier.port:
            part.notify(Listens(study.addresses[part.name], list(study.clients)))

    try:
        part.train(study, start, (door, state), node, log, rules(study), begin)
        node.done()
        part.notify(Finished(node.wait_until_done(MODEL_PATIENCE)))
    finally:
        node.stop()
        log.close()
        part.close()


def _transport(
    part: Participation, study: Study, identity: Identity | None, listen: str
) -> GrpcTransport:
    """Listen at the own address, and connect to whoever has one and adds before this one."""
    addresses, order = study.addresses, study.adders
    own = addresses.get(part.name, "")
    before = order[: order.index(part.name)] if own else order
    listening = None
    if own:
        host, port = split_address(listen or own)
        credentials = None if identity is None else server_credentials(identity)
        listening = Listening(join_address(host, port), credentials)
    for address in [*addresses.values(), listen]:
        if identity is None and address:
            check_loopback(address)
    credentials_out = None if identity is None else channel_credentials(identity)
    others = [
        Address(
            join_address(*split_address(addresses[name])), credentials_out, name,
            (("grpc.ssl_target_name_override", peer_host(name)),) if identity else (),
            longest_pause=LONGEST_PAUSE,
        )
        for name in before if name in addresses and name != part.name
    ]  # fmt: skip
    largest = study.federation.largest_message << 20
    return GrpcTransport(listening, others, len(study.clients), part.notify, largest)
