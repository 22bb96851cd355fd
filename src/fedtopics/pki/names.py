"""What a client may be called: its name is a folder's name and a certificate's common name."""

from __future__ import annotations

import hashlib
import re

from fedtopics.errors import StudyError

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def peer_host(name: str) -> str:
    """Return the DNS name in the certificate of a participant that others connect to.

    It is nobody's on a network: it stands for the participant, wherever it is reached.
    """
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.peer.fedtopics"


def check_client_name(name: object) -> None:
    """Refuse names that cannot name a folder, or are longer than a certificate allows."""
    if not isinstance(name, str) or not CLIENT_NAME.fullmatch(name):
        raise StudyError(
            f"{name!r} cannot name a client; use letters, digits, '_', '-' and '.', at most 64, "
            "in a string that begins with a letter or digit."
        )
