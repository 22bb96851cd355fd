"""Damage to messages and files, and disks without room."""

import errno
import random
from collections.abc import Iterator


def mutate(raw: bytearray, rng: random.Random) -> None:
    """Damage a message, most often where its structure is."""
    place = rng.randrange(min(len(raw), rng.choice([200, 1 << 30])) or 1)
    kind = rng.randrange(5)
    some = rng.randint(1, 9)
    if kind == 0:
        raw[place : place + 1] = rng.randbytes(1)
    elif kind == 1:
        raw[place : place + 1] = bytes(byte ^ 1 << some % 8 for byte in raw[place : place + 1])
    elif kind == 2:
        del raw[place : place + some]
    elif kind == 3:
        raw[place:place] = rng.randbytes(some)
    else:
        raw[place:place] = raw[place : place + 5 * some]


def damages(whole: bytes, number: int) -> Iterator[bytes]:
    """Cut off, and flip a bit of, so many copies of a file: at its ends, and at places between."""
    rng = random.Random(len(whole))  # noqa: S311
    ends = {0, 1, 7, 8, 9, len(whole) - 1, len(whole) // 2}
    places = sorted(ends | {rng.randrange(len(whole)) for _ in range(number)})
    for place in (place for place in places if place < len(whole)):
        yield whole[:place]
        yield whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
