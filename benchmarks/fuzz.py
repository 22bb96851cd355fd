"""A million damaged and forged frames: nothing but a refusal may come of any.

In blocks whose number is the seed of all that is drawn in them: frames for the decoder, and frames
on a real port, while an honest study runs to its total. A finding is an exception that is not a
refusal, a frame that takes over a second, memory that stays, or a study that is harmed.
"""

from __future__ import annotations

import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import grpc
import msgspec
import numpy as np
from msgspec.msgpack import Ext

from benchmarks.__main__ import sources
from benchmarks.common import arguments, each_group, measured, table, write
from fedtopics.engines import log_messages, messages
from fedtopics.engines.carried import unbundled
from fedtopics.engines.grpc.frames import CHUNK, SERVICE, frames_of
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import AnyMessage, Message, Replicated, read_bytes
from fedtopics.engines.states import read as read_state
from fedtopics.protocol.values import LENGTH, dumps, loads
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Rows
from tests.helpers.damage import mutate
from tests.helpers.programs import adding, federation, rounds
from tests.helpers.sockets import Sockets

BLOCKS = {"decoder": (100, 10_000), "port": (20, 500)}  # how many, of how many frames
QUICK = {"decoder": (2, 10_000), "port": (1, 200)}
LARGEST = 1 << 24  # bytes of a message, as a study may say
SLOWEST = 1.0  # seconds of a frame
ROOM = 64.0  # megabytes by which a block may raise the peak
ROUNDS, SLOW = 20, 0.01  # of the honest study; seconds of a round, so that frames come in all
PARTS = {
    "decoder": "frames, real ones damaged and drawn ones, against the decoder",
    "port": "frames against a real port, beside an honest study",
}
INTEGERS = (0, 1, -1, 2, 3, 7, 63, 64, 255, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.5, -512.0, 1e30, 1.7e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "a", "b", "c", "@server", "oak", "\x1b[2J", "\u202egpj", "x" * 300, "🌳", "\0", "_id")
OCTETS = (b"", b"\0", b"run", bytes(32), b"\xff" * 64, b"-----BEGIN CERTIFICATE-----\nAAAA\n")
SIZES = (0, 1, 2, 8, 9, 16, 64, 2**20, 2**40, 2**63)
KINDS = {kind.__name__.lower(): kind for kind in get_args(AnyMessage)}
Generator = np.random.Generator


def real_messages() -> list[Message]:
    """Return a message of each kind that participants send."""
    sparse, digest = np.zeros((600, 8), np.float32), bytes(range(32))
    sparse[::37] = 0.5
    reply = {
        "documents": 52, "loss": 813.5, "gradients": {"topics": np.ones((4, 40)), "bias": sparse},
        "rows": Rows(np.array([1, 7]), np.ones((2, 3)), 9),
        "words": Named([f"word{i}" for i in range(40)], np.ones((40, 3), np.int64)),
    }  # fmt: skip
    entry = Entry("added", dumps({"index": 3, "missing": {}, "again": False, "signatures": {}}))
    state = log_messages.State(4, digest, dumps({"state": {"round": 50}}))
    study = {"method": {"name": "lda", "n_components": 4}, "clients": ["a", "b", "c"], "seed": 0}
    logged: list[log_messages.Message] = [
        log_messages.Position(1, 1, 3, (digest, digest), 9),
        log_messages.Begin(1, 3, digest, digest, 3, 3, 0, state),
        log_messages.Append(1, 3, digest, (entry, entry), 3),
    ]
    return [
        messages.Offer("0.1.0", 3, "lda", 1, study, "f00d", "", b"run", 1.7e9, bytes(16)),
        messages.Accept("b", "f00d", b"process1", 2, OCTETS[-1], bytes(72)),
        messages.Welcome("@server", OCTETS[-1]),
        messages.Refusal("Its policy forbids it.", False),
        messages.Announced(4, 1 << 20),
        messages.Reply(4, digest, bytes(72), reply),
        messages.Failure(4, "policy", True),
        *map(Replicated.of, logged),
    ]


