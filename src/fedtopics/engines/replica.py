"""A log that all participants of a study keep in common, though some of them fail.

Viewstamped replication: Liskov and Cowling, Viewstamped Replication Revisited, MIT-CSAIL-TR-2012-021.
One replica, the adder (the paper's primary), appends; the others follow; what a majority of the
voters has is committed and never changes. No thread, clock or socket: the owner says what came and
what time it is, and sends what `take` returns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fedtopics.engines.feeds import NEVER, Settings
from fedtopics.engines.log import Entry, Log
from fedtopics.engines.log_messages import (
    Ack,
    Append,
    Beat,
    Begin,
    Differs,
    Fetch,
    Message,
    Position,
    StartViewChange,
    State,
    Suspect,
)
from fedtopics.engines.views import Views


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two logs whose committed entries differ: one of both participants is wrong."""

    name: str  # the other
    index: int  # committed at one of them
    ours: bytes  # digest of the log there; empty if it has no such entry
    theirs: bytes


class Replica(Views):
    """One participant's part in keeping the common log.

    Parameters
    ----------
    name : str
        Its own name, one of `voters` or `learners`.
    voters : sequence of str
        Those whose majority commits, in the order in which they add: who adds in view v is the
        voter at v modulo their number. A server alone is the only voter: it commits at once.
    learners : collection of str
        Those who get the log and have no say.
    log : Log
        Kept over restarts, for a voter. If it is `doubtful` (its end may be lost), or `recovering`
        is given (it was lost as a whole), the voter gets the log as a learner does until every
        other voter has told the adder, after this replica's beginning, that it knows of no later
        view (recovery, section 4.3; a majority as in the paper is not enough: an old position of
        the replica could start a view that it has forgotten, Michael, Ports, Sharma and Szekeres,
        Recovering Shared Objects Without Stable Storage, DISC 2017). A majority that loses its
        logs at the same time ends the run.
    can_add : collection of str, optional
        Voters that others can connect to; the others never add. All, if not given.
    snapshot : callable, optional
        Returns the owner's state at a committed index that the log knows, or None: for followers
        that lack entries which the log has forgotten.
    install : callable, optional
        Takes such a state in place of entries; it is durable when this returns.
    nonce : int
        Random, another one each time that a replica begins.
    now : float
        The time of a clock that only goes on, in seconds.

    Attributes
    ----------
    disagreements : list of Disagreement
        What the owner has to tell people; the other side has it too.
    halted : bool
        The log differs from the adder's: it takes part no more.
    """

    def __init__(
        self,
        name: str,
        voters: Sequence[str],
        learners: Collection[str],
        log: Log,
        settings: Settings | None = None,
        *,
        can_add: Collection[str] | None = None,
        snapshot: Callable[[], State | None] = lambda: None,
        install: Callable[[State], None] = lambda state: None,
        recovering: bool = False,
        nonce: int = 1,
        now: float = 0.0,
    ) -> None:
        if recovering and not log.doubtful:
            log.keep(log.view, log.normal, doubtful=True)
        super().__init__(name, voters, can_add, log, settings or Settings(), snapshot, nonce, now)
        self.disagreements: list[Disagreement] = []
        self.halted = False
        self._others = (self._voters | set(learners)) - {name}
        self._install = install
        self._number = 0  # of the last beat that asked for an answer
        self._forgetful: dict[str, tuple[Position, int]] = {}  # who recovers, since which beat
        self._answered: dict[str, int] = {}  # the last beat that a voter answered
        self._owed: tuple[str, int] | None = None  # to whom an Ack is to be sent, for which beat
        self._handlers: dict[type[Message], Callable[..., None]] = {
            Position: self._on_position,
            Begin: self._on_begin,
            Append: self._on_append,
            Ack: self._on_ack,
            Beat: self._on_beat,
            Fetch: self._on_fetch,
            Suspect: self._on_suspect,
            StartViewChange: self._on_start_view_change,
            Differs: self._on_differs,
        }
        self._advance()

    @property
    def committed(self) -> int:
        """Index of the last entry known to be committed: programs apply entries up to it."""
        return self.log.committed

    @property
    def settled(self) -> bool:
        """Whether this replica adds, and all entries of earlier views are committed.

        Who begins to add waits for it, applies them, and then knows what has not been decided.
        """
        return self.is_adder and self.committed >= self._start

    @property
    def recovering(self) -> bool:
        """Whether this replica may have forgotten what it said, and so has no vote yet."""
        return self._recovering

    def propose(self, entry: Entry) -> int:
        """Append an entry, as the adder, and return its index; it is decided when committed."""
        if not self.is_adder:
            raise RuntimeError(f"{self.name} does not add in view {self.view}.")
        self.log.append([entry])
        self._advance()
        return self.log.last

    def connected(self, name: str, now: float) -> None:
        """Note that messages can go to another participant and come from it, in order."""
        self._now = now
        if name not in self._others:
            return
        self._drop(name)
        self._links.add(name)
        if name == self.adder_of(self.view):
            self._lost = None
        if self._chosen():
            if not self._normal:
                self._send(name, StartViewChange(self.view))
        else:
            self._send(name, self._position())

    def disconnected(self, name: str, now: float) -> None:
        """Note that the connection to another participant broke; what was on its way may be lost."""
        self._now = now
        if name in self._links:
            self._drop(name)
            if name == self.adder_of(self.view):
                self._lost = now

    def tick(self, now: float) -> None:
        """Note the time."""
        self._now = now
        due = now >= self._due
        if due:
            self._due = now + self.settings.beat
        suspected = self._suspecting
        self._watch()
        if self._suspecting and (due or not suspected):
            for name in sorted(self._links & self._voters):
                self._send(name, Suspect(self.view))
        if due and self._normal and self._chosen():
            if not self._suspecting:
                self._beat()
        elif due and self._feeder is None:
            self._ask()
        self._campaign()

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take a message of a connected participant."""
        self._now = now
        if sender not in self._links or self.halted:
            return
        if message.view > self.view:
            if sender not in self._voters:
                return
            self._enter(message.view)
        elif message.view < self.view and not isinstance(message, Position):
            self._send(sender, self._position())
            return
        if sender in self._voters:
            self._alive[sender] = now
        self._handlers[type(message)](sender, message)

    def take(self) -> list[tuple[str, Message]]:
        """Return the messages to be sent, and to whom, in order."""
        if self.halted:
            self._out = [one for one in self._out if isinstance(one[1], Differs)]
        else:
            self._out.extend(self._feeds.pump(self.view, tell=self._normal))
            if self._owed is not None:
                to, beat = self._owed
                index = self.log.last if self._feeder == to else 0
                self._send(to, Ack(self.view, index, beat))
        self._owed = None
        messages, self._out = self._out, []
        return messages

    def forget(self, before: int) -> None:
        """Cut the log before an index up to which the owner has a state; it must be committed."""
        self.log.cut(before)
        for name in [name for name, feed in self._feeds.items() if feed.done < self.log.base]:
            del self._feeds[name]

    def _drop(self, name: str) -> None:
        """Forget what goes with a connection."""
        self._links.discard(name)
        self._feeds.pop(name, None)
        self._forgetful.pop(name, None)
        self._answered.pop(name, None)
        if self._owed is not None and self._owed[0] == name:
            self._owed = None
        if self._feeder == name:
            self._feeder = None
        if self._source == name:
            self._source = None
            self._positions.pop(name, None)
            self._choose()

    def _beat(self) -> None:
        self._number += 1
        for name in sorted(self._links):
            feed = self._feeds.get(name)
            index = feed.sent if feed else NEVER
            self._send(name, Beat(self.view, index, self.committed, self._number))

    def _hear(self) -> None:
        self._heard, self._lost, self._suspecting = self._now, None, False

    def _advance(self) -> None:
        """Commit, as the adder, what a majority has in this view (section 4.1)."""
        if not (self._normal and self._chosen()):
            return
        acked = [feed.acked for name, feed in self._feeds.items() if name in self._voters]
        acked = sorted([*acked, self.log.last], reverse=True)
        if len(acked) >= self.majority:
            self.log.committed = max(self.committed, acked[self.majority - 1])

    def _on_position(self, sender: str, message: Position) -> None:
        if self._chosen():
            if self._normal:
                self._serve(sender, message)
            elif message.view == self.view and not message.nonce and sender in self._voters:
                self._positions[sender] = message
                self._choose()
        elif message.view < self.view:
            self._send(sender, self._position())

    def _serve(self, name: str, position: Position) -> None:
        """Send a follower, as the adder, what it lacks; or say that the logs contradict."""
        begin = self._feeds.begin(name, position, self.view, max(self._start, 0))
        if begin is not None:
            self._send(name, begin)
            if position.nonce and self._forgetful.get(name, (None, 0))[0] is None:
                self._beat()
                self._forgetful[name] = (position, self._number)
        elif position.committed >= self.log.base:
            log, index = self.log, position.committed
            ours = log.digest(index) if index <= log.last else b""
            theirs = position.digests[0] if position.digests else b""
            self._disagree(Disagreement(name, index, ours, theirs))
            self._send(name, Differs(self.view, index, ours))

    def _disagree(self, disagreement: Disagreement) -> None:
        if disagreement not in self.disagreements:
            self.disagreements.append(disagreement)

    def _on_differs(self, sender: str, message: Differs) -> None:
        log, index = self.log, message.index
        ours = log.digest(index) if log.base <= index <= log.last else b""
        self._disagree(Disagreement(sender, index, ours, message.digest))
        self.halted = True

    def _on_begin(self, sender: str, message: Begin) -> None:
        """Make the log the beginning of the adder's, and follow; or of a log that is fetched."""
        if sender != (self._source or self.adder_of(self.view)):
            return
        self._hear()
        log = self.log
        if self._joined != sender and not self._normal:  # else it is that already
            if message.state is not None:
                if message.state.index > log.committed:
                    self._install(message.state)
                    log.reset(message.state.index, message.state.digest)
            elif (
                message.index < log.committed
                or message.index > log.last
                or log.digest(message.index) != message.digest
            ):
                return self._contradict(sender, message)
            else:
                log.truncate(message.index)
        self._joined = self._feeder = sender
        confirmed = not self._recovering or message.nonce == self._nonce
        self._start = message.start if confirmed else NEVER
        self._learn(sender, message.committed)
        return None

    def _contradict(self, sender: str, message: Begin) -> None:
        """Note that the adder would have this log drop what is committed."""
        index = self.committed
        self._disagree(Disagreement(sender, index, self.log.digest(index), message.digest))
        self._send(sender, Differs(self.view, index, self.log.digest(index)))
        self.halted = True

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
        self._learn(sender, message.committed)

    def _learn(self, sender: str, committed: int) -> None:
        """Note how far the log is committed, and whether it is that of the view as a whole."""
        log = self.log
        log.committed = max(log.committed, min(committed, log.last))
        self._owed = (sender, self._owed[1] if self._owed and self._owed[0] == sender else 0)
        if log.last < self._start or self._normal:
            return
        if self._source is not None:
            self._start_view()
        else:
            log.keep(log.view, log.view, doubtful=False)
            self._normal, self._recovering = True, False

    def _on_ack(self, sender: str, message: Ack) -> None:
        feed = self._feeds.get(sender)
        if feed is None or not (self._normal and self._chosen()):
            if feed is not None:
                feed.ack(message.index)
            return
        feed.ack(message.index)
        if message.beat and (not feed.nonce or feed.acked) and sender in self._voters:
            self._answered[sender] = message.beat
            for name in list(self._forgetful):
                self._remind(name)
        self._advance()

    def _remind(self, name: str) -> None:
        """Let one vote again that lost its memory, once nobody can know of a later view."""
        position, number = self._forgetful[name]
        others = self._voters - {self.name, name}
        answered = {other for other in others if self._answered.get(other, 0) >= number}
        enough = len(answered) + 1 > len(self._voters) - self.majority
        if enough and others <= answered | self._forgetful.keys():
            del self._forgetful[name]
            feed, log = self._feeds[name], self.log
            feed.start = log.last
            begin = Begin(self.view, feed.sent, log.digest(feed.sent), log.last, self.committed)
            self._send(name, dataclasses.replace(begin, nonce=position.nonce))

    def _on_beat(self, sender: str, message: Beat) -> None:
        if sender != self.adder_of(self.view) or sender == self.name:
            return
        self._hear()
        if self._feeder != sender or message.index > self.log.last:
            self._feeder = None
            self._ask()
            if message.number:
                self._owed = (sender, message.number)
            return
        self._learn(sender, message.committed)
        self._owed = (sender, message.number) if message.number else self._owed
