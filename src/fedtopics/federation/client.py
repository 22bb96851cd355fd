"""A client's part in a study whose server listens at an address."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedtopics.engines.grpc.connection import (
    channel_credentials,
    check_loopback,
    join_address,
    speaks_tls,
    split_address,
)
from fedtopics.engines.grpc.transport import Address, GrpcTransport
from fedtopics.engines.handshake import Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.transport import PATIENCE, first_offer
from fedtopics.errors import FederationError
from fedtopics.federation.doctor import why_not
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.events import Allowed, OnEvent
from fedtopics.pki import Identity, Signer
from fedtopics.text.corpus import Corpus


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
        wait: float = math.inf,  # seconds without the server after which it gives up
        **more: Any,  # as of `Participation`
    ) -> None:
        signatures: Signatures = Unsigned()
        self._credentials: Any = None
        if identity is None:
            check_loopback(address)
        else:
            loaded = Identity.load(identity, "client")
            name, self._credentials = loaded.name, channel_credentials(loaded)
            signatures = Signer(loaded)
        out = None if dry_run else out  # it writes nothing, so no folder is in its way
        super().__init__(name, corpus, policy, out, on_event, **more)
        self.signatures = signatures
        self._address = join_address(*split_address(address))
        self._identity = identity
        self._dry_run = dry_run
        self._wait = wait

    def run(self) -> None:
        """Take part until the model is here; see `take_part` for what it raises."""
        address = Address(
            self._address, self._credentials, SERVER, diagnose=self.diagnose, wait=self._wait
        )
        transport = GrpcTransport(None, [address], 1, self.notify)
        if self._dry_run:
            patience = min(self._wait, PATIENCE)
            proposal = Proposal.of(first_offer(transport, self._address, patience))
            study = self.look(proposal, bool(self.signatures.certificate))
            self.notify(Allowed(self.exposed(study)))
        else:
            self.take_part(transport, self.signatures)

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
