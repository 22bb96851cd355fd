"""Find out why a client cannot take part: one finding a step, each with what to do."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from fedtopics.engines.grpc.connection import channel_credentials, join_address, split_address
from fedtopics.engines.grpc.transport import Address, GrpcTransport
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.links import SERVER
from fedtopics.engines.transport import first_offer
from fedtopics.errors import FederationError, FedTopicsError, IdentityError, StudyError
from fedtopics.extras import VERSION
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study, unmasked
from fedtopics.files import shortened
from fedtopics.harmless import sentence
from fedtopics.methods.registry import versions
from fedtopics.pki import Identity

PATIENCE = 5.0  # seconds for each step
CLOCK = 120.0  # seconds that two clocks may differ
SOON = timedelta(days=30)
UNACCEPTED = (
    "the server does not accept this certificate: it is not from the server's own authority, or "
    "has ended by the server's clock; ask its operator for one"
)


@dataclass(frozen=True)
class Finding:
    """What one check says."""

    check: str
    fine: bool
    text: str  # one line: what is, and what to do if it is not fine
    lasting: bool = False  # waiting does not mend it
    study: Study | None = None  # where it is known what it would show


def examine(
    address: str, folder: str | Path, dry_run: Callable[[], str] | None = None
) -> Iterator[Finding]:
    """Check certificate, name, reachability, TLS, versions and clock; stop where it breaks.

    At the end `dry_run` is called, if it is given: it raises what is in the way, and returns what
    there is to say of the documents.
    """
    try:
        identity = Identity.load(folder, "client")
    except IdentityError as error:
        yield Finding("certificate", False, str(error), lasting=True)
        return
    soon = identity.not_after - datetime.now(UTC) < SOON
    hint = f"; renew it soon: fedtopics pki issue {identity.name} --renew" if soon else ""
    valid = f"{identity.title}, valid until {identity.not_after:%Y-%m-%d}{hint}"
    yield Finding("certificate", True, valid)
    for finding in chain(connection(address, folder), _server(address, identity)):
        yield finding
        if not finding.fine:
            return
    if dry_run is not None:
        try:
            languages = dry_run()
        except FedTopicsError as error:
            yield Finding("policy", False, str(error), lasting=True)
            return
        yield Finding("policy", True, "it allows the study on these documents")
        if languages:
            yield Finding("languages", True, languages)


def connection(address: str, folder: str | Path) -> Iterator[Finding]:
    """Check that the address has a server that trusts this identity, and is trusted by it."""
    host, port = split_address(address)
    try:
        socket.getaddrinfo(host, port)
    except (socket.gaierror, UnicodeError):
        yield Finding("name", False, f"no machine named {host!r} is known; check the name")
        return
    try:
        raw = socket.create_connection((host, port), PATIENCE)
    except OSError as error:
        reason = "it does not answer" if isinstance(error, TimeoutError) else error.strerror
        text = f"{address}: {reason}; ask whether a firewall closes the port"
        if isinstance(error, ConnectionRefusedError):
            text = (
                f"{host} refuses connections to port {port}; is the server running, on this port?"
            )
        yield Finding("reachable", False, text)
        return
    yield Finding("reachable", True, f"{address} accepts connections")
    with raw:
        yield _handshake(raw, host, Path(folder))


def _handshake(raw: socket.socket, host: str, folder: Path) -> Finding:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    context.set_alpn_protocols(["h2"])
    try:
        place = raw.getpeername()  # an error where the server has died since
        with context.wrap_socket(raw, server_hostname=host) as line:
            line.settimeout(PATIENCE)
            # With TLS 1.3 the server's opinion of our certificate comes after, and gRPC's hangs up.
            if not line.recv(1):
                return Finding("TLS", False, UNACCEPTED)
    except ssl.SSLCertVerificationError as error:
        is_other_name = error.verify_code in (62, 64)  # host name, IP address
        text = "the server's certificate has expired; its operator has to renew it"
        if is_other_name:
            text = _misnamed(place, context, host)
        elif error.verify_code != 10:
            text = (
                "the server's certificate is not from this identity's authority (ca.crt); ask its "
                "operator which authority it uses"
            )
        return Finding("TLS", False, text, lasting=True)
    except OSError as error:
        # A server that is about to end says no more.
        ended = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
        if isinstance(error, ssl.SSLError) and not ended:
            return Finding("TLS", False, _rejection(error), lasting=True)
        return Finding("TLS", False, "the server ended the handshake; try again")
    return Finding("TLS", True, "server and client trust each other's certificates")


def _misnamed(place: tuple[str, int], context: ssl.SSLContext, host: str) -> str:
    """Ask for the certificate again, whose authority is the own one, and say whom it is for."""
    context.check_hostname = False
    names: list[str] = []
    with (
        suppress(OSError),
        socket.create_connection(place[:2], PATIENCE) as raw,
        context.wrap_socket(raw) as line,
    ):
        pairs: Any = (line.getpeercert() or {}).get("subjectAltName", ())
        names = [sentence(name) for _, name in pairs]
    is_for = f"is for {', '.join(names)}, not for {host!r}" if names else f"is not for {host!r}"
    return (
        f"the server's certificate {is_for}; use the name that it is for, or make one with: "
        "fedtopics pki create DIR --server NAME"
    )


def _rejection(error: ssl.SSLError) -> str:
    reason = (error.reason or "").lower()
    if "wrong_version" in reason or "record_layer" in reason:
        return "what listens there does not speak TLS; is it the right port?"
    if "expired" in reason:
        return "the server says this certificate has expired; check the clocks of both machines"
    return UNACCEPTED


def _server(address: str, identity: Identity) -> Iterator[Finding]:
    before = time.time()
    try:
        place = join_address(*split_address(address))
        where = [Address(place, channel_credentials(identity), SERVER)]
        offer = first_offer(GrpcTransport(None, where, 1, lambda _: None), address)
    except FedTopicsError as error:
        yield Finding("server", False, str(error), lasting=True)
        return
    proposal = Proposal.of(offer)
    try:
        objection = proposal.objection((VERSION, versions(proposal.method)), offer.wire)
    except FedTopicsError as error:  # what the method needs is missing
        objection = str(error)
    yield Finding("versions", not objection, objection or f"fedtopics {VERSION} on both sides")
    ahead = offer.time - (before + time.time()) / 2
    text = f"the server's is {ahead:+.1f} s from this one"
    if apart := not abs(ahead) <= CLOCK:  # so is one that says NaN
        text = f"the server's clock is {ahead:+.0f} s from this one; set the wrong one right"
    yield Finding("clock", not apart, text)
    study = shortened(proposal.fingerprint)
    text = f"{proposal.method}, study {study}, {identity.name} is one of its clients"
    yield Finding("study", True, text)
    with suppress(StudyError):  # that of another version may not be readable
        offered, policy, seen = Study.of_agreed(proposal.study), Policy(), "replies are masked"
        if not offered.masked:
            policy = policy.where_seen()
            seen = f"replies are not masked, as {unmasked(offered)}: whoever adds sees each one"
        least = f"each sums over at least {policy.min_documents} documents"
        text = f"{seen}; {least}, if your policy says no other number"
        yield Finding("masks", True, text, study=offered)


def why_not(address: str, folder: str | Path) -> str:
    """Say why there is no connection, "" if one can be; raise if no waiting mends it."""
    for finding in connection(address, folder):
        if finding.lasting:
            raise FederationError(f"The server {address} cannot be used: {finding.text}.")
        if not finding.fine:
            return finding.text
    return ""
