"""The client's end of engines that carry whole messages: one message in, one answer out.

An engine may start a process for each message. A client's half has state between two calls (the
agreed words; within a round, what it computed before), so a journal keeps the messages that led to
that state, and a new process executes these again first; nothing leaves by that.
"""

from __future__ import annotations

from pathlib import Path

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.call_handler import CallHandler, Notify, Participant, Versions
from fedtopics.engines.messages import from_message, to_message
from fedtopics.engines.values import unpack
from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.methods.events import Declined, Joined, Refused


class MessageClient:
    """Answer a server's messages.

    The server trusts the engine that no other client uses this one's `name`. The `journal` is a
    folder for the messages that a later process has to repeat. Of `notify` alone a person learns
    why a study was declined.
    """

    def __init__(
        self,
        name: str,
        participant: Participant,
        versions: Versions,
        notify: Notify,
        journal: Path | None = None,
    ) -> None:
        self._name = name
        self._participant = participant
        self._notify = notify
        self._journal = _Journal(journal)
        self._handler = CallHandler(participant, versions, notify)
        self._last: tuple[int, bytes] = (0, b"")

    def answer(self, message: bytes) -> bytes:
        """Answer a message; a call that comes again is answered with the same bytes."""
        frame, buffer = from_message(message)
        kind = frame.WhichOneof("kind")
        if kind == "offer":
            return self._join(frame.offer, message)
        if kind == "call":
            return self._call(frame.call, buffer, message)
        if kind == "result":
            self._participant.receive(unpack(frame.result.body, buffer))
            self._journal.clear()
        else:
            self._notify(Refused(frame.refusal.reason, frame.refusal.again))
        return to_message(wire.Frame(received=wire.Received()))

    def _join(self, offer: wire.Offer, message: bytes) -> bytes:
        self._last = (0, b"")  # a restarted server numbers its calls from 1 again
        try:
            self._handler.join(self._handler.check(offer))
        except FedTopicsError as error:
            return self._declined(error)
        self._journal.begin(message)
        self._notify(Joined(self._handler.fingerprint))
        accept = wire.Accept(fingerprint=self._handler.fingerprint, name=self._name)
        return to_message(wire.Frame(accept=accept))

    def _declined(self, error: FedTopicsError) -> bytes:
        self._notify(Declined(str(error)))
        # The name alone: the sentence is for the client's own eyes.
        return to_message(wire.Frame(refusal=wire.Refusal(reason=self._name)))

    def _call(self, call: wire.Call, buffer: memoryview, message: bytes) -> bytes:
        if call.id == self._last[0]:
            return self._last[1]
        if not self._handler.joined:
            try:
                self._restore()
            except FedTopicsError as error:
                return self._declined(error)
        answer = self._handler.handle(call, buffer)
        if answer.error is not None:
            self._notify(Declined(str(answer.error)))
        elif answer.packed is not None:
            self._journal.add(call, message)
        self._last = call.id, to_message(answer.frame, answer.packed)
        return self._last[1]

    def _restore(self) -> None:
        """Execute again what earlier processes answered."""
        for message in self._journal.messages():
            frame, buffer = from_message(message)
            if frame.HasField("offer"):
                self._handler.join(self._handler.check(frame.offer))
            else:
                self._handler.repeat(frame.call, buffer)
        if not self._handler.joined:
            raise FederationError(
                f"Client {self._name!r} was called before it joined a study; start the study again."
            )


class _Journal:
    """The offer, the standing calls, the calls of this round; nothing without a folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def begin(self, offer: bytes) -> None:
        """Keep an offer, of which nothing was answered yet."""
        self.clear()
        self._write(f"offer-{0:012}", offer)

    def add(self, call: wire.Call, message: bytes) -> None:
        """Keep a call; forget those of an earlier round."""
        if self._folder is None:
            return
        of_round = f"round-{call.round}-{call.attempt}-"
        standing = f"standing-{call.function}-"
        for path in self._folder.iterdir():
            old = path.name.startswith("round-") and not path.name.startswith(of_round)
            if old or path.name.startswith(standing):
                path.unlink()
        self._write(f"{standing if call.standing else of_round}{call.id:012}", message)

    def messages(self) -> list[bytes]:
        """Return what was kept, in the order in which it came."""
        if self._folder is None or not self._folder.is_dir():
            return []
        paths = sorted(self._folder.glob("*-*[0-9]"), key=lambda path: path.name.rsplit("-", 1)[1])
        return [path.read_bytes() for path in paths]

    def clear(self) -> None:
        """Forget everything."""
        for path in [] if self._folder is None else self._folder.glob("*"):
            path.unlink()

    def _write(self, name: str, message: bytes) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / name
        part = path.with_suffix(".part")
        part.write_bytes(message)
        part.replace(path)
