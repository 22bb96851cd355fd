"""Checks of MessagePack before it is decoded, as each byte can take seventy bytes of memory."""

LARGEST_STRUCTURE = 16 << 20  # bytes: a certificate of each of ten thousand clients
MOST_FIELDS = 1 << 16  # values and their names; checked in a thirtieth of a second
VALUES_PER_MEMBER = 128  # more for each member, in entries with one reply per member
DEEPEST = 64  # nested lists and maps

# By the first byte of a value: how many bytes follow, or how many bytes hold the length.
_FIXED = {
    0xC0: 0,
    0xC2: 0,
    0xC3: 0,
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD7: 9,
    0xD8: 17,
}
_MEASURED = {
    0xC4: 1,
    0xC5: 2,
    0xC6: 4,
    0xC7: 1,
    0xD9: 1,
    0xDA: 2,
    0xDB: 4,
    0xDC: 2,
    0xDD: 4,
    0xDE: 2,
    0xDF: 4,
}
_TEXTS = {*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB}
_LISTS = {*range(0x90, 0xA0), 0xDC, 0xDD}
_MAPS = {*range(0x80, 0x90), 0xDE, 0xDF}
_SHORT_EXTENSION = 0xC7


def check_structure(raw: memoryview, most: int) -> None:
    """Walk over MessagePack without decoding it; ValueError or LookupError if it is not allowed."""
    if len(raw) > LARGEST_STRUCTURE:
        raise ValueError
    place = 0
    around = [(1, False)]  # values still to come, and whether they are of a map
    while around:
        count, is_map = around.pop()
        if not count:
            continue
        around.append((count - 1, is_map))
        first = raw[place]
        place = place + 1
        if is_map and count % 2 == 0 and first not in _TEXTS:
            raise ValueError
        size = 0
        if digits := _MEASURED.get(first):
            size = int.from_bytes(raw[place : place + digits], "big")
            place += digits
        elif 0x80 <= first < 0xC0:
            size = first & (31 if first in _TEXTS else 15)
        elif 0xC0 <= first < 0xE0:
            size = _FIXED[first]
        if first in _LISTS or first in _MAPS:
            values = 2 * size if first in _MAPS else size
            most -= values
            around.append((values, first in _MAPS))
        else:
            if first in (0xCF, 0xD7, 0xD8, _SHORT_EXTENSION) and raw[place] > 0x7F:
                raise ValueError  # too large a number, or one of MessagePack's own extensions
            place += size + (first == _SHORT_EXTENSION)
        if most < 0 or place > len(raw) or len(around) > DEEPEST:
            raise ValueError
