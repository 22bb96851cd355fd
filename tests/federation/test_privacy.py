"""What leaves a client, and what is written down of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError, PolicyError, RunError, StudyError
from fedtopics.federation.privacy import OPEN_POLICY, Door, Ledger, Policy, summarise_ledger
from fedtopics.methods.aggregation import Rows

CANARY = "quetzalcoatl"


class Echo:
    """A client half that replies what it was made with."""

    method = "gfedntm"
    published = ("echo", "fail")

    def __init__(self, **reply: Any) -> None:
        self.reply = reply
        self.calls = 0

    def echo(self, **payload: Any) -> dict[str, Any]:
        self.calls += 1
        return self.reply

    def fail(self) -> dict[str, Any]:
        raise DataError("no document is left.")

    def secret(self) -> dict[str, Any]:
        raise AssertionError("called")


def door(
    half: Echo, policy: Policy = OPEN_POLICY, method: str = "gfedntm", path: Path | None = None
) -> Door:
    half.method = method
    return Door("north", half, policy, Ledger(method, "0123abcd", path))


# Policy


def test_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('min_documents = 3\nmethods = ["gfedntm", "other"]\n')
    policy = Policy.read(path)
    assert policy == Policy(min_documents=3, methods=("gfedntm", "other"))
    assert (policy.min_document_frequency, policy.max_rounds) == (5, 100_000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("min_document = 3", "there is no key 'min_document'; remove it or correct its name"),
        ("min_documents = 0", "'min_documents' is 0: Input should be greater than or equal to 1"),
        ('max_rounds = "many"', "'max_rounds' is 'many'"),
        ("min_documents = ", "Invalid"),
    ],
)
def test_unusable_policy(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(content)
    with pytest.raises(StudyError, match=rf"The policy .*policy\.toml cannot be used: .*{message}"):
        Policy.read(path)


def test_missing_policy(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        Policy.read(tmp_path / "policy.toml")


# Door


def test_door_hands_on_what_the_policy_allows() -> None:
    half = Echo(documents=10, document_frequency=np.array([5, 7]), loss=1.5)
    assert door(half, Policy()).call("echo", {"round": 100_000}) is half.reply


def test_door_refuses_a_method() -> None:
    with pytest.raises(PolicyError, match="'north' does not allow the method 'other'"):
        door(Echo(), Policy(), "other")


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


def test_door_refuses_a_late_round_before_it_calls() -> None:
    half = Echo(documents=10)
    guarded = door(half, Policy(max_rounds=3))
    guarded.call("echo", {"round": 3})
    with pytest.raises(PolicyError, match="policy of client 'north' ends at round 3"):
        guarded.call("echo", {"round": 4})
    assert half.calls == 1


def test_door_says_whose_documents_are_unusable() -> None:
    with pytest.raises(DataError, match=r"^Client 'north': no document is left\.$"):
        door(Echo()).call("fail", {})


# Ledger


def test_ledger_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    gradients = {
        "bias": np.array([1.0, 2.0], np.float32),
        "rows": Rows(np.array([0, 2]), np.array([[1.0], [3.0]], np.float32), 4),
    }
    half = Echo(weights=gradients, loss=1.5, words=["oak"], n=np.array(2.0), documents=7)
    door(half, path=path).call("echo", {"round": 3})
    line = json.loads(path.read_text())
    data = {
        "weights.bias": np.array([1, 2], "<f4").tobytes(),
        "weights.rows.index": np.array([0, 2], "<i8").tobytes(),
        "weights.rows.values": np.array([1, 3], "<f4").tobytes(),
        "loss": b"1.5",
        "words": b'["oak"]',
        "n": np.array(2, "<f8").tobytes(),
        "documents": b"7",
    }
    digest = hashlib.sha256(b"".join(name.encode() + data[name] for name in data)).hexdigest()
    assert line.pop("time") > 1.7e9
    assert line == {
        "study": "0123abcd",
        "method": "gfedntm",
        "round": 3,
        "function": "echo",
        "documents": 7,
        "fields": {
            "weights.bias": {"shape": [2], "dtype": "float32", "bytes": 8},
            "weights.rows.index": {"shape": [2], "dtype": "int64", "bytes": 16},
            "weights.rows.values": {"shape": [2, 1], "dtype": "float32", "bytes": 8},
            "loss": {"shape": [], "dtype": "float", "bytes": 3},
            "words": {"shape": [1], "dtype": "str", "bytes": 7},
            "n": {"shape": [], "dtype": "float64", "bytes": 8},
            "documents": {"shape": [], "dtype": "int", "bytes": 1},
        },
        "bytes": 51,
        "sha256": digest,
    }


def test_ledger_holds_no_values(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    half = Echo(words=[CANARY], document_frequency=np.array([12_345]), documents=10)
    door(half, path=path).call("echo", {})
    assert CANARY not in path.read_text()
    assert "12345" not in path.read_text()


def test_ledger_grows_by_a_line_a_reply(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for _ in range(2):  # a client that was restarted goes on in its ledger
        guarded = door(Echo(documents=1), path=path)
        guarded.call("echo", {})
        guarded.call("echo", {"round": 2})
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [0, 2, 0, 2]


def test_non_contiguous_arrays_have_the_digest_of_their_values(tmp_path: Path) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for name, array in (("a", matrix.T), ("b", matrix.T.copy())):
        door(Echo(x=array, documents=1), path=tmp_path / name).call("echo", {})
    lines = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    assert lines[0]["sha256"] == lines[1]["sha256"]


def test_summary(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    half = Echo(x=np.zeros((2, 3), np.float32), documents=12)
    guarded = door(half, path=path)
    guarded.call("echo", {"round": 1})
    half.reply = {"x": np.zeros((4, 3), np.float32), "loss": 0.5, "documents": 8}
    guarded.call("echo", {"round": 2})
    assert summarise_ledger(path) == [
        {
            "function": "echo",
            "method": "gfedntm",
            "fields": ["documents", "loss", "x"],
            "replies": 2,
            "documents": 8,  # the fewest
            "values": 14,  # the most in one reply
            "bytes": (24 + 2) + (48 + 3 + 1),
        }
    ]


@pytest.mark.parametrize("damage", ["{", "[]", '{"function": "echo"}', "3"])
def test_damaged_ledger(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "ledger.jsonl"
    door(Echo(documents=1), path=path).call("echo", {})
    path.write_text(path.read_text() + damage + "\n")
    with pytest.raises(RunError, match=r"Line 2 of the ledger .*ledger\.jsonl is damaged"):
        summarise_ledger(path)


def test_no_path_no_ledger() -> None:
    ledger = Ledger("gfedntm", "0123abcd")
    ledger.write("echo", {}, {"documents": 1})
    ledger.close()
