"""A carrier of messages in this process, and studies over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtopics.engines.message_client import MessageClient
from fedtopics.engines.message_server import MessageServer
from fedtopics.engines.rounds import RemoteClients
from fedtopics.extras import VERSION
from fedtopics.federation.door import Door
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import lead
from fedtopics.federation.study import Study
from fedtopics.methods.registry import versions as method_versions
from fedtopics.model.topic_model import TopicModel
from tests.helpers.grpc_federation import PROPOSAL, RULES, VERSIONS, Half, Notes, door

Answer = Callable[[bytes], bytes]


class FakeCarrier:
    """Brings each message at once; an answer that is None is lost."""

    def __init__(self, answers: Mapping[str, Callable[[bytes], bytes | None]]) -> None:
        self.answers = dict(answers)
        self.away: set[str] = set()
        self._sent: list[tuple[str, bytes]] = []

    def addresses(self) -> list[str]:
        return [name for name in self.answers if name not in self.away]

    def send(self, address: str, message: bytes) -> None:
        self._sent.append((address, message))

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        sent, self._sent = self._sent, []
        if not sent:
            time.sleep(min(seconds, 0.01))
        return [(a, self.answers[a](message)) for a, message in sent if a not in self.away]


class Joining:
    """A participant of the tiny method."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def consider(self, _: Any) -> Door:
        return self._door

    def receive(self, files: Mapping[str, Any]) -> None:
        pass

    def diagnose(self) -> str:
        return ""


@contextmanager
def carried(halves: Mapping[str, Half]) -> Iterator[RemoteClients]:
    """Yield clients that are called by messages."""

    def answering(name: str, half: Half) -> Answer:
        return MessageClient(name, Joining(door(name, half)), VERSIONS, Notes()).answer

    carrier = FakeCarrier({f"at {name}": answering(name, half) for name, half in halves.items()})
    server = MessageServer(PROPOSAL, halves, carrier)
    rules = RULES if len(halves) > 1 else type(RULES)(1, 60.0, 0.0, 60.0)
    yield RemoteClients(server, rules, Notes())
    server.stop()


class RestartingClient:
    """A client whose process ends with each message."""

    def __init__(self, name: str, corpus: Any, out: Path, policy: Policy = OPEN_POLICY) -> None:
        self.events = Notes()
        self._given = name, corpus, policy, out

    def __call__(self, message: bytes) -> bytes:
        name, _, _, out = self._given
        part = Participation(*self._given)
        try:
            versions = VERSION, method_versions()
            client = MessageClient(name, part, versions, self.events, out / "journal")
            return client.answer(message)
        finally:
            part.close()


def restarting_clients(
    corpora: Mapping[str, Any], folder: Path, policy: Policy = OPEN_POLICY
) -> FakeCarrier:
    """A carrier to clients whose folders are in `folder`."""
    return FakeCarrier(
        {
            name: RestartingClient(name, data, folder / name, policy)
            for name, data in corpora.items()
        }
    )


def led(
    plan: Study, corpora: Mapping[str, Any], folder: Path, **how: Any
) -> tuple[TopicModel, FakeCarrier]:
    """Run a study over messages, a process for each; return the model and the carrier."""
    carrier = restarting_clients(corpora, folder)
    return lead(plan.with_clients(corpora), carrier, folder / "server", **how), carrier
