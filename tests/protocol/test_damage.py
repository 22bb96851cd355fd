"""Messages that are cut or changed at any byte are refused in a sentence, and change nothing."""

import copy
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial

import pytest

from fedtopics.errors import FederationError
from fedtopics.protocol.messages import Answer, Ask, Body, Kind, List, Stop, decode, encode
from fedtopics.protocol.relay import Relay
from tests.protocol.three import NAMES, NOTHING, VECTORS, Run, honest, member_of

# Threads that read their process's first messages at once, as those of a relay do.
FIRST = """
import gc, sys, threading
from fedtopics.protocol.messages import Answer, Body, Part, Stop, decode, encode
gc.set_threshold(1)
sys.setswitchinterval(1e-6)
message = encode(Answer(Stop("ann", b"", b"", 3, "reason"), {"bob": "computes"}))
gate = threading.Barrier(8)
def work():
    gate.wait()
    assert decode(message, Answer).message.reason == "reason"
threads = [threading.Thread(target=work) for _ in range(8)]
for step in (threading.Thread.start, threading.Thread.join): list(map(step, threads))
"""


@pytest.fixture
def run() -> Run:
    return Run()


def damaged(content: bytes) -> Iterator[bytes]:
    r = random.Random(1)  # noqa: S311
    for place in range(len(content)):
        yield content[:place]
        yield content[:place] + bytes([content[place] ^ 1 << r.randrange(8)]) + content[place + 1 :]
        yield content[:place] + bytes([r.randrange(256)]) + content[place:]


def refused(call: Callable[[], object]) -> None:
    with suppress(FederationError):
        call()


def relay_with(run: Run) -> Relay:
    relay = Relay(NAMES, b"", bytes)
    for name, part in run.parts.items():
        relay.say(name, part)
    return relay


def test_threads_read_their_first_messages_at_once() -> None:
    for _ in range(5):
        subprocess.run([sys.executable, "-c", FIRST], check=True, timeout=60)


def test_a_large_part_is_refused_by_the_relay() -> None:
    (part,) = member_of("ann").give("x" * 5_000, "call", b"", b"")
    with pytest.raises(FederationError, match="bytes that are not a vector or reply"):
        Relay(NAMES, b"", bytes).say("ann", part)


@pytest.mark.parametrize("kind", ["sum", "call"])
def test_damaged_messages_are_refused_by_the_relay(run: Run, kind: Kind) -> None:
    run.give("step", kind, VECTORS)
    run.show_list()
    ann = run.members["ann"]
    bob = run.members["bob"]
    list_ = ann.record.list_digest
    first, *others = [encode(Body(list_, n, content)) for n, content in run.bodies.items()]
    for damage in [*damaged(run.parts["ann"]), *damaged(copy.copy(ann).stop("reason")[0])]:
        refused(partial(Relay(NAMES, b"", bytes).say, "ann", damage))
    for damage in damaged(first):
        relay = relay_with(run)
        refused(partial(relay.say, "ann", damage))
        for name, body in zip(NAMES[1:], others, strict=True):
            refused(partial(relay.say, name, body))
        if relay.last is not None:  # a word or a sealed reply was damaged
            parts, bound = bob._bound()
            with pytest.raises(FederationError):
                bob._opened(parts, bound, relay.last.total)
    for damage in damaged(ann.question()):
        refused(partial(decode, damage, Ask))


def test_a_vector_of_another_length_is_refused_by_the_relay(run: Run) -> None:
    run.give("sum", "sum", VECTORS)
    run.show_list()
    list_ = run.members["ann"].record.list_digest
    for size in set(range(64)) - {32}:
        relay = relay_with(run)
        asked = decode(run.members["cat"].question(), Ask)
        relay.ask("cat", asked)
        names = ["bob", "ann", "cat"] if size % 2 or size % 8 else ["ann", "cat", "bob"]
        for name in names:  # a liar that is the first is not the measure
            body = bytes(size) if name == "ann" else run.bodies[name]
            with suppress(FederationError) if size % 8 and name == names[0] else nullcontext():
                relay.say(name, encode(Body(list_, name, body)))
        answer = relay.ask("cat", asked)
        assert answer is not None
        assert isinstance(answer.message, Stop)
        assert answer.message.reason == "wrong length of a vector: ann"


@pytest.mark.parametrize("kind", ["sum", "call"])
def test_damaged_answers_stop_a_member(run: Run, kind: Kind) -> None:
    run.give("step", kind, VECTORS)
    parts = list(run.parts.values())
    for damage in damaged(encode(Answer(List(parts)))):
        member = copy.copy(run.members["bob"])
        with suppress(FederationError):
            member.answer(decode(damage, Answer).message)
        assert member.phase in ("part", "stopped") or member.record.parts == parts
    run.show_list()
    for damage in damaged(honest(run, "bob", run.bodies)):
        member = copy.copy(run.members["bob"])
        said = member.open(damage)
        if damage:
            assert member.reason == "bob: a check of the total failed"
            assert isinstance(decode(said[0], Stop), Stop)
        else:
            assert (said, member.phase) == ([], "body")


def test_a_damaged_group_key_stops_a_member() -> None:
    run = Run.__new__(Run)
    run.members = {name: member_of(name) for name in NAMES}
    run.parts = {}
    run.give("group key", "call", NOTHING)
    run.show_list()
    for damage in damaged(honest(run, "bob", run.bodies)):
        member = copy.copy(run.members["bob"])
        member.open(damage)
        assert member.phase == ("stopped" if damage else "body")
