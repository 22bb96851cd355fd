"""Who adds: the view changes of a replicated log (Liskov and Cowling 2012, section 4.2).

Where this differs from the paper, and why two adders never both go on:

- The paper's STARTVIEWCHANGE goes from all to all, and a replica answers for the next view when f
  others want it too. Participants may have a path to the would-be adder only, so here each says
  `Suspect` to whom it reaches, which binds nobody, and who is to add in a later view, having heard
  it from a majority, moves to that view and says `StartViewChange`. This is the pre-vote of Raft
  (Ongaro 2014, section 9.6): one that lost its own path to the adder does not end a view in which
  a majority goes on. Only liveness is touched. Safety needs what is unchanged: a view is started
  with the positions of a majority, each of which was kept before it was sent and says that its
  sender accepts nothing from an earlier view any more; an entry is committed when a majority has
  it in one view. Two majorities share a participant, so the new view's log has every entry that
  was committed before, and no entry can be committed in an earlier view afterwards.
- DOVIEWCHANGE (here `Position`) has digests instead of entries (section 5.3 sends the last few,
  "the primary can ask for more"): the would-be adder fetches the best log before it starts the
  view: the log is replaced by the same one as in the paper. While it fetches, and while a follower
  gets the log of a view that has started, a log is the beginning of one that has all that was
  committed; only entries that differ from it were dropped. So it lost nothing that was committed,
  and it still counts as of the last view whose log it had as a whole (`normal`).
- Only participants with an address can add (`can_add`); the order skips the others.
- View and entries are kept on disk before anything is said that relies on them, so a restart is
  a pause. One that lost its disk does what section 4.3 calls recovery, more strictly: see
  `Replica`. It looks like one that is new; so who is new has a vote only if there is no entry yet,
  and recovers else; the first entry waits until a majority has kept on disk that they are not new
  any more. (A majority of which each is new or has forgotten its whole log begins anew; those who
  have entries then stop, and say so.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence

from fedtopics.engines.feeds import Feeds, Settings
from fedtopics.engines.log import Log
from fedtopics.engines.log_messages import (
    Beat,
    Fetch,
    Message,
    Position,
    StartViewChange,
    State,
    Suspect,
)


class Views(ABC):
    """The part of a replica that finds out who adds."""

    def __init__(
        self,
        name: str,
        voters: Sequence[str],
        can_add: Collection[str] | None,
        log: Log,
        settings: Settings,
        snapshot: Callable[[], State | None],
        recovering: bool,
        nonce: int,
        now: float,
    ) -> None:
        self.name = name
        self.log = log
        self.settings = settings
        self.majority = len(voters) // 2 + 1
        self._voters = frozenset(voters)
        self._order = [voter for voter in voters if can_add is None or voter in can_add]
        self._nonce = nonce
        doubtful = log.doubtful and name in self._voters and len(voters) > 1
        # Here for the first time, or its log was lost as a whole: nobody can tell, at first.
        self._new = doubtful and not recovering and log.last == 0
        self._recovering = doubtful and not self._new
        self._normal = log.view == log.normal and not self._recovering
        self._out: list[tuple[str, Message]] = []
        self._links: set[str] = set()
        self._feeds = Feeds(log, settings, snapshot)
        self._now = self._heard = self._due = now
        self._lost: float | None = None  # when the connection to the adder broke
        self._suspecting = False
        self._clear()

    def _clear(self) -> None:
        """Forget what was true of a view."""
        self._feeds.clear()
        self._alive: dict[str, float] = {}  # voters, when one was heard of last
        self._suspects: dict[str, float] = {}
        self._majority_since: float | None = None
        self._positions: dict[str, Position] = {}
        self._source: str | None = None  # whose log is fetched
        self._feeder: str | None = None  # whose entries are accepted
        self._forgetful: dict[str, int] = {}  # who recovers, since which beat
        self._answered: dict[str, int] = {}  # the last beat that a voter answered
        self._met: set[str] = set()  # voters that are not new any more, as this adder knows
        self._may_begin = self.log.last > 0 or self.majority == 1  # with the first entry
        self._start = self.log.last  # where the log is that the view began with

    @property
    def view(self) -> int:
        """Number of the view; who adds in it follows from the order."""
        return self.log.view

    @property
    def adder(self) -> str | None:
        """Who adds, as far as is known here; None while a view changes or a majority is away."""
        known = self._normal and not self._suspecting and not self._new
        adder = self.adder_of(self.view)
        return adder if known and (adder != self.name or self._may_begin) else None

    @property
    def is_adder(self) -> bool:
        """Whether this replica adds."""
        return self.adder == self.name

    def adder_of(self, view: int) -> str:
        """Return who adds in a view."""
        return self._order[view % len(self._order)]

    def _send(self, to: str, message: Message) -> None:
        if to in self._links:
            self._out.append((to, message))

    def _position(self) -> Position:
        log = self.log
        digests = tuple(log.digest(index) for index in range(log.committed, log.last + 1))
        nonce = self._nonce if self._recovering else -self._nonce if self._new else 0
        return Position(log.view, log.normal, log.committed, digests, nonce)

    def _chosen(self) -> bool:
        """Whether this replica is the adder of the view, started or not."""
        return not self._recovering and self.adder_of(self.log.view) == self.name

    def _enter(self, view: int, ask: bool = True) -> None:
        """Move to a later view, which has no adder yet as far as is known here."""
        self.log.keep(view, self.log.normal, self.log.doubtful)
        self._normal = self._suspecting = False
        self._heard, self._lost = self._now, None
        self._clear()
        if ask:
            self._ask()
        self._choose()

    def _ask(self) -> None:
        """Say again what the others have to know before this replica can go on."""
        if self._chosen():
            if self._source is not None and self._feeder is None:
                mine = self._position()
                self._send(self._source, Fetch(self.view, mine.committed, mine.digests))
            for name in sorted(self._links & self._voters):
                if name not in self._positions:
                    self._send(name, StartViewChange(self.view))
                elif self._source is not None and not self._suspecting:  # it takes its time
                    self._send(name, Beat(self.view, 0, self.log.committed))
        else:
            adder = self.adder_of(self.view)
            for name in [adder] if adder in self._links else sorted(self._links):
                self._send(name, self._position())

    def _watch(self) -> None:
        """Find out whether the adder, or a majority, is lost."""
        if self.name not in self._voters or self._recovering:
            return
        now, settings = self._now, self.settings
        if self._normal and self._chosen():
            since = now - settings.patience
            alive = 1 + sum(time >= since for time in self._alive.values())
            quiet = alive < self.majority and self._heard < since
        else:
            quiet = now - self._heard > settings.patience
            quiet |= self._lost is not None and now - self._lost > settings.grace
        self._suspecting = quiet

    def _campaign(self) -> None:
        """Begin a view of one's own when a majority has lost the adder, the next in order first."""
        if not self._suspecting or self.name not in self._order:
            self._majority_since = None
            return
        recently = self._now - 2 * self.settings.beat
        lost = 1 + sum(time >= recently for time in self._suspects.values())
        if lost < self.majority:
            self._majority_since = None
            return
        if self._majority_since is None:
            self._majority_since = self._now
        place = self._order.index(self.name)
        later = (place - self.view - 1) % len(self._order) + 1
        if self._now - self._majority_since >= (later - 1) * self.settings.stagger:
            self._enter(self.view + later)

    def _choose(self) -> None:
        """Take the log of the latest normal view, the longest of these, and start the view."""
        if self._normal or not self._chosen() or self._source is not None:
            return
        mine, voting = self._position(), list(self._positions.values())
        if mine.last or any(one.last for one in voting):  # else all begin, and none forgot anything
            voting = [one for one in voting if not one.nonce]
        if len(voting) + 1 < self.majority:
            return
        best = max(voting, key=_rank, default=mine)
        if _rank(mine) >= _rank(best):
            self._start_view()
            return
        self._source = next(name for name, one in self._positions.items() if one is best)
        self._feeder = None
        self._send(self._source, Fetch(self.view, mine.committed, mine.digests))

    def _start_view(self) -> None:
        """Add in this view, with a log that has all that was committed in earlier ones."""
        log = self.log
        committed = [position.committed for position in self._positions.values()]
        log.committed = min(log.last, max([log.committed, *committed]))
        log.keep(log.view, log.view, doubtful=self._new)
        positions = self._positions
        self._clear()
        self._normal, self._suspecting = True, False
        self._heard = self._now
        for name, position in positions.items():
            self._alive[name] = self._now
            self._serve(name, position)
        for name in sorted(self._links - self._feeds.keys()):
            self._send(name, self._feeds.beat(name, self.view))
        self._advance()

    @abstractmethod
    def _serve(self, name: str, asked: Position | Fetch) -> None:
        """Send somebody what it lacks."""

    @abstractmethod
    def _advance(self) -> None:
        """Commit what a majority has."""

    def _on_suspect(self, sender: str, message: Suspect) -> None:
        if sender in self._voters:
            self._suspects[sender] = self._now
            if self.is_adder:
                self._send(sender, self._feeds.beat(sender, self.view))
            self._campaign()

    def _on_start_view_change(self, sender: str, message: StartViewChange) -> None:
        if sender == self.adder_of(self.view) and not self._normal:
            self._send(sender, self._position())

    def _on_fetch(self, sender: str, message: Fetch) -> None:
        if sender == self.adder_of(self.view) and not self._normal and not self._recovering:
            self._serve(sender, message)


def _rank(position: Position) -> tuple[int, int]:
    return position.normal, position.last
