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
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
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


class PeerParticipation(Participation):
    """A participant of a study without a server; else as `Participation`.

    It listens where the study says that others reach it, unless `listen` names another HOST:PORT,
    and connects to those before it by name.
    """

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
        if not addresses(study):
            raise StudyError(
                "The study has no addresses, so it needs a server; for one without, give an "
                'address = "HOST:PORT" in [clients.NAME] to those that others can reach.'
            )
        if name not in study.clients:
            raise StudyError(
                f"The study has no participant {name!r}, only {', '.join(study.clients)}; each is "
                "a table [clients.NAME], by the name in its certificate."
            )
        if listen and name not in addresses(study):
            raise StudyError(
                f"The study has no address of {name!r}, so nobody connects to it; leave out "
                f"--listen, or add the address to [clients.{name}], in everybody's study file."
            )
        own = self._identity
        if own is not None and name in addresses(study) and peer_host(name) not in own.hosts:
            raise IdentityError(
                f"With the identity in {identity} others cannot connect to {name!r}, whose address "
                "the study has; have its certificate made for that: fedtopics pki issue "
                f"{name} --renew --peer"
            )
        super().__init__(name, out=None if dry_run else out, **more)
        self._study = study
        self._listen = listen
        self._dry_run = dry_run
        self._opened = opened

    def run(self) -> None:
        """Take part until the model is here, and all others have it; raise as `take_part` does."""
        study, identity, model = self._study, self._identity, self.start
        start = None
        if model is not None:  # all come to the same words, by the model and the study
            start = WarmStart.of(model, usual_words(model, study.method, study.text))
        proposed = proposal(study, start)
        offered = self.look(proposed, signed=identity is not None)
        if self._dry_run:
            self.notify(Allowed(self.exposed(offered)))
            return
        # There is one run, which all know from the study.
        run = hashlib.sha256(f"peers {study.fingerprint}".encode()).digest()[:16]
        signatures = self.signatures = Unsigned() if identity is None else Signer(identity)
        door, state = self.consider(study, run)
        least = self.policy_in(study).min_clients_in_sum
        introduction = Introduction(self.name, proposed, run, signatures, least, key_of(door))
        carrier = self._transport()
        node = Node(self.name, study.clients, carrier, introduction, self.notify)
        log = DiskLog(state / "log", origin(study, run))

        def begin(run: ReplicatedRun) -> None:
            replica = Replica(
                self.name, adders(study), (), log, can_add=list(addresses(study)), nonce=nonce(),
                now=node.now(), snapshot=run.snapshot,
                install=lambda state: run.install(state.content, node),
            )  # fmt: skip
            node.start(replica)
            self._opened(node)
            if carrier.port:
                self.notify(Listens(addresses(study)[self.name], list(study.clients)))

        try:
            self.train(study, start, (door, state), node, log, rules(study), begin)
            node.done()
            self.notify(Finished(node.wait_until_done(MODEL_PATIENCE, STAY)))
        finally:
            node.stop()
            log.close()
            self.close()

    def _transport(self) -> GrpcTransport:
        """Listen at the own address, and connect to whoever has one and is before this by name."""
        study, identity, listen = self._study, self._identity, self._listen
        places, order = addresses(study), sorted(study.clients)  # of any study that they share
        own = places.get(self.name, "")
        before = order[: order.index(self.name)] if own else order
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
            for name in before if name in places and name != self.name
        ]  # fmt: skip
        largest = study.federation.largest_message << 20
        # Peers ask each other for the log; who begins to add knows later what replies may have.
        unannounced = {"offer": largest, "replicated": largest, "reply": IN_FLIGHT}
        return GrpcTransport(
            listening, others, len(study.clients), self.notify, largest, unannounced
        )
