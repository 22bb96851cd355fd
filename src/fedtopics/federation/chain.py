"""How lines of a ledger hang together: each has the digest of the line before, and a signature.

A line is JSON whose first key is "before" and whose last one, where there is a key to sign with, is
"signature", of all before it. What is hashed and signed are the line's bytes. The head, a file of
one line beside the ledger, says how many lines there are and the digest of the last one: lines that
are cut off at the end are missed by it.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtopics.files import FILE, open_file, read_bytes

Sign = Callable[[bytes], bytes]
FIRST = ""  # what the first line has for the digest of the one before
LINE, HEAD = b"fedtopics ledger, a line\n", b"fedtopics ledger, the head\n"  # what is signed
SIGNED = re.compile(rb'(.*), "signature": "([A-Za-z0-9+/=]+)"\}', re.DOTALL)
HEAD_SIZE = 512  # bytes: written over at once, so that a process that is killed leaves a whole one


def unsigned(content: bytes) -> bytes:
    """Sign nothing, where there is no key."""
    return b""


def digest_of_line(line: bytes) -> str:
    """Return the SHA-256 of a line without its line break."""
    return hashlib.sha256(line).hexdigest()


def write_line(before: str, content: dict[str, Any], sign: Sign) -> bytes:
    """Return a line that follows the one with the digest `before`."""
    return _signed({"before": before, **content}, LINE, sign)


def _signed(content: dict[str, Any], what: bytes, sign: Sign) -> bytes:
    plain = json.dumps(content).encode()
    signature = sign(what + plain)
    if not signature:
        return plain
    return plain[:-1] + b', "signature": "' + b64encode(signature) + b'"}'


def read_signature(line: bytes, what: bytes = LINE) -> tuple[bytes, bytes]:
    """Return what was signed of a line or a head, and the signature; nothing of an unsigned one."""
    found = SIGNED.fullmatch(line)
    if found is None:
        return b"", b""
    try:
        signature = b64decode(found[2])
    except ValueError:
        signature = b"damaged"
    return what + found[1] + b"}", signature


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield a ledger's lines without their line breaks."""
    with open_file(path) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def head_path(ledger: Path) -> Path:
    """Return where the head of a ledger is."""
    return ledger.with_suffix(".head")


@dataclass(frozen=True)
class Head:
    """How many lines a ledger has, and the digest of the last."""

    lines: int
    sha256: str
    written: bytes = b""  # as it is in its file

    @classmethod
    def read(cls, ledger: Path) -> Head | None:
        """Return the head of a ledger; None if there is none, or half of one."""
        try:
            written = read_bytes(head_path(ledger)).rstrip()
            content = json.loads(written)
            return cls(int(content["lines"]), str(content["sha256"]), written)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None


class HeadFile:
    """The head's file, written over with each line."""

    def __init__(self, ledger: Path, sign: Sign) -> None:
        path = head_path(ledger)
        path.touch(FILE)
        self._file = open_file(path, "r+b", buffering=0)
        self._sign = sign

    def write(self, lines: int, sha256: str) -> None:
        """Say how many lines there are now."""
        head = _signed({"lines": lines, "sha256": sha256}, HEAD, self._sign)
        self._file.seek(0)
        self._file.write(head.ljust(HEAD_SIZE - 1) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
