"""The client's end: connect, answer calls, come back when the connection breaks.

A call that is repeated after an interruption is answered with the same bytes, not computed again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.call_handler import (
    LARGEST_CALL,
    Answer,
    CallHandler,
    Notify,
    Participant,
    Versions,
    proposed,
)
from fedtopics.engines.grpc.frames import CHUNK, OPTIONS, SERVICE, DisconnectedError, Stream, chunks
from fedtopics.engines.handshake import WIRE_VERSION, Proposal
from fedtopics.engines.values import body_size, unpack
from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.methods.events import Joined, Reconnecting

CONNECT = 20.0  # seconds for a connection and the server's offer
GOODBYE = 2.0  # seconds for the server to read the last message
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two attempts to connect


class Client:
    """Take part in the study of the server at an address, HOST:PORT.

    Without credentials it speaks without TLS, and the `name` is claimed.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        name: str,
        versions: Versions,
        participant: Participant,
        notify: Notify,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._participant = participant
        self._notify = notify
        self._hello = _hello(name, versions)
        self._worker = ThreadPoolExecutor(1)
        self._handler = CallHandler(participant, versions, notify)
        self._chunk = CHUNK
        self._key: tuple[bytes, int] = (b"", 0)
        self._answer: asyncio.Future[tuple[Answer, list[bytes]]] | None = None

    def run(self) -> None:
        """Take part until the model has come.

        A `FederationError` if the server refuses, or cannot be reached for a reason that waiting
        does not mend; other errors if the client declines, or a call cannot be answered.
        """
        asyncio.run(self.take_part())

    async def take_part(self) -> None:
        """As `run`, in a loop that does other things as well."""
        try:
            await self._come_back_until_done()
        finally:
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def _come_back_until_done(self) -> None:
        pause = FIRST_PAUSE
        while True:
            before = time.monotonic()
            try:
                await self._connected()
                return
            except (DisconnectedError, TimeoutError):
                reason = "connection lost" if self._handler.joined else "the server does not answer"
            except _AgainError as error:
                reason = str(error).removesuffix(".")
            reason = await asyncio.to_thread(self._participant.diagnose) or reason
            if time.monotonic() - before > LONGEST_PAUSE:
                pause = FIRST_PAUSE  # it had been connected
            # Clients that lost the same server come back at different moments.
            seconds = pause * random.uniform(0.75, 1.25)  # noqa: S311
            self._notify(Reconnecting(reason, seconds))
            await asyncio.sleep(seconds)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connected(self) -> None:
        """Hold one connection, from the hello to its end."""
        async with _channel(self._address, self._credentials) as channel:
            rpc = channel.stream_stream(f"/{SERVICE}/Join")()
            stream = Stream(rpc.read, rpc.write, echo=True)
            offer = await _offer(stream, self._hello)
            await self._join(stream, rpc, offer)
            await self._serve(stream, rpc, offer.run)

    async def _join(self, stream: Stream, rpc: Any, offer: wire.Offer) -> None:
        proposal = self._handler.check(offer)
        if not self._handler.joined:
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(self._worker, self._handler.join, proposal)
            except Exception:
                with suppress(DisconnectedError):
                    await stream.send(wire.Frame(refusal=wire.Refusal(reason="declined")))
                await _finish(rpc, asyncio.ensure_future(stream.next()))
                raise
            self._chunk = min(offer.chunk, CHUNK) or CHUNK
        await stream.send(wire.Frame(accept=wire.Accept(fingerprint=self._handler.fingerprint)))
        self._notify(Joined(self._handler.fingerprint))

    async def _serve(self, stream: Stream, rpc: Any, run: bytes) -> None:
        """Answer calls until the model comes."""
        answering: set[asyncio.Task[None]] = set()
        reading = asyncio.ensure_future(stream.next())
        try:
            while True:
                waited = {reading, *answering}
                done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                for task in done & answering:
                    answering.discard(task)
                    task.result()
                if reading not in done:
                    continue
                frame = reading.result()
                if frame.HasField("call"):
                    buffer = await self._body(stream, frame.call.body)
                    answer = self._respond(stream, run, frame.call, buffer)
                    answering.add(asyncio.ensure_future(answer))
                elif frame.HasField("result"):
                    buffer = await self._body(stream, frame.result.body)
                    files = unpack(frame.result.body, buffer)
                    await asyncio.to_thread(self._participant.receive, files)
                    await stream.send(wire.Frame(received=wire.Received()))
                    await _finish(rpc, asyncio.ensure_future(stream.next()))
                    return
                else:
                    refused(frame)
                reading = asyncio.ensure_future(stream.next())
        except FedTopicsError:
            await _finish(rpc, reading)
            raise
        finally:
            for task in (reading, *answering):
                task.cancel()
            await asyncio.gather(reading, *answering, return_exceptions=True)

    async def _body(self, stream: Stream, body: wire.Body) -> memoryview:
        if body_size(body) > LARGEST_CALL:
            raise FederationError(f"The server sent a message of {body_size(body):,} bytes.")
        return await stream.body(body)

    async def _respond(
        self, stream: Stream, run: bytes, call: wire.Call, buffer: memoryview
    ) -> None:
        """Execute a call, or take the answer of an earlier attempt; send it."""
        if self._answer is None or self._key != (run, call.id):
            # An older call's answer is dropped: nobody waits for it.
            self._key = run, call.id
            loop = asyncio.get_running_loop()
            self._answer = loop.run_in_executor(self._worker, self._prepare, call, buffer)
        answer, pieces = await asyncio.shield(self._answer)
        await stream.send(answer.frame, pieces)
        if answer.error is not None:
            raise answer.error

    def _prepare(self, call: wire.Call, buffer: memoryview) -> tuple[Answer, list[bytes]]:
        answer = self._handler.handle(call, buffer)
        return answer, [] if answer.packed is None else chunks(answer.packed, self._chunk)


