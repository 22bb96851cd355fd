"""Whole messages, for engines that carry them: a frame of ``wire.proto`` and its body, as bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from google.protobuf.message import DecodeError

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.values import Packed, aligned, body_size
from fedtopics.errors import FederationError

LENGTH = 8  # bytes that say how long the frame is


class Carrier(Protocol):
    """Brings messages to clients and their answers back."""

    def addresses(self) -> Collection[str]:
        """Return the addresses that can be reached now."""

    def send(self, address: str, message: bytes) -> None:
        """Send a message, which is answered once at most."""

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Return what has come, after so many seconds at most; None: that client failed."""


def read_frame(raw: bytes) -> wire.Frame:
    """Read a frame; a `FederationError` if it is damaged."""
    try:
        return wire.Frame.FromString(raw)
    except DecodeError:
        raise FederationError("A message is damaged.") from None


def to_message(frame: wire.Frame, packed: Packed | None = None) -> bytes:
    """Write a frame and its body."""
    head = frame.SerializeToString()
    body = () if packed is None or packed.is_small else packed.pieces
    return b"".join([len(head).to_bytes(LENGTH, "little"), head, *body])


def from_message(message: bytes) -> tuple[wire.Frame, memoryview]:
    """Read a frame and its body; a `FederationError` if the message is damaged."""
    raw = memoryview(message)
    end = LENGTH + int.from_bytes(raw[:LENGTH], "little")
    frame = read_frame(bytes(raw[LENGTH:end]))
    content = getattr(frame, frame.WhichOneof("kind") or "heartbeat")
    body = getattr(content, "body", wire.Body())
    rest = memoryview(body.small) if body.small and end == len(raw) else raw[end:]
    if end > len(raw) or len(rest) != body_size(body):
        raise FederationError("A message has another length than it announced.")
    buffer = aligned(len(rest))
    buffer[:] = rest
    return frame, buffer
