"""The messages between a member and the relay, as MessagePack."""

from functools import cache
from threading import Lock
from typing import Annotated, Literal, TypeVar

import msgspec

from fedtopics.errors import FederationError

Kind = Literal["sum", "call"]
Phase = Literal["compute", "part", "body", "done", "stopped", "refused"]
# One of each member: a longer list would take many times its bytes of memory.
Parts = Annotated[list[bytes], msgspec.Meta(max_length=10_000)]


class Message(msgspec.Struct, array_like=True, tag=True):
    """A message; unknown fields at its end are ignored."""


class Part(Message):
    """What a member signs before a step, and its one-time public key."""

    run: bytes
    step: int
    transcript: bytes
    function: str
    kind: Kind
    layout: bytes  # its SHA-256
    name: str
    key: bytes
    signature: bytes = b""


class Body(Message):
    """A member's masked vector, or its sealed reply with a signature."""

    list: bytes  # the SHA-256 of the list that it belongs to
    name: str
    content: bytes


class Ask(Message):
    """A member asks what is next; the relay answers with an `Answer`."""

    process: bytes  # drawn by each process of a member
    step: int
    phase: Phase
    list: bytes
    reason: str = ""  # why this member refuses the study, or sends nothing yet


class List(Message):
    """The parts of a step, unchanged, in the order of names."""

    parts: Parts


class Total(Message):
    """The total of a step can be fetched."""

    list: bytes


class Want(Message):
    """The relay lacks a message: it was restarted, or the message was lost."""

    what: Literal["part", "body"]


class Stop(Message):
    """A member or the relay ends all processes of the run for a reason."""

    name: str  # "" is the relay
    process: bytes
    run: bytes
    step: int
    reason: str
    signature: bytes = b""


class Answer(Message):
    """What a member should do next, if anything, and whom the relay waits for."""

    message: List | Total | Want | Stop | None = None
    waiting: dict[str, str] = {}  # name to state


class Last(msgspec.Struct, array_like=True):
    """The relay's file: the last step that has a total."""

    step: int
    parts: Parts
    total: bytes
    done: list[str] = []  # members that have the model


M = TypeVar("M")
encode = msgspec.msgpack.encode
# Two threads that make msgspec's first decoder of a class at once end the process.
_lock = Lock()
_decoder = cache(msgspec.msgpack.Decoder)


def decode(content: bytes, kind: type[M]) -> M:
    """Read a message of this kind; FederationError if it is damaged."""
    with _lock:
        reader: msgspec.msgpack.Decoder[M] = _decoder(kind)  # type: ignore[arg-type]
    try:
        return reader.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FederationError("A message is damaged.") from None
