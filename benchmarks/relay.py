"""What `fedtopics serve` costs: seconds until the first round, and memory as relay of 50 members.

Seconds are from the start of server and five members at once. Memory is measured while 50 links
send vectors of 2 million words, which are drawn: a relay cannot tell them from masked ones.
"""

from __future__ import annotations

import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, bag_of_words, memory_mb, table, versions, write
from benchmarks.federated import NAMES, free_port, prepare, run, start
from benchmarks.secure_rounds import METHODS, STUDY, TOPICS, WORDS
from fedtopics.protocol.keys import digest
from fedtopics.protocol.link import LinkError
from fedtopics.protocol.messages import Answer, Ask, Body, List, Part, Total, decode, encode
from fedtopics.protocol.roster import Key
from fedtopics.transport.grpc import GrpcLink

MEMBERS, LENGTH, STEPS = 50, 2_000_000, 3
PATIENCE = 300.0  # seconds


def seconds_until_round(folder: Path, kind: str, each: int) -> float:
    """Return the seconds from the start of all processes to the end of the first round."""
    prepare(folder, {name: bag_of_words(each, WORDS, i) for i, name in enumerate(NAMES)})
    sizes = {"topics": TOPICS, "words": WORDS, "rounds": 2, "method": METHODS["LDA"]}
    begun = time.time()
    out = run(folder, STUDY.format(kind=kind, **sizes))
    lines = (out / NAMES[0] / "state" / "events.jsonl").read_text("utf-8").splitlines()
    first = next(event for event in map(json.loads, lines) if event["event"] == "round")
    return float(first["time"]) - begun


def ask(link: GrpcLink, question: Ask) -> Any:
    """Ask until the relay has an answer; a relay that is gone ends the benchmark."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            answer = decode(link.ask(encode(question)), Answer).message
        except LinkError:
            time.sleep(0.5)
            continue
        if answer is not None:
            return answer
    raise SystemExit(f"The relay had no answer for {PATIENCE:g} seconds.")


def take_part(link: GrpcLink, name: str, vector: bytes, steps: int) -> None:
    """Do a member's calls of some steps, without its work."""
    for step in range(steps):
        part = Part(b"", step, b"", "sum", "sum", b"", name, bytes(32), bytes(64))
        link.say(encode(part))
        while not isinstance(answer := ask(link, Ask(b"process", step, "part", b"")), List):
            pass
        list_ = digest(*answer.parts)
        link.say(encode(Body(list_, name, vector)))
        while not isinstance(ask(link, Ask(b"process", step, "body", list_)), Total):
            pass
        if len(link.fetch(list_)) != len(vector):
            raise SystemExit("A total has another length than the vectors.")


def memory(folder: Path, members: int, length: int) -> dict[str, float]:
    """Return megabytes of a relay when it has started, and the most after some steps."""
    names, port = [f"m{number:02}" for number in range(members)], free_port()
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
                f"localhost:{port}", keys[n].pem, keys[n].certificate, keys["server"].certificate
            )
            for n in names
        }
        while True:
            try:
                links[names[0]].fetch(b"")
                break
            except LinkError:
                time.sleep(0.5)
        begun, at_start = time.monotonic(), memory_mb(process.pid, "VmRSS")
        with ThreadPoolExecutor(members) as pool:
            list(pool.map(lambda n: take_part(links[n], n, vector, STEPS), names))
        seconds = (time.monotonic() - begun) / STEPS
        return {"start": at_start, "most": memory_mb(process.pid), "seconds": seconds}
    finally:
        process.kill()
        process.wait()


def main() -> None:
    given = arguments(__doc__)
    members, length, each = (5, 20_000, 60) if given.quick else (MEMBERS, LENGTH, 2_000)
    lines: list[list[object]] = []
    for kind in () if given.quick else ("plain", "secure"):
        with tempfile.TemporaryDirectory() as name:
            seconds = seconds_until_round(Path(name), kind, each)
        what = f"seconds to the first round, {kind}, {len(NAMES)} members"
        lines.append([what, f"{seconds:.1f}"])
    with tempfile.TemporaryDirectory() as name:
        found = memory(Path(name), members, length)
    of = f"{members} members, {length:,} words"
    lines += [
        ["resident MB of the relay, started", f"{found['start']:.0f}"],
        [f"most resident MB, {of}", f"{found['most']:.0f}"],
        [f"seconds of a step, {of}", f"{found['seconds']:.1f}"],
    ]
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(given, [
        f"`fedtopics serve` on one machine, mutual TLS; LDA on {each:,} documents a member, "
        f"{WORDS:,} words; {STEPS} steps of a relay whose members are threads of one process, seed "
        f"0. {used}. "
        "Command: `make bench NAME=relay`.", "", *table("what | value", lines),
    ])  # fmt: skip
