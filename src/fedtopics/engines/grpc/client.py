"""The client's end: join a study, answer calls, come back when the line breaks.

A call that is repeated after an interruption is answered with the same bytes, not worked again.
What goes wrong on the client is told to the server by its kind alone; the sentence stays here.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from fedtopics.engines.grpc import wire_pb2 as wire
from fedtopics.engines.grpc.frames import (
    CHUNK,
    OPTIONS,
    SERVICE,
    WIRE_VERSION,
    DisconnectedError,
    Line,
    chunks,
)
from fedtopics.engines.grpc.handshake import Proposal
from fedtopics.engines.grpc.values import body_size, from_value, pack, unpack
from fedtopics.errors import FederationError, FedTopicsError, PolicyError

CONNECT = 20.0  # seconds for a connection and the server's offer
GOODBYE = 2.0  # seconds for the server to read the last message
LARGEST = 1 << 31  # bytes of a call
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two attempts to connect

Event = Callable[..., None]


class Answering(Protocol):
    """What answers calls: a client's door."""

    def call(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function, return what may leave."""


class Participant(Protocol):
    """What a client does about an offer, a model, a server it cannot reach."""

    def consider(self, proposal: Proposal) -> Answering:
        """Look at what a server proposes; return what answers it, or raise to decline.

        The fingerprint of the study is the client's own computation, not the server's word.
        """

    def receive(self, files: Mapping[str, Any]) -> None:
        """Take the final model."""

    def diagnose(self) -> str:
        """Say why the server cannot be reached, if it is known; raise if waiting is no use."""


@dataclass(frozen=True)
class _Answer:
    """A reply or a failure, ready to be sent, again if need be."""

    frame: wire.Frame
    chunks: list[bytes]
    error: FedTopicsError | None = None  # ends the client


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
        versions: tuple[str, Mapping[str, int]],
        participant: Participant,
        event: Event,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._participant = participant
        self._event = event
        self._hello = _hello(name, versions)
        self._worker = ThreadPoolExecutor(1)
        self._door: Answering | None = None
        self._fingerprint = ""
        self._chunk = CHUNK
        self._key: tuple[bytes, int] = (b"", 0)
        self._answer: asyncio.Future[_Answer] | None = None

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
                reason = "the server does not answer" if self._door is None else "connection lost"
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
        proposal = proposed(offer)
        if objection := proposal.objection(
            self._hello.product, self._hello.wire, dict(self._hello.methods)
        ):
            raise FederationError(objection)
        if self._door is None:
            loop = asyncio.get_running_loop()
            considering = loop.run_in_executor(self._worker, self._participant.consider, proposal)
            try:
                self._door = await considering
            except Exception:
                with suppress(DisconnectedError):
                    await line.send(wire.Frame(refusal=wire.Refusal(reason="declined")))
                await _hang_up(stream, asyncio.ensure_future(line.next()))
                raise
            self._fingerprint = proposal.fingerprint
            self._chunk = min(offer.chunk, CHUNK) or CHUNK
        if proposal.fingerprint != self._fingerprint:
            raise FederationError(
                f"This client joined the study {self._fingerprint}, the server now runs "
                f"{proposal.fingerprint}; begin the client anew to take part in that."
            )
        await line.send(wire.Frame(accept=wire.Accept(fingerprint=self._fingerprint)))
        self._event("joined", fingerprint=self._fingerprint)

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
        answer = await asyncio.shield(self._answer)
        await line.send(answer.frame, answer.chunks)
        if answer.error is not None:
            raise answer.error

    def _work(self, call: wire.Call, buffer: memoryview) -> _Answer:
        assert self._door is not None  # noqa: S101 - calls come after the offer
        before = time.perf_counter()
        self._event("call", function=call.function, round=call.round, attempt=call.attempt)
        try:
            reply = self._door.call(call.function, unpack(call.body, buffer))
            packed = pack(reply)
        except (FedTopicsError, OSError, MemoryError) as error:
            kind = "system" if isinstance(error, (OSError, MemoryError)) else "input"
            kind = "policy" if isinstance(error, PolicyError) else kind
            if isinstance(error, (OSError, MemoryError)):
                error = _machine_failed(call, error)
            return _failed(call, kind, error)
        except Exception as error:
            self._event("defect", function=call.function, round=call.round, error=repr_type(error))
            return _failed(call, "defect", None)
        header = wire.Reply(
            id=call.id,
            study=self._fingerprint,
            body=packed.header,
            seconds=time.perf_counter() - before,
        )
        return _Answer(wire.Frame(reply=header), chunks(packed, self._chunk))


class _AgainError(FederationError):
    """The server refused, and trying again later can help."""


async def _hang_up(stream: Any, reading: asyncio.Future[wire.Frame]) -> None:
    """Wait until the server has read what was said last; to end a stream at once would lose it."""
    with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
        await stream.done_writing()
    await asyncio.wait({reading}, timeout=GOODBYE)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def repr_type(error: Exception) -> str:
    """Name an error's type; its text could quote a document."""
    return type(error).__name__


def _machine_failed(call: wire.Call, error: OSError | MemoryError) -> FedTopicsError:
    reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
    return FedTopicsError(
        f"The reply to {call.function!r} in round {call.round} did not leave: {reason}. Make room "
        "on the disk or in memory, then begin the client anew."
    )


def _failed(call: wire.Call, kind: str, error: FedTopicsError | None) -> _Answer:
    failure = wire.Failure(id=call.id, kind=kind, leaves=error is not None)
    return _Answer(wire.Frame(failure=failure), [], error)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, OPTIONS)
    return grpc.aio.secure_channel(address, credentials, OPTIONS)


def _hello(name: str, versions: tuple[str, Mapping[str, int]], look: bool = False) -> wire.Hello:
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


def proposed(offer: wire.Offer) -> Proposal:
    """Read an offer."""
    study = from_value(offer.study)
    if not isinstance(study, dict):
        raise FederationError("The server's offer holds no study.")
    return Proposal(
        offer.product, offer.method, offer.method_version, study, offer.fingerprint, offer.time
    )


def look(
    address: str,
    credentials: grpc.ChannelCredentials | None,
    name: str,
    versions: tuple[str, Mapping[str, int]],
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
