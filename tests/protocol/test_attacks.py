"""Attacks on the protocol, each written out, over the real members and relay.

What needs many runs is in the simulated world. Its check "a" would find a mask stream that is used
for two vectors: after a restored disk (kinds `older`, `disk`, `evil 1 disk`), by a second process
(`clone`, `clone rng`, `operator`), after a power cut (`powers`).
"""

import copy
import os
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import utils

from fedtopics.errors import FederationError
from fedtopics.protocol import keys, masks
from fedtopics.protocol.keys import context_of, derive, digest_of_fields
from fedtopics.protocol.masks import P
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Ask, Body, List, Part, Stop, decode, encode
from fedtopics.protocol.record import OpenedStep, Record, next_transcript
from fedtopics.protocol.relay import Relay
from fedtopics.protocol.roster import Key, Roster
from tests.protocol.disks import Disk
from tests.protocol.three import (
    NAMES,
    NOTHING,
    NUMBERS,
    STUDY,
    VECTORS,
    Run,
    honest,
    member_of,
    signed,
)

ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256


@pytest.fixture
def run() -> Run:
    return Run()


def invented(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
    whole = np.array([7, 7, 7])
    member = run.members[name]
    group = member.record.group
    (_, bound) = member._bound()
    tag = masks.tag_of(group, bound, whole) + masks._tag_pad(group, bound)
    words = whole.astype("<u8") + masks.stream(derive(group, "pad", bound), 3)
    return words.tobytes() + (tag % P).to_bytes(8, "little")


@pytest.mark.parametrize("contents", [dict.fromkeys(NAMES, bytes(24)), VECTORS])
def test_no_changed_total_is_accepted(run: Run, contents: dict[str, bytes]) -> None:
    run.give("sum", "sum", contents)
    run.show_list()
    member = run.members["bob"]
    r = random.Random(1)  # noqa: S311
    bound = member._bound()[1]
    true = np.frombuffer(honest(run, "bob", run.bodies), "<u8")
    changes = [1, 1 << 32, 1 << 60, 1 << 61, 1 << 63, (1 << 64) - 1, P, (1 << 64) - P, 2 * P]
    tried = 0
    while tried < 5_000:
        false = true.copy()
        for _ in range(r.choice([1, 1, 2])):
            place = r.randrange(4)
            false[place : place + 1] += np.uint64(r.choice([*changes, r.randrange(1, 1 << 64)]))
        if (false != true).any():
            tried += 1
            with pytest.raises(FederationError, match="false"):
                masks.unmask(member.record.group, bound, false.tobytes())


def test_a_tag_carries_into_nothing(run: Run) -> None:
    """A tag that is larger by P, or the whole of another word, is false; a shift that cancels is
    the same total."""

    def moved(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
        for other, change in (("ann", 5), ("bob", -5)):
            tag = (int.from_bytes(bodies[other][-8:], "little") + change) % P
            bodies[other] = bodies[other][:-8] + tag.to_bytes(8, "little")
        return honest(run, name, bodies)

    assert run.step("sum", "sum", VECTORS, moved) == {
        name: [sum(NUMBERS.values()).tobytes()] for name in NAMES
    }

    def carried(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
        total = honest(run, name, bodies)
        return total[:-8] + (int.from_bytes(total[-8:], "little") + P).to_bytes(8, "little")

    assert run.step("sum", "sum", VECTORS, carried) == {}
    assert run.reasons() == {f"{name}: a check of the total failed" for name in NAMES}


def test_a_relay_with_a_member_replaces_a_total_for_all_alike(run: Run) -> None:
    """As the table of guarantees says."""
    sevens = [np.array([7, 7, 7]).tobytes()]
    assert run.step("sum", "sum", VECTORS, invented) == dict.fromkeys(NAMES, sevens)
    assert len(run.step("sum", "sum", VECTORS)) == 3


def test_no_reply_is_computed_for_a_total_that_others_do_not_have(run: Run) -> None:
    """A relay with a member gives a model of its own to one member; its reply never leaves."""

    def to_bob(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
        return (invented if name == "bob" else honest)(run, name, bodies)

    assert len(run.step("sum", "sum", VECTORS, to_bob)) == 3
    assert run.step("reply", "call", NOTHING) == {}
    assert run.bodies == {}
    assert all("transcript" in reason for reason in run.reasons())


def test_replies_that_differ_are_found_at_the_next_step(run: Run) -> None:
    """The first member gives its arrays, but other ones to another member."""

    def other_arrays(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
        if name == "cat":
            cat = run.members["cat"]
            bound = cat._bound()[1]
            box = keys.seal(derive(cat.record.group, "call", bound, "ann"), b"two")
            bodies["ann"] = encode((box, signed("ann", "reply", bound, "ann", box)))
        return honest(run, name, bodies)

    opened = run.step("arrays", "call", {**NOTHING, "ann": b"one"}, other_arrays)
    assert [opened[name][0] for name in NAMES] == [b"one", b"one", b"two"]
    assert run.step("model", "call", NOTHING) == {}
    assert run.bodies == {}


def test_two_group_keys_are_found_at_step_1(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Member._sealed
    boxes = list[bytes]()

    def sealed(self: Member, others: dict[str, bytes], bound: bytes) -> bytes:
        if self.record.step or self.name != "ann":
            return real(self, others, bound)
        for name in NAMES[1:]:
            key = derive(keys.shared(self.record.private, others[name]), "group", bound, name)
            boxes.append(keys.seal(key, self.content if name == "bob" else bytes(32)))
        return encode(boxes)

    monkeypatch.setattr(Member, "_sealed", sealed)
    run = Run()
    assert all(member.record.step == 1 for member in run.members.values())
    assert run.step("hello", "call", NOTHING) == {}
    assert run.bodies == {}


def test_a_thief_of_a_disk_opens_later_steps_and_none_before(run: Run) -> None:
    trace = []
    for function, kind in (("sum", "sum"), ("reply", "call"), ("sum", "sum")):
        if function == "reply":
            stolen = copy.copy(run.members["bob"].record)
        contents = VECTORS if kind == "sum" else {name: name.encode() for name in NAMES}
        opened = run.step(function, kind, contents)  # type: ignore[arg-type]
        trace.append((list(run.parts.values()), run.total, opened["bob"], function))
    thief = member_of("bob")
    record = stolen
    for parts, total, opened, function in trace[1:]:
        thief.record = msgspec.structs.replace(record, parts=parts)
        thief.content = VECTORS["bob"]
        decoded, bound = thief._bound()
        opened_again, _ = thief._opened(decoded, bound, total)
        assert opened_again == opened
        record = thief.record.after(OpenedStep(record.step, function, opened_again))
    thief.record = msgspec.structs.replace(stolen, parts=trace[0][0])
    decoded, bound = thief._bound()
    with pytest.raises(FederationError, match="false"):
        thief._opened(decoded, bound, trace[0][1])


def test_a_thief_of_a_disk_opens_no_vector_of_others(run: Run) -> None:
    run.give("sum", "sum", VECTORS)
    run.show_list()
    bob = run.members["bob"]
    parts, bound = bob._bound()
    pair = derive(keys.shared(bob.record.private, parts[0].key), "pair", bound, "ann", "bob")
    words = np.frombuffer(run.bodies["ann"], "<u8")[:-1]
    words = words - masks.stream(pair, 3) - masks.stream(derive(bob.record.group, "pad", bound), 3)
    assert (words.astype(np.int64) != NUMBERS["ann"]).all()  # the stream of ann and cat is left


def test_a_small_total_is_not_found_in_the_transcript(run: Run) -> None:
    run.give("sum", "sum", VECTORS)
    run.show_list()
    before = run.members["bob"].record
    for member in run.members.values():
        member.open(honest(run, member.name, run.bodies))
    run.give("next", "call", NOTHING)
    seen = decode(run.parts["bob"], Part).transcript  # as the relay sees it

    def tried(group: bytes) -> list[int]:
        return [
            first
            for first in range(20)
            if next_transcript(
                group,
                before.transcript,
                "sum",
                before.list_digest,
                digest_of_fields(np.array([first, first + 3, first + 6]).tobytes()),
            )
            == seen
        ]

    assert tried(before.group) == [3]
    assert [tried(key) for key in (b"", bytes(32), before.transcript)] == [[], [], []]


def test_one_generator_state_masks_two_vectors_with_two_keys(run: Run) -> None:
    drawn = set()
    for content in VECTORS.values():
        member = copy.copy(run.members["bob"])
        member._random = bytes  # the same of each copy
        member._disk = Disk()
        drawn.add(decode(member.give("sum", "sum", b"3", content)[0], Part).key)
    assert len(drawn) == 3


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), b"short", b""])
def test_a_one_time_key_that_is_none_stops_the_step(run: Run, key: bytes) -> None:
    run.give("sum", "sum", VECTORS)
    part = decode(run.parts["cat"], Part)
    signature = signed("cat", "part", context_of(STUDY, part, NAMES), "cat", key)
    part = msgspec.structs.replace(part, key=key, signature=signature)
    run.show_list(cat=encode(part))
    assert run.bodies == {}
    ann = run.members["ann"]
    assert ann.reason == "ann: the one-time key of cat is not valid"
    assert ann.record.parts == []  # so the step can be repeated with a right one


def test_a_forged_stop_is_shown_as_the_relays(run: Run) -> None:
    ann = run.members["ann"]
    run.give("sum", "sum", VECTORS)
    (real,) = run.members["bob"].stop("its policy refuses")
    ann.answer(decode(real, Stop))
    assert ann.reason == "bob: its policy refuses"
    ann.answer(msgspec.structs.replace(decode(real, Stop), name="cat"))
    assert ann.reason == "the relay: its policy refuses"
    ann.answer(
        Stop(
            name="stranger",
            process=b"",
            run=b"",
            step=1,
            reason="gone",
            signature=signed("stranger", "stop"),
        )
    )
    assert ann.reason == "the relay: gone"


def test_a_relay_that_changes_bytes_puts_no_blame_on_a_member(run: Run) -> None:
    run.give("sum", "sum", VECTORS)
    part = decode(run.parts["cat"], Part)
    run.show_list(cat=encode(msgspec.structs.replace(part, function="told", transcript=b"")))
    ann = run.members["ann"]
    assert ann.reason.startswith("ann: the part of cat is not signed for this study")
    assert "told" not in ann.reason
    assert ann.record.parts == []


def test_one_signature_in_two_spellings_is_one_list(tmp_path: Path) -> None:
    """Else a relay alone could have members keep two lists of a step, and end the run for good."""
    keys = {name: Key.create(tmp_path / name, name) for name in NAMES}
    roster = Roster.of({name: key.certificate.decode() for name, key in keys.items()}, None)
    members = [
        Member(
            name=name,
            study=STUDY,
            names=NAMES,
            sign=key.sign,
            verify=roster.verify,
            random=os.urandom,
            disk=Disk(),
            record=Record(),
            content=b"",
        )
        for name, key in keys.items()
    ]
    parts = [member.give("group key", "call", b"", b"")[0] for member in members]
    part = decode(parts[2], Part)
    r, s = utils.decode_dss_signature(part.signature)
    other = msgspec.structs.replace(part, signature=utils.encode_dss_signature(r, ORDER - s))
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(parts[2]), "one field more"])
    bodies = [
        member.answer(List([*parts[:2], last]))[0]
        for member, last in zip(members, (encode(other), longer, parts[2]), strict=True)
    ]
    assert len({decode(body, Body).list for body in bodies}) == 1
    assert members[0].answer(List(parts)) == []  # it has this list already


def test_a_member_that_lies_about_its_step_is_named_as_well(run: Run) -> None:
    relay = Relay(NAMES, b"", bytes)
    ann = run.members["ann"]
    relay.ask("cat", Ask(b"process", 10**6, "part", b""))
    answer = relay.ask("ann", decode(ann.question(), Ask))
    assert answer is not None
    assert isinstance(answer.message, Stop)
    assert answer.message.reason == (
        "ann is at step 1, cat at step 1000000, and the total in between is lost"
    )


def test_an_error_shows_no_key(run: Run) -> None:
    record = run.members["ann"].record
    assert record.group
    assert repr(record) == "<Record>"
    assert repr(OpenedStep(1, "sum", [b"total"])) == "<OpenedStep>"


def test_a_list_of_very_many_parts_is_refused() -> None:
    assert len(decode(encode(List([b""] * 10_000)), List).parts) == 10_000
    with pytest.raises(FederationError, match="damaged"):
        decode(encode(List([b""] * 10_001)), List)


def test_a_part_of_a_stranger_stops_the_step(run: Run) -> None:
    run.give("sum", "sum", VECTORS)
    stranger = encode(msgspec.structs.replace(decode(run.parts["cat"], Part), name="eve"))
    for parts in (
        [*run.parts.values(), stranger],
        [run.parts["ann"], run.parts["bob"], stranger],
        [run.parts["ann"], run.parts["bob"]],
        [run.parts["bob"], run.parts["ann"], run.parts["cat"]],
    ):
        member = copy.copy(run.members["ann"])
        (said,) = member.answer(List(parts))
        assert isinstance(decode(said, Body | Stop), Stop)
        assert member.reason == "ann: the list has other names than the study"
    with pytest.raises(FederationError, match="ann sent a message of cat"):
        Relay(NAMES, b"", bytes).say("ann", run.parts["cat"])
