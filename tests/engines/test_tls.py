"""Mutual TLS with real sockets and throwaway authorities: strangers stay out, and break nothing."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from fedtopics import pki
from fedtopics.engines import adder
from fedtopics.engines.grpc import frames, transport
from fedtopics.engines.grpc.frames import SERVICE
from fedtopics.engines.grpc.limits import KEPT, SMALL, Limits
from fedtopics.engines.messages import Accept, Announced, Granted, Message, Reply
from fedtopics.engines.transport import first_offer
from fedtopics.protocol.values import pack, size_of
from fedtopics.errors import FederationError, IdentityError
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.policy import Policy
from fedtopics.pki import Identity, Signer
from fedtopics.text.corpus import Corpus
from tests.helpers.background import HOST, PATIENCE, Background, until
from tests.helpers.grpc_federation import authority, of_client, of_server
from tests.helpers.programs import Federation, Half, Hand, Member, door, federation, honest, rounds
from tests.helpers.sockets import Sockets, offering

CORPUS = Corpus.of([["oak", "ash"]] * 20)


def refused(port: int, credentials: grpc.ChannelCredentials | None) -> None:
    """The connection ends before the server says a word."""
    place = f"localhost:{port}"
    with (
        grpc.insecure_channel(place) if credentials is None
        else grpc.secure_channel(place, credentials)
    ) as channel:  # fmt: skip
        with pytest.raises(grpc.RpcError) as error:
            next(channel.stream_stream(f"/{SERVICE}/Join")(iter([]), timeout=PATIENCE))
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


@dataclass
class Guarded:
    """A server with TLS, and the folders of two authorities: its own, and another."""

    f: Federation
    ours: Path
    theirs: Path

    @property
    def port(self) -> int:
        return int(self.f.hub.port)  # type: ignore[attr-defined]

    def part(self, identity: Path | None, host: str = "localhost") -> GrpcParticipation:
        """A client as `fedtopics client` makes it."""
        out = self.ours.parent / "out"
        return GrpcParticipation(f"{host}:{self.port}", identity, CORPUS, Policy(), out, "a")

    def all_is_well(self) -> None:
        """An honest federation still works, on the same server, and nobody else has come."""
        assert not any(member.link for member in self.f.node.members.values())
        work = self.f.lead(rounds(1))
        for name, x in (("a", 1.0), ("b", 10.0)):
            half = Half({"first": lambda x=x, **_: {"x": np.array([x]), "documents": 1}})
            self.f.member(name, half, rounds(1))
        assert work.result()[0][0] == 11


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pki")
    ours = authority(folder / "ours", "a", "b", "stranger")
    theirs = authority(folder / "theirs", "a")
    return ours, theirs


@pytest.fixture
def guarded(authorities: tuple[Path, Path], tmp_path: Path) -> Iterator[Guarded]:
    ours, theirs = (shutil.copytree(path, tmp_path / path.name) for path in authorities)
    signers = {n: Signer(Identity.load(ours / "clients" / n)) for n in "ab"}
    signers["@server"] = Signer(Identity.load(ours / "server"))
    credentials = {name: of_client(ours, name) for name in "ab"}
    with offering("ab", of_server(ours), clients=credentials, signatures=signers) as f:
        yield Guarded(f, ours, theirs)


@pytest.mark.parametrize("certificate", ["a", "b", "garbage", "nothing", "theirs"])
def test_a_client_is_who_its_certificate_says(guarded: Guarded, certificate: str) -> None:
    """What a client says of its own name counts for nothing; what it shows, only if it is its."""
    shown = {
        "garbage": b"-----BEGIN CERTIFICATE-----",
        "nothing": b"",
        "theirs": (guarded.theirs / "clients/a/client.crt").read_bytes(),
    }
    if certificate in "ab":
        shown[certificate] = (guarded.ours / "clients" / certificate / "client.crt").read_bytes()
    credentials = {"a": of_client(guarded.ours, "a")}
    sockets = Sockets(clients=credentials)
    sockets._server = guarded.f.hub._server  # type: ignore[attr-defined]
    port = sockets.port_of("a")
    port.start()
    refused: list[str] = []

    def answered() -> bool:
        for link, what in port.receive(0.05):
            if type(what).__name__ == "Offer":
                name = "b" if certificate == "b" else "a"
                accept = Accept(name, "f00d", b"process", 1, shown[certificate], b"signature")
                port.send(link, accept)
        while not guarded.f.node.inbox.empty():
            refused.append(guarded.f.node.inbox.get()[1].status)
        return "refused" in refused

    until(answered)
    port.stop()
    assert not any(member.link for member in guarded.f.node.members.values())
    guarded.all_is_well()


def test_a_client_of_another_authority(guarded: Guarded) -> None:
    for folder in ("theirs", "mixed"):
        if folder == "mixed":  # it trusts our server, so that it is the server that refuses
            shutil.copy(guarded.ours / "ca.crt", guarded.theirs / "clients/a/ca.crt")
            pair = [guarded.theirs / "clients/a" / name for name in ("client.key", "client.crt")]
            key, certificate = (path.read_bytes() for path in pair)
            ca = (guarded.ours / "ca.crt").read_bytes()
            credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        else:
            credentials = of_client(guarded.theirs, "a")
        refused(guarded.port, credentials)
    guarded.all_is_well()


def test_a_client_says_that_the_authorities_differ(guarded: Guarded) -> None:
    with pytest.raises(FederationError) as error:
        Background(guarded.part(guarded.theirs / "clients/a").run).result()
    assert str(error.value) == (
        f"The server localhost:{guarded.port} cannot be used: the server's certificate is not "
        "from this identity's authority (ca.crt); ask its operator which authority it uses."
    )
    guarded.all_is_well()


def test_an_ended_certificate(guarded: Guarded) -> None:
    pki.issue(guarded.ours, "a", days=0, renew=True)
    credentials = of_client(guarded.ours, "a", check=False)
    refused(guarded.port, credentials)
    with pytest.raises(IdentityError, match=r'Certificate of client "a" ended on .* Renew it with'):
        guarded.part(guarded.ours / "clients/a")
    pki.issue(guarded.ours, "a", renew=True)
    guarded.all_is_well()


def test_a_certificate_that_ends_while_its_client_is_away(guarded: Guarded) -> None:
    part = guarded.part(guarded.ours / "clients/a")
    part._credentials = of_client(guarded.theirs, "a")  # so that there is no connection
    pki.issue(guarded.ours, "a", days=0, renew=True)
    with pytest.raises(
        FederationError, match=r'Certificate of client "a" ended on .* Renew it with'
    ):
        Background(part.run).result()


def test_the_servers_certificate_is_no_clients(guarded: Guarded) -> None:
    pair = [guarded.ours / "server" / name for name in ("server.key", "server.crt")]
    key, certificate = (path.read_bytes() for path in pair)
    ca = (guarded.ours / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    refused(guarded.port, credentials)
    with pytest.raises(IdentityError, match="holds the identity of a server"):
        guarded.part(guarded.ours / "server")
    guarded.all_is_well()


def test_no_certificate(guarded: Guarded) -> None:
    credentials = grpc.ssl_channel_credentials((guarded.ours / "ca.crt").read_bytes())
    refused(guarded.port, credentials)
    guarded.all_is_well()


def test_no_tls(guarded: Guarded) -> None:
    refused(guarded.port, None)
    with pytest.raises(FederationError) as error:
        Background(guarded.part(None, HOST).run).result()
    assert str(error.value) == (
        f"The server {HOST}:{guarded.port} speaks TLS; leave out --insecure and give --identity."
    )
    guarded.all_is_well()


def test_a_name_that_is_not_in_the_study(guarded: Guarded) -> None:
    credentials = {"stranger": of_client(guarded.ours, "stranger")}
    sockets = Sockets(clients=credentials)
    sockets._server = guarded.f.hub._server  # type: ignore[attr-defined]
    with pytest.raises(FederationError, match="says: The study has no client named 'stranger';"):
        first_offer(sockets.port_of("stranger"), "the server")
    guarded.all_is_well()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00" * 100, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 999,
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5000],
)  # fmt: skip
def test_garbage(guarded: Guarded, garbage: bytes) -> None:
    for _ in range(5):
        with socket.create_connection((HOST, guarded.port), PATIENCE) as line:
            line.sendall(garbage)
    guarded.all_is_well()


@pytest.mark.parametrize(
    "first", [b"", b"\xff\xff", b"cabc", b"m", b"m\x92\xa4done\x00", b"m\xdd\xff\xff\xff\xff"]
)
def test_garbage_within_the_service(guarded: Guarded, first: bytes) -> None:
    with grpc.secure_channel(f"localhost:{guarded.port}", of_client(guarded.ours, "a")) as channel:
        said = channel.stream_stream(f"/{SERVICE}/Join")(iter([first]), timeout=2.0)
        with suppress(grpc.RpcError):
            assert all(b"offer" in frame[:20] or b"refusal" in frame[:20] for frame in said)
    guarded.all_is_well()


def test_a_server_on_another_host(authorities: tuple[Path, Path], tmp_path: Path) -> None:
    ours, _ = authorities
    folder = shutil.copytree(ours, tmp_path / "ours")
    pki.renew_server(folder, ["topics.example.org"])
    with offering("ab", credentials=of_server(folder)) as f:
        credentials = of_client(folder, "a")
        refused(f.hub.port, credentials)
        part = GrpcParticipation(
            f"localhost:{f.hub.port}", folder / "clients/a", CORPUS, Policy(), tmp_path / "out"
        )
        with pytest.raises(
            FederationError, match=r"is for topics\.example\.org, not for 'localhost'"
        ):
            Background(part.run).result()
        assert not f.node.members["a"].link


def test_a_server_without_tls_is_not_spoken_to(
    authorities: tuple[Path, Path], tmp_path: Path
) -> None:
    with offering("ab") as f:
        identity = authorities[0] / "clients/a"
        part = GrpcParticipation(
            f"localhost:{f.hub.port}", identity, CORPUS, Policy(), tmp_path / "out"
        )
        with pytest.raises(FederationError, match="what listens there does not speak TLS; is it"):
            Background(part.run).result()
        assert not f.node.members["a"].link


def test_nothing_readable_travels(guarded: Guarded) -> None:
    """On the wire, words of a reply are ciphertext."""
    canary = b"quetzalcoatl"
    seen = bytearray()
    listening = socket.create_server((HOST, 0))
    port = listening.getsockname()[1]

    def forward() -> None:
        near, _ = listening.accept()
        far = socket.create_connection((HOST, guarded.port))
        near.settimeout(0.02)
        far.settimeout(0.02)
        while not stop:
            for source, sink in ((near, far), (far, near)):
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    continue
                seen.extend(data)
                sink.sendall(data)
        near.close()
        far.close()

    stop: list[Any] = []
    road = Background(forward)
    program = lambda clients: clients.call("ask")  # noqa: E731
    work = guarded.f.lead(program)
    half = Half({"ask": lambda **_: {"words": [canary.decode()], "documents": 1}})
    sockets = Sockets(clients={"a": of_client(guarded.ours, "a")})
    sockets._server = SimpleNamespace(port=port)  # type: ignore[assignment]
    signer = guarded.f.signed("a")
    Member("a", "ab", sockets.port_of("a"), door("a", half), program, signer)
    guarded.f.member("b", half, program)
    assert work.result()["a"]["words"] == [canary.decode()]
    stop.append(True)
    road.result()
    listening.close()
    assert len(seen) > 500
    assert canary not in seen
    assert b"tiny" not in seen


# Large replies are announced and granted; others are refused when their size is known


ALLOWED = 3000  # bytes
BIG = np.arange(200_000.0)
REASON = f"more than {ALLOWED // 3 + SMALL:,}, and was not announced"


@contextmanager
def studied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Federation, list[int]]]:
    """A study over a port, with few bytes for replies; also the sizes of bodies that are read."""
    monkeypatch.setattr(adder, "IN_FLIGHT", ALLOWED)
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.05)
    read: list[int] = []
    body = frames.Stream.body

    async def reading(self: frames.Stream, announced: Any) -> memoryview:
        found = await body(self, announced)
        read.append(len(found))
        return found

    hub: Any = Sockets()
    with federation(hub=hub) as f:
        monkeypatch.setattr(frames.Stream, "body", reading)
        yield f, read


def reply(hand: Hand, value: Any) -> Reply:
    digest, signature = hand.node.sign(hand.index + 1)
    return Reply(hand.index + 1, digest, signature, {"x": value, "documents": 1})


def says(hand: Hand, message: Message) -> None:
    hand.node.say(message, hand.index + 1)


def test_who_does_not_announce_is_refused_and_excluded_after_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No byte of it is read; the others go on, and it may come back until then."""
    with studied(monkeypatch) as (f, read):
        numbers = (1, 2, 3, 4)
        work = f.lead(rounds(*numbers, before=lambda n: n < 4 and f.waits("b", n)))
        honest(f, rounds(*numbers))
        b = f.hand("b")
        for turn in (1, 2, 3):
            b.begun(turn)
            says(b, reply(b, BIG))
            if turn < 3:
                assert REASON in b.added()["missing"]["b"]
        assert "3 bad replies" in str(b.error())
        assert [total for total, _ in work.result()] == [101] * 4
        bad = f.notes.of("bad reply")
        assert [(each["client"], each["round"]) for each in bad] == [("b", n) for n in (1, 2, 3)]
        assert all(REASON in each["reason"] for each in bad)
        assert [each["client"] for each in f.notes.of("excluded")] == ["b"]
        assert max(read) < SMALL


