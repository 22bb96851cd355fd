"""One participant whose replies are bad: the others end with a good model, and know who it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.settings import FederationSettings
from fedtopics.federation.study import Study
from fedtopics.methods.aggregation import Named, Rows
from tests.helpers.federation import subjects
from tests.helpers.grpc_federation import HOST, Outcome, federated

SIZES = {"east": 60, "north": 50, "south": 50, "west": 60}
PATIENT = FederationSettings(min_clients=2, deadline=60, gather=60, wait=60)
Reply = dict[str, Any]
Bend = Callable[[str, Reply], Reply]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)


class Bent(GrpcParticipation):
    """A client whose replies are bent behind its door."""

    def __init__(self, bend: Bend, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._bend = bend

    def consider(self, study: Study, run: bytes) -> tuple[Any, Path]:
        door, state = super().consider(study, run)
        honest = door.call

        def call(function: str, payload: Any, moment: Any) -> Reply:
            return self._bend(function, honest(function, payload, moment))

        door.call = call  # type: ignore[method-assign]
        return door, state


def with_one_bent(
    folder: Path, bend: Bend, rules: FederationSettings = PATIENT, **method: Any
) -> tuple[Outcome, FederationError | None, list[dict[str, Any]]]:
    """Run a study in which west is bent; return how it ends for west, and what is said of it."""
    corpora = subjects(SIZES)
    settings = {"name": "lda", "n_components": 4, "max_rounds": 8, "batch_size": 100} | method
    plan = Study.make(
        method=settings, vocabulary={"min_document_frequency": 1, "max_words": 200}, secure=False
    ).model_copy(update={"federation": rules})
    odd = Bent(bend, f"{HOST}:1", None, corpora["west"], OPEN_POLICY, folder / "west", "west")
    outcome = federated(plan, corpora, folder, odd=odd)
    error = outcome.partners["west"].error()
    said = [note for note in outcome.events if note["event"] in ("bad reply", "excluded")]
    assert all(note["client"] == "west" for note in said)
    assert {"east", "north", "south"} <= set(outcome.model.documents)
    return outcome, error, said


def every(function: str, **fields: Any) -> Bend:
    """Replace fields of the replies of a function; "" is every one that counts documents."""

    def bend(called: str, reply: Reply) -> Reply:
        if called != function and function:
            return reply
        changed = {n: f(reply[n]) if callable(f) else f for n, f in fields.items() if n in reply}
        return reply | changed

    return bend


def with_word(word: str) -> Callable[[Named], Named]:
    def add(named: Named) -> Named:
        names = sorted([*named.names, word])
        values = np.insert(named.values, names.index(word), [60, 99, 1, 0], axis=0)
        return Named(names, values)

    return add


CANNOT = "holds numbers that cannot be, by what was agreed"
BAD: dict[str, tuple[Bend, str]] = {
    "less than no documents": (every("expected_counts", documents=-512), f"'documents' {CANNOT}"),
    "an escape": (
        every("vocabulary", words=with_word("oak\x1b[2J")),
        "'words' holds words that are none, or not in order",
    ),
    "theta at the end": (
        every("shares", theta=lambda theta: theta - 1000.0), f"'theta' {CANNOT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_who_sends_what_cannot_be_is_named_and_the_rest_goes_on(case: str, tmp_path: Path) -> None:
    bend, fault = BAD[case]
    outcome, error, said = with_one_bent(tmp_path, bend)
    assert said
    assert all(fault in note["reason"] for note in said)
    each_round = said[-1]["round"] > 0 and len(said) > 1
    if each_round:
        assert said[-1]["event"] == "excluded"
        assert "excluded this client: 3 bad replies" in str(error)
        assert "west" not in outcome.model.documents
    topics = outcome.model.topics(10)
    for name in ("east", "north", "south"):  # each honest client's subject has a topic
        own = [sum(word.startswith(name) for word in topic) for topic in topics]
        assert max(own) >= 6, (name, topics)


def test_junk_pushes_out_no_word_that_an_honest_client_has_often(tmp_path: Path) -> None:
    def junk(function: str, reply: Reply) -> Reply:
        if function != "vocabulary":
            return reply
        names = [f"junk{number:04}" for number in range(1000)]
        values = np.tile([60, 5000, 1, 0], (1000, 1))
        return reply | {"words": Named(names, values)}

    outcome, _, _ = with_one_bent(tmp_path, junk)
    words = set(outcome.model.vocabulary.words)
    assert len(words) == 200
    for name, corpus in subjects(SIZES).items():
        if name != "west":
            counts: dict[str, int] = {}
            for document in corpus.documents.to_pylist():
                for word in document:
                    counts[word] = counts.get(word, 0) + 1
            often = sorted(counts, key=lambda word: -counts[word])[:40]  # less than its 50 places
            assert set(often) <= words


def times(factor: float) -> Bend:
    """Multiply gradients."""

    def bend(function: str, reply: Reply) -> Reply:
        if function != "gradients":
            return reply
        weights = {
            name: replace(array, values=multiplied(array.values, factor))
            if isinstance(array, Rows)
            else multiplied(array, factor)
            for name, array in reply["weights"].items()
        }
        return reply | {"weights": weights}

    return bend


def multiplied(array: Any, factor: float) -> Any:
    return np.clip(array.astype(np.float64) * factor, -1e30, 1e30).astype(array.dtype)


def test_gradients_from_beyond_hardly_move_the_model(tmp_path: Path) -> None:
    """Of 1e30, Adam's second moment would be infinite."""
    method = {"name": "gfedntm", "network": "prodlda", "norm": "server", "max_rounds": 60}
    method |= {"hidden": [16, 16], "learning_rate": 0.01, "batch_size": 100}
    outcome, error, said = with_one_bent(tmp_path, times(1e40), **method)
    assert (error, said) == (None, [])
    clipped = outcome.events.of("clipped")
    assert {note["client"] for note in clipped} == {"west"}
    assert max(note["times"] for note in clipped) > 30
    losses = [note["loss"] for note in outcome.events.of("round")]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < 0.95 * np.mean(losses[:3])
    for name, share in outcome.model.shares.items():
        assert np.isfinite(share).all(), name


