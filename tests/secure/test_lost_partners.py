"""Whole studies over gRPC with masked sums and certificates, of which two of five are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.federation.server import serve
from fedtopics.federation.study import Study, adders
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity
from fedtopics.secure.said import ADDED
from tests.helpers.federation import assert_same_bits, subjects
from tests.helpers.grpc_federation import (
    HOST,
    OPEN_POLICY,
    KilledError,
    Notes,
    Partner,
    authority,
    partner,
)
from tests.helpers.peers import Peer, quickly, with_addresses

__all__ = ["quickly"]

SIZES = {"east": 50, "middle": 45, "north": 40, "south": 35, "west": 30}
STAY = ["east", "middle", "west"]
KILLED = 2  # the round, of four
METHODS: dict[str, dict[str, Any]] = {
    "lda, all documents": {"name": "lda", "learning": "batch"},
    "nmf": {"name": "nmf"},
    "prodlda": {"hidden": [16, 12], "batch_size": 16, "norm": "sync"},
}
WHOLE = "lda, all documents", "nmf"


def planned(method: str, secure: bool) -> Study:
    settings = {"n_components": 3, "max_rounds": 4} | METHODS[method]
    plan = Study.make(
        method=settings, vocabulary={"min_document_frequency": 1}, secure=secure,
        federation={"min_clients": 3, "robust": "none"},
    )  # fmt: skip
    return plan.with_clients(SIZES)


class Run:
    """A study, two clients of which die: where drawn documents are, when a round is over."""

    def __init__(self, method: str, secure: bool, folder: Path, pki: Path) -> None:
        self.events, self.partners = Notes(), dict[str, Partner]()
        self._folder, self._pki = folder, pki
        self._midst = method in WHOLE
        self._secure = secure
        plan, server = planned(method, secure), Identity.load(pki / "server")
        self.model: TopicModel = serve(
            plan, server, f"{HOST}:0", folder / "server", on_event=self._happens
        )

    def _happens(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["event"] == "listening":
            address = event["address"]
            for name, corpus in subjects(SIZES).items():
                made = partner(
                    address, name, corpus, self._folder / name, OPEN_POLICY,
                    self._pki / "clients" / name,
                )  # fmt: skip
                self.partners[name] = made
                if self._midst and name not in STAY:
                    made.part._on_event = self._dies
        elif not self._midst and event["event"] == "round" and event["round"] == KILLED:
            for name in SIZES.keys() - STAY:
                self.partners[name].kill()

    def _dies(self, event: dict[str, Any]) -> None:
        """End a client when it is asked for its masked reply, or for its plain one."""
        asked = event["event"] == "call" and event["round"] == KILLED
        if asked and (not self._secure or event["function"] == ADDED):
            raise KilledError


@pytest.mark.parametrize("method", METHODS)
def test_two_of_five_are_killed(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their words are in the vocabulary; the model is that of the same study without masks."""
    monkeypatch.setattr(adder, "GRACE", 0.0)
    pki = authority(tmp_path / "pki", *SIZES)
    plain, masked = (
        Run(method, secure, tmp_path / f"secure {secure}", pki) for secure in (False, True)
    )
    for run in (plain, masked):
        for name, each in run.partners.items():
            if name in STAY:
                each.result()
            else:
                assert isinstance(each.error(), (KilledError, Exception))
        clients = [event["clients"] for event in run.events.of("round")]
        left = 1 if run._midst else KILLED
        assert clients == [sorted(SIZES)] * left + [STAY] * (4 - left)
    assert masked.model.vocabulary.words == plain.model.vocabulary.words
    np.testing.assert_allclose(masked.model.beta, plain.model.beta, atol=2e-6)


@pytest.mark.usefixtures("quickly")
def test_whoever_adds(tmp_path: Path) -> None:
    """Among equals one of them adds; when it is lost the next one goes on, to the same bits."""
    plan = with_addresses(planned("lda, all documents", True), SIZES)
    first = adders(plan)[0]

    def dies(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == KILLED:
            raise KilledError

    peers = {
        name: Peer(plan, name, corpus, tmp_path, on_event=dies if name == first else None)
        for name, corpus in subjects(SIZES).items()
    }
    assert isinstance(peers.pop(first).error(), KilledError)
    models = [peer.model() for peer in peers.values()]
    for model in models:
        assert_same_bits(model, models[0])
    for peer in peers.values():
        assert [r["clients"] for r in peer.rounds][-1] == sorted(SIZES.keys() - {first})
        assert {event["client"] for event in peer.events.of("adds")} == set(adders(plan)[:2])
