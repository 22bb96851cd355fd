"""What participants say to each other: a class each, of plain data.

What comes is checked against the class of its kind before anybody sees it. Fields that a class does
not have are ignored: a later version may send some.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import msgspec
import numpy as np

from fedtopics.engines import log_messages
from fedtopics.engines.log import Entry
from fedtopics.engines.values import loads, unpack
from fedtopics.errors import FederationError


class Message(msgspec.Struct, frozen=True, eq=False, tag_field="kind", tag=str.lower):
    """Something said; its subclasses are the kinds."""

    @property
    def kind(self) -> str:
        """Name of its kind."""
        return type(self).__name__.lower()


# Before a participant takes part


class Offer(Message, frozen=True):  # to whoever connects: what it can take part in
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


class Accept(Message, frozen=True):  # the answer to an offer
    name: str
    fingerprint: str  # as the participant computed it
    process: bytes  # random; the same when a process connects again
    least: int  # clients that its policy wants its replies to be added up with, itself counted
    certificate: bytes  # PEM; nothing without certificates
    signature: bytes  # of study, run, challenge and name
    key: bytes = b""  # the public key of its masks, and its signature; nothing without masks


class Declined(Message, frozen=True):  # another one; why stays with who says it
    name: str


class Welcome(Message, frozen=True):  # the answer to an acceptance
    adder: str  # who says it
    certificate: bytes = b""  # its own, PEM, where participants sign
    key: bytes = b""  # as of an acceptance, of a participant


class Refusal(Message, frozen=True):  # the last message to somebody: a sentence for people
    reason: str
    again: bool  # trying again later can help
    said: bool = False  # it is of what was said last, which is not to be said again


# While the program runs


class Waiting(Message, frozen=True):  # a program has come to a turn, and waits for its beginning
    turn: int


class Announced(Message, frozen=True):  # a reply is ready that is larger than the allowance
    index: int
    size: int  # bytes


class Granted(Message, frozen=True):  # now there is room for it
    index: int


class Reply(Message, frozen=True):
    index: int  # of the decision that it is for
    digest: bytes  # of all decisions before
    signature: bytes  # of that digest, by the key of the participant's certificate
    reply: dict[str, Any]


class Failure(Message, frozen=True):  # there is none; why is for the participant's own eyes
    index: int
    reason: str  # one of FAILURES
    leaves: bool  # the participant ends; it may come back when the cause is mended


class Done(Message, frozen=True):  # a program has ended, with the model
    pass


class Replicated(Message, frozen=True):
    """What keeps the log of decisions the same everywhere."""

    message: log_messages.Message  # of `replica`, without the contents of entries and of a state
    contents: list[np.ndarray]  # these, which are not copied

    @classmethod
    def of(cls, message: log_messages.Message) -> Replicated:
        """Write such a message."""
        held = _contents(message)
        empty = _with_contents(message, [b""] * len(held))
        return cls(empty, [np.frombuffer(each, np.uint8) for each in held])

    def read(self) -> log_messages.Message:
        """Return it; a `FederationError` if its contents are none."""
        number, contents = len(_contents(self.message)), self.contents
        if len(contents) != number or any(
            each.dtype != np.uint8 or each.ndim != 1 for each in contents
        ):
            raise FederationError("A message of the log is damaged.")
        return _with_contents(self.message, [each.data for each in contents])


def _contents(message: log_messages.Message) -> list[Any]:
    if isinstance(message, log_messages.Append):
        return [entry.content for entry in message.entries]
    if isinstance(message, log_messages.Begin) and message.state is not None:
        return [message.state.content]
    return []


def _with_contents(message: log_messages.Message, contents: list[Any]) -> log_messages.Message:
    if isinstance(message, log_messages.Append):
        pairs = zip(message.entries, contents, strict=True)
        entries = tuple(Entry(entry.kind, content) for entry, content in pairs)
        return msgspec.structs.replace(message, entries=entries)
    if isinstance(message, log_messages.Begin) and message.state is not None:
        state = msgspec.structs.replace(message.state, content=contents[0])
        return msgspec.structs.replace(message, state=state)
    return message


AnyMessage: TypeAlias = (
    Offer | Accept | Declined | Welcome | Refusal | Waiting | Announced | Granted | Reply | Failure
    | Done | Replicated
)  # fmt: skip

# Kinds of failure, as others say them.
FAILURES = {
    "policy": "its own policy keeps the reply",
    "input": "its documents or its settings do not allow it",
    "system": "its machine failed (disk or memory)",
    "defect": "it raised an unexpected error",
    "disagreement": "it was told something else than the others",
}


# Read what `dumps` wrote of a message; a `FederationError` if it is damaged.
read_bytes = partial(loads, of=AnyMessage)


def read_message(kind: str, buffer: memoryview, largest: int = 1 << 31) -> Message:
    """Read a message that was announced; a `FederationError` if it is another, or damaged."""
    found: Message = unpack(buffer, largest, of=AnyMessage)
    if found.kind != kind:
        raise FederationError("A message is of another kind than it announced.")
    return found
