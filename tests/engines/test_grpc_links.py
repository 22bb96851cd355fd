"""Links over gRPC: who lost one comes back."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from fedtopics.engines.grpc.frames import Stream
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.messages import Granted
from fedtopics.engines.transport import Closed, Opened


def arrived(transport: GrpcTransport, kind: type[Any]) -> tuple[str, Any]:
    """Wait for something of a kind."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        for link, what in transport.receive(0.1):
            if isinstance(what, kind):
                return link, what
    raise TimeoutError(kind.__name__)


def test_a_link_is_opened_again_when_the_other_side_has_gone() -> None:
    here = GrpcTransport(Listening("127.0.0.1:0", None), (), 1, lambda _: None)
    here.start()
    place = f"127.0.0.1:{here.port}"
    there = GrpcTransport(None, [Address(place, None, "here")], 1, lambda _: None)
    there.start()
    try:
        for _ in range(2):
            link, _ = arrived(here, Opened)
            here.send(link, Granted(1))
            assert arrived(there, Granted)[1].index == 1
            here.stop()
            here = GrpcTransport(Listening(place, None), (), 1, lambda _: None)
            here.start()
    finally:
        there.stop()
        here.stop()


@pytest.mark.parametrize("steps", range(12))
def test_whoever_cancels_a_link_as_it_ends_it_is_said_to_be_closed(steps: int) -> None:
    """GRPC cancels what lives with a stream whose other side is gone, at any moment of its end."""
    transport = GrpcTransport(None, (), 1, lambda _: None)

    async def gone() -> Any:
        return grpc.aio.EOF

    async def write(_: bytes) -> None:
        return None

    async def lives() -> None:
        life = asyncio.ensure_future(transport._live(Stream(gone, write), Opened(offers=True)))
        for _ in range(steps):
            await asyncio.sleep(0)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    asyncio.run(lives())
    kinds = [type(what) for _, what in transport.receive(0.0)]
    assert kinds in ([], [Opened, Closed])
    assert steps < 2 or kinds
