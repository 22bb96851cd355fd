"""The relay: it collects parts and adds vectors. It sees no document, word, number or total."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from fedtopics import waiting
from fedtopics.errors import FederationError, first_problem, refuse
from fedtopics.escaping import as_sentence
from fedtopics.protocol.keys import digest_of_fields, digest_of_list
from fedtopics.protocol.masks import Words, add
from fedtopics.protocol.messages import (
    Answer,
    Ask,
    Body,
    Last,
    List,
    Part,
    Stop,
    Total,
    Want,
    decode,
    encode,
)

SMALL = 4096  # bytes of a message other than a body: all members get a copy
LONGEST_REASON = 100  # characters


class Relay:
    """The relay's state machine; `keep` durably writes its file before any member gets a total."""

    def __init__(self, names: Collection[str], file: bytes, keep: Callable[[bytes], None]) -> None:
        self.names = sorted(names)
        self.last = decode(file, Last) if file else None
        self._keep = keep
        self._parts: dict[str, tuple[Part, bytes]] = {}  # the newest of each
        self._list: list[bytes] = []  # of the step whose bodies are collected
        self._list_digest = b""
        self._last_digest = digest_of_list(self.last.parts) if self.last else b""
        self._bodies: dict[str, tuple[bytes, bytes, int]] = {}  # digest, content of a call, size
        self._sum: Words | None = None
        self.asks: dict[str, Ask] = {}  # the newest of each
        self._before: dict[str, bytes] = {}  # each one's process before that: it may run as well
        self.ended: dict[str, str] = {}  # why the processes of some have ended
        self.halted: Stop | None = None  # ended all processes, until they are started again
        self._stopped: set[bytes] = set()  # the processes that get it
        self._late: set[str] = set()  # members that had sent a part, but not asked: they get it too
        self.done = set(self.last.done if self.last else ())

    @property
    def step(self) -> int:
        """The newest step that has a part."""
        return max((part.step for part, _ in self._parts.values()), default=0)

    def missing(self) -> list[str]:
        """Return the members whose part or body the others wait for."""
        if self._list:
            return [name for name in self.names if name not in self._bodies]
        at = max(self.step, 0 if self.last is None else self.last.step + 1)
        return [
            name
            for name in self.names
            if name not in self.done and (name not in self._parts or self._parts[name][0].step < at)
        ]

    def say(self, name: str, content: bytes) -> None:
        """Take a message; FederationError if it is damaged or differs from an earlier one."""
        message = decode(content, Part | Body | Stop)  # type: ignore[arg-type]
        refuse(
            {
                f"{name} sent {len(content):,} bytes that are not a vector or reply.": (
                    not isinstance(message, Body) and len(content) > SMALL
                ),
                f"{name} sent a message of {message.name or 'the relay'}.": message.name != name,
            },
            FederationError,
        )
        match message:
            case Part():
                self._take_part(message, content)
            case Body():
                self._take_body(message)
            case Stop():
                self.ended[name] = as_sentence(message.reason[:LONGEST_REASON])
                self._halt(message)

    def _halt(self, stop: Stop) -> Stop:
        """Send a Stop to the processes known now, not to those that start later."""
        if self.halted is None:
            self.halted = stop
            self._stopped = {ask.process for ask in self.asks.values()} | {*self._before.values()}
            self._late = self._parts.keys() - self.asks.keys()
        if self.last is None and not self._bodies:
            self._list = []  # a member may have to correct its study
            self._parts = {}
        return self.halted

    def _take_part(self, part: Part, content: bytes) -> None:
        held = self._parts[part.name][0].step if part.name in self._parts else 0
        # No member can be more than one step past the last total.
        is_other = self.last is not None and part.step != self.last.step + 1
        if is_other or part.step < held or (self._list and part.step <= self.step):
            return
        self._parts[part.name] = part, content
        steps = {held_part.step for held_part, _ in self._parts.values()}
        if len(self._parts) == len(self.names) and len(steps) == 1:
            self._list = [self._parts[name][1] for name in self.names]
            self._list_digest = digest_of_list(self._list)
            self._bodies = {}
            self._sum = None

    def _take_body(self, body: Body) -> None:
        if not self._list or body.list != self._list_digest:
            return
        digest = digest_of_fields(body.content)
        if body.name in self._bodies:
            if self._bodies[body.name][0] != digest:
                raise FederationError(f"{body.name} sent two different bodies of step {self.step}.")
            return
        is_sum = self._parts[body.name][0].kind == "sum"
        size = len(body.content)
        if is_sum and all(size == other for _, _, other in self._bodies.values()):
            self._sum = add(self._sum, body.content)
        self._bodies[body.name] = digest, b"" if is_sum else body.content, size
        if len(self._bodies) < len(self.names):
            return
        sizes = {name: size for name, (_, _, size) in self._bodies.items()}
        if is_sum and (wrong := _of_other_size(sizes)):
            self._bodies = {}
            self._halt(Stop("", b"", b"", self.step, f"wrong length of a vector: {wrong}"))
            return
        replies = encode([self._bodies[name][1] for name in self.names])
        last = Last(self.step, self._list, replies if self._sum is None else self._sum.tobytes())
        self._keep(encode(last))
        self.last = last
        self._list = []
        self._bodies = {}
        self._sum = None
        self._last_digest = self._list_digest

    def ask(self, name: str, ask: Ask) -> Answer | None:
        """Return a member's next action; None if there is none yet."""
        if ask.phase == "refused":
            self.ended[name] = as_sentence(ask.reason[:LONGEST_REASON])
            return Answer()
        self.ended.pop(name, None)
        if (last := self.asks.get(name, ask).process) != ask.process:
            self._before[name] = last
        self.asks[name] = ask
        if name in self._late:
            self._late.remove(name)
            self._stopped.add(ask.process)
        if self.halted and not self._stopped & {other.process for other in self.asks.values()}:
            self.halted = None
        if ask.phase == "done":
            self._take_done(name)
            return Answer()
        message = self._answer(name, ask)
        return None if message is None else Answer(message)

    def _take_done(self, name: str) -> None:
        """Record that a member has the model: it will not tell a relay that is started again."""
        if self.last is not None and name not in self.done:
            last = msgspec.structs.replace(self.last, done=sorted({*self.last.done, name}))
            self._keep(encode(last))
            self.last = last
        self.done.add(name)

    def _answer(self, name: str, ask: Ask) -> List | Total | Want | Stop | None:
        last = self.last
        part = self._parts.get(name)
        held = -1 if part is None else part[0].step
        if self.halted is not None and ask.process in self._stopped:
            return self.halted
        if last is not None and ask.step < last.step:
            return List(last.parts)  # which contains a part that the member has lost
        if last is not None and ask.step == last.step:
            return Total(ask.list) if ask.list == self._last_digest else List(last.parts)
        if self._list and ask.step <= self.step:
            if ask.list != self._list_digest:
                return List(self._list)
            return None if name in self._bodies else Want("body")
        steps = {n: held_part.step for n, (held_part, _) in self._parts.items()}
        steps |= {n: max(other.step, steps.get(n, 0)) for n, other in self.asks.items()}
        first = max(steps, key=lambda n: steps[n])
        newest = steps[first] if last is None else min(steps[first], last.step + 1)
        if ask.step < newest and held < newest:
            where = f"{name} is at step {ask.step}, {first} at step {newest}"
            return self._halt(
                Stop("", b"", b"", ask.step, f"{where}, and the total in between is lost")
            )
        return Want("part") if held < ask.step and not ask.reason else None

    def fetch(self, list_: bytes) -> bytes:
        """Return the total of the step with this list; b"" if it is not available."""
        last = self.last
        return last.total if last is not None and list_ == self._last_digest else b""


