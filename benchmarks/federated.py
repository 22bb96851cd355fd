"""A server and client processes of a study on this machine, for benchmarks that measure them."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import common
from benchmarks.common import Worker, tokenised
from fedtopics.protocol.roster import Key

NAMES = ["east", "middle", "north", "south", "west"]
ONE_WAY = 0.025  # seconds


def prepare(folder: Path, bags: Mapping[str, Any]) -> None:
    """Write keys, certificates, policies and documents of all members.

    Each policy names a memory: that of the user knows other runs of members with these names.
    """
    for name in ("server", *bags):
        key = Key.create(folder / "keys" / name, name)
        (folder / f"{name}.pem").write_bytes(key.certificate)
    for name, bag in bags.items():
        pq.write_table(pa.table({"words": tokenised(bag)}), folder / f"{name}.parquet")
        (folder / f"{name}.toml").write_text(
            "min_persons = 10\nmin_persons_per_word = 1\nmax_rounds = 5000\n"
            f'memory = "{name}.memory"\n'
        )


def start(folder: Path, *words: str) -> Any:
    """Start a command of fedtopics in a folder, with one thread."""
    command = [sys.executable, "-m", "fedtopics", *words]
    if "--quick" in sys.argv:  # what it prints is this process's
        return common.forked(folder, Path(f"/proc/{os.getpid()}/fd/2"), command[1:])
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=one_thread, stdout=subprocess.DEVNULL)


def run(folder: Path, study: str, delayed: bool = False, names: Sequence[str] = NAMES) -> Path:
    """Run a study, a process each; return the run's folder, whose traffic.json has the bytes."""
    out = tempfile.mkdtemp(dir=folder)
    port = free_port()
    relay = Worker(relayed, port, ONE_WAY) if delayed else None
    reached = relay.answer() if relay else port
    text = f'{study}\n[server]\naddress = "localhost:{reached}"\ncertificate = "server.pem"\n'
    text += "".join(f'[clients.{name}]\ncertificate = "{name}.pem"\n' for name in names)
    (folder / "study.toml").write_text(text)
    given = ("--listen", f"127.0.0.1:{port}", "--out", f"{out}")
    processes = [start(folder, "serve", "study.toml", "--key", "keys/server", *given)]
    processes += [
        start(
            folder,
            "join",
            "study.toml",
            "--key",
            f"keys/{name}",
            "--data",
            f"{name}.parquet",
            "--columns",
            "tokens=words",
            "--policy",
            f"{name}.toml",
            "--out",
            f"{out}/{name}",
            "--insecure-seed",
            "--timeout",
            "60",
        )
        for name in names
    ]
    codes = [process.wait() for process in processes]
    if relay:
        (Path(out) / "traffic.json").write_text(json.dumps(relay.ask()))
        relay.close()
    if any(codes):
        raise SystemExit(f"The server and its members ended with {codes}.")
    return Path(out)


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as one:
        return int(one.getsockname()[1])


def relayed(port: int, one_way: float) -> Generator[Any, None, None]:
    """Hand all bytes to a port and back, each a while later."""
    traffic = [0, 0]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def send() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(due - clock())
                if not data:
                    return writer.close()
                writer.write(data)
                await writer.drain()

        sending = asyncio.create_task(send())
        try:
            while data := await reader.read(1 << 16):
                traffic[way] += len(data)
                waiting.put_nowait((clock() + one_way, data))
        except ConnectionError:
            pass
        waiting.put_nowait((clock() + one_way, b""))
        await sending

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, forward = await asyncio.open_connection("localhost", port)
        both = carry(reader, forward, 0), carry(answers, writer, 1)
        await asyncio.gather(*both, return_exceptions=True)

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    started = asyncio.start_server(connect, "localhost", 0)
    server = asyncio.run_coroutine_threadsafe(started, loop).result()
    yield server.sockets[0].getsockname()[1]
    sys.stdin.readline()
    yield traffic
    sys.stdin.read()
