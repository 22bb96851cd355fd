"""Real studies with plain aggregation and five client processes: seconds, bytes, loss, by setting.

First where a round's time goes with each way to normalise, then what several local steps a round
save, then the same through a relay.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
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
from benchmarks.common import Worker, arguments, bag_of_words, measured, table, tokenised, write
from fedtopics.protocol.roster import Key

NAMES = ["east", "middle", "north", "south", "west"]
DOCUMENTS = 2_000  # of a client
WORDS, TOPICS, HIDDEN = 5_000, 50, 100
ONE_WAY = 0.025  # seconds
STUDY = """name = "bench"
checkpoint_every = 1000000
aggregation = "plain"  # secure-rounds has secure aggregation
[method]
name = "gfedntm"
n_components = {topics}
hidden = [{hidden}, {hidden}]
batch_size = 64
max_rounds = {rounds}
validation_share = 0.1
validate_every = {rounds}  # once, the model that the last round gives
{method}
[vocabulary]
max_words = {words}
min_document_frequency = 1
max_document_share = 1.0
"""
AVERAGED = 'norm = "server"\noptimizer = "fedavg"\nlearning_rate = 1.0\nlocal_steps = '
SETTINGS = {  # the method, and how many minibatches a round takes
    "sync": ('norm = "sync"', 1),
    "server": ('norm = "server"', 1),
    "server, 5 local steps": (f"{AVERAGED}5", 5),
    "server, 20 local steps": (f"{AVERAGED}20", 20),
}
STEPS, STEPS_DELAYED, STEPS_QUICK = 500, 100, 4  # minibatches in all
HEAD = """setting | rounds | seconds | ms a round | sent, MB a client \
| received, MB a client | loss, held back"""


def prepare(folder: Path, bags: Mapping[str, Any]) -> None:
    """Write keys, certificates, a policy and documents of all members."""
    (folder / "policy.toml").write_text("min_documents = 10\nmin_document_frequency = 1\n")
    for name in ("server", *bags):
        key = Key.create(folder / "keys" / name, name)
        (folder / f"{name}.pem").write_bytes(key.certificate)
    for name, bag in bags.items():
        pq.write_table(pa.table({"words": tokenised(bag)}), folder / f"{name}.parquet")


def start(folder: Path, *words: str) -> Any:
    """Start a command of fedtopics in a folder, with one thread."""
    command, own = [sys.executable, "-m", "fedtopics", *words], {"OMP_NUM_THREADS": "1"}
    if "--quick" in sys.argv:  # what it prints is this process's
        return common.forked(folder, Path(f"/proc/{os.getpid()}/fd/2"), command[1:])
    return subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=subprocess.DEVNULL)


def run(folder: Path, study: str, delayed: bool = False, names: Sequence[str] = NAMES) -> Path:
    """Run a study, a process each; return the run's folder, whose traffic.json has the bytes."""
    out, port = tempfile.mkdtemp(dir=folder), free_port()
    relay = Worker(relayed, port, ONE_WAY) if delayed else None
    reached = relay.answer() if relay else port
    text = f'{study}\n[server]\naddress = "localhost:{reached}"\ncertificate = "server.pem"\n'
    text += "".join(f'[clients.{name}]\ncertificate = "{name}.pem"\n' for name in names)
    (folder / "study.toml").write_text(text)
    given = ("--listen", f"127.0.0.1:{port}", "--out", f"{out}")
    processes = [start(folder, "serve", "study.toml", "--key", "keys/server", *given)]
    processes += [
        start(
            folder, "join", "study.toml", "--key", f"keys/{name}", "--data", f"{name}.parquet",
            "--columns", "tokens=words", "--policy", "policy.toml", "--out", f"{out}/{name}",
            "--insecure-seed", "--timeout", "60",
        )
        for name in names
    ]  # fmt: skip
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
        there, back = await asyncio.open_connection("localhost", port)
        both = carry(reader, back, 0), carry(there, writer, 1)
        await asyncio.gather(*both, return_exceptions=True)

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    started = asyncio.start_server(connect, "localhost", 0)
    server = asyncio.run_coroutine_threadsafe(started, loop).result()
    yield server.sockets[0].getsockname()[1]
    sys.stdin.readline()
    yield traffic
    sys.stdin.read()


def events_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


def summarise(events: list[dict[str, Any]]) -> dict[str, Any]:
    rounds = [event for event in events if event["event"] == "round"]
    last = next(event for event in events if event["event"] == "validation")

    def median(part: Any) -> float:
        return float(statistics.median(part(event) for event in rounds[1:]))

    return {
        "rounds": len(rounds), "seconds": sum(event["seconds"] for event in rounds),
        "round": median(lambda e: e["seconds"]),
        "sent": median(lambda e: e["bytes_sent"]) / len(NAMES),
        "received": median(lambda e: e["bytes_received"]) / len(NAMES), "loss": last["loss"],
    }  # fmt: skip


def cells_of(row: dict[str, Any]) -> list[str]:
    numbers = [row["rounds"], f"{row['seconds']:.1f}", f"{row['round'] * 1e3:.0f}"]
    sizes = [f"{row[part] / 1e6:.2f}" for part in ("sent", "received")]
    return [row["setting"], *numbers, *sizes, f"{row['loss']:.2f}"]


def main() -> None:
    given = arguments(__doc__)
    each = 100 if given.quick else DOCUMENTS
    bag = bag_of_words(each * len(NAMES), 500 if given.quick else WORDS)
    parts = {name: bag[i * each : (i + 1) * each] for i, name in enumerate(NAMES)}
    tasks = [{"setting": name + also} for also in ("", ", delayed") for name in SETTINGS]
    tasks = tasks[5:6] if given.quick else tasks  # one with a delay
    names = NAMES[:2] if given.quick else NAMES

    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), parts)

        def measure(task: dict[str, str]) -> dict[str, Any]:
            name, delayed = task["setting"].removesuffix(", delayed"), "delayed" in task["setting"]
            method, local_steps = SETTINGS[name]
            steps = STEPS_QUICK if given.quick else STEPS_DELAYED if delayed else STEPS
            sizes = {"topics": 4 if given.quick else TOPICS, "hidden": HIDDEN, "words": WORDS}
            study = STUDY.format(method=method, rounds=steps // local_steps, **sizes)
            return summarise(events_of(run(Path(folder), study, delayed, names)))

        rows = measured(given, tasks, measure)
    layers = WORDS * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * 2 * TOPICS
    weights = 4 * (layers + TOPICS * WORDS + WORDS)
    write(given, [
        f"Five client processes and a server, mutual TLS on loopback, {WORDS:,} words, {TOPICS} "
        f"topics, hidden layers of {HIDDEN}, 64 documents a round, seed 0, one thread a process, "
        f"two cores; delayed: through a relay that hands bytes over {ONE_WAY * 1e3:g} ms later "
        "each way. Command: `make bench NAME=federated`.", "",
        *table(HEAD, map(cells_of, rows)),
        "", f"All weights, dense, in float32: {weights / 1e6:.2f} MB.",
    ])  # fmt: skip
