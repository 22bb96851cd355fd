"""A member's link and the relay over folders, whose files people or programs carry.

Each side writes one file that contains everything the others may still need from it, and reads the
newest file of each sender. So a file may be carried late, twice, in any order or, until the next
one is there, not at all. The messages in the files are those of gRPC, byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from fedtopics.errors import FederationError, FedTopicsError, RunError, refuse
from fedtopics.escaping import as_sentence
from fedtopics.files import make_folder, read_bytes, write_durably
from fedtopics.protocol.keys import framed
from fedtopics.protocol.link import NotYetError, check_size
from fedtopics.protocol.messages import (
    Answer,
    Ask,
    Body,
    Message,
    Part,
    Stop,
    Total,
    decode,
    encode,
)
from fedtopics.protocol.relay import LONGEST_REASON, FromMember, RelayService
from fedtopics.protocol.roster import Key, Roster, has_signed

SUFFIX = ".fedtopics"
RELAY = ""  # as the sender of a file
NO_QUESTION = Ask(b"", 0, "compute", b"")
OVERHEAD = 1 << 20  # bytes of a file besides a vector
LAST_NUMBER = 253_370_764_800_000  # the year 9999, the last that can be shown
Notify = Callable[[str], None]


class Sealed(Message):
    """The content of a file: a member's messages, or the relay's answers."""

    study: str  # its digest
    name: str
    # Milliseconds since 1970: it grows with each other file of a sender.
    number: Annotated[int, msgspec.Meta(ge=0, le=LAST_NUMBER)]
    ask: Ask = msgspec.field(default_factory=lambda: NO_QUESTION)
    messages: Annotated[list[bytes], msgspec.Meta(max_length=8)] = msgspec.field(
        default_factory=list
    )
    # By name: a question, and its answer.
    answers: dict[str, tuple[Ask, Answer]] = msgspec.field(default_factory=dict)
    total: bytes = b""
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        return framed("fedtopics file", encode(msgspec.structs.replace(self, signature=b"")))


class Exchange:
    """The files of a study: those of others in `inbox`, one's own in `outbox`.

    Both can be the same folder, and contain other files.
    """

    def __init__(
        self,
        inbox: Path,
        outbox: Path,
        study: str,  # its digest
        roster: Roster,
        largest: int,  # bytes of a message
        notify: Notify,
    ) -> None:
        refuse(
            {
                f"There is no folder {inbox}; make it, or correct its name.": not inbox.is_dir(),
                f"{outbox} is a file; name a folder.": outbox.exists() and not outbox.is_dir(),
            },
            error=RunError,
        )
        make_folder(outbox)
        self._folders = dict.fromkeys([inbox, outbox])
        self._outbox = outbox
        self.study = study
        self._certificates = {**roster.members, RELAY: roster.server}
        self._largest = largest
        self._notify = notify
        self._refused: set[str] = set()  # sentences that were shown

    def newest(self) -> dict[str, Sealed]:
        """Return the newest file of each sender; report which files cannot be used."""
        paths = [path for of in self._folders for path in sorted(of.glob(f"*{SUFFIX}"))]
        newest: dict[str, Sealed] = {}
        for sealed in filter(None, map(self._usable, paths)):  # one at a time: they can be large
            newest[sealed.name] = max(
                sealed, newest.get(sealed.name, sealed), key=lambda of: of.number
            )
        return newest

    def shown(self, answer: Answer, name: str) -> dict[str, str]:
        """Return for whom a study waits, besides this member, as far as a relay may say it."""
        return {
            other: as_sentence(state[:LONGEST_REASON])
            for other, state in answer.waiting.items()
            if other in self._certificates and other != name
        }

    def _usable(self, path: Path) -> Sealed | None:
        try:
            return self._read(path)
        except (FedTopicsError, OSError) as error:
            problem = f"{path} is not used: {error}"
        if problem not in self._refused:
            self._refused.add(problem)
            self._notify(problem)
        return None

    def _read(self, path: Path) -> Sealed:
        check_size(path.stat().st_size, self._largest + OVERHEAD)
        try:
            sealed = decode(read_bytes(path), Sealed)
        except FederationError:
            raise FederationError("it is damaged or only half copied; copy it again") from None
        certificate = self._certificates.get(sealed.name)
        refuse(
            {
                f"it is of another study, {sealed.study[:16]!r}": sealed.study != self.study,
                "it is not signed by the member or the relay that it names": (
                    certificate is None
                    or not has_signed(certificate, sealed.signed, sealed.signature)
                ),
            },
            error=FederationError,
        )
        return sealed

    def write(self, sealed: Sealed, key: Key, title: str) -> None:
        """Sign and write one's own file, unless it is there already; remove the older ones."""
        content = encode(msgspec.structs.replace(sealed, signature=key.sign(sealed.signed)))
        # No member's name begins with such a character, or contains the one behind it.
        ours = f"{sealed.name or '_relay'}@{self.study[:8]}"
        path = self._outbox / f"{ours}-{title}{SUFFIX}"
        if not path.exists() or read_bytes(path) != content:
            write_durably(path, content, public=True)
        for older in self._outbox.glob(f"{ours}-*{SUFFIX}"):
            if older != path:
                older.unlink(missing_ok=True)