def test_who_announces_less_than_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    with studied(monkeypatch) as (f, read):
        work = f.lead(rounds(1))
        honest(f, rounds(1))
        b = f.hand("b")
        b.begun(1)
        monkeypatch.setattr(b.node, "_heard", lambda name, what: heard.append(what))
        heard: list[Message] = []
        says(b, Announced(b.index + 1, 2 * ALLOWED))
        until(lambda: any(isinstance(what, Granted) for what in heard))
        says(b, reply(b, BIG))
        ((total, report),) = work.result()
        assert total == 101
        assert f"more than {2 * ALLOWED + SMALL:,}, and was" in report["missing"]["b"]
        assert max(read) < SMALL


@pytest.mark.parametrize("kind", ["waiting", "announced", "failure", "accept", "replicated"])
def test_no_other_message_is_large(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that says it is of another kind, no byte is read either."""
    with studied(monkeypatch) as (f, read):
        work = f.lead(rounds(1))
        honest(f, rounds(1))
        b = f.hand("b")
        b.begun(1)
        monkeypatch.setattr(Reply, "kind", kind)
        with b.node._changed:
            b.node.send("@server", reply(b, BIG))
        until(lambda: f.notes.of("bad reply"))
        monkeypatch.undo()
        assert work.result()[0][0] == 101
        assert max(read, default=0) < SMALL


def test_who_is_cut_off_announces_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over its next connection nothing is granted yet, and whoever adds then may be another."""
    monkeypatch.setattr(adder, "IN_FLIGHT", ALLOWED)
    with federation() as f:
        said: list[str] = []

        def holds(name: str, message: Message) -> bool:
            if name != "b" or not isinstance(message, (Announced, Reply)):
                return False
            said.append(message.kind)
            return said == ["announced", "reply"]

        f.hub.holds = holds
        work = f.lead(rounds(1))
        for name in "abc":
            f.member(name, Half({"first": lambda **_: {"x": BIG, "documents": 1}}), rounds(1))
        until(lambda: f.hub.held)
        f.hub.cut("b")  # with its reply
        assert work.result()[0][0] == 3 * BIG.sum()
        assert said == ["announced", "reply"] * 2


def test_what_is_announced_does_not_depend_on_zero_rows() -> None:
    full, empty = ({"x": x, "documents": 1} for x in (np.ones((300, 300)), np.zeros((300, 300))))
    assert size_of(empty) == size_of(full) == pack(full).size > 10 * pack(empty).size


def test_limits() -> None:
    limits = Limits(10**6, {"offer": 10**9, "reply": 5000})
    assert [limits.of(kind, "1") for kind in ("offer", "reply", "done")] == [
        10**6, 5000 + SMALL, SMALL,
    ]  # fmt: skip
    limits.allow(7000, "")
    limits.allow(6000, "")  # of before, some may still be on their way
    limits.allow(9000, "1")
    assert [limits.of("reply", link) for link in "12"] == [9000 + SMALL, 7000 + SMALL]
    limits.came("waiting", "1")
    assert limits.of("reply", "1") == 9000 + SMALL
    limits.came("reply", "1")
    assert limits.of("reply", "1") == 7000 + SMALL
    for _ in range(KEPT):
        limits.allow(10, "")
    assert limits.of("done", "2") == 10 + SMALL
    assert Limits(10**6, None).of("done", "1") == 10**6
