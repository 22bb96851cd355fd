"""What participants say to each other: a class each, and how it becomes bytes and back.

A message is a frame with its kind, and a body: a map of the fields of its class, plain data. What
comes is checked against the class before anybody sees it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError

from fedtopics.engines import log_messages
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.values import Packed, aligned, body_size, pack, unpack
from fedtopics.errors import FederationError

LENGTH = 8  # bytes that say how long a frame is
KINDS: dict[str, type[Message]] = {}
_HINTS: dict[type[Any], dict[str, Any]] = {}


@dataclass_transform(frozen_default=True)
class Message:
    """Something said, of a kind; its subclasses are frozen data classes of plain data."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        dataclass(frozen=True, eq=False)(cls)
        KINDS[kind] = cls


# Before a participant takes part


class Offer(Message, kind="offer"):  # to whoever connects: what it can take part in
    product: str  # version of fedtopics
    wire: int  # version of this protocol
    method: str
    method_version: int
    study: dict[str, Any]
    fingerprint: str  # of the study
    start: str  # fingerprint of the model that the training starts from, or nothing
    run: bytes  # the same as long as a run lives, also when it is resumed
    time: float  # the clock of whoever offers, seconds since 1970
    challenge: bytes  # to be signed, so that a name is vouched for by its own key


class Accept(Message, kind="accept"):  # the answer to an offer
    name: str
    fingerprint: str  # as the participant computed it
    process: bytes  # random; the same when a process connects again
    least: int  # clients that its policy wants its replies to be added up with, itself counted
    certificate: bytes  # PEM; nothing without certificates
    signature: bytes  # of study, run, challenge and name
    key: bytes = b""  # the public key of its masks, and its signature; nothing without masks


class Declined(Message, kind="declined"):  # another one; why stays with who says it
    name: str


class Welcome(Message, kind="welcome"):  # the answer to an acceptance
    adder: str  # who says it
    certificate: bytes = b""  # its own, PEM, where participants sign
    key: bytes = b""  # as of an acceptance, of a participant


class Refusal(Message, kind="refusal"):  # the last message to somebody: a sentence for people
    reason: str
    again: bool  # trying again later can help
    said: bool = False  # it is of what was said last, which is not to be said again


# While the program runs


class Waiting(Message, kind="waiting"):  # a program has come to a turn, and waits for its beginning
    turn: int


class Announced(Message, kind="announced"):  # a reply is ready that is larger than the allowance
    index: int
    size: int  # bytes


class Granted(Message, kind="granted"):  # now there is room for it
    index: int


class Reply(Message, kind="reply"):
    index: int  # of the decision that it is for
    digest: bytes  # of all decisions before
    signature: bytes  # of that digest, by the key of the participant's certificate
    reply: dict[str, Any]


class Failure(Message, kind="failure"):  # there is none; why is for the participant's own eyes
    index: int
    reason: str  # one of FAILURES
    leaves: bool  # the participant ends; it may come back when the cause is mended


class Done(Message, kind="done"):  # a program has ended, with the model
    pass


class Replicated(Message, kind="replicated"):
    """What keeps the log of decisions the same everywhere: a message of `replica`."""

    what: str  # name of its class
    content: dict[str, Any]

    @classmethod
    def of(cls, message: log_messages.Message) -> Replicated:
        """Write such a message."""
        return cls(type(message).__name__, _plain(message))

    def read(self) -> log_messages.Message:
        """Return it; a `FederationError` if it is none."""
        try:
            found: log_messages.Message = _made(_REPLICATED[self.what], self.content)
        except (KeyError, TypeError, ValueError):
            raise FederationError("A message of the log is damaged.") from None
        return found


_REPLICATED = {each.__name__: each for each in get_args(log_messages.Message)}


# Kinds of failure, as others say them.
FAILURES = {
    "policy": "its own policy keeps the reply",
    "input": "its documents or its settings do not allow it",
    "system": "its machine failed (disk or memory)",
    "defect": "it raised an unexpected error",
    "disagreement": "it was told something else than the others",
}