def _number_after(*before: Sealed) -> int:
    return max(time.time_ns() // 1_000_000, *(sealed.number + 1 for sealed in before))


class FolderLink:
    """A member's `Link`, which ends a call by NotYetError if no file answers it.

    `state` is a file with what this member has written last. Where the member hosts the relay,
    `host` lets it take its turn.
    """

    def __init__(
        self,
        exchange: Exchange,
        key: Key,
        state: Path,
        host: Callable[[], object] | None = None,
    ) -> None:
        self._exchange = exchange
        self._key = key
        self._state = state
        self._host = host
        self._last = (
            decode(read_bytes(state), Sealed)
            if state.exists()
            else Sealed(exchange.study, key.name, 0)
        )
        # A process that begins has nothing new to say about the step, but does not stop for it.
        self._messages = [m for m in self._last.messages if _kind_of(m) != "stop"]
        self._total = b""
        self._heard: object = None  # the last question that had an answer, and the relay's file

    def say(self, message: bytes) -> None:
        """See `Link.say`; all but a Stop is written by the next question."""
        kind = _kind_of(message)
        if message not in self._messages:
            self._messages = [message] if kind == "part" else [*self._messages, message]
        if kind == "stop":
            self._write(self._last.ask, self._exchange.newest())

    def ask(self, message: bytes) -> bytes:
        """See `Link.ask`; NotYetError if the relay has not answered this question."""
        ask = decode(message, Ask)
        newest = self._exchange.newest()
        self._write(ask, newest)
        if self._host is not None:
            self._host()
            newest = self._exchange.newest()
        if (relay := newest.get(RELAY)) is None:
            raise NotYetError({"the relay": "no message yet"})
        question, answer = relay.answers.get(self._key.name, (NO_QUESTION, Answer()))
        news = answer.message
        place = ask.step, ask.phase, ask.list
        is_old = (question.step, question.phase, question.list) != place
        is_own = isinstance(news, Stop) and news.name == self._key.name
        # An answer that did not help, as of a relay that lies, does not help a second time.
        is_same = self._heard == (place, relay.number)
        is_cut = isinstance(news, Total) and not relay.total
        if news is None or is_old or is_own or is_same or is_cut:
            raise NotYetError({} if is_old else self._exchange.shown(answer, self._key.name))
        self._heard = place, relay.number
        self._total = relay.total
        return encode(answer)

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        """Return the total that came with the last answer."""
        return self._total

    def _write(self, ask: Ask, files: Mapping[str, Sealed]) -> None:
        """Write what is to be carried; what is there already stays the same, byte for byte."""
        last = self._last
        same = msgspec.structs.replace(last.ask, process=ask.process)
        # If this member's folder was lost or restored, others may have a newer file of it.
        newest = files.get(self._key.name, last)
        if newest.number > last.number or (ask, self._messages) != (same, last.messages):
            last = msgspec.structs.replace(
                last, number=_number_after(last, newest), ask=ask, messages=self._messages
            )
        # First, so that a process that dies never writes another file with this number.
        write_durably(self._state, encode(last))
        self._last = last
        title = "waits" if ask.reason and ask.phase == "part" else ask.phase
        self._exchange.write(last, self._key, f"{ask.step:04}-{title}")


def _kind_of(message: bytes) -> str:
    """Return "part", "body" or "stop"."""
    return type(decode(message, Part | Body | Stop)).__name__.lower()  # type: ignore[arg-type]


def relay_turn(exchange: Exchange, service: RelayService, key: Key) -> None:
    """Take what has arrived, and write the relay's file."""
    newest = exchange.newest()
    ours = newest.pop(RELAY, Sealed(exchange.study, RELAY, 0))
    arrived = {
        name: FromMember(sealed.number / 1000, sealed.ask, sealed.messages)
        for name, sealed in newest.items()
    }
    answers = {name: (arrived[name].ask, answer) for name, answer in service.take(arrived).items()}
    is_opened = any(isinstance(answer.message, Total) for _, answer in answers.values())
    last = service.relay.last
    total = b"" if last is None or not is_opened else last.total
    if not ours.number or (ours.answers, ours.total) != (answers, total):
        ours = Sealed(exchange.study, RELAY, _number_after(ours), answers=answers, total=total)
    step = 0 if last is None else last.step + 1
    exchange.write(ours, key, f"{step:04}-{'total' if is_opened else 'list'}")
