"""One contestant of the round benchmark: a server with its clients, over mutual TLS on loopback.

``ours`` is the whole engine without a method: all execute one program; clients' replies pass door
and ledger and are signed, the server adds, and keeps each total in its log on disk. ``bare`` sends
the same bytes through a gRPC stream and back, and looks at nothing. The blocks of exchanges, [[how
many, floats of each], ...], are known to all from the beginning; the next one begins with a line on
stdin. Prints its seconds and the server's memory.

    python round_contestant.py ours|bare CLIENTS BLOCKS FOLDER
"""

from __future__ import annotations

import asyncio
import json
import queue
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc

from echo import Block, echo, leading, name_of, take_part
from fedtopics.engines.exchange import Exchange
from fedtopics.engines.grpc.connection import channel_credentials, server_credentials
from fedtopics.engines.grpc.frames import CHUNK
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.pki import Identity, Signer

A_PROCESS = 10  # clients
PATH = "/bare/Talk"


def our_clients(numbers: list[int], port: int, folder: Path, n: int, blocks: list[Block]) -> None:
    def program(clients: Exchange) -> None:
        for exchanges, floats in blocks:
            echo(clients, floats, exchanges)

    def client(number: int) -> None:
        name = name_of(number)
        identity = Identity.load(folder / "pki" / "clients" / name)
        address = Address(f"localhost:{port}", channel_credentials(identity), "")
        transport = GrpcTransport(None, [address], 1, lambda _: None)
        take_part(transport, name, n, folder, program, Signer(identity))

    threads = [threading.Thread(target=client, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def bare_clients(numbers: list[int], port: int, folder: Path) -> None:
    async def talk(number: int) -> None:
        identity = Identity.load(folder / "pki" / "clients" / name_of(number))
        async with grpc.aio.secure_channel(
            f"localhost:{port}", channel_credentials(identity)
        ) as channel:
            stream = channel.stream_stream(PATH)()
            await stream.write(b"here")
            while (head := await stream.read()) is not grpc.aio.EOF:
                chunks = [await stream.read() for _ in range(int.from_bytes(head, "little"))]
                for chunk in chunks:
                    await stream.write(chunk)

    with suppress(grpc.aio.AioRpcError):  # the server ends
        await asyncio.gather(*(talk(number) for number in numbers))


def start_clients(
    kind: str, n: int, blocks: list[Block], port: int, folder: Path
) -> list[subprocess.Popen[bytes]]:
    """Start the clients, several a process."""
    groups = [range(first, min(first + A_PROCESS, n)) for first in range(0, n, A_PROCESS)]
    if n <= A_PROCESS:  # few: a process each
        groups = [range(number, number + 1) for number in range(n)]
    known: list[str | Path] = [str(port), folder, str(n), json.dumps(blocks)]
    return [
        subprocess.Popen(
            [sys.executable, __file__, f"{kind}-clients", json.dumps(list(group)), *known]
        )
        for group in groups
    ]


@contextmanager
def ours(n: int, blocks: list[Block], folder: Path) -> Iterator[Callable[[Block], list[float]]]:
    """Start our server and its clients; give what does a block of exchanges."""
    identity = Identity.load(folder / "pki" / "server")
    listening = Listening("localhost:0", server_credentials(identity))
    transport = GrpcTransport(listening, (), n, lambda _: None)
    with leading(transport, n, folder, Signer(identity)) as clients:
        processes = start_clients("ours", n, blocks, transport.port, folder)
        yield lambda block: echo(clients, block[1], block[0])
    for process in processes:
        process.wait()


@contextmanager
def bare(n: int, blocks: list[Block], folder: Path) -> Iterator[Callable[[Block], list[float]]]:
    """Start a bare stream and its clients; give what sends so many floats to all and back."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    streams: list[Any] = []
    here: queue.SimpleQueue[None] = queue.SimpleQueue()
    done = threading.Event()

    async def talk(_: Any, context: Any) -> None:
        await context.read()
        streams.append(context)
        here.put(None)
        await asyncio.get_running_loop().run_in_executor(None, done.wait)

    async def listen() -> tuple[Any, int]:
        server = grpc.aio.server()
        handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
        identity = Identity.load(folder / "pki" / "server")
        port = server.add_secure_port("localhost:0", server_credentials(identity))
        await server.start()
        return server, port

    async def send(chunks: list[bytes]) -> None:
        async def one(stream: Any) -> None:
            await stream.write(len(chunks).to_bytes(4, "little"))
            for chunk in chunks:
                await stream.write(chunk)
            for _ in chunks:
                await stream.read()

        await asyncio.gather(*map(one, streams))

    server, port = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    processes = start_clients("bare", n, blocks, port, folder)
    for _ in range(n):
        here.get(timeout=600)

    def exchange(floats: int) -> float:
        data = bytes(4 * floats)
        before = time.perf_counter()
        chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
        asyncio.run_coroutine_threadsafe(send(chunks), loop).result()
        return time.perf_counter() - before

    yield lambda block: [exchange(block[1]) for _ in range(block[0])]
    done.set()
    asyncio.run_coroutine_threadsafe(server.stop(0), loop).result()
    for process in processes:
        process.kill()


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    kind, first, second, where, *more = sys.argv[1:]
    folder = Path(where)
    if kind == "ours-clients":
        our_clients(json.loads(first), int(second), folder, int(more[0]), json.loads(more[1]))
        return
    if kind == "bare-clients":
        asyncio.run(bare_clients(json.loads(first), int(second), folder))
        return
    blocks = json.loads(second)
    with (ours if kind == "ours" else bare)(int(first), blocks, folder) as exchanged:
        start = megabytes()
        for block, _ in zip(blocks, sys.stdin, strict=False):
            seconds = exchanged(block)
            used = {"megabytes": megabytes(), "start": start, "now": resident()}
            sys.stdout.write(json.dumps({"seconds": seconds, **used}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
