"""What an exchange costs: our engine beside a bare gRPC stream, and a hundred clients at once.

An exchange gets so many bytes from every client and brings as many to it. Ours is the whole engine
without a method: all execute one program; clients' replies pass door and ledger and are signed, the
server sums in float64 in the order of the names, and keeps each total in its log on disk. The bare
stream looks at nothing. The two take turns in blocks, so that a noisy machine disturbs both.
"""

from __future__ import annotations

import asyncio
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.common import Worker, arguments, measured, memory_mb, table, write
from fedtopics import pki
from fedtopics.engines.adder import Rules
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.exchange import Exchange
from fedtopics.engines.grpc.connection import channel_credentials, server_credentials
from fedtopics.engines.grpc.frames import CHUNK
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Log
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.participant import ALONE
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.core.interfaces import Clients
from fedtopics.methods.core.replies import COUNT, Field
from fedtopics.pki import Identity, Signer

SIZES = {"4 KB": 1 << 10, "2 MB": 1 << 19, "8 MB": 1 << 21}  # floats
CLIENTS, MANY = (5, 50), 100
BLOCKS, QUICK = 8, 4
EXCHANGES = {5: 12, 50: 4}  # of a block
WARMING = 3
A_PROCESS = 10  # clients
LONGEST = 900.0  # seconds
PROPOSAL, RUN, PATH = Proposal("0", "gfedntm", 1, {}, "benchmark"), b"benchmark", "/bare/Talk"
Block = Sequence[int]
"""How many exchanges, of how many floats: one round."""
HEAD = """clients | size | ours, ms (90 %) | bare, ms (90 %) | ours / bare | server at start, MB \
| at its peak, MB | bare at its peak, MB"""


class Echo:
    """A client's side that gives back what it gets, and says how much memory its process has."""

    method = "gfedntm"
    published = ("echo", "memory")
    attempt, summed, noisy = 1, 0, False

    def echo(self, values: Any) -> dict[str, Any]:
        return {"values": values, "documents": 100}

    def memory(self) -> dict[str, Any]:
        return {"megabytes": int(memory_mb()), "documents": 100}


def echoing(name: str, ledger: Path) -> Door:
    side: Any = Echo()
    return Door(name, side, OPEN_POLICY, Ledger("gfedntm", "benchmark", ledger))


class Forgetting(Exchange):
    """A server's, which forgets decisions as one with checkpoints does."""

    def round(self, number: int, *rest: Any) -> Any:
        self._node.cut(self.index)
        return super().round(number, *rest)


@contextmanager
def leading(
    transport: Transport, n_clients: int, folder: Path, signatures: Signatures | None = None
) -> Iterator[Exchange]:
    """Give a server's program its clients, at the other ends of a transport."""
    names = names_of(n_clients)
    introduction = Introduction(SERVER, PROPOSAL, RUN, signatures or Unsigned())
    node = Node(SERVER, names, transport, introduction, lambda _: None)
    log = DiskLog(folder / "log", RUN)
    exchange = Forgetting(node, Rules(n_clients, LONGEST, LONGEST, LONGEST), lambda _: None)
    node.start(Replica(SERVER, [SERVER], names, log, now=node.now()))
    try:
        yield exchange
        node.wait_until_done(LONGEST)
    finally:
        node.stop()
        log.close()


def take_part(
    transport: Transport, name: str, n_clients: int, folder: Path,
    program: Callable[[Exchange], Any], signatures: Signatures | None = None,
) -> None:  # fmt: skip
    signed = signatures or Unsigned()
    unknown = Introduction(name, PROPOSAL, b"", signed)
    node = Node(name, (), transport, unknown, lambda _: None, keeps=False)
    node.start()
    try:
        link, offer = node.offered()
        names = names_of(n_clients)
        replica = Replica(name, [SERVER], names, Log(RUN), now=node.now())
        door = echoing(name, folder / f"{name}.jsonl")
        exchange = Exchange(node, ALONE, lambda _: None, name, door)
        node.join(link, offer, names, Introduction(name, PROPOSAL, offer.run, signed), replica)
        program(exchange)
        node.done()
    finally:
        node.stop()


