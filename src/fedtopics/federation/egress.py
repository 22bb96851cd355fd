"""Where a member's outputs and their record go, besides the folder of its run."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedtopics.errors import FederationError, RunError
from fedtopics.escaping import file_name
from fedtopics.files import make_folder, open_private, read_bytes, write_durably
from fedtopics.protocol.keys import derive, seal, unseal
from fedtopics.protocol.messages import Message, decode, encode
from fedtopics.protocol.roster import Key, certificate_fingerprint, public_key_of

SYSLOG_SOCKET = "/dev/log"
NOTICE = 13 * 8 + 5  # the facility of audit logs, and the severity "notice" (RFC 5424)
SUFFIX = ".kept"


@dataclass(frozen=True)
class Egress:
    """Where files are written for others, and second places of what was sent.

    Parameters
    ----------
    outbox : folder of the messages that people carry; None if there is a connection.
    log : folder that gets a copy of each line of the ledger, or "syslog" for their digests.
    keep : folder that gets what was sent, encrypted for the approvers.
    """

    outbox: Path | None = None
    log: str = ""
    keep: Path | None = None

    def copy(self, client: str, study: str, line: bytes) -> None:
        """Copy a line of a client's ledger, before it is written there and anything is sent."""
        if self.log == "syslog":
            to_syslog(line)
        elif self.log:
            make_folder(Path(self.log))
            # Only ever appended to: where the system allows nothing else, that is enough.
            path = Path(self.log) / f"{file_name(client)}-{study[:16]}.jsonl"
            with open_private(path, "ab") as file:
                file.write(line + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def store(self, title: str, secret: bytes, content: bytes, people: Mapping[str, bytes]) -> None:
        """Keep an update, and the secret of its keyed digest, for these people."""
        if self.keep is not None:
            make_folder(self.keep)
            sealed = sealed_for(people, encode((secret, content)))
            write_durably(self.keep / f"{title}{SUFFIX}", encode(sealed))


def to_syslog(line: bytes) -> None:
    """Send the digest of a ledger's line to the system's log; the line can be too long for it."""
    content = json.loads(line)
    shown = {key: content.get(key) for key in ("what", "study", "function", "bytes")}
    text = json.dumps({**shown, "sha256": hashlib.sha256(line).hexdigest()})
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as log:
            log.connect(SYSLOG_SOCKET)
            log.send(f"<{NOTICE}>fedtopics: {text}".encode())
    except OSError as error:
        raise RunError(
            f"The system's log {SYSLOG_SOCKET} takes no message ({error.strerror}), so nothing was "
            "sent; start it, or name a folder with --egress-log."
        ) from None


class SealedUpdate(Message):
    """Content that several people can open, each with an own key."""

    key: bytes  # a public key that is used once
    boxes: dict[str, bytes]  # the key of the content, by fingerprint of a person's certificate
    content: bytes


def sealed_for(people: Mapping[str, bytes], content: bytes) -> SealedUpdate:
    """Encrypt content for the owners of certificates, in PEM."""
    secret = os.urandom(32)
    private = ec.generate_private_key(ec.SECP256R1())
    boxes = {}
    for pem in people.values():
        whose = certificate_fingerprint(pem)
        shared = private.exchange(ec.ECDH(), public_key_of(pem))
        boxes[whose] = seal(derive(shared, "kept", whose), secret)
    point = private.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    return SealedUpdate(point, boxes, seal(secret, content))


def opened(path: Path, key: Key) -> tuple[bytes, bytes]:
    """Return the secret and the content of a kept file; RunError if this key does not open it."""
    whose = certificate_fingerprint(key.certificate)
    try:
        sealed = decode(read_bytes(path), SealedUpdate)
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sealed.key)
        shared = key.private.exchange(ec.ECDH(), point)
        secret = unseal(derive(shared, "kept", whose), sealed.boxes[whose])
        return decode(unseal(secret, sealed.content), tuple[bytes, bytes])
    except (OSError, FederationError, ValueError, KeyError):
        raise RunError(
            f"{path} is damaged, or was not kept for {key.name!r}; give the key of an approver of "
            "that time."
        ) from None