@dataclass(frozen=True)
class Outgoing:
    """A message ready to be sent, to any number of participants."""

    frame: wire.Frame
    packed: Packed
    _cut: dict[int, list[bytes]] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Message) -> Outgoing:
        """Write a message."""
        packed = pack({name: getattr(message, name) for name in _hints(type(message))})
        frame = wire.Frame(message=wire.Message(kind=message.kind, body=packed.header))
        return cls(frame, packed)

    def chunks(self, size: int, cut: Callable[[Packed, int], list[bytes]]) -> list[bytes]:
        """Return the body in chunks, which are cut once for all receivers."""
        if size not in self._cut:
            self._cut[size] = cut(self.packed, size)
        return self._cut[size]

    def bytes(self) -> bytes:
        """Return it as one piece, for transports that carry whole messages."""
        head = self.frame.SerializeToString()
        body = () if self.packed.is_small else self.packed.pieces
        return b"".join([len(head).to_bytes(LENGTH, "little"), head, *body])


def read_frame(raw: bytes) -> wire.Frame:
    """Read a frame; a `FederationError` if it is damaged."""
    try:
        return wire.Frame.FromString(raw)
    except DecodeError:
        raise FederationError("A message is damaged.") from None


def read_message(frame: wire.Message, buffer: memoryview, largest: int = 1 << 31) -> Message:
    """Read a message of a body; a `FederationError` if it is none of `KINDS`, or damaged."""
    kind = KINDS.get(frame.kind)
    content = unpack(frame.body, buffer, largest)
    if kind is None or not isinstance(content, dict):
        raise FederationError("A message is of no kind that this version knows.")
    hints = _hints(kind)
    if content.keys() != hints.keys() or not all(
        fits(value, hints[name]) for name, value in content.items()
    ):
        raise FederationError(f"A message has other fields than one of the kind {frame.kind!r}.")
    return kind(**content)


def read_bytes(message: bytes | memoryview, largest: int = 1 << 31) -> Message:
    """Read what `Outgoing.bytes` wrote; a `FederationError` if it is damaged."""
    raw = memoryview(message)
    end = LENGTH + int.from_bytes(raw[:LENGTH], "little")
    frame = read_frame(bytes(raw[LENGTH:end])).message
    body = frame.body
    rest = memoryview(body.small) if body.small and end == len(raw) else raw[end:]
    if end > len(raw) or len(rest) != body_size(body):
        raise FederationError("A message has another length than it announced.")
    buffer = aligned(len(rest))
    buffer[:] = rest
    return read_message(frame, buffer, largest)


def _hints(kind: type[Any]) -> dict[str, Any]:
    """Return the types of a data class's fields."""
    if kind not in _HINTS:
        hints = get_type_hints(kind)
        _HINTS[kind] = {each.name: hints[each.name] for each in fields(kind)}
    return _HINTS[kind]


def _plain(value: Any) -> Any:
    """Turn a message of the log into plain data; contents of entries are not copied."""
    if is_dataclass(value):
        named = {name: getattr(value, name) for name in _hints(type(value))}
        return {
            name: np.frombuffer(each, np.uint8) if name == "content" else _plain(each)
            for name, each in named.items()
        }
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _made(hint: Any, plain: Any) -> Any:
    """Undo `_plain`; an error if plain data do not fit the type."""
    if isinstance(hint, types.UnionType):
        inner = next(each for each in get_args(hint) if each is not types.NoneType)
        return None if plain is None else _made(inner, plain)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = _hints(hint)
        if not isinstance(plain, dict) or plain.keys() != hints.keys():
            raise ValueError
        made = {
            name: _content(plain[name]) if name == "content" else _made(of, plain[name])
            for name, of in hints.items()
        }
        return hint(**made)
    if get_origin(hint) is tuple:
        return tuple(_made(get_args(hint)[0], each) for each in plain)
    if not fits(plain, hint):
        raise TypeError
    return plain


def _content(array: Any) -> memoryview:
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != 1:
        raise TypeError
    return array.data


def fits(value: Any, hint: Any) -> bool:
    """Whether plain data is of a type: of numbers, texts, lists, maps, or these of each other."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is Any:
        return True
    if origin is types.UnionType:
        return any(fits(value, each) for each in inner)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (list, tuple):
        return isinstance(value, list) and all(fits(each, inner[0]) for each in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(fits(each, inner[1]) for each in value.values())
    return isinstance(value, origin)