def names_of(n_clients: int) -> list[str]:
    return [f"client-{number:03d}" for number in range(n_clients)]


def echo(clients: Clients, floats: int, exchanges: int = 1) -> list[float]:
    """Do a round: so many floats from each client, and their sum to each; return the seconds.

    An exchange lasts from the total before it until its own total: its clients get the one before,
    and answer. So the first one of the round is not measured, but for a single one.
    """
    values = np.ones(floats, np.float32)
    template = {"values": Field((floats,), dtype="float32"), "documents": COUNT}

    def work() -> list[float]:
        times = [time.perf_counter()]
        for _ in range(exchanges + 1 if exchanges > 1 else 1):
            total = clients.sum("echo", template, values=values)
            times.append(time.perf_counter())
            if total["values"][0] != len(clients.names):
                raise ValueError(total["values"][0])
        return [after - before for before, after in pairwise(times)][-exchanges:]

    return clients.round(1, work)[0]


def latencies(clients: Clients, rounds: int) -> dict[str, Any]:
    """Return the median seconds of exchanges of each size, and a client's memory after them."""
    found = {size: statistics.median(echo(clients, n, rounds)) for size, n in SIZES.items()}
    memory = clients.call("memory")
    return found | {"client_mb": statistics.median(r["megabytes"] for r in memory.values())}


# The two contestants: a server with its clients, in processes.


def our_clients(numbers: list[int], port: int, folder: str, n: int, blocks: list[Block]) -> None:
    place = Path(folder)

    def program(clients: Exchange) -> None:
        for exchanges, floats in blocks:
            echo(clients, floats, exchanges)

    def client(number: int) -> None:
        name = names_of(n)[number]
        identity = Identity.load(place / "pki" / "clients" / name)
        address = Address(f"localhost:{port}", channel_credentials(identity), "")
        transport = GrpcTransport(None, [address], 1, lambda _: None)
        take_part(transport, name, n, place, program, Signer(identity))

    with ThreadPoolExecutor(len(numbers)) as pool:
        list(pool.map(client, numbers))


def bare_clients(numbers: list[int], port: int, folder: str, n: int, _: Any) -> None:
    """Be some of the clients: send back what comes."""

    async def talk(number: int) -> None:
        identity = Identity.load(Path(folder) / "pki" / "clients" / names_of(n)[number])
        credentials = channel_credentials(identity)
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            stream = channel.stream_stream(PATH)()
            await stream.write(b"here")
            while (head := await stream.read()) is not grpc.aio.EOF:
                chunks = [await stream.read() for _ in range(int.from_bytes(head, "little"))]
                for chunk in chunks:
                    await stream.write(chunk)

    async def talk_all() -> None:
        with suppress(grpc.aio.AioRpcError):  # the server ends
            await asyncio.gather(*map(talk, numbers))

    asyncio.run(talk_all())


def start_clients(
    be: Callable[..., None], n: int, blocks: list[Block], port: int, folder: Path
) -> list[Worker]:
    each = A_PROCESS if n > A_PROCESS else 1
    groups = [list(range(n))[first : first + each] for first in range(0, n, each)]
    return [Worker(be, group, port, str(folder), n, blocks) for group in groups]


@contextmanager
def ours(n: int, blocks: list[Block], folder: Path) -> Iterator[Callable[[Block], list[float]]]:
    """Start our server and its clients; give what does a block of exchanges."""
    identity = Identity.load(folder / "pki" / "server")
    listening = Listening("localhost:0", server_credentials(identity))
    transport = GrpcTransport(listening, (), n, lambda _: None)
    with leading(transport, n, folder, Signer(identity)) as clients:
        workers = start_clients(our_clients, n, blocks, transport.port, folder)
        yield lambda block: echo(clients, block[1], block[0])
    for worker in workers:
        worker.close()


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
    workers = start_clients(bare_clients, n, blocks, port, folder)
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
    for worker in workers:
        worker.process.kill()


