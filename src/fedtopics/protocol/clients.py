"""The clients of a study under secure aggregation, as a member's own program sees them.

Every member runs the method's program. A sum or a call of the program is a step of the run: the
member's own update goes through its door, becomes a vector or a reply, and comes back as the total
of all members. A member that takes no part in a round contributes zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from fedtopics.errors import FederationError, RunError
from fedtopics.methods.core.events import CallStarted, Event, Narrowed, RoundReport
from fedtopics.methods.core.interfaces import EVERYONE, Call, Draw, Position, T
from fedtopics.methods.core.replies import Template, WordCounts, find_fault
from fedtopics.protocol import vocabulary
from fedtopics.protocol.client_side import ClientSide, Door
from fedtopics.protocol.exchange import Exchange
from fedtopics.protocol.layout import Layout
from fedtopics.protocol.messages import Kind
from fedtopics.protocol.record import Entry
from fedtopics.protocol.values import dumps, loads
from fedtopics.text.vocabulary import VocabularyLimits

DOCUMENTS, MODEL, ARRAYS = "documents", "model", "arrays"
MEMBERS_SEE = DOCUMENTS, vocabulary.LISTED, MODEL, ARRAYS  # by all members
LEAVES = {
    DOCUMENTS: "How many documents the client has, which all members see.",
    **vocabulary.LEAVES,
    MODEL: "The SHA-256 of the client's model, by which members know that they have the same one.",
    ARRAYS: "The first member's model, which all take where their processors rounded differently.",
}
WRONG = "a number, a word or an update cannot be right"


class SecureClients:
    """`Clients` over the steps of a member.

    Parameters
    ----------
    exchange : Exchange
    names : sequence of str
        The clients, who have documents; other members observe.
    door : Door or None
        That of this client; None of an observer.
    documents : int or None
        Of this client; None where their number is not to be known, or there is no client.
    totals : sequence of Entry
        What the steps before this process came to, since the checkpoint.
    step, turn : int
        Steps and rounds that the checkpoint has the result of.
    limits : VocabularyLimits
    study : bytes
        Digest of the study.
    identity : str
        What all members have to agree on before they begin: study and software.
    notify : function
        Gets events.
    """

    hidden = True

    def __init__(
        self, exchange: Exchange, names: Sequence[str], door: Door | None, documents: int | None,
        totals: Sequence[Entry], step: int, turn: int, limits: VocabularyLimits, study: bytes,
        identity: str, notify: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self.names = sorted(names)
        self._exchange = exchange
        self._member = exchange.member
        self._side = ClientSide(door, exchange.stop, notify)
        self._totals = {entry.step: entry for entry in totals}
        self._limits = limits
        self._notify = notify
        self._study, self._documents = study, 0
        self.step, self.turn = step, turn
        self._drawn: list[str] = []  # who takes part in this round
        self._position = Position(turn)
        if step == 0:
            self._begin(identity, documents)

    def _begin(self, identity: str, documents: int | None) -> None:
        """Agree on the group key, and on how many documents there are."""
        self._step(identity, "call", b"", bytes)

        def own() -> bytes:
            if documents is None:
                return b""
            self._position = Position(exchange=2)  # a ledger begins before that
            self._leave(DOCUMENTS, {"documents": documents})
            return documents.to_bytes(8, "big")

        replies = self._step(DOCUMENTS, "call", b"", own)
        if any(len(reply) not in (0, 8) for reply in replies):
            self._exchange.stop(WRONG)
        total = self._documents = sum(int.from_bytes(reply, "big") for reply in replies)
        self._side.guarded(lambda door: door.check_sum(total))

    def tell(self, function: str, **payload: Any) -> None:
        """Execute a function of this client; nothing leaves."""
        self._side.repeat(Call(function, payload, Position(self.turn)))

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do the steps of a round, with the clients that are drawn; see `Clients.round`."""
        self.turn += 1
        self._position = Position(self.turn, exchange=0)
        self._side.begin(number)
        self._drawn = draw.members(number, self.names, self.names)
        self._side.guarded(lambda door: door.check_members(self._drawn))
        try:
            return work(), {"clients": self._drawn}
        finally:
            self._drawn = []

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; all members see each one's reply."""
        if not self._drawn:
            work = partial(self.call, function, template, **payload)
            return self.round(int(payload.get("round", 0)), work)[0]
        own = self._next(function, payload, False)
        opened = self._step(function, "call", b"", lambda: dumps(own()) if self._is_in else b"")
        replies = dict(zip(self._member.names, opened, strict=True))
        return {name: self._read(name, replies[name], template) for name in self._drawn}

    def _read(self, name: str, content: bytes, template: Template | None) -> dict[str, Any]:
        with suppress(FederationError):
            reply: dict[str, Any] = loads(content)
            if not find_fault(reply, template, [name]):
                return reply
        self._exchange.stop(f"{name} sent a reply that cannot be right")

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the total, of which nobody sees a part."""
        if not self._drawn:
            work = partial(self.sum, function, template, **payload)
            return self.round(int(payload.get("round", 0)), work)[0]
        own = self._next(function, payload, True)
        template = template or {}
        if any(isinstance(field, WordCounts) for field in template.values()):
            return self._sum_words(template, own)
        return self._sum(function, template, own)

    def _sum(
        self, function: str, template: Template, own: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        layout = Layout.of(template, self._drawn, len(self._member.names))

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
        if "documents" in total:
            self._side.guarded(lambda door: door.check_sum(total["documents"]))
        return total

    def _sum_words(
        self, template: Template, own: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the total counts of the words that can be agreed on."""
        reply = cache(own)
        study, size = self._study, vocabulary.buckets_for(self._documents)

        def left(what: str, made: Mapping[str, Any]) -> Mapping[str, Any]:
            return self._leave(what, {"documents": reply()["documents"], **made})

        (name,) = (n for n, field in template.items() if isinstance(field, WordCounts))
        self._advance()
        table = self._sum(
            vocabulary.TABLE, vocabulary.template_of(size),
            lambda: left(vocabulary.TABLE, vocabulary.table_of(reply()[name], study, size)),
        )  # fmt: skip
        allowed = vocabulary.passing(table, table["documents"], self._limits)

        def words() -> bytes:
            own = vocabulary.listed(reply()[name], study, table, allowed, len(self._drawn))
            return dumps(left(vocabulary.LISTED, {"words": own})["words"])

        self._advance()
        content = self._step(
            vocabulary.LISTED, "call", b"", lambda: words() if self._is_in else b""
        )
        try:
            lists = [loads(each) for each in content if each]
            listed = vocabulary.joined(lists, study, allowed)
        except (FederationError, TypeError):
            self._exchange.stop(WRONG)
        self._advance()
        total = self._sum(
            vocabulary.COUNTS, vocabulary.template_of(len(listed)),
            lambda: left(vocabulary.COUNTS, vocabulary.counts_over(reply()[name], listed)),
        )  # fmt: skip
        found = {name: vocabulary.named(total, listed), "documents": total["documents"]}
        if find_fault(found, template, self._drawn):
            self._exchange.stop(WRONG)
        return found

    # The own contribution

    def _leave(self, what: str, made: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write down what leaves that is no reply of a function."""
        call = Call(what, {}, self._position, hidden=what not in MEMBERS_SEE)
        self._side.guarded(lambda door: door.leave(call, made))
        return made

    @property
    def _is_in(self) -> bool:
        return self._side.door is not None and self._member.name in self._drawn

    def _advance(self) -> None:
        """Move to the next position, also where an earlier process did what belongs to it."""
        self._position = replace(self._position, exchange=self._position.exchange + 1)

    def _next(
        self, function: str, payload: Mapping[str, Any], is_hidden: bool
    ) -> Callable[[], dict[str, Any]]:
        """Begin a call; return what computes the reply when it is needed."""
        self._advance()
        record = self._member.record
        call = Call(function, payload, self._position, record.transcript.hex(), is_hidden)
        is_new = self.step >= record.step and not record.part
        if not is_new:
            self._side.skip(call)
        return partial(self._reply, call, is_new)

    def _reply(self, call: Call, is_new: bool) -> dict[str, Any]:
        """Return what the door lets out, or let out in an earlier process."""
        reply = self._side.repeat_skipped()
        if not is_new:
            return reply or {}
        self._notify(CallStarted(call.function, self._side.round, 1))
        return self._side.guarded(lambda door: door.call(call)) or {}

    # Steps

    def _step(
        self, function: str, kind: Kind, layout: bytes, content: Callable[[], bytes]
    ) -> list[bytes]:
        """Do the next step, or return what it came to in an earlier process."""
        number, record = self.step, self._member.record
        self.step += 1
        if number < record.step:
            if number == 0:
                return []
            entry = self._totals.get(number)
            if entry is None or entry.function != function:
                raise RunError(
                    f"The folder of this run lacks the total of step {number}; restore the whole "
                    "folder, or begin a new run: set run in the study to the next number."
                )
            return entry.opened
        # After a crash the bytes that may have left are sent again, not computed again.
        data = self._member.content if record.part else content()
        entry = self._exchange.step(function, kind, layout, data)
        size = sum(map(len, entry.opened))
        if number > 0:
            total = function, self._position, entry.digest, size
            self._side.guarded(lambda door: door.write_total(*total))
        return entry.opened

    def done(self) -> None:
        """Let the relay know that this member has the model."""
        self._exchange.done()

    def confirm(
        self, fingerprint: bytes, arrays: Callable[[], bytes], take: Callable[[bytes], bytes]
    ) -> None:
        """Make sure that all members have the same model.

        Where processors round differently, all take the arrays of the first member; `take` checks
        that they are near the own ones and returns the new fingerprint.
        """

        def emit(what: str, content: bytes) -> bytes:
            self.turn += 1
            self._position = Position(self.turn)
            self._leave(what, {"documents": 0, "content": np.frombuffer(content, np.uint8)})
            return content

        is_first = self._member.name == self._member.names[0]
        if len(set(self._step(MODEL, "call", b"", lambda: emit(MODEL, fingerprint)))) == 1:
            return
        own = self._step(ARRAYS, "call", b"", lambda: emit(ARRAYS, arrays()) if is_first else b"")
        taken = take(own[0])
        if len(set(self._step(MODEL, "call", b"", lambda: emit(MODEL, taken)))) > 1:
            self._exchange.stop("the models of the members differ")
