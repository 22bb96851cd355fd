"""A log that all participants of a study keep in common, though some of them fail.

Viewstamped replication: Liskov and Cowling, Viewstamped Replication Revisited,
MIT-CSAIL-TR-2012-021, 2012; `views` and `copies` say where we deviate.
One replica, the adder (the paper's primary), appends; the others follow; what a majority of the
voters has is committed and never changes. No thread, clock or socket: the owner says what came and
what time it is, and sends what `take` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fedtopics.engines.copies import Copies, Disagreement
from fedtopics.engines.feeds import Settings
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


class Replica(Copies):
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
        logs at the same time ends the run. A server alone goes on with what it has. One whose log
        is empty as well as doubtful, as a log is in a new folder, has a vote if a majority begins
        without any entry; else it recovers.
    can_add : collection of str, optional
        Voters that others can connect to; the others never add. All, if not given.
    snapshot : callable, optional
        Returns the owner's state at a committed index that the log knows, or None: for followers
        that lack entries which the log has forgotten.
    install : callable, optional
        Takes such a state in place of entries, durably, and returns True; or refuses it. Who has
        none of its own refuses.
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
        install: Callable[[State], bool] = lambda state: False,
        recovering: bool = False,
        nonce: int = 1,
        now: float = 0.0,
    ) -> None:
        if recovering and not log.doubtful:
            log.keep(log.view, log.normal, doubtful=True)
        super().__init__(
            name, voters, can_add, log, settings or Settings(), snapshot, recovering, nonce, now
        )
        self.disagreements: list[Disagreement] = []
        self.halted = False
        self._others = (self._voters | set(learners)) - {name}
        self._install = install
        self._number = 0
        self._owed: tuple[str, int] | None = None
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
        if name not in self._others or self.halted:
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
        """Note that a connection broke; what was on its way may be lost."""
        self._now = now
        if name in self._links:
            self._drop(name)
            if name == self.adder_of(self.view):
                self._lost = now

    def tick(self, now: float) -> None:
        """Note the time."""
        self._now = now
        if self.halted:
            return
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
        elif due and (self._feeder is None or self._chosen()):
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
            self._enter(message.view, not isinstance(message, (Begin, Beat, StartViewChange)))
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
            if self._feeds:
                self._out.extend(self._feeds.pump(self.view, tell=self._normal))
            if self._owed is not None and not self._new:
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