REAL = real_messages()
WHOLE, FRAMES = [dumps(each) for each in REAL], [frames_of(each, CHUNK)[0] for each in REAL]


def pick(rng: Generator, choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def damaged(rng: Generator, real: list[bytes]) -> bytes:
    """Return a real message or frame with some damage, most of it where its structure is."""
    raw = bytearray(pick(rng, real))
    for _ in range(rng.integers(1, 5)):
        if rng.random() < 0.8:
            mutate(raw, random.Random(int(rng.integers(2**32))))  # noqa: S311
        else:
            place, other = int(rng.integers(len(raw) or 1)), pick(rng, real)
            raw[place:] = other[min(place, len(other)) :]
    return bytes(raw)


def grown(rng: Generator) -> bytes:
    """Return a message of a known kind whose fields were drawn, wherever that leads."""
    kind = pick(rng, [*KINDS])
    fields = {name: value(rng, 0) for name in KINDS[kind].__struct_fields__ if rng.random() < 0.95}
    structure = msgspec.msgpack.encode({"kind": kind, **fields})
    head = len(structure).to_bytes(LENGTH, "little") + structure
    return head + bytes(-len(head) % 64) + rng.bytes(int(pick(rng, (0, 0, 64, 128, 640))))


def value(rng: Generator, depth: int) -> Any:
    """Draw a value: what MessagePack knows, and extensions that stand for arrays, or for none."""
    inner = [value(rng, depth + 1) for _ in range(rng.integers(3))] if depth < 5 else []
    numbers = np.array([pick(rng, SIZES) for _ in range(rng.integers(6))], "<u8").tobytes()
    drawn: Any = pick(rng, (INTEGERS, REALS, TEXTS, OCTETS, (None, True, 2**64 - 1)))
    return pick(rng, (
        lambda: pick(rng, drawn),
        lambda: inner,
        lambda: {pick(rng, TEXTS): each for each in inner},
        lambda: {pick(rng, INTEGERS): each for each in inner},
        lambda: Ext(int(rng.integers(-1, 8)), numbers),
    ))()  # fmt: skip


def decode(raw: bytes, place: int) -> None:
    """Read bytes as a frame; some also as what is within frames: a bundle, a state."""
    if place % 10 == 1:
        unbundled(raw, LARGEST)
    elif place % 10 == 2:
        read_state(loads(raw, LARGEST))
    else:
        message = read_bytes(raw, LARGEST)
        if isinstance(message, Replicated):
            message.read()


def decoder(rng: Generator, frames: int) -> tuple[Counter[str], float, list[str]]:
    """Give frames to the decoder; return what came of them, the slowest, and findings."""
    outcomes, slowest, findings = Counter[str](), 0.0, []
    for place in range(frames):
        raw = grown(rng) if place % 3 == 0 else damaged(rng, WHOLE)
        begun = time.perf_counter()
        try:
            decode(raw, place)
            outcomes["read"] += 1
        except FederationError:
            outcomes["refused"] += 1
        except Exception as error:
            findings.append(f"frame {place}: {error!r}")
        seconds = time.perf_counter() - begun
        if seconds > SLOWEST:
            findings.append(f"frame {place}: {seconds:.1f} s")
        slowest = max(slowest, seconds)
    return outcomes, slowest, findings


def port(rng: Generator, frames: int) -> tuple[Counter[str], float, list[str]]:
    """Send frames to the port of a server, beside its study, over some connections.

    No frame says that it is of one of the study's two clients: without certificates, it would be.
    """
    streams, left = [], frames
    while left > 0:
        number = min(left, int(rng.integers(1, 12)))
        left -= number
        streams.append([rng.bytes(40) if rng.random() < 0.2 else damaged(rng, FRAMES)
                        for _ in range(number)])  # fmt: skip
    findings: list[str] = []
    before = threading.excepthook
    threading.excepthook = lambda problem: findings.append(repr(problem.exc_value))
    try:
        findings += beside_a_study(streams)
    except Exception as error:
        findings.append(f"the study beside them: {error!r}")
    finally:
        threading.excepthook = before
    return Counter(connections=len(streams)), 0.0, findings


def beside_a_study(streams: Iterable[list[bytes]]) -> list[str]:
    """Run an honest study of two clients meanwhile; return what went wrong."""
    errors: list[str] = []
    hub: Any = Sockets()
    with federation("ac", hub=hub) as f:
        transport: Any = f.node._transport
        transport._loop.set_exception_handler(
            lambda _, context: errors.append(str(context.get("exception", context["message"])))
        )
        slowly = threading.Event()
        program = rounds(*range(1, ROUNDS + 1), before=lambda _: slowly.wait(SLOW))
        work = f.lead(program)
        members = [f.member(n, adding(x), program) for n, x in (("a", 1.0), ("c", 100.0))]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda raws: connect(hub.port, raws), streams))
        found = [total for total, _ in work.result()]
        for member in members:
            member.work.result()
    return errors + ([] if found == [101.0] * ROUNDS else [f"the honest study came to {found}"])


