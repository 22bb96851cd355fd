"""A participant of a study without a server: all run the program, and one of them adds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtopics.engines.adder import IN_FLIGHT
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.grpc.connection import (
    channel_credentials,
    check_loopback,
    join_address,
    server_credentials,
    split_address,
)
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.handshake import Introduction, Unsigned
from fedtopics.engines.log import Log
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.errors import IdentityError, StudyError
from fedtopics.federation.participant import Participation, key_of
from fedtopics.federation.replicated_run import ReplicatedRun
from fedtopics.federation.server import MODEL_PATIENCE, nonce, origin, proposal, rules
from fedtopics.federation.study import Study, adders, addresses
from fedtopics.methods.core.events import Allowed, Finished
from fedtopics.methods.core.events import Listening as Listens
from fedtopics.methods.core.plan import WarmStart, usual_words
from fedtopics.pki import Identity, Signer
from fedtopics.pki.names import peer_host

STAY = 30.0  # seconds at the end for who is away: it can have the last decisions from here alone
LONGEST_PAUSE = 5.0  # seconds between two attempts to connect: the next adder needs a majority


def take_part_with_peers(
    part: Participation,
    study: Study,
    identity: Identity | None = None,
    listen: str = "",
    transport: Transport | None = None,
    opened: Callable[[Node], None] = lambda node: None,
) -> None:
    """Take part in a study without a server, until the model is there and all others have it.

    It listens where the study says that others reach it, unless `listen` names another HOST:PORT,
    and connects to those before it by name. Without an identity it speaks no TLS, on this machine
    alone. With a `transport`, it uses that. `opened` gets the node, for a display of who is linked.
    """
    check_place(part.name, study, listen)
    start = _start(part, study)
    proposed = proposal(study, start)
    # There is one run, which all know from the study.
    run = hashlib.sha256(f"peers {study.fingerprint}".encode()).digest()[:16]
    part.look(proposed, signed=identity is not None)
    signatures = part.signatures = Unsigned() if identity is None else Signer(identity)
    door, state = part.consider(study, run)
    least = part.policy_in(study).min_clients_in_sum
    introduction = Introduction(part.name, proposed, run, signatures, least, key_of(door))
    carrier = transport or _transport(part, study, identity, listen)
    node = Node(part.name, study.clients, carrier, introduction, part.notify)
    log = DiskLog(state / "log", origin(study, run))

    def begin(run: ReplicatedRun) -> None:
        node.start(_replica(part.name, study, log, node, run))
        opened(node)
        if isinstance(carrier, GrpcTransport) and carrier.port:
            part.notify(Listens(addresses(study)[part.name], list(study.clients)))

    try:
        part.train(study, start, (door, state), node, log, rules(study), begin)
        node.done()
        part.notify(Finished(node.wait_until_done(MODEL_PATIENCE, STAY)))
    finally:
        node.stop()
        log.close()
        part.close()


def _start(part: Participation, study: Study) -> WarmStart | None:
    """Return what a study begins with; all come to the same words, by the model and the study."""
    model = part.start
    if model is None:
        return None
    return WarmStart.of(model, usual_words(model, study.method, study.text))


def _replica(name: str, study: Study, log: Log, node: Node, run: ReplicatedRun) -> Replica:
    return Replica(
        name, adders(study), (), log, can_add=list(addresses(study)), nonce=nonce(),
        now=node.now(), snapshot=run.snapshot,
        install=lambda state: run.install(state.content, node),
    )  # fmt: skip


def check_place(name: str, study: Study, listen: str = "") -> None:
    """Raise a StudyError if a study has no place for a participant of this name without a server.

    Who is to `listen` needs an address, which is what the others connect to.
    """
    if not addresses(study):
        raise StudyError(
            "The study has no addresses, so it needs a server; for one without, give an "
            'address = "HOST:PORT" in [clients.NAME] to those that others can reach.'
        )
    if name not in study.clients:
        raise StudyError(
            f"The study has no participant {name!r}, only {', '.join(study.clients)}; each is a "
            "table [clients.NAME], by the name in its certificate."
        )
    if listen and name not in addresses(study):
        raise StudyError(
            f"The study has no address of {name!r}, so nobody connects to it; leave out --listen, "
            f"or add the address to [clients.{name}], in everybody's study file."
        )


class PeerParticipation(Participation):
    """A participant of a study without a server; else as `Participation`."""

    holds = True

    def __init__(
        self,
        study: Study,
        identity: Path | None,  # folder; None speaks without TLS, on this machine alone
        listen: str,  # HOST:PORT, if not where the others connect to
        *,
        out: Path | None,
        name: str = "",  # with an identity, that of its certificate
        dry_run: bool = False,  # look at the study, do not join
        opened: Callable[[Node], None] = lambda node: None,  # gets the node, to show who is linked
        **more: Any,  # as of `Participation`
    ) -> None:
        self._identity = None if identity is None else Identity.load(identity, "client")
        name = name if self._identity is None else self._identity.name
        check_place(name, study, listen)
        if self._identity is not None and name in addresses(study):
            _check_peer(self._identity, Path(identity or ""))
        super().__init__(name, out=None if dry_run else out, **more)
        self._study = study
        self._listen = listen
        self._dry_run = dry_run
        self._opened = opened

    def run(self) -> None:
        """Take part until the model is here; see `take_part_with_peers` for what it raises."""
        if self._dry_run:
            start = _start(self, self._study)
            study = self.look(proposal(self._study, start), signed=self._identity is not None)
            self.notify(Allowed(self.exposed(study)))
        else:
            take_part_with_peers(
                self, self._study, self._identity, self._listen, opened=self._opened
            )


def _check_peer(identity: Identity, folder: Path) -> None:
    """Raise an IdentityError if others could not connect to who has an identity."""
    if peer_host(identity.name) not in identity.hosts:
        raise IdentityError(
            f"With the identity in {folder} others cannot connect to {identity.name!r}, whose "
            "address the study has; have its certificate made for that: fedtopics pki issue "
            f"{identity.name} --renew --peer"
        )


def _transport(
    part: Participation, study: Study, identity: Identity | None, listen: str
) -> GrpcTransport:
    """Listen at the own address, and connect to whoever has one and is before this one by name."""
    places, order = addresses(study), sorted(study.clients)  # of any study that they share
    own = places.get(part.name, "")
    before = order[: order.index(part.name)] if own else order
    listening = None
    if own:
        host, port = split_address(listen or own)
        credentials = None if identity is None else server_credentials(identity)
        listening = Listening(join_address(host, port), credentials)
    for address in [*places.values(), listen]:
        if identity is None and address:
            check_loopback(address)
    credentials_out = None if identity is None else channel_credentials(identity)
    others = [
        Address(
            join_address(*split_address(places[name])), credentials_out, name,
            (("grpc.ssl_target_name_override", peer_host(name)),) if identity else (),
            title=name, longest_pause=LONGEST_PAUSE,
        )
        for name in before if name in places and name != part.name
    ]  # fmt: skip
    largest = study.federation.largest_message << 20
    # Peers ask each other for the log; who begins to add knows later what replies may have.
    unannounced = {"offer": largest, "replicated": largest, "reply": IN_FLIGHT}
    return GrpcTransport(listening, others, len(study.clients), part.notify, largest, unannounced)
