"""Damage to messages."""

from __future__ import annotations

import random

from fedtopics.engines.values import Packed, aligned, body_size

HUGE = 2**64 - 1


def joined(packed: Packed) -> memoryview:
    buffer = aligned(packed.size)
    buffer[:] = b"".join(packed.pieces)
    assert len(buffer) == packed.size == body_size(packed.header)
    return buffer


def mutate(raw: bytearray, header: list[int], rng: random.Random) -> None:
    """Damage a message, most often where its structure is."""
    place = rng.randrange(min(len(raw), rng.choice([header[0], 1 << 30])) or 1)
    kind = rng.randrange(6)
    if kind == 0:
        raw[place : place + 1] = bytes([rng.randrange(256)])
    elif kind == 1 and raw:
        raw[min(place, len(raw) - 1)] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del raw[place : place + rng.randint(1, 9)]
    elif kind == 3:
        raw[place:place] = rng.randbytes(rng.randint(1, 9))
    elif kind == 4:
        end = place + rng.randint(1, 40)
        raw[place:place] = raw[place:end]
    else:
        header[rng.randrange(2)] = rng.choice([0, 1, len(raw), rng.randrange(1 << 20), HUGE >> 1])
