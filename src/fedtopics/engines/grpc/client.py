"""The client's end: connect, answer calls, come back when the line breaks.

A call that is repeated after an interruption is answered with the same bytes, not worked again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.call_handler import (
    LARGEST,
    Answer,
    Desk,
    Event,
    Participant,
    Versions,
    proposed,
)
from fedtopics.engines.grpc.frames import (
    CHUNK,
    OPTIONS,
    SERVICE,
    DisconnectedError,
    Line,
    chunks,
)
from fedtopics.engines.handshake import WIRE_VERSION, Proposal
from fedtopics.engines.values import body_size, unpack
from fedtopics.errors import FederationError, FedTopicsError

CONNECT = 20.0  # seconds for a connection and the server's offer
GOODBYE = 2.0  # seconds for the server to read the last message
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two attempts to connect


@dataclass(frozen=True)
class _Ready:
    """An answer, cut for the line."""

    answer: Answer
    chunks: list[bytes]


class Client:
    """Take part in a study.

    Parameters
    ----------
    address : str
        HOST:PORT of the server.
    credentials : grpc channel credentials, or None
        None speaks without TLS.
    name : str
        Name claimed without TLS.
    versions : tuple of str and mapping of method to version
        Of fedtopics, and of the methods it has.
    participant : Participant
    event : function (kind, **fields)
        Told what happens.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        name: str,
        versions: Versions,
        participant: Participant,
        event: Event,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._participant = participant
        self._event = event
        self._hello = _hello(name, versions)
        self._worker = ThreadPoolExecutor(1)
        self._desk = Desk(participant, versions, event)
        self._chunk = CHUNK
        self._key: tuple[bytes, int] = (b"", 0)
        self._answer: asyncio.Future[_Ready] | None = None

    def run(self) -> None:
        """Take part until the model has come.

        Raises
        ------
        FederationError
            If the server refuses, or cannot be reached for a reason that waiting does not mend.
        PolicyError, InputError
            If the client declines, or a call cannot be answered.
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
                reason = "connection lost" if self._desk.joined else "the server does not answer"
            except _AgainError as error:
                reason = str(error).removesuffix(".")
            reason = await asyncio.to_thread(self._participant.diagnose) or reason
            if time.monotonic() - before > LONGEST_PAUSE:
                pause = FIRST_PAUSE  # it had been connected
            # Clients that lost the same server come back at different moments.
            seconds = pause * random.uniform(0.75, 1.25)  # noqa: S311
            self._event("reconnecting", reason=reason, seconds=seconds)
            await asyncio.sleep(seconds)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connected(self) -> None:
        """Hold one connection, from the hello to its end."""
        async with _channel(self._address, self._credentials) as channel:
            stream = channel.stream_stream(f"/{SERVICE}/Join")()
            line = Line(stream.read, stream.write, echo=True)
            offer = await _offer(line, self._hello)
            await self._join(line, stream, offer)
            await self._serve(line, stream, offer.run)

    async def _join(self, line: Line, stream: Any, offer: wire.Offer) -> None:
        proposal = self._desk.check(offer)
        if not self._desk.joined:
            loop = asyncio.get_running_loop()
            considering = loop.run_in_executor(self._worker, self._desk.join, proposal)
            try:
                await considering
            except Exception:
                with suppress(DisconnectedError):
                    await line.send(wire.Frame(refusal=wire.Refusal(reason="declined")))
                await _hang_up(stream, asyncio.ensure_future(line.next()))
                raise
            self._chunk = min(offer.chunk, CHUNK) or CHUNK
        await line.send(wire.Frame(accept=wire.Accept(fingerprint=self._desk.fingerprint)))
        self._event("joined", fingerprint=self._desk.fingerprint)

    async def _serve(self, line: Line, stream: Any, run: bytes) -> None:
        """Answer calls until the model comes."""
        answering: set[asyncio.Task[None]] = set()
        reading = asyncio.ensure_future(line.next())
        try:
            while True:
                done, _ = await asyncio.wait(
                    {reading, *answering}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done & answering:
                    answering.discard(task)
                    task.result()
                if reading not in done:
                    continue
                frame = reading.result()
                if frame.HasField("call"):
                    buffer = await self._body(line, frame.call.body)
                    answering.add(
                        asyncio.ensure_future(self._respond(line, run, frame.call, buffer))
                    )
                elif frame.HasField("result"):
                    buffer = await self._body(line, frame.result.body)
                    files = unpack(frame.result.body, buffer)
                    await asyncio.to_thread(self._participant.receive, files)
                    await line.send(wire.Frame(received=wire.Received()))
                    await _hang_up(stream, asyncio.ensure_future(line.next()))
                    return
                else:
                    refused(frame)
                reading = asyncio.ensure_future(line.next())
        except FedTopicsError:
            await _hang_up(stream, reading)
            raise
        finally:
            for task in (reading, *answering):
                task.cancel()
            await asyncio.gather(reading, *answering, return_exceptions=True)

    async def _body(self, line: Line, body: wire.Body) -> memoryview:
        if body_size(body) > LARGEST:
            raise FederationError(f"The server sent a message of {body_size(body):,} bytes.")
        return await line.body(body)

    async def _respond(self, line: Line, run: bytes, call: wire.Call, buffer: memoryview) -> None:
        """Work a call, or take the answer that was worked before; send it."""
        if self._answer is None or self._key != (run, call.id):
            # An older call's answer is dropped: nobody waits for it.
            self._key = run, call.id
            loop = asyncio.get_running_loop()
            self._answer = loop.run_in_executor(self._worker, self._work, call, buffer)
        ready = await asyncio.shield(self._answer)
        await line.send(ready.answer.frame, ready.chunks)
        if ready.answer.error is not None:
            raise ready.answer.error

    def _work(self, call: wire.Call, buffer: memoryview) -> _Ready:
        answer = self._desk.work(call, buffer)
        packed = answer.packed
        return _Ready(answer, [] if packed is None else chunks(packed, self._chunk))


class _AgainError(FederationError):
    """The server refused, and trying again later can help."""


async def _hang_up(stream: Any, reading: asyncio.Future[wire.Frame]) -> None:
    """Wait until the server has read what was said last; to end a stream at once would lose it."""
    with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        await stream.done_writing()
    await asyncio.wait({reading}, timeout=GOODBYE)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, OPTIONS)
    return grpc.aio.secure_channel(address, credentials, OPTIONS)


def _hello(name: str, versions: Versions, look: bool = False) -> wire.Hello:
    product, methods = versions
    return wire.Hello(
        product=product,
        wire=WIRE_VERSION,
        methods=methods,
        process=os.urandom(8),
        name=name,
        look=look,
    )


async def _offer(line: Line, hello: wire.Hello) -> wire.Offer:
    async def exchange() -> wire.Frame:
        await line.send(wire.Frame(hello=hello))
        return await line.next()

    frame = await asyncio.wait_for(exchange(), CONNECT)
    refused(frame)
    return frame.offer


def refused(frame: wire.Frame) -> None:
    """Raise what the server says when it refuses."""
    if frame.HasField("refusal"):
        if frame.refusal.again:
            raise _AgainError(f"The server says: {frame.refusal.reason}")
        raise FederationError(f"The server says: {frame.refusal.reason}")


def look(
    address: str,
    credentials: grpc.ChannelCredentials | None,
    name: str,
    versions: Versions,
) -> Proposal:
    """Ask what a server proposes, without joining; see `Client` for the parameters.

    Raises
    ------
    FederationError
        If it refuses or does not answer.
    """
    hello = _hello(name, versions, look=True)

    async def ask() -> wire.Offer:
        async with _channel(address, credentials) as channel:
            stream = channel.stream_stream(f"/{SERVICE}/Join")()
            return await _offer(Line(stream.read, stream.write), hello)

    try:
        return proposed(asyncio.run(ask()))
    except (DisconnectedError, TimeoutError):
        raise FederationError(
            f"The server {address} does not answer; find out why with: fedtopics doctor"
        ) from None
