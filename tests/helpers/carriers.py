"""An engine that carries messages, in this process: a carrier, and the clients at its other end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedtopics.engines.answering import CarriedParticipant
from fedtopics.engines.carried import CarriedTransport
from fedtopics.engines.handshake import Signatures
from fedtopics.engines.transport import Transport
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import lead
from fedtopics.federation.study import Study
from fedtopics.model.topic_model import TopicModel
from tests.helpers.federation import study

Answer = Callable[[bytes], bytes | None]
SIZES = {"east": 60, "north": 40, "south": 25}
POLICIES = dict.fromkeys(SIZES, OPEN_POLICY)
CLUSTERS = {"n_components": 3, "max_rounds": 4, "embedding": {"dimension": 7}}
METHODS: dict[str, dict[str, Any]] = {
    "sync": {"max_rounds": 6, "norm": "sync", "validation_share": 0.25, "validate_every": 2},
    "local steps": {"max_rounds": 6, "norm": "server", "optimizer": "fedavg", "local_steps": 3},
    "lda": {"name": "lda", "n_components": 4, "max_rounds": 6},
    "mixture": {"name": "mixture", **CLUSTERS},
    "nmf": {"name": "nmf", "n_components": 4, "max_rounds": 4},
    "auto": {"name": "auto", **CLUSTERS},
    "kmeans": {"name": "kmeans", **CLUSTERS},
    "discriminative": {"name": "discriminative", **CLUSTERS},
    "fstc": {"name": "fstc", **CLUSTERS},
}


def planned(case: str, **federation: Any) -> Study:
    method, federation = METHODS[case], {"robust": "none"} | federation
    if "name" not in method:
        return study(**method).model_copy(
            update={"federation": Study.make(federation=federation).federation}
        )
    return Study.make(
        method=method, vocabulary={"min_document_frequency": 1}, checkpoint_every=2,
        secure=False, federation=federation,
    )  # fmt: skip


class Notes(list[dict[str, Any]]):
    """What a run or a client was told, in order."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in self if note["event"] == kind]


class FakeCarrier:
    """Brings each message at once; an answer that is None is lost."""

    vouches = False

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.away: set[str] = set()
        self.bundles = 0
        self._sent: list[tuple[str, bytes]] = []

    def addresses(self) -> list[str]:
        return [name for name in self.answers if name not in self.away]

    def send(self, address: str, message: bytes) -> None:
        assert address not in [to for to, _ in self._sent], "one bundle at a time"
        self.bundles += 1
        self._sent.append((address, message))

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        sent, self._sent = self._sent, []
        if not sent:
            time.sleep(min(seconds, 0.005))
        return [(a, self.answers[a](message)) for a, message in sent if a not in self.away]


class Client:
    """A client at its address; `restart` is what a killed process and a new one come to."""

    def __init__(
        self, name: str, corpus: Any, out: Path, policy: Policy = OPEN_POLICY,
        signatures: Signatures | None = None, hold: float = 60.0,
    ) -> None:  # fmt: skip
        self.events = Notes()
        self.name = name
        self.bundles = 0
        self.errors: list[Exception] = []
        self._given = name, corpus, policy, out
        self._signatures = signatures
        self._hold = hold
        self._begin()

    def _begin(self) -> None:
        self.participant: CarriedParticipant | None = CarriedParticipant(
            self.name, self._take_part, self._hold
        )

    def _take_part(self, transport: Transport) -> None:
        part = Participation(*self._given, on_event=self.events.append, secret_from_seed=True)
        try:
            part.take_part(transport, self._signatures)
        except Exception as error:
            self.errors.append(error)
            raise

    def __call__(self, message: bytes) -> bytes | None:
        self.bundles += 1
        asked = self.participant
        said = None if asked is None else asked.answer(message)
        return said if asked is self.participant else None

    def restart(self) -> None:
        killed, self.participant = self.participant, None
        assert killed is not None
        killed.close()
        while not killed.ended:
            time.sleep(0.01)
        self._begin()


def clients(
    corpora: Mapping[str, Any], folder: Path, policy: Policy = OPEN_POLICY, **more: Any
) -> FakeCarrier:
    """A carrier to clients whose folders are in `folder`."""
    return FakeCarrier(
        {name: Client(name, data, folder / name, policy, **more) for name, data in corpora.items()}
    )


def run(plan: Study, carrier: FakeCarrier, out: Path, **how: Any) -> TopicModel:
    """Run a study as its server, to the clients of a carrier."""
    return lead(plan, CarriedTransport(carrier, linger=0.0), out, **how)
