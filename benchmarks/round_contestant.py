"""One contestant of the round benchmark: a server with its clients, over mutual TLS on loopback.

``ours`` calls an echoing client half through the whole engine, with door, ledger, checks and sum;
``bare`` sends the same bytes through a gRPC stream and back, and looks at nothing. Reads numbers of
rounds from stdin, prints their seconds and the server's memory.

    python round_contestant.py ours|bare CLIENTS - FOLDER
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from fedtopics.engines.attendance import Rules
from fedtopics.engines.grpc.client import Client
from fedtopics.engines.grpc.server import Server
from fedtopics.engines.rounds import RemoteClients

from echo import PROPOSAL, VERSIONS, Participant, echo, name_of
from fedtopics.engines.grpc.connection import channel_credentials, server_credentials
from fedtopics.engines.grpc.frames import CHUNK
from fedtopics.pki import Identity

A_PROCESS = 10  # clients
PATH = "/bare/Talk"


async def our_clients(numbers: list[int], port: int, folder: Path) -> None:
    def client(number: int) -> Client:
        name = name_of(number)
        credentials = channel_credentials(Identity.load(folder / "pki" / "clients" / name))
        participant = Participant(name, folder)
        address = f"localhost:{port}"
        return Client(address, credentials, name, VERSIONS, participant, lambda *_, **__: None)

    await asyncio.gather(*(client(number).take_part() for number in numbers))


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

    await asyncio.gather(*(talk(number) for number in numbers))


def start_clients(kind: str, n: int, port: int, folder: Path) -> list[subprocess.Popen[bytes]]:
    """Start the clients, several a process."""
    groups = [range(first, min(first + A_PROCESS, n)) for first in range(0, n, A_PROCESS)]
    if n <= A_PROCESS:  # few: a process each
        groups = [range(number, number + 1) for number in range(n)]
    return [
        subprocess.Popen(
            [
                sys.executable,
                __file__,
                f"{kind}-clients",
                json.dumps(list(group)),
                str(port),
                folder,
            ]
        )
        for group in groups
    ]


def ours(n: int, folder: Path, done: threading.Event) -> Callable[[int], float]:
    """Start our server and its clients; return what works a round with so many floats."""
    names = [name_of(number) for number in range(n)]
    credentials = server_credentials(Identity.load(folder / "pki" / "server"))
    server = Server(PROPOSAL, names, "localhost:0", credentials)
    processes = start_clients("ours", n, server.start(), folder)
    clients = RemoteClients(server, Rules(n, 600, 600, 600), lambda *_, **__: None)

    stop_when(done, processes, server.stop)
    return partial(echo, clients)


def bare(n: int, folder: Path, done: threading.Event) -> Callable[[int], float]:
    """Start a bare stream and its clients; return what sends so many floats to all and back."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    streams: list[Any] = []
    here: queue.SimpleQueue[None] = queue.SimpleQueue()

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
    processes = start_clients("bare", n, port, folder)
    for _ in range(n):
        here.get(timeout=600)

    def round_(floats: int) -> float:
        data = bytes(4 * floats)
        before = time.perf_counter()
        chunks = [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]
        asyncio.run_coroutine_threadsafe(send(chunks), loop).result()
        return time.perf_counter() - before

    stop_when(done, processes, lambda: asyncio.run_coroutine_threadsafe(server.stop(0), loop))
    return round_


def stop_when(
    done: threading.Event, processes: list[subprocess.Popen[bytes]], stop: Callable[[], object]
) -> None:
    def wait() -> None:
        done.wait()
        stop()
        for process in processes:
            process.kill()

    threading.Thread(target=wait).start()


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    kind, first, second, where = sys.argv[1:]
    folder = Path(where)
    if kind.endswith("-clients"):
        clients = our_clients if kind.startswith("ours") else bare_clients
        asyncio.run(clients(json.loads(first), int(second), folder))
        return
    done = threading.Event()
    round_ = (ours if kind == "ours" else bare)(int(first), folder, done)
    start = megabytes()
    for line in sys.stdin:
        rounds, floats = json.loads(line)
        seconds = [round_(floats) for _ in range(rounds)]
        answer = {"seconds": seconds, "megabytes": megabytes(), "start": start, "now": resident()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    done.set()


if __name__ == "__main__":
    main()
