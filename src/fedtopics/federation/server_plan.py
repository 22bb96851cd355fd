"""What the server of a study needs to know, and the members' connections to it."""

from dataclasses import dataclass

from fedtopics.errors import IdentityError, StudyError
from fedtopics.protocol.link import split_address
from fedtopics.protocol.roster import Key, Roster
from fedtopics.transport.grpc import GrpcLink


@dataclass(frozen=True)
class ServerPlan:
    """The members, address and certificates of a study between machines."""

    fingerprint: str
    is_secure: bool
    clients: list[str]
    roster: Roster
    study_address: str | None
    largest_message: int  # bytes

    @property
    def address(self) -> str:
        """The server's address; StudyError if the study has none."""
        if self.study_address is None:
            raise StudyError('The study has no server address; add [server] address = "HOST:PORT".')
        return self.study_address

    @property
    def certificate(self) -> bytes:
        """The server's certificate; IdentityError if the study has none."""
        if self.roster.server is None:
            raise IdentityError(
                "The study names no certificate of its server; add it to [server], or name a "
                'member that hosts the server: host = "NAME".'
            )
        return self.roster.server

    def require_key(self, key: Key) -> None:
        """Raise IdentityError for another key than the server's."""
        if self.certificate != key.certificate:
            raise IdentityError(
                f"The certificate of {key.name!r} is not the one that the study names for its "
                "server; give the server's key, or correct [server] in all members' study files."
            )

    def link(self, key: Key) -> GrpcLink:
        return GrpcLink(
            address=self.address,
            key=key.in_pem(),
            certificate=key.certificate,
            server=self.certificate,
            study=self.fingerprint,
        )

    def listen_address(self, address: str) -> str:
        """Return the given address, or the study's port on this machine."""
        return address or f"0.0.0.0:{split_address(self.address)[1]}"
