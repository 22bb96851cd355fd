"""Files that people carry: which are used, and what is said of the others."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from fedtopics.errors import RunError
from fedtopics.protocol.link import NotYetError
from fedtopics.protocol.messages import Answer, Ask, Part, Stop, decode, encode
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Roster
from fedtopics.transport.folders import OVERHEAD, RELAY, Exchange, FolderLink, Sealed, relay_turn
from tests.helpers.keys import key_of

STUDY = "0a" * 32
OTHER = "0b" * 32
LARGEST = 1000  # bytes of a message
ASK = Ask(b"process", 3, "part", b"")
PART = encode(Part(b"", 3, b"", "sum", "sum", b"", "ann", b"key"))
FOREIGN = f"it is of another study, {OTHER[:16]!r}"
DAMAGED = "it is damaged or only half copied; copy it again"
UNSIGNED = "it is not signed by the member or the relay that it names"


def signed(by: str, **fields: Any) -> bytes:
    """Return a file of ann with other fields, signed by anybody."""
    sealed = Sealed(**{"study": STUDY, "name": "ann", "number": 5, **fields})
    return encode(msgspec.structs.replace(sealed, signature=key_of(by).sign(sealed.signed)))


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    members = {name: key_of(name).certificate for name in ("ann", "bob")}
    (tmp_path / "in").mkdir()
    return Exchange(
        inbox=tmp_path / "in",
        outbox=tmp_path / "out",
        study=STUDY,
        roster=Roster(members, key_of("relay").certificate),
        largest=LARGEST,
        notify=print,
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lambda: signed("ann")[:-5], DAMAGED),
        (lambda: signed("ann").replace(b"ann", b"bob"), UNSIGNED),
        (lambda: signed("ann", number=1 << 60), DAMAGED),
        (lambda: signed("ann", study=OTHER), FOREIGN),
        (lambda: signed("relay", name=RELAY, study=OTHER), FOREIGN),
        (lambda: signed("eve"), UNSIGNED),
        (lambda: signed("eve", name="eve"), UNSIGNED),
        (lambda: signed("bob"), UNSIGNED),
        (
            lambda: bytes(OVERHEAD + 1001),
            "A message of 1,049,577 bytes was refused: at most 1,049,576 are expected; raise "
            "largest_message in the study's [federation].",
        ),
    ],
)
def test_files_that_are_not_used(
    exchange: Exchange,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: Callable[[], bytes],
    problem: str,
) -> None:
    path = tmp_path / "in" / "any name.fedtopics"
    path.write_bytes(content())
    assert [exchange.newest(), exchange.newest()] == [{}, {}]
    assert capsys.readouterr().out == f"{path} is not used: {problem}\n"  # shown once


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
        (os.mkfifo, "is a pipe, a socket or a device; give a regular file"),
    ],
)
def test_what_cannot_be_read(
    exchange: Exchange,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    make: Callable[[Path], None],
    problem: str,
) -> None:
    make(tmp_path / "in" / "x.fedtopics")
    (tmp_path / "in" / "y.fedtopics").write_bytes(signed("ann"))
    assert [*exchange.newest()] == ["ann"]
    assert capsys.readouterr().out.count(problem) == 1


def test_the_newest_file_counts_in_any_order_and_under_any_name(
    exchange: Exchange, tmp_path: Path
) -> None:
    for name, number in (("b", 6), ("a", 6), ("c", 5)):
        (tmp_path / "in" / f"{name}.fedtopics").write_bytes(signed("ann", number=number))
    assert exchange.newest()["ann"].number == 6


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for inbox, outbox, says in (
        ("missing", "out", "There is no folder .*missing; make it, or correct its name"),
        ("", "file", "file is a file; name a folder"),
    ):
        with pytest.raises(RunError, match=says):
            Exchange(tmp_path / inbox, tmp_path / outbox, STUDY, Roster({}, b""), 1, print)


def answered(
    exchange: Exchange, state: Path, asked: Ask = ASK, answer: Answer | None = None
) -> Answer:
    """Let ann ask, when the relay has answered something."""
    answers = {} if answer is None else {"ann": (asked, answer)}
    (state.parent / "in" / "relay.fedtopics").write_bytes(
        signed("relay", name=RELAY, answers=answers)
    )
    link = FolderLink(exchange, key_of("ann"), state)
    link.say(PART)
    return decode(link.ask(encode(ASK)), Answer)


def test_a_stop_of_another_member_counts_for_the_question_it_answers(
    exchange: Exchange, tmp_path: Path
) -> None:
    stop = Stop("bob", b"", b"", 3, "a reason")
    assert answered(exchange, tmp_path / "sent", answer=Answer(stop)).message == stop
    for old in (
        {},
        {"asked": Ask(b"", 2, "body", b""), "answer": Answer(stop)},
        {"answer": Answer(Stop("ann", b"", b"", 3, "a reason that is over"))},
    ):
        with pytest.raises(NotYetError, match="waits for messages of others"):
            answered(exchange, tmp_path / "sent", **old)


def test_a_lost_state_and_a_changed_file(exchange: Exchange, tmp_path: Path) -> None:
    """What others have is older than what is written next, whatever the clock shows."""
    numbers = []
    for lost in ("nothing", "sent", "out/*", "nothing"):
        for path in tmp_path.glob(lost):
            path.unlink() if lost == "sent" else path.write_bytes(b"changed by hand")
        with patch("time.time_ns", lambda: 0), pytest.raises(NotYetError):
            answered(exchange, tmp_path / "sent")
        numbers.append(exchange.newest()["ann"].number)
    assert numbers == [1, 2, 2, 2]


def test_the_relay_writes_again_a_file_that_was_moved(exchange: Exchange, tmp_path: Path) -> None:
    moved = []
    for _ in range(2):
        service = RelayService(Relay(["ann", "bob"], b"", lambda content: None), LARGEST)
        relay_turn(exchange, service, key_of("relay"))
        (path,) = (tmp_path / "out").iterdir()
        moved.append(path.replace(tmp_path / "in" / path.name).read_bytes())
    assert moved[0] == moved[1]
