"""Messages through a Flower federation: over its Grid to SuperNodes and back."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedtopics import waiting
from fedtopics.escaping import as_sentence

# Flower is an extra: it is imported where it is used.
if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

_NAME = "message"
_APP_FAILED = 2  # Flower's CLIENT_APP_RAISED_EXCEPTION


def wrapped(content: bytes) -> RecordDict:
    """Put bytes into an array: Flower sends arrays in pieces of 5 MB."""
    from flwr.app import Array, ArrayRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(content),), stype="bytes", data=content)
    return RecordDict({_NAME: ArrayRecord({_NAME: array})})


def unwrapped(message: Message) -> bytes:
    """Take the bytes out of a message; ValueError if another app wrote it."""
    record = message.content.array_records.get(_NAME)
    if record is None or _NAME not in record:
        raise ValueError("A message that arrived through Flower is not from fedtopics.")
    return bytes(record[_NAME].data)


def answer(to: Message, content: bytes, reason: str) -> Message:
    """Answer a message with content, or else a failure, whose reason is for the server's log."""
    from flwr.app import Error, Message

    return Message(
        wrapped(content) if content else Error(code=_APP_FAILED, reason=reason), reply_to=to
    )


@dataclass
class GridCarrier:
    """Messages to SuperNodes over Flower's `Grid`; the SuperNodes' ids are the addresses."""

    _grid: Grid
    _pause: float = waiting.FIRST_PULL
    _next_pull: float = 0.0
    _open: dict[str, str] = field(default_factory=dict)  # message to address
    _failed: list[str] = field(default_factory=list)
    _started: dict[str, str] = field(default_factory=dict)  # address to its SuperNode's start

    def addresses(self) -> Collection[str]:
        """Return the ids of the SuperNodes that are online."""
        before = self._started
        self._started = {
            str(node.node_id): node.last_activated_at for node in self._grid.get_nodes()
        }
        for message, address in list(self._open.items()):
            # The answer of a SuperNode that is gone or has restarted is lost.
            if address in before and self._started.get(address) != before[address]:
                del self._open[message]
                self._failed.append(address)
        return list(self._started)

    def send(self, address: str, message: bytes) -> None:
        from flwr.app import Message, MessageType

        identifiers = list(
            self._grid.push_messages([Message(wrapped(message), int(address), MessageType.QUERY)])
        )
        if identifiers and identifiers[0]:
            self._open[identifiers[0]] = address
            self._pause = waiting.FIRST_PULL
            self._next_pull = 0.0
        else:  # the SuperNode is gone, or the message is too large for the SuperLink
            self._failed.append(address)

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """See `Carrier.receive`."""
        ends = time.monotonic() + seconds
        while True:
            arrived: list[tuple[str, bytes | None]] = [(address, None) for address in self._failed]
            self._failed.clear()
            now = time.monotonic()
            if now >= self._next_pull:
                answers = self._pull()
                arrived += answers
                self._pause = (
                    waiting.FIRST_PULL if answers else min(self._pause * 1.5, waiting.LAST_PULL)
                )
                self._next_pull = now + self._pause
            if arrived or now >= ends:
                return arrived
            time.sleep(max(0.0, min(self._next_pull, ends) - now))

    def _pull(self) -> list[tuple[str, bytes | None]]:
        if not self._open:
            return []
        arrived = []
        for message in self._grid.pull_messages(list(self._open)):
            address = self._open.pop(message.metadata.reply_to_message_id, None)
            if address is None:
                continue
            content: bytes | None = b""  # a bad answer; also one that another app wrote
            if message.has_error():
                print(
                    f"SuperNode {address} failed: {as_sentence(message.error.reason)}", flush=True
                )
                content = None
            else:
                with suppress(ValueError):
                    content = unwrapped(message)
            arrived.append((address, content))
        return arrived
