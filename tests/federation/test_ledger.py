"""What is written down of all that leaves a client."""

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.contract.interfaces import Call, Position
from fedtopics.contract.payload import CountsByWord, SparseRows, digest_of
from fedtopics.errors import RunError
from fedtopics.federation.ledger import Ledger, find_ledgers, head_path
from fedtopics.report.run import LedgerFacts
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.doors import Echo, door


def test_ledger_line(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    gradients = {
        "bias": np.array([1.0, 2.0], np.float32),
        "rows": SparseRows(np.array([0, 2]), np.array([[1.0], [3.0]], np.float32), 4),
    }
    named = CountsByWord(["elm", "oak"], np.array([[1, 2], [3, 4]]))
    half = Echo(
        weights=gradients, loss=1.5, words=["oak"], n=np.array(2.0), named=named, documents=7
    )
    payload = {"round": 3, "vocabulary": "beef", "words": ["oak", "elm"]}
    door(half, path=path, run="f00d").ask("echo", payload, Position(9, 2, 1))
    line = json.loads(path.read_text())
    data = {
        "weights.bias": np.array([1, 2], "<f4").tobytes(),
        "weights.rows.index": np.array([0, 2], "<i8").tobytes(),
        "weights.rows.values": np.array([1, 3], "<f4").tobytes(),
        "loss": b"1.5",
        "words": b'["oak"]',
        "n": np.array(2, "<f8").tobytes(),
        "named.names": b'["elm", "oak"]',
        "named.values": np.array([1, 2, 3, 4], "<i8").tobytes(),
        "documents": b"7",
    }
    digest = hashlib.sha256(b"".join(name.encode() + data[name] for name in data)).hexdigest()
    assert line.pop("before") == ""
    assert datetime.fromisoformat(line.pop("time")).tzinfo == UTC
    assert line == {
        "what": "sent",
        "client": "north",
        "study": "0123abcd",
        "run": "f00d",
        "method": "gfedntm",
        "round": 3,
        "function": "echo",
        "position": [9, 2, 1],
        "payload": digest_of(payload),
        "words": ["oak", "elm"],
        "documents": 7,
        "persons": None,
        "bytes": 97,
        "sha256": digest,
        "fields": {
            "weights.bias": {"shape": [2], "dtype": "float32", "bytes": 8},
            "weights.rows.index": {"shape": [2], "dtype": "int64", "bytes": 16},
            "weights.rows.values": {"shape": [2, 1], "dtype": "float32", "bytes": 8},
            "loss": {"shape": [], "dtype": "float", "bytes": 3},
            "words": {"shape": [1], "dtype": "str", "bytes": 7},
            "n": {"shape": [], "dtype": "float64", "bytes": 8},
            "named.names": {"shape": [2], "dtype": "str", "bytes": 14},
            "named.values": {"shape": [2, 2], "dtype": "int64", "bytes": 32},
            "documents": {"shape": [], "dtype": "int", "bytes": 1},
        },
    }


def test_of_many_words_the_ledger_has_the_number_and_fingerprint(path: Path) -> None:
    for number in (20, 21):
        words = [f"w{i}" for i in range(number)]
        door(Echo(documents=1), path=path).ask("echo", {"words": words})
    few, many = (json.loads(line)["words"] for line in path.read_text().splitlines())
    assert few == words[:20]
    assert many == {"number": 21, "fingerprint": fingerprint(words)}


def test_what_came_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "run/clients/south/ledger.jsonl"
    ledger = Ledger("gfedntm", "0123abcd", path)
    ledger.write_total(Position(3, 2, 1), "gradients", "5ha", 1000)
    ledger.write_total(Position(3, 2, 2), "gradients", "5hb", 500)
    line = json.loads(path.read_text().splitlines()[0])
    assert line.pop("before") == ""
    assert datetime.fromisoformat(line.pop("time")).tzinfo == UTC
    assert line == {
        "what": "received",
        "study": "0123abcd",
        "run": "",
        "method": "gfedntm",
        "function": "gradients",
        "position": [3, 2, 1],
        "bytes": 1000,
        "sha256": "5ha",
    }
    assert LedgerFacts.read(path).rows == [
        {
            "function": "gradients",
            "method": "gfedntm",
            "fields": [],
            "documents": 0,
            "replies": 0,
            "values": 0,
            "bytes": 0,
            "totals": 2,
            "bytes_of_totals": 1500,
            "masked": False,
        }
    ]
    assert find_ledgers(tmp_path / "run") == {"south": path}
    assert Ledger("gfedntm", "0123abcd", path).last.position == Position(0), "only what left counts"


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [("seeded", "secret", "from the study's seed"), ("seen", "masked", False)],
)
def test_a_secret_from_the_seed_and_a_study_without_masks_are_named(
    given: str, key: str, value: Any, path: Path
) -> None:
    for is_so in (False, True):
        ledger = Ledger("gfedntm", "0123abcd", path, **{given: is_so})  # type: ignore[arg-type]
        ledger.write_reply("north", Call("echo", {}, Position(1 + is_so)), {"documents": 10})
        ledger.write_total(Position(1 + is_so), "echo", "5ha", 1000)
        ledger.close()
        assert getattr(LedgerFacts.read(path), given) == is_so
    values = [json.loads(line).get(key) for line in path.read_text().splitlines()]
    assert values == [None, None, value, value]