def _of_other_size(sizes: Mapping[str, int]) -> str:
    """Name the members whose vectors have another size than those of most; "" if there are none."""
    size_of_most = Counter(sizes.values()).most_common(1)[0][0]
    return ", ".join(name for name, size in sizes.items() if size != size_of_most)


def state_of(seconds: float | None, ended: str = "", reason: str = "") -> str:
    """Describe a member that others wait for, by the seconds since its last call."""
    return (
        f"ended: {ended}"
        if ended
        else reason
        or first_problem(
            {
                "not connected yet": seconds is None,
                "connected": (seconds or 0.0) < waiting.AWAY,
                f"no call for {seconds or 0.0:.0f} s": True,
            }
        )
    )


class FromMember(NamedTuple):
    """What a member has sent: messages that others may still need, and its last question."""

    sent: float  # seconds since 1970
    ask: Ask
    messages: Sequence[bytes]


class RelayService:
    """A relay for a transport; a newer ask of a member ends the older one."""

    def __init__(self, relay: Relay, largest: int) -> None:
        self.relay = relay
        self.names = relay.names
        self.largest = largest
        self._changed = threading.Condition()
        self._failure = ""
        self._called: dict[str, tuple[int, float]] = {}  # the number of each one's asks, and when
        self._written: dict[str, str] = {}  # when each one's last file was written

    def ask(self, name: str, message: bytes) -> bytes:
        ask = decode(message, Ask)
        until = time.monotonic() + waiting.ASK_HELD
        with self._changed:
            number = self._called.get(name, (0, 0.0))[0] + 1
            self._called[name] = number, time.monotonic()
            ended = dict(self.relay.ended)
            self._changed.notify_all()
            while (answer := self.relay.ask(name, ask)) is None and ended == self.relay.ended:
                left = 0.0 if ask.reason else until - time.monotonic()
                if left <= 0 or not self._changed.wait(left) or self._called[name][0] != number:
                    break
            return encode(answer or Answer(waiting=self._waiting()))

    def _waiting(self) -> dict[str, str]:
        called = self.present()
        reasons = {name: as_sentence(ask.reason) for name, ask in self.relay.asks.items()}
        shown = {name: reasons.get(name) or self._written.get(name, "") for name in self.names}
        return {
            name: state_of(called.get(name), self.relay.ended.get(name, ""), shown[name])
            for name in self.relay.missing()
        }

    def take(self, arrived: Mapping[str, FromMember]) -> dict[str, Answer]:
        """Take the messages that members have sent at any time; return the answer to each."""
        with self._changed:
            faults: dict[str, str] = {}
            self.relay.halted = None  # a Stop that still holds is among the messages
            for name, of in arrived.items():  # first, so that a stop reaches all these processes
                at = datetime.fromtimestamp(of.sent, UTC)
                self._written[name] = f"last message of {at:%Y-%m-%d %H:%M} UTC"
                self.relay.ask(name, of.ask)
            parts = [(name, m) for name, of in arrived.items() for m in of.messages[:1]]
            others = [(name, m) for name, of in arrived.items() for m in of.messages[1:]]
            for name, message in parts + others:  # a body counts only after the parts of all
                try:
                    self.relay.say(name, message)
                except FederationError as error:
                    faults[name] = as_sentence(str(error)[:LONGEST_REASON])
            answers = {name: self.relay.ask(name, of.ask) for name, of in arrived.items()}
            self.relay.ended |= faults  # a question would take them back
            self._changed.notify_all()
            return {
                name: answer or Answer(waiting=self._waiting()) for name, answer in answers.items()
            }

    def waiting(self) -> tuple[int, dict[str, str], Stop | None]:
        """Return the step, for whom it waits with the state of each, and what ended the run."""
        with self._changed:
            return self.relay.step, self._waiting(), self.relay.halted

    def say(self, name: str, message: bytes) -> None:
        with self._changed:
            self.relay.say(name, message)
            self._changed.notify_all()

    def fetch(self, name: str, what: bytes) -> bytes:
        with self._changed:
            return self.relay.fetch(what)

    def present(self) -> dict[str, float]:
        """Return the seconds since the last call of each member that has called."""
        now = time.monotonic()
        return {name: now - at for name, (_, at) in self._called.items()}

    def differs(self, name: str, reason: str) -> None:
        with self._changed:
            self.relay.ended[name] = reason
            self._changed.notify_all()

    def left(self, name: str) -> None:
        """Record that a member will not call any more; without the model, the run ends."""
        if name not in self.relay.done:
            self.fail(f"{name} ended before it had the model; its own log gives the reason")

    def fail(self, reason: str) -> None:
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def wait_until_done(self, seconds: float) -> list[str]:
        """Wait until all members are done; return those that are not done in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self.relay.done.issuperset(self.names), seconds
            )
            missing = [name for name in self.names if name not in self.relay.done]
            if missing and self._failure:
                raise FederationError(
                    f"The server ends: {self._failure}; remove the cause, then start the same "
                    "command again, which resumes the run."
                )
            return missing
