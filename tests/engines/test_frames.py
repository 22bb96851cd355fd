"""Messages as frames on a stream: chunks, heartbeats, damage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from fedtopics.engines.grpc import frames
from fedtopics.engines.grpc.frames import BEAT, CHUNK, HEAD, PART, SMALL, Head, Stream, frames_of
from fedtopics.engines.messages import Done, Reply, read_message
from fedtopics.engines.states import EVERY, digest_of, is_near, read, written
from fedtopics.protocol.values import Packed
from fedtopics.errors import FederationError
from fedtopics.methods.core.interfaces import Checkpoint
from tests.helpers.damage import mutate
from tests.helpers.federation import assert_same
from tests.helpers.programs import RULES, Federation, federation


def stream_of(raws: Sequence[Any], sent: list[bytes] | None = None, echo: bool = False) -> Stream:
    """The end of a stream on which these frames arrive, then nothing."""
    waiting = iter(raws)

    async def read() -> Any:
        return next(waiting, frames.grpc.aio.EOF)

    async def write(raw: bytes) -> None:
        if sent is not None:
            sent.append(raw)

    return Stream(read, write, echo)


def collected(raws: Sequence[bytes], size: int, **how: Any) -> memoryview:
    return asyncio.run(stream_of(raws, **how).body(Head("reply", size)))


@pytest.mark.parametrize("over", [1 - CHUNK, -1, 0, 1, 3 * CHUNK + 5])
def test_bodies_are_cut_into_chunks(over: int) -> None:
    content = np.random.default_rng(0).bytes(CHUNK + over)
    raws = frames.chunks(Packed([content[:7], content[7:100], memoryview(content)[100:]]), CHUNK)
    assert raws == [PART + content[i : i + CHUNK] for i in range(0, len(content), CHUNK)]
    assert all(len(raw) < 4 << 20 for raw in raws), "gRPC's limit"
    assert collected(raws, len(content)) == content


@pytest.mark.parametrize("number", [SMALL // 2, SMALL])
def test_small_bodies_are_in_their_frame(number: int) -> None:
    message = Reply(1, b"", b"", {"x": np.ones(number, np.uint8)})
    raws, is_small = frames_of(message, CHUNK), number < SMALL
    stream = stream_of(raws)
    head = asyncio.run(stream.next())
    assert (head.kind, bool(head.small), len(raws)) == ("reply", is_small, 1 if is_small else 2)
    found: Any = read_message("reply", asyncio.run(stream.body(head)))
    assert_same(found.reply, message.reply)
    assert stream.received == sum(map(len, raws))


@pytest.mark.parametrize("size", [1, 63, 65, 200])
def test_a_small_body_of_another_length(size: int) -> None:
    with pytest.raises(FederationError, match="another length than it announced"):
        asyncio.run(stream_of([]).body(Head("done", 64, bytes(size))))


def test_heartbeats_between_chunks_are_answered() -> None:
    sent: list[bytes] = []
    raws = [BEAT, PART + b"oa", BEAT, BEAT, PART + b"k"]
    assert collected(raws, 3, sent=sent, echo=True) == b"oak"
    assert sent == [BEAT] * 3
    assert collected(raws, 3, sent=sent) == b"oak"
    assert len(sent) == 3


@pytest.mark.parametrize(
    ("raws", "message"),
    [
        ([PART + bytes(8), PART + bytes(9)], "another length than it announced"),
        ([PART], "another length than it announced"),
        ([b""], "ended before its body"),
        ([b"x" + bytes(16)], "ended before its body"),
        (frames_of(Done(), CHUNK), "ended before its body"),
    ],
)
def test_damaged_chunks(raws: list[bytes], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        collected(raws, 16)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xff", PART + b"oak", HEAD, HEAD + b"\x92\xa1\xff\x00", HEAD + b"\xdd\xff\xff\xff",
     HEAD + msgspec.msgpack.encode(["done", -1]), HEAD + msgspec.msgpack.encode({"kind": "done"}),
     HEAD + b"\x94\xa4done\x00\xc4\x00" + b"\x91" * 99_999],
)  # fmt: skip
def test_damaged_heads(raw: bytes) -> None:
    with pytest.raises(FederationError, match="is damaged"):
        asyncio.run(stream_of([raw]).next())


def test_a_stream_that_ends() -> None:
    with pytest.raises(frames.DisconnectedError):
        asyncio.run(stream_of([]).next())
    with pytest.raises(frames.DisconnectedError):
        collected([PART + bytes(8)], 16)


def test_mutated_frames_never_break_the_reader() -> None:
    whole = frames_of(Reply(1, b"", b"", {"x": np.arange(9000), "w": ["oak"] * 9}), 30_000)
    rng, broken = random.Random(1), 0  # noqa: S311

    async def read(raws: list[bytearray]) -> None:
        stream = stream_of([bytes(raw) for raw in raws])
        head = await stream.next()
        if head.size < 1 << 20:  # callers look before they read
            read_message(head.kind, await stream.body(head), 1 << 20)

    for _ in range(2000):
        raws = [bytearray(raw) for raw in whole]
        for raw in rng.sample(raws, rng.randint(1, 2)):
            mutate(raw, rng)
        try:
            asyncio.run(read(raws))
        except (FederationError, frames.DisconnectedError):
            broken += 1
    assert broken > 500


# States that participants sign: who drifted takes most others', who differs stops


WEIGHTS = np.linspace(-1.0, 2.0, 7)
EVERYBODY = "server", "a", "b", "c"


def state(weights: Any, loss: float = 1.5) -> Checkpoint:
    return Checkpoint(EVERY, {"weights": np.asarray(weights), "seen": np.arange(3)}, {"loss": loss})


def settled(f: Federation, states: Mapping[str, Checkpoint], round_: int = EVERY) -> dict[str, Any]:
    """Let everybody compare states; return what each goes on from, or the error it stops with."""

    def program(name: str) -> Any:
        def work(clients: Any) -> Checkpoint | None:
            clients.round(1, lambda: None)
            return clients.settle(round_, lambda: states[name])  # type: ignore[no-any-return]

        return work

    works = {"server": f.lead(program("server"))}
    works |= {name: f.member(name, None, program(name)).work for name in "abc"}
    found: dict[str, Any] = {}
    for name, work in works.items():
        try:
            found[name] = work.result()
        except FederationError as error:
            found[name] = str(error)
    return found


def test_who_has_the_same_state_goes_on() -> None:
    with federation() as f:
        assert settled(f, dict.fromkeys(EVERYBODY, state(WEIGHTS))) == dict.fromkeys(EVERYBODY)


def test_states_are_compared_every_so_many_rounds() -> None:
    with federation() as f:
        states = {name: state(WEIGHTS * number) for number, name in enumerate(EVERYBODY)}
        assert settled(f, states, EVERY + 1) == dict.fromkeys(EVERYBODY)


@pytest.mark.parametrize("odd", EVERYBODY)
def test_who_differs_in_the_last_bits_takes_most_others_state(odd: str) -> None:
    states = dict.fromkeys(EVERYBODY, state(WEIGHTS))
    states[odd] = state(np.nextafter(WEIGHTS, 9))
    with federation() as f:
        found = settled(f, states)
        drifted = f.notes.of("drifted")
    assert {name for name, taken in found.items() if taken is not None} == {odd}
    assert np.array_equal(found[odd].arrays["weights"], WEIGHTS)
    assert found[odd].numbers == {"loss": 1.5}
    assert len(drifted) == (odd == "server")


def test_who_has_another_state_stops() -> None:
    states = dict.fromkeys(EVERYBODY, state(WEIGHTS))
    states["b"] = state(WEIGHTS * 1.01)
    with federation() as f:
        found = settled(f, states)
    assert [found[name] for name in ("server", "a", "c")] == [None] * 3
    assert f"stops in round {EVERY}: most others have signed another state" in found["b"]


@pytest.mark.parametrize(
    "other",
    [
        state(WEIGHTS + 1e-3),
        state(WEIGHTS[:-1]),
        state(WEIGHTS.astype(np.float32)),
        Checkpoint(EVERY, {"weights": WEIGHTS, "seen": np.arange(3) + 1}, {}),
        Checkpoint(EVERY, {"weights": WEIGHTS}, {}),
        Checkpoint(EVERY + 1, state(WEIGHTS).arrays, {}),
        state(np.where(WEIGHTS > 1, np.nan, WEIGHTS)),
    ],
)
def test_what_is_not_near(other: Checkpoint) -> None:
    assert not is_near(state(WEIGHTS), other)


def test_a_state_is_read_as_it_was_written() -> None:
    again = read(written(state(WEIGHTS)))
    assert digest_of(again, b"words", 1) == digest_of(state(WEIGHTS), b"words", 1)
    assert digest_of(again, b"words", 1) != digest_of(again, b"others", 1)
    assert digest_of(again, b"words", 1) != digest_of(again, b"words", 2)
    assert digest_of(state(WEIGHTS, 1.0), b"", 1) != digest_of(state(WEIGHTS, 2.0), b"", 1)


def test_who_is_lost_while_states_are_compared_is_named() -> None:
    with federation(rules=replace(RULES, gather=1.0)) as f:

        def program(clients: Any) -> None:
            clients.round(1, lambda: None)
            clients.settle(EVERY, lambda: state(WEIGHTS))
            clients.round(2, lambda: None)

        works = [f.lead(program), *(f.member(name, None, program).work for name in "ac")]
        b = f.hand("b")
        b.begun(1)
        b.node.stop()
        for work in works:
            work.result()
        assert [event["client"] for event in f.notes.of("lost")] == ["b"]
