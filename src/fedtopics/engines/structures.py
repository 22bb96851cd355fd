"""Structures of messages, looked at before anything is made of them.

Protobuf makes objects of whatever comes, fifty bytes and microseconds for each two bytes on the
wire. What is legitimate is small: arrays and lists of texts are beside the structure.
"""

from __future__ import annotations

from fedtopics.engines import wire_pb2 as wire

LARGEST = 16 << 20  # bytes: a certificate of each of ten thousand clients
MOST_FIELDS = 1 << 16  # and their names and signatures; read in a third of a second
EACH = 128  # fields more for each member of a study in what has a reply of each, by name
DEEPEST = 64  # of protobuf's messages: a list in a list is two, a map in a map three

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # how protobuf writes a field
_WITHIN: dict[str, dict[int, str]] = {  # which fields of a message are messages, and of which kind
    kind.full_name: {f.number: f.message_type.full_name for f in kind.fields if f.message_type}
    for kind in wire.DESCRIPTOR.message_types_by_name.values()
}
_PACKED = wire.Tensor.DESCRIPTOR.full_name, wire.Tensor.SHAPE_FIELD_NUMBER


def fields_of(members: int) -> int:
    """Return the most fields of what who adds writes for all members: its log, no message."""
    return MOST_FIELDS + EACH * members


def read_structure(raw: bytes, fields: int = MOST_FIELDS) -> wire.Value:
    """Read a structure; a ValueError if it is too large, has too many values, or too deep ones.

    Else what protobuf raises for what is none.
    """
    check(raw, fields)
    return wire.Value.FromString(raw)


def check(raw: bytes, fields: int) -> None:
    """Walk over a structure's fields without making anything of them; raise a ValueError."""
    if len(raw) > LARGEST:
        raise ValueError
    place, left = 0, fields
    around = [(len(raw), wire.Value.DESCRIPTOR.full_name)]  # where messages end, the inner one last
    while around:
        end, kind = around[-1]
        if place == end:
            around.pop()
            continue
        tag, place = _varint(raw, place, end)
        form, number = tag & 7, tag >> 3
        left -= 1
        if form == _LENGTH:
            size, place = _varint(raw, place, end)
            if within := _WITHIN[kind].get(number):
                around.append((place + size, within))
                size = 0
            elif (kind, number) == _PACKED:
                left -= size
            place += size
        elif form == _VARINT:
            _, place = _varint(raw, place, end)
        elif form in (_EIGHT_BYTES, _FOUR_BYTES):
            place += 8 if form == _EIGHT_BYTES else 4
        else:
            raise ValueError
        if left < 0 or max(place, around[-1][0]) > end or len(around) > DEEPEST:
            raise ValueError


def _varint(raw: bytes, place: int, end: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    number = shift = 0
    while place < end and shift < 70:
        byte = raw[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError
