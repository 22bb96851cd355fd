"""F-LDA between machines: the same bits, and clients that are lost and come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.serve import lead
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.protocol.link import Service
from fedtopics.text.arrivals import Follow
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.federation import assert_same_bits
from tests.helpers.grpc_federation import (
    PATIENCE,
    Notes,
    Partner,
    federated,
    keys_of,
    part_of,
    signed,
)
from tests.helpers.streams import DRIFT, SIZE, STEADY, flda, stream

pytest.importorskip("tomotopy")

PATIENT = FederationSettings(
    quorum=2, round_timeout=PATIENCE, join_timeout=PATIENCE, quorum_timeout=PATIENCE
)
NAMES = ("east", "north", "south")


def planned(**method: Any) -> Study:
    return flda(**method).model_copy(update={"federation": PATIENT})


def corpora(rounds: list[list[str]] = DRIFT) -> dict[str, Corpus]:
    return dict(zip(NAMES, stream(rounds).values(), strict=True))


def told(events: Notes) -> list[dict[str, Any]]:
    """What the rounds' events say of topics."""
    names = ("round", "documents", "arrived", "threshold", "topics", "new", "vanished", "clients")
    return [{name: event[name] for name in names} for event in events.of("round")]


def test_the_model_is_that_of_one_process(tmp_path: Path) -> None:
    plan, local = planned(stop="coherence", coherence="documents"), Notes()
    outcome = federated(plan, corpora(), tmp_path, policy=Policy(min_documents=10))
    expected = train(plan, corpora(), on_event=local.append)
    assert_same_bits(outcome.model, expected)
    assert outcome.model.info == {**expected.info, "masked": False}
    assert told(outcome.events) == told(local)
    for name in NAMES:
        assert_same_bits(TopicModel.from_pretrained(tmp_path / name / "model"), expected)
        events = outcome.partners[name].events
        rounds = [event["round"] for event in events.of("arrived")]
        assert rounds == list(range(1, expected.info["rounds"] + 1))
        asked = events.of("offer")[0]["leaves"]
        rows = {row["function"]: row for row in summarise_ledger(tmp_path / name / "ledger.jsonl")}
        assert rows.keys() == asked.keys()
        assert rows["local_topics"]["replies"] == expected.info["rounds"]


def test_clients_follow_files_that_grow(tmp_path: Path) -> None:
    plan = planned(documents_per_round=None, max_rounds=3).with_clients(NAMES)
    events, partners = Notes(), {}
    whole = {
        name: [" ".join(text) + "\n" for text in corpus.documents.to_pylist()]
        for name, corpus in corpora(STEADY).items()
    }
    files = {name: tmp_path / f"{name}.csv" for name in NAMES}

    def grow(round_: int) -> None:
        for name, path in files.items():
            with path.open("a") as file:
                file.writelines(whole[name][(round_ - 1) * SIZE : round_ * SIZE])

    keys = keys_of(tmp_path / "keys", *NAMES, "server")
    plan = signed(plan, keys)

    def happen(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "round":
            grow(event["round"] + 1)

    @contextmanager
    def listen(service: Service, notify: Any) -> Iterator[None]:
        for name, path in files.items():
            path.write_text("text\n")
            follow = Follow(path, Columns(), lambda reason: None)
            policy = Policy(min_documents=10)
            part, notes = part_of(keys[name], follow(), tmp_path / name, policy, growing=follow)
            partners[name] = Partner(part, plan, LoopbackLink(service, name), notes)
        grow(1)
        yield

    model = lead(plan, tmp_path / "server", listen, happen)
    for each in partners.values():
        each.result()
        assert each.events.of("model")[0]["documents"] == 3 * SIZE
    arrived = [event["arrived"] for event in events.of("round")]
    assert arrived == [dict.fromkeys(NAMES, SIZE)] * 3
    rows = {
        name: replace(corpus, documents=Corpus.of([text.strip() for text in whole[name]]).documents)
        for name, corpus in corpora(STEADY).items()
    }
    expected = train(planned(max_rounds=3), rows)
    np.testing.assert_array_equal(model.weights["pseudo_counts"], expected.weights["pseudo_counts"])