def test_ledger_holds_no_values(path: Path) -> None:
    door(
        Echo(words=CountsByWord(["quetzalcoatl"], np.array([[12_345]])), documents=10), path=path
    ).ask("echo", {})
    assert not any(value in path.read_text() for value in ("quetzalcoatl", "12345"))


def test_non_contiguous_arrays_have_the_digest_of_their_values(tmp_path: Path) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for name, array in (("a", matrix.T), ("b", matrix.T.copy())):
        door(Echo(x=array, documents=1), path=tmp_path / name).ask("echo", {})
    lines = [json.loads((tmp_path / name).read_text()) for name in "ab"]
    assert lines[0]["sha256"] == lines[1]["sha256"]


def test_summary(path: Path) -> None:
    half = Echo(x=np.zeros((2, 3), np.float32), documents=12)
    guarded = door(half, path=path)
    guarded.ask("echo", {"round": 1})
    half.reply = {"x": np.zeros((4, 3), np.float32), "loss": 0.5, "documents": 8}
    guarded.ask("echo", {"round": 2})
    guarded._ledger.write_total(Position(2), "echo", "5ha", 77)
    assert LedgerFacts.read(path).rows == [
        {
            "function": "echo",
            "method": "gfedntm",
            "fields": ["documents", "loss", "x"],
            "replies": 2,
            "documents": 8,  # the fewest
            "values": 14,  # the most
            "bytes": (24 + 2) + (48 + 3 + 1),
            "totals": 1,
            "bytes_of_totals": 77,
            "masked": False,
        }
    ]


@pytest.mark.parametrize(
    "damage", [b"{", b"[]", b'{"function": "echo"}', b"3", b"\xff\xfe", b"[" * 100_000]
)
def test_damaged_ledger(path: Path, damage: bytes) -> None:
    door(Echo(documents=1), path=path).ask("echo", {})
    path.write_bytes(path.read_bytes() + damage + b"\n")
    with pytest.raises(RunError, match=r"Line 2 of the ledger .*ledger\.jsonl is damaged"):
        LedgerFacts.read(path)


def test_a_ledger_says_whose_it_is(tmp_path: Path) -> None:
    north = tmp_path / "run/ledger.jsonl"
    others = tmp_path / "run/clients/south/ledger.jsonl"
    door(Echo(documents=1), path=north).ask("echo", {})
    others.parent.mkdir(parents=True)
    for content in ("", "{\n"):  # nothing left yet; damaged
        others.write_text(content)
        assert find_ledgers(tmp_path / "run") == {"north": north, "south": others}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            lambda ledger: ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(True)[:2])),
            "its head records 3 lines, but there are 2",
        ),
        (
            lambda ledger: ledger.write_bytes(ledger.read_bytes().replace(b'"echo"', b'"ecko"', 1)),
            "line 2 does not follow the one before",
        ),
        (lambda ledger: ledger.unlink(), "its head records 3 lines, but there are 0"),
        (lambda ledger: head_path(ledger).unlink(), "ledger.head next to it is missing or damaged"),
    ],
)
def test_a_ledger_that_is_not_as_it_was_left_is_not_gone_on_with(
    path: Path, spoil: Callable[[Path], object], fault: str
) -> None:
    half = Echo(documents=1)
    for turn in (1, 2, 3):
        door(half, path=path).ask("echo", {"round": turn})
    spoil(path)
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises(RunError, match=f"is not as this client left it: {fault}. Nothing was sent"):
        door(half, path=path)
    assert (path.read_bytes() if path.exists() else b"") == before


def signed(path: Path, name: bytes = b"north") -> Ledger:
    return Ledger(
        "gfedntm",
        "f00d",
        path,
        sign=lambda content: name + content,
        is_own=lambda content, signature: signature == name + content,
    )


def test_a_head_that_somebody_else_signed(path: Path) -> None:
    signed(path).close()
    signed(path).close()
    with pytest.raises(RunError, match="its head is not signed with this client's key"):
        signed(path, b"south")


def test_lines_that_somebody_adds_are_not_signed_for(path: Path) -> None:
    """The head does not count them, as it does not count a line at which the client was killed."""
    signed(path).close()
    head = head_path(path).read_bytes()
    with closing(signed(path)) as ledger:
        ledger.write_total(Position(1), "add", "digest", 9)
    head_path(path).write_bytes(head)  # killed before it was written
    signed(path).close()
    (line,) = path.read_bytes().splitlines()
    forged = json.loads(line) | {"before": hashlib.sha256(line).hexdigest()}
    path.write_bytes(line + b"\n" + json.dumps(forged).encode() + b"\n")
    with pytest.raises(RunError, match="lines from 2 on are not signed with this client's key"):
        signed(path)


def test_no_path_no_ledger() -> None:
    ledger = Ledger("gfedntm", "0123abcd")
    assert ledger.write_reply("north", Call("echo", {}, Position(1)), {"documents": 1})
    ledger.write_total(Position(1), "echo", "", 1)
    assert ledger.last.position == Position(1)
    ledger.close()
