"""A carrier of messages in this process, and studies over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtopics.engines.message_client import Answering
from fedtopics.engines.message_server import Messages
from fedtopics.engines.rounds import RemoteClients
from fedtopics.federation.door import Door
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import lead
from fedtopics.federation.study import Study
from fedtopics.model.topic_model import TopicModel
from tests.helpers.grpc_federation import PROPOSAL, RULES, VERSIONS, Half, Notes, door

Answer = Callable[[bytes], bytes]


class Post:
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

    def __init__(self, exit_: Door) -> None:
        self._exit = exit_

    def consider(self, _: Any) -> Door:
        return self._exit

    def receive(self, files: Mapping[str, Any]) -> None:
        pass

    def diagnose(self) -> str:
        return ""


@contextmanager
def carried(halves: Mapping[str, Half]) -> Iterator[RemoteClients]:
    """Yield clients that are called by messages."""

    def answering(name: str, half: Half) -> Answer:
        told = Notes()
        return Answering(name, Joining(door(name, half)), told, versions=VERSIONS).answer

    post = Post({f"at {name}": answering(name, half) for name, half in halves.items()})
    lines = Messages(PROPOSAL, halves, post)
    rules = RULES if len(halves) > 1 else type(RULES)(1, 60.0, 0.0, 60.0)
    yield RemoteClients(lines, rules, Notes())
    lines.stop()


class Anew:
    """A client whose process ends with each message."""

    def __init__(self, name: str, corpus: Any, out: Path, policy: Policy = OPEN_POLICY) -> None:
        self.events = Notes()
        self._given = name, corpus, policy, out

    def __call__(self, message: bytes) -> bytes:
        name, _, _, out = self._given
        part = Participation(*self._given)
        try:
            return Answering(name, part, self.events, out / "journal").answer(message)
        finally:
            part.close()


def led(
    plan: Study, corpora: Mapping[str, Any], folder: Path, **how: Any
) -> tuple[TopicModel, Post]:
    """Run a study over messages, a process for each; return the model and the carrier."""
    post = Post({name: Anew(name, data, folder / name) for name, data in corpora.items()})
    return lead(plan.with_clients(corpora), post, folder / "server", **how), post
