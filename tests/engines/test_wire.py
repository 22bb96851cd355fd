"""What travels: messages, versions, addresses, the generated code."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import fedtopics
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc.connection import check_loopback, join_address, split_address
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.log import Entry
from fedtopics.engines.log_messages import Append, Beat, Position
from fedtopics.engines.messages import (
    KINDS,
    Accept,
    Announced,
    Declined,
    Done,
    Failure,
    Granted,
    Message,
    Offer,
    Outgoing,
    Replicated,
    Reply,
    Waiting,
    read_bytes,
    read_message,
)
from fedtopics.engines.values import pack
from fedtopics.errors import FederationError
from tests.helpers.damage import joined
from tests.helpers.federation import assert_same

SOURCE = Path(fedtopics.__file__).parent


# Messages

MESSAGES: list[Message] = [
    Offer("1", 2, "lda", 1, {"seed": 1}, "f00d", "", b"run", 0.5, b"challenge"),
    Accept("a", "f00d", b"process", 2, b"", b""),
    Declined("a"),
    Waiting(3),
    Announced(1, 99),
    Granted(1),
    Reply(1, b"digest", b"", {"x": np.arange(30_000.0), "documents": 3}),
    Failure(1, "policy", True),
    Done(),
    Replicated.of(Position(1, 0, 7, (b"one", b"two"))),
    Replicated.of(Append(0, 2, b"digest", (Entry("begun", b"content"), Entry("", b"")), 3)),
    Replicated.of(Beat(0, 3, 3)),
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_only_an_offer_has_a_time(kind: type[Message]) -> None:
    """How long a client computes depends on its documents; nobody needs to know it."""
    assert (float in get_type_hints(kind).values()) == (kind is Offer)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_arrive_as_they_were(message: Message) -> None:
    back = read_bytes(Outgoing.of(message).bytes())
    assert type(back) is type(message)
    for each in fields(message):  # type: ignore[arg-type]
        if each.name != "content":
            assert_same(getattr(back, each.name), getattr(message, each.name))
    if isinstance(message, Replicated):
        assert back.read() == message.read()  # type: ignore[attr-defined]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_with_other_fields(message: Message) -> None:
    """One too few, one too many, and each of another type."""
    plain = {each.name: getattr(message, each.name) for each in fields(message)}  # type: ignore[arg-type]
    wrong = [plain | {"more": 1}, plain | {"kind": "done"}]
    for name in plain:
        wrong.append({other: value for other, value in plain.items() if other != name})
        wrong.append(plain | {name: [None]})
    for content in wrong:
        packed = pack(content)
        frame = wire.Message(kind=message.kind, body=packed.header)
        with pytest.raises(FederationError, match="has other fields than one of the kind"):
            read_message(frame, joined(packed))


@pytest.mark.parametrize("kind", ["", "call", "prepare", "hello", "Reply"])
def test_no_other_kinds(kind: str) -> None:
    packed = pack({"function": "vocabulary"})
    with pytest.raises(FederationError, match="of no kind that this version knows"):
        read_message(wire.Message(kind=kind, body=packed.header), joined(packed))


@pytest.mark.parametrize(
    ("what", "content"),
    [
        ("Call", {}),
        ("Message", {}),
        ("Beat", {}),
        ("Beat", {"view": "1", "index": 0, "committed": 0, "number": 0}),
        ("Position", {"view": 0, "normal": 0, "committed": 0, "digests": 7, "nonce": 0}),
        ("Position", {"view": 0, "normal": 0, "committed": 0, "digests": [7], "nonce": 0}),
        ("Append", {"view": 0, "index": 0, "digest": b"", "entries": [1], "committed": 0}),
        ("Append", {"view": 0, "index": 0, "digest": b"", "entries": [{}], "committed": 0}),
        ("Append", {"view": 0, "index": 0, "digest": b"", "entries": {"a": 1}, "committed": 0}),
    ],
)
def test_messages_of_the_log_that_are_none(what: str, content: dict[str, Any]) -> None:
    with pytest.raises(FederationError, match="A message of the log is damaged"):
        Replicated(what, content).read()


@pytest.mark.parametrize("damage", [b"", b"\x05" + b"\x00" * 7 + b"ab", b"x" * 99])
def test_damaged_messages(damage: bytes) -> None:
    with pytest.raises(FederationError, match="A message"):
        read_bytes(damage)


# Versions

OFFERED = Proposal("0.3.1", "gfedntm", 2, {}, "f00d")


@pytest.mark.parametrize(
    ("product", "version", "methods", "objection"),
    [
        ("0.3.1", 6, {"gfedntm": 2}, ""),
        ("0.3.9", 6, {"gfedntm": 2, "other": 7}, ""),
        (
            "0.4.0", 3, {"gfedntm": 2},
            "The client has version 0.4.0 of fedtopics, the server 0.3.1; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "", 6, {"gfedntm": 2},
            "The client has version none of fedtopics, the server 0.3.1; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 7, {"gfedntm": 2},
            "The client has version 6 of the wire format, the server 7; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 6, {"gfedntm": 1},
            "The client has version 1 of the method 'gfedntm', the server 2; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 6, {"flda": 2},
            "The client has version none of the method 'gfedntm', the server 2; "
            "install fedtopics 0.3.1 on both sides.",
        ),
    ],
)  # fmt: skip
def test_versions(product: str, version: int, methods: dict[str, int], objection: str) -> None:
    """The client's version of fedtopics and its methods, the server's of the wire."""
    assert OFFERED.objection((product, methods), version) == objection


# Addresses


@pytest.mark.parametrize(
    ("address", "host", "port", "joined"),
    [
        ("localhost:7000", "localhost", 7000, "localhost:7000"),
        ("localhost", "localhost", 7557, "localhost:7557"),
        ("10.0.0.7:0", "10.0.0.7", 0, "10.0.0.7:0"),
        ("[::1]:7000", "::1", 7000, "[::1]:7000"),
        ("[::1]", "::1", 7557, "[::1]:7557"),
        ("::1", "::1", 7557, "[::1]:7557"),
        ("2001:db8::7", "2001:db8::7", 7557, "[2001:db8::7]:7557"),
    ],
)
def test_addresses(address: str, host: str, port: int, joined: str) -> None:
    assert split_address(address) == (host, port)
    assert join_address(host, port) == joined


@pytest.mark.parametrize("address", ["", ":7000", "localhost:", "host:port", "a:65536", "a:-1",
                                     "a:²", "[]:1"])  # fmt: skip
def test_no_addresses(address: str) -> None:
    with pytest.raises(FederationError) as error:
        split_address(address)
    assert str(error.value) == f"{address!r} is no address; write HOST:PORT, as in localhost:7557."


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
def test_insecure_on_this_machine(address: str) -> None:
    check_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.0.0.7:1", "example.org:1", "[::]:1",
                                     "localhost.example.org:1"])  # fmt: skip
def test_insecure_between_machines(address: str) -> None:
    with pytest.raises(FederationError, match=r"--insecure speaks without encryption .* not with"):
        check_loopback(address)


# The package


def test_the_generated_code_is_due(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    proto = "fedtopics/engines/wire.proto"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE.parent}", proto,
         f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"],
        check=True, cwd=SOURCE.parent,
    )  # fmt: skip
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        committed = SOURCE / "engines" / name
        generated = tmp_path / "fedtopics/engines" / name
        assert committed.read_text() == generated.read_text(), "run: make generate"


FORBIDDEN_MODULES = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "copyreg", "joblib", "marshal", "shelve"
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("torch", "save"), ("np", "load"), ("numpy", "load"), ("np", "save")}


def test_no_code_travels() -> None:
    """Nothing in the package can turn bytes into code."""
    files = [path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py")]
    assert len(files) > 30
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & FORBIDDEN_MODULES, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, where
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in LOADERS, where
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", where
