"""What the server of a study has to know, which takes little memory to load."""

from __future__ import annotations

import msgspec

from fedtopics.errors import IdentityError, StudyError
from fedtopics.protocol.roster import Key, Roster
from fedtopics.transport.grpc import GrpcLink, split_address


class ServerPlan(msgspec.Struct, frozen=True):
    """Who may call the server of a study, and where it is."""

    name: str
    fingerprint: str
    is_secure: bool
    clients: list[str]
    roster: Roster
    study_address: str | None
    largest_message: int  # bytes

    @property
    def address(self) -> str:
        """Where the server is; StudyError if the study does not say so."""
        if self.study_address is None:
            raise StudyError('The study has no server address; add [server] address = "HOST:PORT".')
        return self.study_address

    @property
    def certificate(self) -> bytes:
        """The certificate of the server; IdentityError if the study has none."""
        if self.roster.server is None:
            raise IdentityError(
                "The study names no certificate of its server; add it to [server], or name a "
                'member that hosts the server: host = "NAME".'
            )
        return self.roster.server

    def link(self, key: Key) -> GrpcLink:
        """Return a member's link to the server."""
        return GrpcLink(self.address, key.pem, key.certificate, self.certificate)

    def listen_address(self, address: str) -> str:
        """Return where to listen: as given, or at the study's port on this machine."""
        return address or f"0.0.0.0:{split_address(self.address)[1]}"