class _AgainError(FederationError):
    """The server refused, and trying again later can help."""


async def _finish(rpc: Any, reading: asyncio.Future[wire.Frame]) -> None:
    """Wait until the server has read what was said last; closing at once would lose it."""
    with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        await rpc.done_writing()
    await asyncio.wait({reading}, timeout=GOODBYE)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, OPTIONS)
    return grpc.aio.secure_channel(address, credentials, OPTIONS)


def _hello(name: str, versions: Versions, look: bool = False) -> wire.Hello:
    product, methods = versions
    hello = wire.Hello(product=product, wire=WIRE_VERSION, methods=methods, name=name, look=look)
    hello.process = os.urandom(8)
    return hello


async def _offer(stream: Stream, hello: wire.Hello) -> wire.Offer:
    async def exchange() -> wire.Frame:
        await stream.send(wire.Frame(hello=hello))
        return await stream.next()

    frame = await asyncio.wait_for(exchange(), CONNECT)
    refused(frame)
    return frame.offer


def refused(frame: wire.Frame) -> None:
    """Raise what the server says when it refuses."""
    if frame.HasField("refusal"):
        error = _AgainError if frame.refusal.again else FederationError
        raise error(f"The server says: {frame.refusal.reason}")


def look(
    address: str, credentials: grpc.ChannelCredentials | None, name: str, versions: Versions
) -> Proposal:
    """Ask what a server proposes, without joining; see `Client` for the arguments.

    A `FederationError` if it refuses or does not answer.
    """
    hello = _hello(name, versions, look=True)

    async def ask() -> wire.Offer:
        async with _channel(address, credentials) as channel:
            rpc = channel.stream_stream(f"/{SERVICE}/Join")()
            return await _offer(Stream(rpc.read, rpc.write), hello)

    try:
        return proposed(asyncio.run(ask()))
    except (DisconnectedError, TimeoutError):
        raise FederationError(
            f"The server {address} does not answer; find out why with: fedtopics doctor"
        ) from None