def test_who_claims_a_thousand_times_as_many_documents_is_left_out(tmp_path: Path) -> None:
    def claim(function: str, reply: Reply) -> Reply:
        asked.append(function)
        return reply | {"documents": 10**9} if function in ("vocabulary", "counted") else reply

    asked: list[str] = []
    outcome, error, said = with_one_bent(tmp_path, claim)
    assert (error, said) == (None, [])
    assert {*asked} == {"vocabulary", "counted"}, "nothing was asked of it any more"
    for events in (outcome.events, outcome.partners["east"].events):
        (told,) = events.of("claimed")
        assert (told["client"], told["documents"], told["left_out"]) == ("west", 10**9, True)
    assert outcome.model.documents.keys() == {"east", "north", "south"}
    rounds = outcome.events.of("round")
    assert all(note["clients"] == ["east", "north", "south"] for note in rounds)
    assert min(note["documents"] for note in rounds) > 95, "of 100: no minibatch is smaller"


def test_a_loss_that_one_client_makes_up_does_not_end_the_training(tmp_path: Path) -> None:
    def lie(function: str, reply: Reply) -> Reply:
        if function != "validate":
            return reply
        said.append(function)
        return reply | {"loss": 0.0 if len(said) == 1 else 1.5 * reply["loss"]}

    said: list[str] = []
    method = {"name": "gfedntm", "hidden": [16, 16], "learning_rate": 0.02, "batch_size": 100}
    method |= {"validation_share": 0.25, "validate_every": 5, "patience": 2, "max_rounds": 40}
    outcome, error, bad = with_one_bent(tmp_path, lie, **method)
    assert (error, bad) == (None, [])
    assert len(said) >= 6
    assert outcome.events.of("round")[-1]["round"] == 5 * len(said)


def test_where_the_only_client_of_a_round_has_no_document_another_is_drawn(tmp_path: Path) -> None:
    def nothing(function: str, reply: Reply) -> Reply:
        if function != "expected_counts":
            return reply
        counts = reply["counts"]
        none = Rows(counts.index[:0], counts.values[:0], counts.n_rows)
        return {"counts": none, "bound": 0.0, "documents": 0}

    alone = PATIENT.model_copy(update={"min_clients": 1})
    outcome, error, said = with_one_bent(tmp_path, nothing, alone, clients_per_round=1)
    assert (error, said) == (None, [])
    rounds = outcome.events.of("round")
    assert [note["round"] for note in rounds] == [*range(1, 9)]
    assert {client for note in rounds for client in note["clients"]} <= {"east", "north", "south"}