def contestant(
    kind: str, n: int, blocks: list[Block], folder: str
) -> Generator[dict[str, Any], None, None]:
    """Do a block of exchanges for each line; yield its seconds and the server's memory."""
    with (ours if kind == "ours" else bare)(n, blocks, Path(folder)) as exchanged:
        start = memory_mb()
        for block, _ in zip(blocks, sys.stdin, strict=False):
            seconds = exchanged(block)
            used = {"start": start, "now": memory_mb(kind="VmRSS"), "megabytes": memory_mb()}
            yield {"seconds": seconds} | used


def start(kind: str, n: int, blocks: list[Block], folder: Path) -> Worker:
    own = Path(tempfile.mkdtemp(prefix=kind, dir=folder))
    (own / "pki").symlink_to(folder / "pki")
    return Worker(contestant, kind, n, blocks, str(own))


def compare(clients: int, floats: int, folder: Path, turns: int) -> dict[str, Any]:
    blocks: list[Block] = [(WARMING, floats), *turns * [(EXCHANGES[clients], floats)]]
    contestants = {kind: start(kind, clients, blocks, folder) for kind in ("bare", "ours")}
    seconds: dict[str, list[float]] = {kind: [] for kind in contestants}
    row: dict[str, Any] = {}
    for each in contestants.values():
        each.ask()
    for _ in range(turns):
        for kind, each in contestants.items():
            answer = each.ask()
            seconds[kind] += answer["seconds"]
            row[f"{kind} MB"] = answer["start"], answer["megabytes"]
    for kind, each in contestants.items():
        each.close()
        times = seconds[kind]
        row[kind] = [1e3 * statistics.median(times), 1e3 * statistics.quantiles(times, n=10)[-1]]
    return row


def certify(folder: Path, clients: int) -> None:
    pki.create(folder / "pki", ["localhost"])
    for name in names_of(clients):
        pki.issue(folder / "pki", name)


def cells_of(row: dict[str, Any]) -> list[object]:
    (size,) = (name for name, floats in SIZES.items() if floats == row["floats"])
    times = [f"{median:.1f} ({slow:.1f})" for median, slow in (row["ours"], row["bare"])]
    memory = [f"{mb:.0f}" for mb in (*row["ours MB"], row["bare MB"][1])]
    return [row["clients"], size, *times, f"{row['ours'][0] / row['bare'][0]:.2f}", *memory]


def load(clients: int, rounds: int, folder: Path) -> list[list[object]]:
    """Let many clients do rounds of 2 MB; return a line for every block of them."""
    block = rounds // 10
    blocks: list[Block] = [(block, SIZES["2 MB"]) for _ in range(10)]
    worker = start("ours", clients, blocks, folder)
    lines: list[list[object]] = []
    for done in range(block, rounds + 1, block):
        answer = worker.ask()
        memory = (f"{answer[kind]:.0f}" for kind in ("now", "megabytes"))
        lines.append([done, f"{statistics.median(answer['seconds']):.2f}", *memory])
        print(lines[-1], flush=True)
    worker.close()
    return lines


def main() -> None:
    given = arguments(__doc__)
    sizes = (SIZES["2 MB"],) if given.quick else SIZES.values()
    counts, turns = ((5,), QUICK) if given.quick else (CLIENTS, BLOCKS)
    many, rounds = (11, 10) if given.quick else (MANY, 200)
    tasks = [{"clients": n, "floats": floats} for n, floats in product(counts, sizes)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder, many if given.quick else MANY)
        rows = measured(given, tasks, lambda task: compare(**task, folder=folder, turns=turns))
        write(given, [
            "An exchange over mutual TLS on loopback, median and 90th percentile; clients are "
            f"processes of their own (of 50, ten a process). gRPC {version('grpcio')}. Command: "
            "`make bench NAME=rounds`.", "", *table(HEAD, map(cells_of, rows), left=0),
        ])  # fmt: skip
        begin = time.monotonic()
        lines = load(many, rounds, folder)
        write(given, [
            f"{many} clients, ten a process, 2 MB to each and back in every round, mutual TLS on "
            "loopback. Nothing was lost: every round's sum holds each client once. Command: "
            "`make bench NAME=rounds`.", "",
            *table("rounds | seconds a round, median | resident, MB | peak, MB", lines, left=0),
            "", f"{time.monotonic() - begin:.0f} s in all.",
        ], "load")  # fmt: skip
