"""What leaves a client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError, PolicyError
from fedtopics.federation.policy import Policy
from fedtopics.methods.aggregation import Rows
from tests.helpers.doors import Echo, door

CANARY = "quetzalcoatl"


def test_door_hands_on_what_the_policy_allows() -> None:
    half = Echo(documents=10, document_frequency=np.array([5, 7]), loss=1.5)
    assert door(half, Policy()).call("echo", {"round": 100_000}) is half.reply


def test_door_refuses_a_method() -> None:
    with pytest.raises(PolicyError, match="'north' does not allow the method 'other'"):
        door(Echo(), Policy(methods=("gfedntm", "lda")), "other")


@pytest.mark.parametrize("function", ["secret", "reply", "__init__", "echo "])
def test_door_refuses_what_is_not_published(function: str) -> None:
    with pytest.raises(PolicyError, match=f"Client 'north' publishes no function '{function}'"):
        door(Echo(documents=1)).call(function, {})


@pytest.mark.parametrize(
    "reply",
    [
        {"documents": 9},
        {"loss": 1.0},
        {"documents": 0, "loss": 1.0},
        {"documents": 0, "loss": float("nan")},
        {"documents": 0, "name": "oak"},
        {"documents": 0, "words": ["oak"]},
        {"documents": 0, "words": ["", "oak"]},
        {"documents": 0, "counts": np.array([0, 0, 1])},
        {"documents": 0, "counts": np.array([0.0, -1e-300])},
        {"documents": 0, "known": np.array([False, True])},
        {"documents": 0, "deep": {"deeper": {"x": np.array([[0], [2]])}}},
        {"documents": 0, "rows": Rows(np.array([1]), np.zeros((1, 2)), 3)},
        {"documents": 0, "rows": Rows(np.array([0]), np.ones((1, 2)), 3)},
    ],
)
def test_door_refuses_too_few_documents(tmp_path: Path, reply: dict[str, Any]) -> None:
    message = f"sums over {reply.get('documents', 0)} documents, its policy asks for 10"
    with pytest.raises(PolicyError, match=message):
        door(Echo(**reply), Policy(), path=tmp_path / "ledger.jsonl").call("echo", {})
    assert (tmp_path / "ledger.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "reply",
    [
        {"documents": 0},
        {
            "documents": 0,
            "loss": 0.0,
            "words": [],
            "counts": np.zeros((2, 3)),
            "none": np.zeros((0, 4)),
            "deep": {"pairs": np.zeros((2, 2), np.int64), "windows": 0},
            "rows": Rows(np.zeros(0, np.int64), np.zeros((0, 2)), 3),
        },
    ],
)
def test_door_lets_out_that_there_is_nothing_to_say(reply: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    half = Echo(**reply)
    assert door(half, Policy(), path=path).call("echo", {}) is half.reply
    assert json.loads(path.read_text())["documents"] == 0


def test_door_refuses_a_rare_word(tmp_path: Path) -> None:
    half = Echo(documents=10, words=["oak", CANARY], document_frequency=np.array([5, 4]))
    with pytest.raises(
        PolicyError, match="names a word of 4 documents, its policy asks for 5"
    ) as e:
        door(half, Policy(), path=tmp_path / "ledger.jsonl").call("echo", {})
    assert CANARY not in str(e.value)
    assert (tmp_path / "ledger.jsonl").read_text() == ""


def test_door_refuses_one_round_too_many_before_it_calls() -> None:
    half = Echo(documents=10)
    guarded = door(half, Policy(max_rounds=3))
    for round_ in (0, 11, 12, 12, 11, 13):  # of a model that goes on after ten
        guarded.call("echo", {"round": round_})
    guarded.call("echo", {})
    with pytest.raises(PolicyError, match="'north' allows 3 rounds, and the server asks for one"):
        guarded.call("echo", {"round": 1})
    guarded.call("echo", {"round": 13})
    assert half.calls == 8


def test_rounds_that_an_earlier_process_answered_count() -> None:
    guarded = door(Echo(documents=10), Policy(max_rounds=1))
    guarded.repeat("echo", {"round": 1})
    with pytest.raises(PolicyError, match="allows 1 rounds"):
        guarded.call("echo", {"round": 2})


def test_rounds_that_the_ledger_has_count(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first = door(Echo(documents=10), Policy(max_rounds=2), path=path)
    for payload in ({}, {"round": 7}, {"round": 8}):
        first.call("echo", payload)
    path.write_text(path.read_text() + '{"round": 9')  # a crash
    after = door(half := Echo(documents=10), Policy(max_rounds=2), path=path)
    after.call("echo", {"round": 8})
    with pytest.raises(PolicyError, match="allows 2 rounds"):
        after.call("echo", {"round": 9})
    assert half.calls == 1
    assert len(path.read_text().splitlines()) == 4


def test_door_says_whose_documents_are_unusable() -> None:
    with pytest.raises(DataError, match=r"^Client 'north': no document is left\.$"):
        door(Echo()).call("fail", {})
