"""What replicas of a log do while one adds (Liskov and Cowling 2012, sections 4.1, 4.3, 5.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedtopics.engines.feeds import NEVER
from fedtopics.engines.log_messages import (
    Ack,
    Append,
    Beat,
    Begin,
    Differs,
    Fetch,
    Position,
    State,
)
from fedtopics.engines.views import Views

# A learner acknowledges so many small entries together, far fewer than the window, or a larger one.
LEARNED, SMALL_ENTRY = 4, 1 << 16


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two logs whose committed entries differ: one of both participants is wrong."""

    name: str  # the other
    index: int  # committed at one of them
    ours: bytes  # digest of the log there; empty if it has no such entry
    theirs: bytes


class Copies(Views):
    """The part of a replica that adds, or follows who adds."""

    disagreements: list[Disagreement]
    halted: bool
    announced: int = 0  # index that is committed, as others say; its entry may be on its way
    _install: Callable[[State], bool]
    _number: int  # of the last beat that asked for an answer
    _unsaid = 0  # bytes of entries since the last acknowledgement
    _owed: tuple[str, int] | None  # to whom an Ack is to be sent, for which beat

    def _advance(self) -> None:
        """Commit, as the adder, what a majority has in this view (section 4.1)."""
        if not (self._normal and self._chosen()):
            return
        acked = [feed.acked for name, feed in self._feeds.items() if name in self._voters]
        acked = sorted([*acked, self.log.last], reverse=True)
        if len(acked) >= self.majority:
            self.log.committed = max(self.log.committed, acked[self.majority - 1])

    def _beat(self) -> None:
        self._number += 1
        for name in sorted(self._links):
            self._send(name, self._feeds.beat(name, self.view, self._number))

    def _hear(self) -> None:
        self._heard, self._lost, self._suspecting = self._now, None, False

    def _is_here(self, before: bool) -> None:
        """Take part as one that is new; if others have anything of `before`, as one that forgot."""
        self._new, self._recovering = False, before
        self._normal &= not before
        self.log.keep(self.log.view, self.log.normal, doubtful=before)

    def _on_position(self, sender: str, message: Position) -> None:
        if self._new and self._chosen() and message.last and sender in self._voters:
            self._is_here(before=True)
            self._ask()
        if self._chosen():
            if self._normal:
                self._serve(sender, message)
            elif message.view == self.view and message.nonce <= 0 and sender in self._voters:
                self._positions[sender] = message
                self._choose()
        elif message.view < self.view:
            self._send(sender, self._position())

    def _serve(self, name: str, asked: Position | Fetch) -> None:
        """Send another what its log lacks; or say that the logs contradict."""
        if name not in self._links:
            return
        self._feeds.pop(name, None)
        start = self._start if self._normal else self.log.last
        begin = self._feeds.begin(name, asked, self.view, start)
        if begin is not None:
            self._send(name, begin)
            if not isinstance(asked, Position) or not self._feeds[name].nonce:
                self._forgetful.pop(name, None)
            elif name in self._voters and name not in self._forgetful:
                self._beat()
                self._forgetful[name] = self._number
        elif asked.committed >= self.log.base:
            index = asked.committed
            ours = self._digest(index)
            theirs = asked.digests[0] if asked.digests else b""
            self._disagree(Disagreement(name, index, ours, theirs))
            self._send(name, Differs(self.view, index, ours))

    def _digest(self, index: int) -> bytes:
        """Return the log's digest at an index, or nothing."""
        return self.log.digest(index) if self.log.base <= index <= self.log.last else b""

    def _disagree(self, disagreement: Disagreement) -> None:
        if disagreement not in self.disagreements:
            self.disagreements.append(disagreement)

    def _on_differs(self, sender: str, message: Differs) -> None:
        ours = self._digest(message.index)
        self._disagree(Disagreement(sender, message.index, ours, message.digest))
        if sender in (self.adder_of(self.view), self._source):
            self.halted = True

    def _on_begin(self, sender: str, message: Begin) -> None:
        """Make the log the beginning of the adder's, or of one that is fetched; and follow."""
        if sender != (self._source or self.adder_of(self.view)):
            return
        self._hear()
        if self._new:
            self._is_here(before=message.start > 0 or message.committed > 0)
        if message.nonce:
            if self._recovering and message.nonce == self._nonce and self._feeder == sender:
                self._start = message.start
                self._owe(sender)
                self._learn(message.committed)
            return
        if message.asked != self.log.digest(self.log.last):  # what was asked is no longer so
            if self._feeder != sender:
                self._ask()
            return
        if self._adopt(sender, message):
            self._feeder = sender
            self._feeds.clear()
            self._start = NEVER if self._recovering else message.start
            self._owe(sender)
            self._learn(message.committed)

    def _adopt(self, sender: str, message: Begin) -> bool:
        """Drop entries that differ from the sender's; but none that is committed."""
        log, state = self.log, message.state
        if state is not None and state.index > log.committed:
            if accepted := self._install(state):
                log.reset(state.index, state.digest)
            return accepted
        if message.index < log.committed or self._digest(message.index) != message.digest:
            index, ours = log.committed, self._digest(log.committed)
            self._disagree(Disagreement(sender, index, ours, b""))
            self._send(sender, Differs(self.view, index, ours))
            self.halted = True
            return False
        log.truncate(message.index)
        return True

    def _on_append(self, sender: str, message: Append) -> None:
        if sender != self._feeder:
            return
        self._hear()
        log = self.log
        if message.index == log.last and message.digest == log.digest(log.last):
            log.append(message.entries)
        elif message.index + len(message.entries) > log.last:  # something was lost on the way
            self._feeder = None
            self._ask()
            return
        self._unsaid += len(message.entries) * SMALL_ENTRY
        self._unsaid += sum(len(entry.content) for entry in message.entries)
        if self.name in self._voters or self._unsaid >= LEARNED * SMALL_ENTRY:
            self._owe(sender)
        self._learn(message.committed)

    def _learn(self, committed: int) -> None:
        """Note how far the log is committed, and whether it is that of the view as a whole."""
        log = self.log
        self.announced = max(self.announced, committed)
        log.committed = max(log.committed, min(committed, log.last))
        if log.last < self._start or self._normal:
            return
        if self._source is not None:
            self._start_view()
        else:
            log.keep(log.view, log.view, doubtful=False)
            self._normal, self._recovering = True, False

    def _owe(self, to: str, beat: int = 0) -> None:
        if self._owed is not None and self._owed[0] == to:
            beat = max(beat, self._owed[1])
        self._owed, self._unsaid = (to, beat), 0

    def _on_ack(self, sender: str, message: Ack) -> None:
        feed = self._feeds.get(sender)
        if feed is None:
            return
        feed.ack(message.index)
        if sender in self._voters:
            self._met.add(sender)
            self._may_begin |= len(self._met) + 1 >= self.majority
            if self._new and self._may_begin:
                self._is_here(before=False)
        if not (self._normal and self._chosen()):
            return
        if message.beat and sender in self._voters and (not feed.nonce or feed.acked):
            self._answered[sender] = message.beat
            for name in list(self._forgetful):
                self._confirm(name)
        self._advance()

    def _confirm(self, name: str) -> None:
        """Let one vote again that lost its memory, once nobody can know of a later view."""
        number = self._forgetful[name]
        others = self._voters - {self.name, name}
        answered = {other for other in others if self._answered.get(other, 0) >= number}
        enough = len(answered) + 1 > len(self._voters) - self.majority
        feed = self._feeds.get(name)
        if feed and enough and others <= answered | self._forgetful.keys():
            del self._forgetful[name]
            feed.start = self.log.last
            begin = Begin(self.view, 0, b"", b"", feed.start, self.log.committed, feed.nonce)
            self._send(name, begin)

    def _on_beat(self, sender: str, message: Beat) -> None:
        if sender != self.adder_of(self.view):
            return
        self._hear()
        if self._feeder != sender or message.index > self.log.last:
            self._feeder = None
            self._ask()
        else:
            self._learn(message.committed)
        if message.number:
            self._owe(sender, message.number)
