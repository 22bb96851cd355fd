"""A client at the other end of a stream, and the memory of replies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from fedtopics.engines.connections import Member
from fedtopics.engines.grpc.frames import Stream


@dataclass
class GrpcMember(Member):
    """A client of the study, and the stream that it has opened."""

    stream: Stream | None = None
    process: bytes = b""
    received_model: asyncio.Event = field(default_factory=asyncio.Event)
    earlier_bytes: tuple[int, int] = (0, 0)  # sent, received on earlier streams

    @property
    def connected(self) -> bool:
        """Whether it has a stream."""
        return self.stream is not None

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes sent to it and received from it."""
        stream = self.stream
        sent, received = self.earlier_bytes
        return (sent + stream.sent, received + stream.received) if stream else (sent, received)


class Budget:
    """Bounds the bytes of replies in memory; the reply that is added up next always gets in."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._next = ""
        self._changed = asyncio.Condition()

    async def take(self, name: str, size: int) -> None:
        """Wait for room."""
        async with self._changed:
            await self._changed.wait_for(lambda: size <= self._free or name <= self._next)
            self._free -= size

    async def give(self, size: int, next_name: str | None = None) -> None:
        """Give room back, and say whose reply is wanted next."""
        async with self._changed:
            self._free += size
            self._next = self._next if next_name is None else next_name
            self._changed.notify_all()