def connect(port: int, raws: list[bytes]) -> None:
    """Send frames over a connection; an error if the server fails."""
    sent = threading.Event()

    def frames() -> Iterator[bytes]:
        yield from raws
        sent.wait(0.02)  # or the end would overtake them

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            for _ in channel.stream_stream(f"/{SERVICE}/Join")(frames(), timeout=1.0):
                pass
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNKNOWN:
                raise FederationError("the server failed") from None


def block(task: dict[str, Any]) -> dict[str, Any]:
    """Play a block of frames; return its row."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun, rng = time.monotonic(), np.random.default_rng([task["seed"], len(task["part"])])
    play = decoder if task["part"] == "decoder" else port
    outcomes, slowest, findings = play(rng, task["frames"])
    grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    if grew > ROOM and task["seed"] > 0:  # the first one loads what all use
        findings.append(f"{grew:.0f} MB more")
    return {
        "outcomes": dict(outcomes), "slowest": slowest, "megabytes": grew,
        "seconds": time.monotonic() - begun, "findings": findings[:20],
    }  # fmt: skip


def main() -> None:
    given, version = arguments(__doc__), sources()
    rows = measured(given, [
        {"part": part, "seed": seed, "frames": frames, "sources": version}
        for part, (number, frames) in (QUICK if given.quick else BLOCKS).items()
        for seed in range(number)
    ], block)  # fmt: skip
    lines = []
    for (part,), own in each_group(rows, "part"):
        outcomes = sum((Counter(row["outcomes"]) for row in own), Counter[str]())
        cells = [""] * 3
        if part == "decoder":
            slowest = f"{1000 * max(row['slowest'] for row in own):.1f}"
            cells = [f"{outcomes['read']:,}", f"{outcomes['refused']:,}", slowest]
        frames, most = sum(row["frames"] for row in own), max(row["megabytes"] for row in own)
        seconds = sum(row["seconds"] for row in own)
        numbers = [f"{frames:,}", len(own), *cells, f"{most:.0f}", f"{seconds:.0f}"]
        lines.append([PARTS[part], *numbers])
    findings = [f"{row['part']}, seed {row['seed']}: {f}" for row in rows for f in row["findings"]]
    head = "what | frames | blocks | read | refused | slowest, ms | most memory, MB | s"
    write(given, [
        "Damaged and forged frames, on one machine. All that is drawn in a block follows from its "
        "number, from 0 on. A finding is an exception that is not a refusal, a frame of over "
        f"{SLOWEST:g} s, memory that grows by {ROOM:g} MB in a block, or a study that does not "
        "come to its total. Command: `make stress NAME=fuzz`. Findings: "
        f"{len(findings) or 'none'}.",
        "", *table(head, lines), "", *findings,
    ])  # fmt: skip
    raise SystemExit(bool(findings))
