"""What `doctor` finds, one sentence each, against real servers."""

from __future__ import annotations

import math
import shutil
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedtopics import __version__, pki
from fedtopics.engines import handshake
from fedtopics.engines.handshake import Proposal
from fedtopics.errors import FederationError
from fedtopics.federation.doctor import Finding, examine, why_not
from fedtopics.federation.study import Study
from fedtopics.methods.registry import versions
from fedtopics.pki import Identity
from tests.helpers.grpc_federation import HOST, authority, of_server
from tests.helpers.services import free_port
from tests.helpers.sockets import offering

NAMES = "ab"
PROPOSAL = Proposal(
    __version__, "gfedntm", versions("gfedntm")["gfedntm"], {"seed": 1}, "f00df00df00df00d"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority(folder / "theirs", "a")
    return authority(folder / "ours", "a", "b", "stranger")


@pytest.fixture
def ours(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "ours")


def found(address: str, folder: Path) -> tuple[list[str], Finding]:
    """Return the checks that were fine, and the last finding."""
    findings = list(examine(address, folder))
    assert all(finding.fine for finding in findings[:-1])
    return [finding.check for finding in findings[:-1]], findings[-1]


@pytest.mark.parametrize(
    ("clients", "seen"),
    [
        ("abc", "masked; each sums over at least 10"),
        (
            "ab",
            "not masked, as a round has fewer than 3 clients, each of whom could subtract its own "
            "reply: whoever adds sees each one; each sums over at least 256",
        ),
    ],
)
def test_all_is_fine(clients: str, seen: str, ours: Path) -> None:
    proposal = replace(PROPOSAL, study=Study.make().with_clients(clients).agreed)
    with offering(NAMES, credentials=of_server(ours), proposal=proposal) as f:
        findings = list(examine(f"localhost:{f.hub.port}", ours / "clients/a"))
        assert all(finding.fine for finding in findings)
        ends = Identity.load(ours / "clients/a").not_after
        texts = {finding.check: finding.text for finding in findings}
        ahead = texts.pop("clock")
        assert texts == {
            "certificate": f'client "a", valid until {ends:%Y-%m-%d}',
            "reachable": f"localhost:{f.hub.port} accepts connections",
            "TLS": "server and client trust each other's certificates",
            "versions": f"fedtopics {__version__} on both sides",
            "study": "gfedntm, study f00df00df00df00d, a is one of its clients",
            "masks": f"replies are {seen} documents, if your policy says no other number",
        }
        assert ahead in (
            "the server's is +0.0 s from this one",
            "the server's is -0.0 s from this one",
        )
        assert why_not(f"localhost:{f.hub.port}", ours / "clients/a") == ""
        assert not any(member.link for member in f.node.members.values()), "nobody joined"


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("server", "holds the identity of a server; name the folder of a client's."),
        (".", "is an authority, not an identity; identities are"),
        ("nowhere", "There is no folder"),
    ],
)
def test_no_identity(ours: Path, folder: str, message: str) -> None:
    fine, finding = found("localhost:1", ours / folder)
    assert (fine, finding.check, finding.fine) == ([], "certificate", False)
    assert message in finding.text


def test_nothing_listens(ours: Path) -> None:
    port = free_port()
    fine, finding = found(f"localhost:{port}", ours / "clients/a")
    assert fine == ["certificate"]
    assert finding == Finding(
        "reachable",
        False,
        f"localhost refuses connections to port {port}; is the server running, on this port?",
    )
    assert why_not(f"localhost:{port}", ours / "clients/a") == finding.text


