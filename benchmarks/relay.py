"""What `fedtopics serve` costs: seconds until the first round and of a step, and a relay's memory.

Seconds are from the start of server and five members at once. Memory is measured while 50 links
send vectors of 2 million words, which are drawn: a relay cannot tell them from masked ones. A step
of five members with 2 MB is compared with a bare gRPC stream: bytes up, a barrier, bytes down.
"""

import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.common import arguments, bag_of_words, memory_mb, table, versions, write
from benchmarks.federated import NAMES, free_port, prepare, run, start
from benchmarks.secure_rounds import METHODS, STUDY, TOPICS, WORDS
from fedtopics.protocol.keys import digest_of_list
from fedtopics.protocol.link import LinkError
from fedtopics.protocol.messages import Answer, Ask, Body, List, Part, Total, decode, encode
from fedtopics.protocol.roster import Key
from fedtopics.transport.grpc import GrpcLink, channel_credentials

MEMBERS = 50
LENGTH = 2_000_000
STEPS = 3
FEW = 5  # members
SHORT = 250_000  # words
MANY = 50  # steps of the comparison
PATIENCE = 60.0  # seconds


def seconds_until_round(folder: Path, kind: str, documents: int) -> float:
    """Return the seconds from the start of all processes to the end of the first round."""
    prepare(folder, {name: bag_of_words(documents, WORDS, i) for i, name in enumerate(NAMES)})
    sizes = {"topics": TOPICS, "words": WORDS, "rounds": 2, "method": METHODS["LDA"]}
    begun = time.time()
    out = run(folder, STUDY.format(kind=kind, **sizes))
    lines = (out / NAMES[0] / "state" / "events.jsonl").read_text("utf-8").splitlines()
    first = next(event for event in map(json.loads, lines) if event["event"] == "round")
    return float(first["time"]) - begun


def ask(link: GrpcLink, question: Ask, kind: type[Any]) -> Any:
    """Ask until the relay has an answer of this kind; without one the benchmark ends."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            answer = decode(link.ask(encode(question)), Answer).message
        except LinkError:
            time.sleep(0.5)
            continue
        if isinstance(answer, kind):
            return answer
    raise SystemExit(f"The relay had no {kind.__name__} for {PATIENCE:g} seconds.")


def take_part(link: GrpcLink, name: str, vector: bytes, steps: int) -> None:
    """Do a member's calls of some steps, without its work."""
    for step in range(steps):
        part = Part(b"", step, b"", "sum", "sum", b"", name, bytes(32), bytes(64))
        link.say(encode(part))
        answer = ask(link, Ask(b"process", step, "part", b""), List)
        list_ = digest_of_list(answer.parts)
        link.say(encode(Body(list_, name, vector)))
        ask(link, Ask(b"process", step, "body", list_), Total)
        if len(link.fetch(list_)) != len(vector):
            raise SystemExit("A total has another length than the vectors.")


def echo(pipe: Any, key: bytes, certificate: bytes, members: int) -> None:
    """Serve streams that give back what they get, once all members have sent theirs."""
    barrier = threading.Barrier(members, timeout=PATIENCE)

    def serve(chunks: Iterator[bytes], context: Any) -> Iterator[bytes]:
        content = [*chunks]
        barrier.wait()
        yield from content

    handler = {"Echo": grpc.stream_stream_rpc_method_handler(serve)}
    server = grpc.server(ThreadPoolExecutor(members))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bare", handler)])
    credentials = grpc.ssl_server_credentials([(key, certificate)])
    pipe.send(server.add_secure_port("localhost:0", credentials))
    server.start()
    server.wait_for_termination(PATIENCE)


