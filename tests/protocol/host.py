"""The process of the relay in a simulated world, as `RelayService` and a transport serve it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fedtopics import waiting
from fedtopics.errors import FederationError
from fedtopics.protocol.messages import Answer, Ask, decode, encode
from fedtopics.protocol.relay import Relay
from tests.protocol.disks import DiedError
from tests.protocol.malicious import Malicious

if TYPE_CHECKING:
    from tests.protocol.world import Process, World

RELAY = "relay"


class Host:
    """The machine of the relay: its file, and its process if that runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.file = self.before = b""  # before: what a power cut may leave
        self.keeps_durably = world.mutant != "the relay's file not synced"
        self.relay: Relay | None = None
        self.held: dict[str, tuple[Ask, Process, int]] = {}  # asks that wait for an answer

    def start(self) -> None:
        """Start the process with its file; after a while a malicious relay is replaced."""
        world = self.world
        if self.relay is None:
            self.before = self.file
            self.relay = (
                Malicious(world, self.file, self.keep)
                if world.evil and not (world.reform and world.now >= world.reform)
                else Relay(world.names, self.file, self.keep)
            )

    def keep(self, content: bytes) -> None:
        self.world.point()
        self.before = self.file
        self.file = content
        self.world.point()

    def arrive(self, p: Process, number: int, kind: str, content: bytes) -> None:
        """Take a call of a process."""
        world = self.world
        if self.relay is None:
            if world.r.random() < 0.7:  # refused at once; else the machine does not answer
                world.net(RELAY, p.name, lambda: world.failed(p, number, kind, content))
            return
        try:
            if kind == "ask":
                self._hold(p, number, decode(content, Ask))
            elif kind == "fetch":
                self._respond(p, number, kind, self.relay.fetch(content))
            else:
                self._say(self.relay, p, number, content)
            self._serve(self.relay)
        except DiedError:
            self.stop(world.r.random() < 0.5)

    def _say(self, relay: Relay, p: Process, number: int, content: bytes) -> None:
        try:
            relay.say(p.name, content)
        except FederationError as error:
            self._respond(p, number, "refused", str(error).encode())
        else:
            self._respond(p, number, "say", b"")

    def _hold(self, p: Process, number: int, ask: Ask) -> None:
        """Hold an ask for a while; the one before of this member is answered with nothing."""
        if p.name in self.held:
            _, other, before = self.held.pop(p.name)
            self._respond(other, before, "ask", encode(Answer()))
        self.held[p.name] = ask, p, number
        self.world.after(waiting.ASK_HELD, lambda: self._expire(p, number))

    def _serve(self, relay: Relay) -> None:
        """Answer asks, in any order."""
        for name in self.world.r.sample(sorted(self.held), len(self.held)):
            ask, p, number = self.held[name]
            answer = relay.ask(name, ask)
            if answer is not None:
                del self.held[name]
                self._respond(p, number, "ask", encode(answer))
        self.world.point()

    def _expire(self, p: Process, number: int) -> None:
        if p.name in self.held and self.held[p.name][2] == number:
            del self.held[p.name]
            self._respond(p, number, "ask", encode(Answer(waiting={p.name: "connected"})))

    def _respond(self, p: Process, number: int, kind: str, content: bytes) -> None:
        if kind == "ask" and isinstance(self.relay, Malicious):
            content = self.relay.changed(content)
        self.world.net(RELAY, p.name, lambda: self.world.reply(p, number, kind, content))

    def stop(self, power: bool = False) -> None:
        """Kill the process, and start it again soon."""
        self.relay = None
        if power and not self.keeps_durably:
            self.file = self.before
        held = self.held
        self.held = {}
        world = self.world
        for _, p, number in held.values():
            if world.r.random() < 0.5:  # the connection is reset; else nothing comes
                question = p.member.question()
                world.net(RELAY, p.name, partial(world.failed, p, number, "ask", question))
        down = world.r.uniform(0, 3)
        world.quiet = max(world.quiet, world.now + down)
        world.after(down, self.start)
