"""What a client may be called: its name is a folder's name and a certificate's common name."""

from __future__ import annotations

import re

from fedtopics.errors import StudyError

CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_client_name(name: object) -> None:
    """Refuse names that cannot name a folder, or are longer than a certificate allows."""
    if not isinstance(name, str) or not CLIENT_NAME.fullmatch(name):
        raise StudyError(
            f"{name!r} cannot name a client; use letters, digits, '_', '-' and '.', at most 64, "
            "in a string that begins with a letter or digit."
        )