@pytest.mark.parametrize("host", ["topics.example.org", "a..b", "x" * 70])
def test_an_unknown_host(ours: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def unknown(name: str, *rest: Any) -> Any:
        if name == "topics.example.org":
            raise socket.gaierror(-2, "Name or service not known")
        return resolve(name, *rest)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert found(f"{host}:7557", ours / "clients/a") == (
        ["certificate"],
        Finding("name", False, f"no machine named {host!r} is known; check the name"),
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("timed out"), "it does not answer"),
        (OSError(113, "No route to host"), "No route to host"),
        (OSError(101, "Network is unreachable"), "Network is unreachable"),
    ],
)
def test_a_firewall(
    ours: Path, error: OSError, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", blocked)
    fine, finding = found("localhost:7557", ours / "clients/a")
    assert fine == ["certificate"]
    assert finding.check == "reachable"
    assert finding.text == f"localhost:7557: {reason}; ask whether a firewall closes the port"
    assert not finding.lasting


def test_a_server_that_dies_before_the_handshake(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine resets the connections that it had not accepted: their socket has no peer."""
    connect, reset = socket.create_connection, struct.pack("ii", 1, 0)

    def dying(*place: Any) -> socket.socket:
        made = connect(*place)
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        accepted.close()
        return made

    monkeypatch.setattr(socket, "create_connection", dying)
    with socket.create_server((HOST, 0)) as listening:
        address = f"localhost:{listening.getsockname()[1]}"
        fine, finding = found(address, ours / "clients/a")
    assert fine == ["certificate", "reachable"]
    assert finding == Finding("TLS", False, "the server ended the handshake; try again")


def test_another_authority(ours: Path, made: Path) -> None:
    with offering(NAMES, credentials=of_server(made.parent / "theirs"), proposal=PROPOSAL) as f:
        assert found(f"localhost:{f.hub.port}", ours / "clients/a") == (
            ["certificate", "reachable"],
            Finding(
                "TLS",
                False,
                "the server's certificate is not from this identity's authority (ca.crt); ask its "
                "operator which authority it uses",
                lasting=True,
            ),
        )


def test_another_host_name(ours: Path) -> None:
    pki.renew_server(ours, ["topics.example.org"])
    with offering(NAMES, credentials=of_server(ours), proposal=PROPOSAL) as f:
        for host in ("localhost", HOST):
            fine, finding = found(f"{host}:{f.hub.port}", ours / "clients/a")
            assert fine == ["certificate", "reachable"]
            assert finding == Finding(
                "TLS",
                False,
                f"the server's certificate is for topics.example.org, not for {host!r}; use the "
                "name that it is for, or make one with: fedtopics pki create DIR --server NAME",
                lasting=True,
            )


def test_a_servers_ended_certificate(ours: Path) -> None:
    pki.renew_server(ours, days=0)
    with offering(NAMES, credentials=of_server(ours, check=False), proposal=PROPOSAL) as f:
        fine, finding = found(f"localhost:{f.hub.port}", ours / "clients/a")
        assert fine == ["certificate", "reachable"]
        assert finding == Finding(
            "TLS",
            False,
            "the server's certificate has expired; its operator has to renew it",
            lasting=True,
        )
        with pytest.raises(FederationError) as error:
            why_not(f"localhost:{f.hub.port}", ours / "clients/a")
        assert str(error.value) == (
            f"The server localhost:{f.hub.port} cannot be used: {finding.text}."
        )


def test_a_server_without_tls(ours: Path) -> None:
    with offering(NAMES, proposal=PROPOSAL) as f:
        fine, finding = found(f"localhost:{f.hub.port}", ours / "clients/a")
        assert fine == ["certificate", "reachable"]
        assert finding.check == "TLS"
        assert finding.text.startswith(
            "what listens there does not speak TLS; is it the right port"
        )
        assert finding.lasting


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (
            replace(PROPOSAL, product="9.9.9"),
            f"The client has version {__version__} of fedtopics, the server 9.9.9; install "
            "fedtopics 9.9.9 on both sides.",
        ),
        (
            replace(PROPOSAL, method_version=7),
            "The client has version 4 of the method 'gfedntm', the server 7; "
            f"install fedtopics {__version__} on both sides.",
        ),
        (
            replace(PROPOSAL, method="other", method_version=1),
            "The client has version none of the method 'other', the server 1; install fedtopics "
            f"{__version__} on both sides.",
        ),
    ],
)
def test_versions(ours: Path, proposal: Proposal, message: str) -> None:
    with offering(NAMES, credentials=of_server(ours), proposal=proposal) as f:
        findings = list(examine(f"localhost:{f.hub.port}", ours / "clients/a"))
        (wrong,) = (each for each in findings if not each.fine)
        assert wrong.check == "versions"
        assert message in wrong.text


def test_a_name_that_is_not_in_the_study(ours: Path) -> None:
    with offering(NAMES, credentials=of_server(ours), proposal=PROPOSAL) as f:
        fine, finding = found(f"localhost:{f.hub.port}", ours / "clients/stranger")
        assert fine == ["certificate", "reachable", "TLS"]
        assert finding.check == "server"
        assert finding.text == (
            "The server says: The study has no client named 'stranger'; name the client in the "
            "study under [clients], or give it a certificate with a name that is there."
        )


@pytest.mark.parametrize("ahead", [-3600.0, 121.0, math.nan])
def test_another_clock(ours: Path, ahead: float, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = handshake.Introduction.offer

    def of_another_time(self: handshake.Introduction) -> Any:
        made = offer(self)
        return msgspec.structs.replace(made, time=made.time + ahead)

    monkeypatch.setattr(handshake.Introduction, "offer", of_another_time)
    with offering(NAMES, credentials=of_server(ours), proposal=PROPOSAL) as f:
        findings = {
            each.check: each for each in examine(f"localhost:{f.hub.port}", ours / "clients/a")
        }
    assert not findings["clock"].fine
    assert findings["clock"].text == (
        f"the server's clock is {ahead:+.0f} s from this one; set the wrong one right"
    )
