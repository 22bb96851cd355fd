"""What travels: messages, versions, addresses."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from msgspec.structs import asdict

import fedtopics
from fedtopics.engines.grpc.connection import check_loopback, join_address, split_address
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.log import Entry
from fedtopics.engines.log_messages import Append, Beat, Position
from fedtopics.engines.messages import (
    Accept,
    Announced,
    AnyMessage,
    Declined,
    Done,
    Failure,
    Granted,
    Message,
    Offer,
    Replicated,
    Reply,
    Waiting,
    read_bytes,
    read_message,
)
from fedtopics.protocol.values import dumps
from fedtopics.errors import FederationError
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


@pytest.mark.parametrize("kind", get_args(AnyMessage))
def test_only_an_offer_has_a_time(kind: type[Message]) -> None:
    """How long a client computes depends on its documents; nobody needs to know it."""
    assert (float in get_type_hints(kind).values()) == (kind is Offer)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_arrive_as_they_were(message: Message) -> None:
    back = read_bytes(dumps(message))
    assert type(back) is type(message)
    assert_same(asdict(back), asdict(message))
    if isinstance(message, Replicated):
        assert back.read() == message.read()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
def test_messages_with_other_fields(message: Message) -> None:
    """A later version may send some; none may be missing or of another type."""
    plain = {"kind": message.kind, **asdict(message)}
    later = {"a": np.ones(3)} | plain | {"more": [np.ones(3), {"x": ["oak"]}]}
    assert_same(asdict(read_bytes(dumps(later))), asdict(message))
    wrong = [plain | {"kind": "call"}, plain | {"kind": "Reply"}, plain | {"kind": 1}]
    required = len(plain) - 1 - len(message.__struct_defaults__)
    wrong += [{n: v for n, v in plain.items() if n != name} for name in list(plain)[: required + 1]]
    wrong += [plain | {name: {"x": [None]}} for name in plain if name not in ("study", "reply")]
    for content in wrong:
        with pytest.raises(FederationError, match="has other fields than one of its kind"):
            read_bytes(dumps(content))


def test_a_message_of_another_kind_than_announced() -> None:
    """What may come, and how large, depends on the kind."""
    buffer = memoryview(bytearray(dumps(Done())))
    assert isinstance(read_message("done", buffer), Done)
    with pytest.raises(FederationError, match="of another kind than it announced"):
        read_message("offer", buffer)


@pytest.mark.parametrize(
    "contents", [[], [np.zeros(1)], [np.zeros((1, 1), np.uint8)], [np.zeros(1, np.uint8)] * 2]
)
def test_messages_of_the_log_without_their_contents(contents: list[Any]) -> None:
    message = Append(0, 2, b"digest", (Entry("begun", b""),), 3)
    with pytest.raises(FederationError, match="A message of the log is damaged"):
        Replicated(message, contents).read()


# Versions

OFFERED = Proposal("0.3.1", "gfedntm", 2, {}, "f00d")


@pytest.mark.parametrize(
    ("product", "version", "methods", "differ"),
    [
        ("0.3.1", 7, {"gfedntm": 2}, ()),
        ("0.3.9", 7, {"gfedntm": 2, "other": 7}, ()),
        ("0.4.0", 3, {"gfedntm": 2}, ("0.4.0", "fedtopics", "0.3.1")),
        ("", 7, {"gfedntm": 2}, ("none", "fedtopics", "0.3.1")),
        ("0.3.0", 8, {"gfedntm": 2}, ("7", "the wire format", "8")),
        ("0.3.0", 7, {"gfedntm": 1}, ("1", "the method 'gfedntm'", "2")),
        ("0.3.0", 7, {"flda": 2}, ("none", "the method 'gfedntm'", "2")),
    ],
)
def test_versions(
    product: str, version: int, methods: dict[str, int], differ: tuple[str, ...]
) -> None:
    """The client's version of fedtopics and its methods, the server's of the wire."""
    said = "The client has version {} of {}, the server {}; install fedtopics 0.3.1 on both sides."
    objection = OFFERED.objection((product, methods), version)
    assert objection == (said.format(*differ) if differ else "")


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


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.0.0.7:1", "example.org:1", "[::]:1",
                                     "localhost.example.org:1"])  # fmt: skip
def test_insecure_between_machines(address: str) -> None:
    for own in ("localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"):
        check_loopback(own)
    with pytest.raises(FederationError, match=r"--insecure speaks without encryption .* not with"):
        check_loopback(address)


# The package


FORBIDDEN_MODULES = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "copyreg", "joblib", "marshal", "shelve"
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("torch", "save"), ("np", "load"), ("numpy", "load"), ("np", "save")}


def test_no_code_travels() -> None:
    """Nothing in the package can turn bytes into code."""
    files = list(SOURCE.rglob("*.py"))
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
