"""Frames for a fuzzer: real ones, real ones that were damaged, and ones that only look right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from fedtopics.engines import log_messages, messages
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import LENGTH, Message, Outgoing, Replicated
from fedtopics.engines.values import dumps
from fedtopics.methods.core.aggregation import Named, Rows

INTEGERS = (0, 1, -1, 2, 3, 7, 63, 64, 255, 2**31, 2**32, 2**53, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.5, -512.0, 1e30, 1.7e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "a", "b", "c", "@server", "oak", "\x1b[2J", "\u202egpj", "x" * 300, "🌳", "\0", "_id")
OCTETS = (b"", b"\0", b"run", bytes(32), b"\xff" * 64, b"-----BEGIN CERTIFICATE-----\nAAAA\n")
DTYPES = ("bool", "uint8", "int32", "uint64", "int64", "float32", "float64", "object", "<U1", "")
SEVERAL = 3


def real_messages() -> list[Message]:
    """One of each kind that participants say, as they say it."""
    words = [f"word{i}" for i in range(40)]
    sparse = np.zeros((600, 8), np.float32)
    sparse[::37] = 0.5
    reply = {
        "documents": 52, "loss": 813.5, "gradients": {"topics": np.ones((4, 40)), "bias": sparse},
        "rows": Rows(np.array([1, 7]), np.ones((2, 3)), 9),
        "words": Named(words, np.ones((40, 3), np.int64)),
    }  # fmt: skip
    entry = Entry("added", dumps({"index": 3, "missing": {}, "again": False, "signatures": {}}))
    digest = bytes(range(32))
    state = log_messages.State(4, digest, dumps({"state": {"round": 50}}))
    logged: list[log_messages.Message] = [
        log_messages.Position(1, 1, 3, (digest, digest), 9),
        log_messages.Fetch(1, 3, (digest,)),
        log_messages.Begin(1, 3, digest, digest, 3, 3, 0, state),
        log_messages.Append(1, 3, digest, (entry, entry), 3),
        log_messages.Ack(1, 3, 2),
        log_messages.Beat(1, 3, 3, 5),
        log_messages.Suspect(1),
        log_messages.StartViewChange(2),
        log_messages.Differs(1, 3, digest),
    ]
    study = {"method": {"name": "lda", "n_components": 4}, "clients": ["a", "b", "c"], "seed": 0}
    return [
        messages.Offer("0.1.0", 3, "lda", 1, study, "f00d", "", b"run", 1.7e9, bytes(16)),
        messages.Accept("b", "f00d", b"process1", 2, OCTETS[-1], bytes(72)),
        messages.Declined("a"),
        messages.Welcome("@server", OCTETS[-1]),
        messages.Refusal("Its policy forbids it.", False),
        messages.Waiting(3),
        messages.Announced(4, 1 << 20),
        messages.Granted(4),
        messages.Reply(4, digest, bytes(72), reply),
        messages.Failure(4, "policy", True),
        messages.Done(),
        *map(Replicated.of, logged),
    ]


REAL = [Outgoing.of(message).bytes() for message in real_messages()]


def damaged(rng: np.random.Generator) -> bytes:
    """Return a real frame with some damage, most of it where its structure is."""
    raw = bytearray(REAL[rng.integers(len(REAL))])
    for _ in range(rng.integers(1, 5)):
        near = len(raw) if rng.random() < 0.3 else min(len(raw), 400)
        place, kind = int(rng.integers(near or 1)), rng.integers(6)
        if kind == 0 and raw:
            raw[min(place, len(raw) - 1)] = int(rng.integers(256))
        elif kind == 1 and raw:
            raw[min(place, len(raw) - 1)] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del raw[place : place + int(rng.integers(1, 9))]
        elif kind == 3:
            raw[place:place] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 4:
            raw[place:place] = raw[place : place + int(rng.integers(1, 60))]
        else:
            other = REAL[rng.integers(len(REAL))]
            raw[place:] = other[min(place, len(other)) :]
    return bytes(raw)


def grown(rng: np.random.Generator) -> bytes:
    """Return a frame of a known kind whose structure was drawn, wherever that leads."""
    structure = value(rng, 0).SerializeToString()
    data = rng.bytes(int(rng.choice([0, 0, 64, 128, 640])))
    body = structure + bytes(-len(structure) % 64) + data
    kind = str(rng.choice([*messages.KINDS, "other"]))
    header = wire.Body(structure=len(structure), data=len(data), small=body)
    head = wire.Frame(message=wire.Message(kind=kind, body=header)).SerializeToString()
    return len(head).to_bytes(LENGTH, "little") + head


def value(rng: np.random.Generator, depth: int) -> wire.Value:
    """Draw a value."""
    kind = rng.integers(10 if depth < 5 else 7)
    if kind == 0:
        return wire.Value()
    if kind == 1:
        return wire.Value(integer=pick(rng, INTEGERS))
    if kind == 2:
        return wire.Value(real=pick(rng, REALS))
    if kind == 3:
        return wire.Value(text=pick(rng, TEXTS))
    if kind == 4:
        return wire.Value(octets=pick(rng, OCTETS))
    if kind == 5:
        each = tensor(rng)
        return wire.Value(tensor=each) if rng.random() < 0.5 else wire.Value(rows=each)
    if kind == 6:
        texts = wire.Texts(lengths=tensor(rng), characters=tensor(rng))
        named = wire.Named(names=texts, values=tensor(rng))
        return wire.Value(texts=texts) if rng.random() < 0.5 else wire.Value(named=named)
    inner = [value(rng, depth + 1) for _ in range(rng.integers(SEVERAL))]
    if kind == 7:
        return wire.Value(list=wire.List(values=inner))
    entries = [wire.Entry(name=pick(rng, TEXTS), value=each) for each in inner]
    return wire.Value(map=wire.Map(entries=entries))


def tensor(rng: np.random.Generator) -> wire.Tensor:
    """Draw what announces an array."""
    shape = [pick(rng, (0, 1, 2, 8, 9, 16, 2**20, 2**40, 2**63)) for _ in range(rng.integers(4))]
    present = pick(rng, (b"", b"\0", b"\xff", b"\x81", bytes(1 << 12)))
    return wire.Tensor(dtype=pick(rng, DTYPES), shape=shape, present=present)


def pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def said(rng: np.random.Generator) -> Message:
    """Return a message of the right shape with any values."""
    if rng.random() < 0.5:
        of = pick(rng, get_args(log_messages.Message))
        return Replicated.of(drawn(rng, of))
    kind = pick(rng, [kind for kind in messages.KINDS.values() if kind is not Replicated])
    message: Message = drawn(rng, kind)
    return message


def drawn(rng: np.random.Generator, hint: Any) -> Any:
    """Draw a value of a type; of a data class, one of it."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    simple: Mapping[Any, Callable[[], Any]] = {
        int: lambda: pick(rng, INTEGERS) if rng.random() < 0.5 else int(rng.integers(6)),
        float: lambda: pick(rng, REALS), str: lambda: pick(rng, TEXTS),
        bytes: lambda: pick(rng, OCTETS), bool: lambda: bool(rng.integers(2)),
        NoneType: lambda: None, Any: lambda: pick(rng, (None, 1, 0.5, "x", [], {}, np.ones(3))),
    }  # fmt: skip
    if origin in simple:
        return simple[origin]()
    if origin is UnionType:
        return drawn(rng, pick(rng, inner))
    if origin is tuple:
        return tuple(drawn(rng, inner[0]) for _ in range(rng.integers(SEVERAL)))
    if origin is list:
        return [drawn(rng, inner[0]) for _ in range(rng.integers(SEVERAL))]
    if origin is dict:
        return {pick(rng, TEXTS): drawn(rng, inner[1]) for _ in range(rng.integers(SEVERAL))}
    return hint(**{name: drawn(rng, of) for name, of in hints(hint).items()})


def hints(kind: type[Any]) -> dict[str, Any]:
    """Return the types of a data class's fields."""
    if kind not in _HINTS:
        found = get_type_hints(kind)
        _HINTS[kind] = {name: found[name] for name in kind.__dataclass_fields__}
    return _HINTS[kind]


_HINTS: dict[Any, dict[str, Any]] = {}
