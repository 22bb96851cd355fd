"""Links between machines over gRPC: one stream each, opened by whoever cannot be reached.

All streams live in a thread of their own, an asyncio loop; others put messages in and take out.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from fedtopics.engines.grpc.connection import join_address, places_of, split_address
from fedtopics.engines.grpc.frames import (
    BEAT,
    HEARTBEAT,
    OPTIONS,
    SERVICE,
    DisconnectedError,
    Head,
    Stream,
    chunk_size,
    frames_of,
)
from fedtopics.engines.grpc.limits import Limits
from fedtopics.engines.messages import Message, Refusal, read_message
from fedtopics.engines.transport import Arrived, Closed, Opened
from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.harmless import sentence
from fedtopics.methods.core.events import Event, Reconnecting

CONNECT = 20.0  # seconds for a connection and the first message of the other side
GOODBYE = 2.0  # seconds for the other side to read the last message
STREAMS = 8  # of one name: connections that are about to be found dead, and the next one
QUICK = 1 << 12  # bytes of a body that is read at once; larger ones are while others are served
UNREAD = 32 << 20  # bytes of messages of one link that wait to be taken
PAUSE = 0.01  # seconds between two looks whether they are
SWITCH = 5e-4  # seconds that a busy thread may keep others waiting who hand a message on
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two attempts to connect
# Bytes by glibc's numbers of its options: M_MMAP_THRESHOLD (larger blocks go back at once) and
# M_TRIM_THRESHOLD (free memory that is kept for the smaller ones).
KEPT_MEMORY = {-3: 8 << 20, -1: 32 << 20}


@dataclass(frozen=True)
class Listening:
    """Where others may connect: HOST:PORT, without credentials for this machine alone."""

    address: str
    credentials: grpc.ServerCredentials | None


@dataclass(frozen=True)
class Address:
    """Where somebody listens, and who: `name` is what its certificate vouches for.

    `diagnose` says why there is no connection, or nothing; it raises if waiting is no use. `title`
    is what to call who listens in a sentence.
    """

    address: str
    credentials: grpc.ChannelCredentials | None
    name: str
    options: tuple[tuple[str, Any], ...] = ()
    diagnose: Callable[[], str] = lambda: ""
    title: str = "the server"
    longest_pause: float = LONGEST_PAUSE
    wait: float = math.inf  # seconds without a connection after which it is given up


@dataclass
class _Link:
    name: str
    stream: Stream
    who: str = ""  # by its certificate
    came: int = 0  # bytes of messages
    taken: int = 0  # of these
    outbox: asyncio.Queue[list[bytes] | None] = field(default_factory=asyncio.Queue)
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    fault: str = ""  # of the other side, which ends the link


class GrpcTransport:
    """Listens, connects to addresses, or both; a `Transport`.

    Messages have at most `largest` bytes, and are announced or `unannounced` as `Limits` says;
    chunks have the size for so many `others`. `notify` gets each vain attempt to connect.
    """

    def __init__(
        self, listening: Listening | None, addresses: Sequence[Address], others: int,
        notify: Callable[[Event], None], largest: int = 1 << 30,
        unannounced: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.port = 0
        self._listening = listening
        self._addresses = addresses
        self._chunk = chunk_size(max(1, others))
        self._notify = notify
        self._largest = largest
        self._limits = Limits(largest, unannounced)
        self._inbox: SimpleQueue[tuple[Arrived, int]] = SimpleQueue()  # with bytes
        self._links: dict[str, _Link] = {}
        self._numbers = count(1)
        self._last: tuple[Message | None, list[bytes]] = (None, [])  # with its frames
        self._earlier = [0, 0]  # bytes sent and received over links that are closed
        self._grpc: Any = None
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        """Listen and connect; a `FederationError` if the address cannot be listened on."""
        _return_freed_memory()
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH))
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    def stop(self) -> None:
        """End all links when what was sent has arrived."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def send(self, link: str, message: Message) -> None:
        """Send a message, which is written once for all whom it goes to."""
        if self._last[0] is not message:
            self._last = message, frames_of(message, self._chunk)
        self._loop.call_soon_threadsafe(self._put, link, self._last[1])

    def close(self, link: str) -> None:
        """Close a link after what was sent."""
        self._loop.call_soon_threadsafe(self._put, link, None)

    def allow(self, size: int, link: str = "") -> None:
        """Allow replies of so many bytes."""
        self._limits.allow(size, link)

    def quiet(self) -> None:
        """Do nothing: what is said goes out at once."""

    def receive(self, seconds: float) -> Sequence[Arrived]:
        """Return what came."""
        came = []
        with suppress(Empty):
            came.append(self._inbox.get(timeout=seconds))
            while True:
                came.append(self._inbox.get_nowait())
        for (name, _), size in came:
            if (link := self._links.get(name)) is not None:
                link.taken += size
        return [arrived for arrived, _ in came]

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        streams = [link.stream for link in list(self._links.values())]
        sent, received = self._earlier
        return sent + sum(s.sent for s in streams), received + sum(s.received for s in streams)

    # In the loop's thread

    def _put_in(self, link: str, what: Message | Opened | Closed, size: int = 0) -> None:
        self._inbox.put(((link, what), size))

    def _put(self, link: str, frames: list[bytes] | None) -> None:
        if link in self._links:
            self._links[link].outbox.put_nowait(frames)

    async def _start(self) -> None:
        # gRPC's thread that looks for events ends with the last channel. Where the next one is made
        # meanwhile, its calls can wait for ever; held from here on, the thread is always there.
        grpc.aio.init_grpc_aio()
        if self._listening is not None:
            await self._listen(self._listening)

        def given_up(address: Address, task: asyncio.Task[None]) -> None:
            if not self._stopping:  # else the program would wait for ever
                self._put_in("", Closed(_why_given_up(address, task)))

        for address in self._addresses:
            task = asyncio.ensure_future(self._come_back(address))
            task.add_done_callback(partial(given_up, address))
            self._tasks.append(task)

    async def _stop(self) -> None:
        self._stopping = True
        for link in self._links.values():
            link.outbox.put_nowait(None)
        for _ in range(int(GOODBYE / 0.05)):
            if not self._links:
                break
            await asyncio.sleep(0.05)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._grpc is not None:
            await self._grpc.stop(grace=0.5)
        grpc.aio.shutdown_grpc_aio()

    async def _listen(self, at: Listening) -> None:
        handler = grpc.stream_stream_rpc_method_handler(self._joined)
        self._grpc = grpc.aio.server(options=OPTIONS)
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Join": handler}),)
        )
        try:
            for place in places_of(at.address):
                host, port = split_address(place)
                place = join_address(host, port or self.port)  # 0: the free one of the first
                if at.credentials is None:
                    self.port = self._grpc.add_insecure_port(place)
                else:
                    self.port = self._grpc.add_secure_port(place, at.credentials)
            await self._grpc.start()
        except RuntimeError:  # one of them is not free
            self.port = 0
        if not self.port:
            raise FederationError(
                f"This machine cannot listen on {at.address}: the port is in use or the address "
                "is not this machine's; name another with --listen."
            )

    async def _joined(self, _: Any, context: Any) -> None:
        """Live with a stream that somebody opened."""
        names = context.auth_context().get("x509_common_name", [b""])
        vouched = bytes(names[0]).decode("utf-8", "replace")
        if vouched and sum(link.who == vouched for link in self._links.values()) >= STREAMS:
            return
        stream = Stream(context.read, context.write)
        await self._live(stream, Opened(offers=True, name=vouched))

    async def _come_back(self, address: Address) -> None:
        """Connect, and again whenever the connection ends; a FedTopicsError if that is no use."""
        pause, ends = FIRST_PAUSE, time.monotonic() + address.wait
        while True:
            before = time.monotonic()
            connected, reason = await self._connected(address)
            if self._stopping:
                return
            if connected:
                ends = time.monotonic() + address.wait
            reason = await asyncio.to_thread(address.diagnose) or reason
            if time.monotonic() - before > address.longest_pause:
                pause = FIRST_PAUSE  # it had been connected
            left = ends - time.monotonic()
            if left <= 0:
                raise FederationError(
                    f"No connection to {address.address} within {address.wait:g} s: {reason}."
                )
            # Clients that lost the same server come back at different moments.
            seconds = pause * random.uniform(0.75, 1.25)  # noqa: S311
            self._notify(Reconnecting(reason, seconds))
            await asyncio.sleep(min(seconds, left))
            pause = min(2 * pause, address.longest_pause)

    async def _connected(self, address: Address) -> tuple[bool, str]:
        """Hold one connection to its end; say whether there was one, and why it ended."""
        options = [*OPTIONS, *address.options]
        if address.credentials is None:
            channel = grpc.aio.insecure_channel(address.address, options)
        else:
            channel = grpc.aio.secure_channel(address.address, address.credentials, options)
        async with channel:
            rpc = channel.stream_stream(f"/{SERVICE}/Join")()
            stream = Stream(rpc.read, rpc.write, echo=True)
            hello = asyncio.ensure_future(stream.next())
            hello.add_done_callback(looked_at)
            try:
                first = await asyncio.wait_for(hello, min(CONNECT, address.wait))
            except (DisconnectedError, TimeoutError, FederationError):
                return False, f"{address.title} does not answer"
            opened = Opened(offers=False, name=address.name)
            await self._live(stream, opened, first, rpc.done_writing)
            return True, f"the connection to {address.title} is lost"

    async def _live(
        self, stream: Stream, opened: Opened, first: Head | None = None,
        end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        """Bring messages out of a stream and into it, until one side ends it.

        `end` says that no more is written: then the other side reads all, and ends the stream.
        """
        link = _Link(f"{next(self._numbers)}", stream, opened.name)
        self._links[link.name] = link
        self._put_in(link.name, opened)
        tasks = [
            asyncio.ensure_future(work)
            for work in (self._read(link, first), _write(link), _beat(stream))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if end is not None and not tasks[0].done():
                with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    await end()
                await asyncio.wait(tasks[:1], timeout=GOODBYE)
        finally:
            for task in tasks:
                task.cancel()
            # Nothing is awaited before: gRPC may cancel this as well when the other side is gone.
            del self._links[link.name]
            self._limits.closed(link.name)
            self._earlier[0] += stream.sent
            self._earlier[1] += stream.received
            self._put_in(link.name, Closed(link.fault))
            await asyncio.gather(*tasks, return_exceptions=True)
            await stream.settle(GOODBYE)

    async def _read(self, link: _Link, head: Head | None) -> None:
        stream = link.stream
        try:
            while True:
                kind, size = (head := head or await stream.next()).kind, head.size
                most = self._limits.of(kind, link.name)
                if size > most:
                    await self._turn_down(link, size, most)
                    return
                buffer = await stream.body(head)
                head = None
                arrived = (
                    read_message(kind, buffer, self._largest)
                    if size <= QUICK
                    else await asyncio.to_thread(read_message, kind, buffer, self._largest)
                )
                self._limits.came(kind, link.name)
                size += QUICK  # what a small one takes as well
                link.came += size
                self._put_in(link.name, arrived, size)
                while link.came - link.taken > UNREAD:  # its sender waits then as well
                    await asyncio.sleep(PAUSE)
        except (DisconnectedError, FederationError):
            return  # whoever sends what cannot be read is as good as gone

    async def _turn_down(self, link: _Link, size: int, most: int) -> None:
        """Say that a message is too large; nothing after it can be read."""
        link.fault = f"its message has {size:,} bytes, more than {most:,}"
        reason = (
            f"A message of {size:,} bytes is over the limit of {most:,}; raise "
            "largest_message in the study's [federation]"
        )
        if most < self._largest:
            link.fault += ", and was not announced"
            reason = (
                f"A message of {size:,} bytes was not announced, as it has to be above {most:,}; "
                "install the same fedtopics on both sides."
            )
        await link.stream.send(frames_of(Refusal(reason, again=True, said=True), self._chunk))


def _why_given_up(address: Address, task: asyncio.Task[None]) -> str:
    """Say why no connection is tried any more; of an unexpected error its type alone."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if isinstance(error, FedTopicsError):
        return str(error)
    what = (isinstance(error, OSError) and error.strerror) or type(error).__name__
    return (
        f"This machine cannot connect to {address.title} any more ({sentence(what)}). Start the "
        "same command again; if that does not help, please report it."
    )


async def _write(link: _Link) -> None:
    try:
        while (frames := await link.outbox.get()) is not None:
            await link.stream.send(frames)
    except DisconnectedError:
        await asyncio.sleep(GOODBYE)  # for what the other side said last


async def _beat(stream: Stream) -> None:
    with suppress(DisconnectedError):
        while True:
            await asyncio.sleep(HEARTBEAT)
            await stream.send([BEAT])


def _return_freed_memory() -> None:
    """Let the C library give large blocks back to the system when they are freed.

    By default it keeps them, and the replies of fifty clients leave holes of a gigabyte.
    """
    with suppress(OSError, AttributeError):  # not glibc
        for option, size in KEPT_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)
