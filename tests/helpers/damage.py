"""Damage to messages."""

from __future__ import annotations

import random
from collections.abc import Iterator

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


def damages(whole: bytes, number: int) -> Iterator[bytes]:
    """Cut off, and flip a bit of, so many copies of a file: at its ends, and at places between."""
    rng = random.Random(len(whole))  # noqa: S311
    ends = {0, 1, 7, 8, 9, len(whole) - 1, len(whole) // 2}
    places = sorted(ends | {rng.randrange(len(whole)) for _ in range(number)})
    for place in (place for place in places if place < len(whole)):
        yield whole[:place]
        yield whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]
