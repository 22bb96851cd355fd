"""A member's side of a step: it calls the relay until there is a total, without its own thread."""

import math
import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar

from fedtopics import waiting
from fedtopics.contract.events import Event, Reconnecting, WaitsFor
from fedtopics.errors import FederationError, PolicyError
from fedtopics.escaping import as_sentence
from fedtopics.protocol.keys import derive
from fedtopics.protocol.link import Link, LinkError
from fedtopics.protocol.member import FALSE_TOTAL, OLDER, Member
from fedtopics.protocol.messages import Answer, Kind, List, Stop, Total, decode
from fedtopics.protocol.record import OpenedStep
from fedtopics.protocol.relay import LONGEST_REASON

UNAPPROVED = "waits for approval"
T = TypeVar("T")


@dataclass
class Patience:
    """Repeats a call until the server answers; gives up after so many seconds without an answer.

    It also reports for whom a step waits: after 5 seconds, then at growing intervals. `names` are
    those that a server may give.
    """

    _seconds: float
    _notify: Callable[[Event], None]
    _names: Collection[str] | None = None
    _since: float = 0.0
    _next: float = field(default_factory=lambda: waiting.UNSAID_WAIT)
    _shown: Mapping[str, str] = field(default_factory=dict)

    def waits_for(
        self, awaited: Mapping[str, str], since: float, server_ends: bool = False
    ) -> None:
        """Tell for whom a step waits since it began; FederationError if that is too long."""
        if since != self._since:
            if self._next > waiting.UNSAID_WAIT:  # people know of a wait, which is over
                self._notify(WaitsFor({}, 0.0, None))
            self._since = since
            self._next = waiting.UNSAID_WAIT
            self._shown = {}
        awaited = {
            name: as_sentence(state[:LONGEST_REASON])
            for name, state in awaited.items()
            if self._names is None or name in self._names
        }
        passed = time.monotonic() - since
        left = None if server_ends or math.isinf(self._seconds) else self._seconds - passed
        ended = {name: state for name, state in awaited.items() if state.startswith("ended")}
        # People who approve have no deadline.
        absent = any(
            state != "connected" and not state.startswith(UNAPPROVED) for state in awaited.values()
        )
        if left is not None and left < 0 and absent:
            raise FederationError(
                f"{', '.join(awaited)} did not answer for {self._seconds:,.0f} seconds; start the "
                "same command again to resume the run."
            )
        due = self._next if absent else max(self._next, waiting.UNSAID_WORK)
        if awaited and (passed >= due or ended.items() - self._shown.items()):
            self._next = min(2 * passed + waiting.UNSAID_WAIT, passed + waiting.NEXT_NOTICE)
            self._shown = ended
            self._notify(WaitsFor(awaited, passed, left))

    def __call__(self, call: Callable[[], T]) -> T:
        pause = waiting.FIRST_RETRY
        until = time.monotonic() + self._seconds
        while True:
            began = time.monotonic()
            try:
                return call()
            except LinkError as error:
                # A call that lasted longer than the wait before it was cut on its way.
                pause = waiting.FIRST_RETRY if time.monotonic() - began > pause else pause
                left = until - time.monotonic()
                if left <= 0:
                    raise LinkError(
                        f"The server did not answer for {self._seconds:,.0f} seconds: {error}; "
                        "start the same command again to resume the run."
                    ) from None
                # Members that lost the same server should not all return at once.
                seconds = min(left, pause * random.uniform(0.75, 1.25))  # noqa: S311
                self._notify(Reconnecting(str(error), seconds))
                time.sleep(seconds)
                pause = min(2 * pause, waiting.LAST_RETRY)


def ask_at_last(link: Link, message: bytes) -> None:
    """Tell the server that this member has the model; give up after a minute."""
    with suppress(FederationError):  # it has the model, whatever the server says
        Patience(waiting.SAY_DONE, lambda _: None)(lambda: link.ask(message))


@dataclass(repr=False)  # its own repr would print a vector
class MemberSteps:
    """Steps of a member over a link; with a `gate`, each waits until people have approved it.

    The gate takes a function, a vector or reply, and a secret that only this member knows, the same
    for the same step. It returns "" if the content may leave, else since when it waits, and keeps a
    page for it; PolicyError if somebody refuses.
    """

    member: Member
    _link: Link
    _patience: Patience
    _gate: Callable[[str, bytes, bytes], str] | None = None
    _since: float = 0.0  # of the step

    def step(self, function: str, kind: Kind, layout: bytes, content: bytes) -> OpenedStep:
        """Send a vector or a reply; return the total or all replies. FederationError on a stop."""
        member = self.member
        self._since = time.monotonic()
        messages = member.give(function, kind, layout, content)
        # Step 0 and empty replies contain nothing about documents.
        if self._gate is not None and member.phase != "stopped" and member.record.step and content:
            self._wait_at(partial(self._gate, function, content))
        self._say(messages)
        while member.phase not in ("compute", "stopped"):
            self._turn(len(content) + 8 if kind == "sum" else None)
        if member.phase == "stopped":
            self._ended()
        return member.last

    def _wait_at(self, gate: Callable[[bytes], str]) -> None:
        """Wait until a vector or reply may leave; meanwhile only the wait itself is known."""
        secret = derive(self.member.record.private, "page")
        try:
            while since := gate(secret):
                question = self.member.question(f"{UNAPPROVED} since {since}")
                answer = decode(self._patience(partial(self._link.ask, question)), Answer)
                if isinstance(answer.message, List | Stop):
                    messages = self.member.answer(answer.message)
                    # A body has to wait, even if the relay has the part from an earlier process.
                    if self.member.phase == "stopped":
                        self._say(messages)
                        self._ended()
                time.sleep(waiting.NEXT_TURN)
        except PolicyError as refusal:
            self._say(self.member.stop(str(refusal).removesuffix(".")))
            raise

    def _turn(self, most: int | None) -> None:
        """Ask once, and act on the answer; `most` is the number of bytes of a sum."""
        member = self.member
        before = member.record
        start = time.monotonic()
        answer = decode(self._patience(lambda: self._link.ask(member.question())), Answer)
        if isinstance(answer.message, Total):
            total = self._patience(lambda: self._link.fetch(member.record.list_digest, most))
            self._say(member.open(total))
        else:
            self._say(member.answer(answer.message))
        self._patience.waits_for(answer.waiting, self._since)
        if member.record is before and time.monotonic() - start < waiting.NO_NEWS:
            time.sleep(waiting.NO_NEWS)

    def _say(self, messages: list[bytes]) -> None:
        for message in messages:
            self._patience(lambda message=message: self._link.say(message))  # type: ignore[misc]

    def stop(self, reason: str) -> NoReturn:
        """Tell all members why this one stops; always raises FederationError."""
        self._say(self.member.stop(reason))
        self._ended()

    def _ended(self) -> NoReturn:
        who, _, reason = self.member.reason.partition(": ")
        remedies = {
            FALSE_TOTAL: "delete the server's file relay-* of this study, which has a false total",
            OLDER: "restore the newest folder, or end the other process; if the folder is lost, "
            "all members set run in the study to the next number",
        }
        raise FederationError(
            f"The run stopped at step {self.member.record.step}, by {who}: {reason}. Nothing is "
            f"lost: {remedies.get(reason, 'remove the cause')}; then all members start the same "
            "command again."
        )

    def done(self) -> None:
        """Tell the relay that this member has the model."""
        self.member.finish()
        ask_at_last(self._link, self.member.question())
