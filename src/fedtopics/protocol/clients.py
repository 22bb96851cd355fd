"""The clients of a study under secure aggregation, seen from a member's own program.

Each sum or call of the program is one step of the run. A member outside a round sends zeros.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from fedtopics.contract.events import CallStarted, Event, Narrowed, RoundReport
from fedtopics.contract.interfaces import EVERYONE, Call, Draw, Position, T
from fedtopics.contract.published import NO_DOCUMENTS, Often, Published
from fedtopics.contract.replies import (
    Announced,
    Bounds,
    Template,
    WordCountBounds,
    counts,
    find_fault,
)
from fedtopics.errors import FederationError, RunError
from fedtopics.protocol import vocabulary
from fedtopics.protocol.client_side import ClientSide, MemberDoor
from fedtopics.protocol.exchange import MemberSteps
from fedtopics.protocol.keys import LENGTH
from fedtopics.protocol.layout import Layout
from fedtopics.protocol.messages import Kind
from fedtopics.protocol.record import OpenedStep
from fedtopics.protocol.values import dumps, loads
from fedtopics.text.vocabulary import VocabularyLimits

R = TypeVar("R")
DOCUMENTS = "client sizes"
MODEL = "model: digest"
ARRAYS = "model: of the first member"
STEPS = (
    Published(
        name=DOCUMENTS,
        data_sent="The client's numbers of documents, of persons, and of words that it will mark "
        "in the table. All members see them.",
        short="numbers of documents, persons and words",
        reply=lambda: {"documents": counts(), "persons": counts(), "words": counts()},
        seen_by_all=True,
    ),
    *vocabulary.STEPS,
    Published(
        name=MODEL,
        data_sent="The SHA-256 of the client's model, by which members compare their models.",
        short="digest of the model",
        reply=lambda: {"content": Bounds((LENGTH,), 255, 0, dtype="uint8")},
        often=lambda _: Often(at_end=2, at_most=True),
        over=NO_DOCUMENTS,
        seen_by_all=True,
    ),
    Published(
        name=ARRAYS,
        data_sent="The first member's model, which all use if their processors round differently.",
        short="the model",
        reply=lambda: {"content": Bounds(("bytes",), 255, 0, dtype="uint8")},
        often=lambda _: Often(at_end=1, at_most=True),
        over=NO_DOCUMENTS,
        seen_by_all=True,
    ),
)
"""What the protocol sends in addition to replies of functions: see `Published`."""
MEMBERS_SEE = frozenset(step.name for step in STEPS if step.seen_by_all)
WRONG = "a number, a word or an update is not valid"


class SecureClients:
    """`Clients` over a member's steps; the checkpoint covers `step` steps, `turn` rounds."""

    hidden = True
    apart = True

    def __init__(
        self,
        exchange: MemberSteps,
        names: Sequence[str],
        door: MemberDoor | None,
        sizes: Callable[[], tuple[int, int, int]] | None,
        totals: Sequence[OpenedStep],
        step: int,
        turn: int,
        limits: VocabularyLimits,
        identity: str,
        notify: Callable[[Event], None],
    ) -> None:
        self.names = sorted(names)
        self._exchange = exchange
        self._member = exchange.member
        self._side = ClientSide(door, exchange.stop, notify)
        self._totals = {entry.step: entry for entry in totals}
        self._limits = limits
        self._notify = notify
        self.step = step
        self.turn = turn
        self._drawn: list[str] = []  # the clients of this round
        self._marks: list[int] = []  # how many words each client with documents will mark
        self._position = Position(turn)
        if step == 0:
            self._begin(identity, sizes)

    def _begin(self, identity: str, sizes: Callable[[], tuple[int, int, int]] | None) -> None:
        """Agree on the group key; tell numbers of documents, persons and words, unless None."""
        self._step(identity, "call", b"", bytes)

        def own() -> bytes:
            if sizes is None:
                return b""
            self._position = Position(exchange=2)  # the ledger begins before this agreement
            numbers = sizes()
            self._leave(
                DOCUMENTS, dict(zip(("documents", "persons", "words"), numbers, strict=True))
            )
            return np.array(numbers, ">u8").tobytes()

        replies = [reply for reply in self._step(DOCUMENTS, "call", b"", own) if reply]
        announced = [np.frombuffer(reply, ">u8").tolist() for reply in replies if len(reply) == 24]
        self._marks = [of[2] for of in announced]
        self._valid(lambda: vocabulary.check_marks(self._marks, self._limits))
        if len(announced) < len(replies) or any(of[0] < of[1] for of in announced):
            self._exchange.stop(WRONG)
        if sizes is not None:
            self._side.guarded(lambda door: door.check_sum(sum(of[1] for of in announced)))

    def tell(self, function: str, **payload: Any) -> None:
        """Execute a function of this client; nothing is sent."""
        self._side.repeat(Call(function, payload, Position(self.turn)))

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Run the steps of a round with the clients drawn; see `Clients.round`."""
        self.turn += 1
        self._position = Position(self.turn, exchange=0)
        self._side.begin(number)
        self._drawn = draw.members(number, self.names, self.names)
        self._side.guarded(lambda door: door.check_members(self._drawn))
        try:
            return work(), {"clients": self._drawn}
        finally:
            self._drawn = []

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        """Call a function of every client; all members see each reply."""
        if not self._drawn:
            return self.round(
                int(payload.get("round", 0)), partial(self.call, function, template, **payload)
            )[0]
        own_reply = self._next(function, payload, False)
        opened = self._step(
            function, "call", b"", lambda: dumps(own_reply()) if self._is_in else b""
        )
        return {
            name: self._read(name, content, template)
            for name, content in zip(self._member.names, opened, strict=True)
            if name in self._drawn
        }

    def _read(self, name: str, content: bytes, template: Template) -> dict[str, Any]:
        with suppress(FederationError):
            reply: dict[str, Any] = loads(content)
            if not find_fault(reply, template, [name]):
                return reply
        self._exchange.stop(f"{name} sent a reply that is not valid")

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        """Call a function of every client; return the total; nobody sees a single reply."""
        if not self._drawn:
            return self.round(
                int(payload.get("round", 0)), partial(self.sum, function, template, **payload)
            )[0]
        own_reply = self._next(function, payload, True)
        return (
            self._sum_words(template, own_reply)
            if any(isinstance(field, WordCountBounds) for field in template.values())
            else self._sum(function, template, own_reply)
        )

    def _sum(
        self, function: str, template: Template, own: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        layout = Layout.of(template, self._drawn, len(self._member.names))
        announced = template.get("documents")
        if isinstance(announced, Announced) and (persons := announced.fewest) is not None:
            self._side.guarded(lambda door: door.check_sum(persons))

        def vector() -> bytes:
            if not self._is_in:
                return bytes(8 * layout.size)
            whole, factor = layout.encode(own())
            if factor < 1:
                self._notify(Narrowed(factor))
            return whole.tobytes()

        (opened,) = self._step(function, "sum", layout.digest, vector)
        total = layout.decode(np.frombuffer(opened, np.int64))
        if find_fault(total, template, self._drawn):
            self._exchange.stop(WRONG)
        return total

    def _sum_words(
        self, template: Template, own: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the total counts of the words that may be agreed on."""
        reply = cache(own)  # three steps need it, and its function may run only once
        study = self._member.study
        least = self._limits.clients_per_word(len(self.names))

        def left(what: str, made: Mapping[str, Any]) -> Mapping[str, Any]:
            return self._leave(what, {"documents": reply()["documents"], **made})

        (name,) = (n for n, field in template.items() if isinstance(field, WordCountBounds))

        def shown(what: str, value: Callable[[], Any]) -> list[Any]:
            """Return the values of all members with documents, which all see."""
            self._advance()
            content = self._step(
                what,
                "call",
                b"",
                lambda: dumps(left(what, {"words": value()})["words"]) if self._is_in else b"",
            )
            return self._valid(lambda: [loads(message) for message in content if message])

        marks = self._marks
        size = vocabulary.buckets_for(sum(marks))
        self._advance()
        table = self._sum(
            vocabulary.TABLE,
            vocabulary.template_of_table(size, len(self.names)),
            lambda: left(
                vocabulary.TABLE, {"clients": vocabulary.table_of(reply()[name], study, size)}
            ),
        )["clients"]
        self._valid(lambda: vocabulary.check_table(table, sum(marks)))
        lists = shown(
            vocabulary.LISTED,
            lambda: vocabulary.words_to_list(reply()[name], study, table, least),
        )
        listed = self._valid(lambda: vocabulary.joined(lists, marks, study, table, least))
        self._advance()
        total = self._sum(
            vocabulary.COUNTS,
            vocabulary.template_of_counts(len(listed)),
            lambda: left(vocabulary.COUNTS, vocabulary.counts_over(reply()[name], listed)),
        )
        counted = {name: vocabulary.named(total, listed), "documents": total["documents"]}
        if find_fault(counted, template, self._drawn):
            self._exchange.stop(WRONG)
        return counted

    def _valid(self, read: Callable[[], R]) -> R:
        """Read what others have sent; if that fails, stop the run."""
        try:
            return read()
        except (FederationError, TypeError, ValueError):
            self._exchange.stop(WRONG)

    # The own contribution

    def _leave(self, what: str, made: Mapping[str, Any]) -> Mapping[str, Any]:
        """Record data that is sent and is not a function's reply."""
        call = Call(what, {}, self._position, hidden=what not in MEMBERS_SEE)
        self._side.guarded(lambda door: door.leave(call, made))
        return made

    @property
    def _is_in(self) -> bool:
        return self._side.door is not None and self._member.name in self._drawn

    def _advance(self) -> None:
        """Move to the next position, even if an earlier process did its work."""
        self._position = replace(self._position, exchange=self._position.exchange + 1)

    def _next(
        self, function: str, payload: Mapping[str, Any], is_hidden: bool
    ) -> Callable[[], dict[str, Any]]:
        """Begin a call; return the function that computes the reply on demand."""
        self._advance()
        record = self._member.record
        call = Call(function, payload, self._position, record.transcript.hex(), is_hidden)
        is_new = self.step >= record.step and not record.part
        if not is_new:
            self._side.skipped.append(call)
        return partial(self._reply, call, is_new)

    def _reply(self, call: Call, is_new: bool) -> dict[str, Any]:
        """Return the reply that the door permits, now or in an earlier process."""
        reply = self._side.repeat_skipped()
        if not is_new:
            return reply or {}
        self._notify(CallStarted(call.function, self._side.round, 1))
        return self._side.guarded(lambda door: door.call(call)) or {}

    # Steps

    def _step(
        self, function: str, kind: Kind, layout: bytes, content: Callable[[], bytes]
    ) -> list[bytes]:
        """Run the next step, or return its result from an earlier process."""
        number = self.step
        record = self._member.record
        self.step += 1
        if number < record.step:
            if number == 0:
                return []
            entry = self._totals.get(number)
            if entry is None or entry.function != function:
                raise RunError(
                    f"The folder of this run lacks the total of step {number}; restore the whole "
                    "folder, or start a new run: set run in the study to the next number."
                )
            return entry.opened
        # After a crash, bytes that may have been sent are sent again, not computed again.
        data = self._member.content if record.part else content()
        entry = self._exchange.step(function, kind, layout, data)
        if number > 0:
            self._side.guarded(
                lambda door: door.write_total(
                    function, self._position, entry.digest, sum(map(len, entry.opened))
                )
            )
        return entry.opened

    def done(self) -> None:
        self._exchange.done()

    # The model

    def have_all(self, fingerprint: bytes) -> bool:
        """Whether the models of all members have this digest."""
        digests = self._step(MODEL, "call", b"", lambda: self._emit(MODEL, fingerprint))
        return len(set(digests)) == 1

    def first_arrays(self, arrays: Callable[[], bytes]) -> bytes:
        """Return the arrays of the first member's model; only this member sends its own."""
        is_first = self._member.name == self._member.names[0]
        return self._step(
            ARRAYS, "call", b"", lambda: self._emit(ARRAYS, arrays()) if is_first else b""
        )[0]

    def require_all(self, fingerprint: bytes) -> None:
        """Stop the run unless the models of all members have this digest."""
        if not self.have_all(fingerprint):
            self._exchange.stop("the models of the members differ")

    def _emit(self, what: str, content: bytes) -> bytes:
        self.turn += 1
        self._position = Position(self.turn)
        self._leave(what, {"documents": 0, "content": np.frombuffer(content, np.uint8)})
        return content