def bare(folder: Path, members: int, size: int, steps: int) -> float:
    """Return the seconds of a round over gRPC streams that do nothing else."""
    key = Key.create(folder / "bare/key", "server")
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=echo, args=(theirs, key.in_pem(), key.certificate, members))
    process.start()
    credentials, host = channel_credentials(key.in_pem(), key.certificate, key.certificate)
    address = f"localhost:{ours.recv()}"
    content = np.random.default_rng(0).bytes(size)

    def take_part(number: int) -> None:
        options = [("grpc.ssl_target_name_override", host), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(address, credentials, options) as channel:
            for _ in range(steps):
                list(channel.stream_stream("/bare/Echo")(iter([content])))

    begun = time.monotonic()
    with ThreadPoolExecutor(members) as pool:
        list(pool.map(take_part, range(members)))
    process.kill()
    return (time.monotonic() - begun) / steps


def memory(folder: Path, members: int, length: int, steps: int = STEPS) -> dict[str, float]:
    """Return megabytes of a relay when it has started, and the most after some steps."""
    names = [f"m{number:02}" for number in range(members)]
    port = free_port()
    keys = {name: Key.create(folder / name, name) for name in ("server", *names)}
    text = 'name = "relay"\n[method]\nname = "lda"\nn_components = 5\n'
    text += f'[server]\naddress = "localhost:{port}"\ncertificate = "server.pem"\n'
    for name, key in keys.items():
        (folder / f"{name}.pem").write_bytes(key.certificate)
        text += f'[clients.{name}]\ncertificate = "{name}.pem"\n' * (name != "server")
    (folder / "study.toml").write_text(text, "utf-8")
    process = start(folder, "serve", "study.toml", "--key", "server", "--out", "out")
    vector = np.random.default_rng(0).bytes(8 * (length + 1))
    try:
        links = {
            n: GrpcLink(
                f"localhost:{port}",
                keys[n].in_pem(),
                keys[n].certificate,
                keys["server"].certificate,
            )
            for n in names
        }
        while True:
            try:
                links[names[0]].fetch(b"")
                break
            except LinkError:
                time.sleep(0.5)
        begun = time.monotonic()
        at_start = memory_mb(process.pid, "VmRSS")
        with ThreadPoolExecutor(members) as pool:
            list(pool.map(lambda n: take_part(links[n], n, vector, steps), names))
        seconds = (time.monotonic() - begun) / steps
        return {"start": at_start, "most": memory_mb(process.pid), "seconds": seconds}
    finally:
        process.kill()
        process.wait()


def main() -> None:
    given = arguments(__doc__)
    members, length, documents = (5, 20_000, 60) if given.quick else (MEMBERS, LENGTH, 2_000)
    lines: list[list[object]] = []
    for kind in () if given.quick else ("plain", "secure"):
        with tempfile.TemporaryDirectory() as name:
            seconds = seconds_until_round(Path(name), kind, documents)
        lines.append(
            [f"seconds to the first round, {kind}, {len(NAMES)} members", f"{seconds:.1f}"]
        )
    with tempfile.TemporaryDirectory() as name:
        resources = memory(Path(name), members, length)
    many = 2 if given.quick else MANY
    with tempfile.TemporaryDirectory() as name:
        step = memory(Path(name), FEW, SHORT, many)["seconds"]
        stream = bare(Path(name), FEW, 8 * SHORT, many)
    of = f"{members} members, {length:,} words"
    beside = f"{FEW} members, {8 * SHORT / 1e6:g} MB"
    lines += [
        ["resident MB of the relay, started", f"{resources['start']:.0f}"],
        [f"most resident MB, {of}", f"{resources['most']:.0f}"],
        [f"seconds of a step, {of}", f"{resources['seconds']:.1f}"],
        [f"ms of a step, {beside}", f"{1000 * step:.0f}"],
        [f"ms of a round of bare gRPC streams, {beside}", f"{1000 * stream:.0f}"],
        ["step / round of bare streams", f"{step / stream:.2f}"],
    ]
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(
        given,
        [
            f"`fedtopics serve` on one machine, mutual TLS; LDA on {documents:,} documents a "
            f"member, {WORDS:,} words; {STEPS} steps of a relay whose members are threads of one "
            f"process, seed 0. {used}. Command: `make bench NAME=relay`.",
            "",
            *table("what | value", lines),
        ],
    )
