"""The server of a study between machines: its address, its certificate, and links to it."""

from fedtopics.errors import IdentityError, StudyError
from fedtopics.federation.study import Study
from fedtopics.protocol.link import split_address
from fedtopics.protocol.roster import Key
from fedtopics.transport.grpc import GrpcLink


def server_address(study: Study) -> str:
    """Return the server's address; StudyError if the study has none."""
    if study.server.address is None:
        raise StudyError('The study has no server address; add [server] address = "HOST:PORT".')
    return study.server.address


def server_certificate(study: Study) -> bytes:
    """Return the server's certificate; IdentityError if the study has none."""
    certificate = study.members.server
    if certificate is None:
        raise IdentityError(
            "The study names no certificate of its server; add it to [server], or name a "
            'member that hosts the server: host = "NAME".'
        )
    return certificate


def require_server_key(study: Study, key: Key) -> None:
    """Raise IdentityError for another key than the server's."""
    if server_certificate(study) != key.certificate:
        raise IdentityError(
            f"The certificate of {key.name!r} is not the one that the study names for its "
            "server; give the server's key, or correct [server] in all members' study files."
        )


def link_to_server(study: Study, key: Key) -> GrpcLink:
    return GrpcLink(
        address=server_address(study),
        key=key.in_pem(),
        certificate=key.certificate,
        server=server_certificate(study),
        study=study.fingerprint,
    )


def listen_address(study: Study, address: str) -> str:
    """Return the given address, or the study's port on this machine."""
    return address or f"0.0.0.0:{split_address(server_address(study))[1]}"
