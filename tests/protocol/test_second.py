"""A second implementation and the vectors of docs/vectors: all have the same bytes."""

import json
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature

from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import List
from fedtopics.protocol.record import Record
from fedtopics.protocol.relay import Relay
from tests.protocol import second
from tests.protocol.disks import Disk

FILE = Path(__file__).parents[2] / "docs/vectors/three-members.json"


def verify(name: str, signature: bytes, content: bytes) -> bool:
    try:
        second.PUBLIC[name].verify(signature, content, second.ECDSA)
    except InvalidSignature:
        return False
    return True


def member_of(name: str) -> Member:
    drawn = second.randomness(name)
    private = second.PRIVATE[name]
    return Member(
        name=name,
        study=second.STUDY,
        names=list(second.PUBLIC),
        sign=lambda c: private.sign(c, second.ECDSA),
        verify=verify,
        random=lambda n: bytes(8) if n == 8 else drawn(n),
        disk=Disk(),
        record=Record(),
        content=b"",
    )


def test_the_vectors_are_those_of_the_second_implementation() -> None:
    assert json.loads(FILE.read_text("utf-8")) == second.vectors()


def test_members_and_relay_have_the_bytes_of_the_vectors() -> None:
    given = json.loads(FILE.read_text("utf-8"))
    members = [member_of(name) for name in given["members"]]
    relay = Relay(given["members"], b"", lambda file: None)
    for step in given["steps"]:
        parts = []
        layout = bytes.fromhex(given["layout"])
        for member, content in zip(members, step["contents"], strict=True):
            content = bytes.fromhex(content)
            parts += member.give(step["function"], step["kind"], layout, content)
        assert [part.hex() for part in parts] == step["parts"]
        bodies = [body for member in members for body in member.answer(List(parts))]
        assert [body.hex() for body in bodies] == step["bodies"]
        for name, part in zip(given["members"], parts, strict=True):
            relay.say(name, part)
        for name, body in zip(given["members"], bodies, strict=True):
            relay.say(name, body)
        assert relay.last is not None
        assert relay.last.total.hex() == step["total"]
        for member in members:
            assert member.open(relay.last.total) == []
            assert [reply.hex() for reply in member.last.opened] == step["opened"]
            assert member.record.transcript.hex() == step["transcript"]


def test_the_second_implementation_refuses_what_is_false() -> None:
    bob = second.Second(
        name="bob",
        study=second.STUDY,
        private=second.PRIVATE["bob"],
        certificates=second.PUBLIC,
        random=second.randomness("bob"),
    )
    ann = member_of("ann")
    cat = member_of("cat")
    (first,) = ann.give("group key", "call", b"", b"")
    middle = bob.part("group key", "call", b"", b"")
    (last,) = cat.give("group key", "call", b"", b"")
    with pytest.raises(InvalidSignature):
        bob.body([first, middle, last[:-1] + bytes([last[-1] ^ 1])])
    with pytest.raises(ValueError, match="the list"):
        bob.body([first, first, last])
    assert len([*ann.answer(List([first, middle, last])), bob.body([first, middle, last])]) == 2
