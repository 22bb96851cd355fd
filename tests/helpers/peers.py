"""Studies without a server in this process: each participant in a thread."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.engines.feeds import Settings
from fedtopics.engines.grpc import transport
from fedtopics.engines.node import Node
from fedtopics.federation import peer
from fedtopics.federation.peer import PeerParticipation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.study import Study
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from tests.helpers.background import HOST, Background, KilledError, Notes, until

SOON = Settings(beat=0.5, patience=2.5, grace=0.1, stagger=0.2)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Participants come back, and give others up, sooner than between machines."""
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(peer, "LONGEST_PAUSE", 0.2)
    monkeypatch.setattr(peer, "STAY", 3.0)
    monkeypatch.setattr(adder, "GRACE", 0.3)
    replica = peer.Replica
    monkeypatch.setattr(peer, "Replica", lambda *a, **how: replica(*a, settings=SOON, **how))


def with_addresses(study: Study, names: Mapping[str, Any] | list[str]) -> Study:
    """Return the study of these participants, each at a free port of this machine."""
    listening = {name: socket.create_server((HOST, 0)) for name in names}
    clients = {}
    for name, each in listening.items():
        clients[name] = {"address": f"{HOST}:{each.getsockname()[1]}"}
        each.close()
    return Study.make(**{**study.model_dump(), "clients": clients})


class Peer:
    """A participant in a thread; `on_event` may end it by raising `KilledError`."""

    def __init__(
        self, study: Study, name: str, corpus: Corpus, folder: Path,
        identity: Path | None = None, on_event: Callable[[dict[str, Any]], None] | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        self.name, self.events, self.folder = name, Notes(), folder / name
        self.nodes: list[Node] = []

        def notify(event: dict[str, Any]) -> None:
            self.events.append(event)
            if on_event is not None:
                on_event(event)

        part = PeerParticipation(
            study, identity, "", out=self.folder, name=name, corpus=corpus, policy=OPEN_POLICY,
            on_event=notify, secret_from_seed=True, opened=self.nodes.append, **more,
        )  # fmt: skip
        self._work = Background(part.run)

    @property
    def node(self) -> Node:
        """Its place in the study, as soon as it has one."""
        until(lambda: bool(self.nodes))
        return self.nodes[0]

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The rounds that it has done."""
        return self.events.of("round")

    def error(self) -> BaseException | None:
        """Wait for its end; return what it raised."""
        return self._work.error()

    def kill(self) -> None:
        """End it, wherever its program is."""
        self.node._failure = KilledError()  # type: ignore[assignment]
        self.error()

    def model(self) -> TopicModel:
        """Wait for its end; return its model."""
        self._work.result()
        return TopicModel.from_pretrained(self.folder / "model")
