"""Who may take part: the server's side of the handshake on a stream that a client opened."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc.frames import DisconnectedError, Stream
from fedtopics.engines.grpc.members import GrpcMember
from fedtopics.engines.handshake import Proposal
from fedtopics.methods.events import StatusChange

SAME_NAME = 10.0  # seconds in which the first of two clients of a name must answer
GOODBYE = 2.0  # seconds to send a refusal


async def refuse(stream: Stream, reason: str, again: bool = False) -> None:
    """Send a client away, with a sentence."""
    with suppress(DisconnectedError, TimeoutError):
        refusal = wire.Frame(refusal=wire.Refusal(reason=reason, again=again))
        await asyncio.wait_for(stream.send(refusal), GOODBYE)


class Admission:
    """Shake hands with the clients of one study, which may send chunks of `chunk` bytes.

    `notify` gets each client that declines or is refused.
    """

    def __init__(
        self,
        proposal: Proposal,
        members: Mapping[str, GrpcMember],
        chunk: int,
        notify: Callable[[StatusChange], None],
    ) -> None:
        self._proposal = proposal
        self._members = members
        self._chunk = chunk
        self._notify = notify
        self._run = os.urandom(8)

    async def admit(self, stream: Stream, hello: wire.Hello, name: str) -> GrpcMember | None:
        """Return the member that a client is, or None for one that does not take part."""
        objection = self._objection(name, hello)
        if hello.look and not objection:
            await stream.send(wire.Frame(offer=self._offer()))
            return None
        objection = objection or await self._same_name(name, hello)
        if not objection:
            await stream.send(wire.Frame(offer=self._offer()))
            # The client counts its words before it answers, however long that takes.
            answer = await stream.next()
            if answer.HasField("refusal"):
                reason = "its policy or its settings keep it from joining"
                self._notify(StatusChange("declined", name, reason))
                return None
            if answer.accept.fingerprint == self._proposal.fingerprint:
                return self._members[name]
            objection = (
                f"The client joins the study {answer.accept.fingerprint or 'without a name'}, this "
                f"server runs {self._proposal.fingerprint}; restart the client."
            )
        self._notify(StatusChange("refused", name, objection))
        await refuse(stream, objection)
        return None

    def _objection(self, name: str, hello: wire.Hello) -> str:
        if name not in self._members:
            return (
                f"The study has no client named {name!r}; name the client in the study under "
                "[clients], or give it a certificate with a name that is there."
            )
        if self._members[name].excluded:
            return f"This client was excluded: {self._members[name].excluded}."
        return self._proposal.objection(hello.product, hello.wire, dict(hello.methods))

    def _offer(self) -> wire.Offer:
        return self._proposal.offer(run=self._run, chunk=self._chunk)

    async def _same_name(self, name: str, hello: wire.Hello) -> str:
        """Object to a second client of a name while the first one answers."""
        first = self._members[name]
        stream = first.stream
        if stream is None or first.process == hello.process:
            return ""
        asked = time.monotonic()
        with suppress(DisconnectedError, TimeoutError):
            await asyncio.wait_for(stream.send(wire.Frame(heartbeat=wire.Heartbeat())), SAME_NAME)
        while time.monotonic() < asked + SAME_NAME and first.stream is stream:
            if stream.last_received > asked:
                return (
                    f"A client named {name!r} is connected already, from another process; stop "
                    "it first, or give each client an identity of its own."
                )
            await asyncio.sleep(0.05)
        return ""
