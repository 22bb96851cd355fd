"""What any link does: the three calls, over gRPC and within one process."""

from collections.abc import Iterator

import pytest

from fedtopics.errors import FederationError, StudyError
from fedtopics.protocol.link import Link, LinkError, split_address
from fedtopics.transport.grpc import proxy_of
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.echo import MOST, Echo, linked, serving


@pytest.fixture(params=["grpc", "loopback"])
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    if request.param == "loopback":
        yield LoopbackLink(Echo(), "north")
        return
    with serving() as server, linked(server.port) as over_grpc:
        yield over_grpc


def test_small_messages(link: Link) -> None:
    assert [link.ask(b"what"), link.ask(b""), link.fetch(b"last")] == [
        b"north:what",
        b"north:",
        b"",
    ]
    for message in (b"this", b""):
        link.say(message)
        assert link.fetch(b"last") == message


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (5 << 20) + 7])
def test_large_messages_both_ways(link: Link, size: int) -> None:
    message = (bytes(range(251)) * (size // 251 + 1))[:size]
    link.say(message)
    assert link.fetch(b"last") == message


def test_refusals_are_for_good_and_have_a_sentence(link: Link) -> None:
    for message, error, says in (
        (b"refused", FederationError, r"^These are other bytes than before\.$"),
        (bytes(MOST + 1), FederationError, f"{MOST + 1:,} bytes was refused: at most {MOST:,} "),
        (b"again", LinkError, "the disk is full"),
    ):
        with pytest.raises(error, match=says):
            link.say(message)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("topics.example.org:7557", ("topics.example.org", 7557)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        "",
        "::1",
        "[::1]",
        "host",
        ":80",
        "host:",
        "host:65536",
        "host:http",
        "host:\u0663",
        "::1:80",
        " host:80",
        "host:80 ",
        "ho st:80",
        "https://host:80",
        "host:80/",
        "host:0",
        "[a]:1",
    ],
)
def test_no_addresses(address: str) -> None:
    with pytest.raises(StudyError, match="is not an address"):
        split_address(address)


@pytest.mark.parametrize(
    ("settings", "proxy"),
    [
        ({"https_proxy": "http://me:secret@proxy:3128", "http_proxy": "http://b:1"}, "proxy:3128"),
        ({"grpc_proxy": "http://a:1", "https_proxy": "http://b:1"}, "a:1"),
        ({"http_proxy": "http://b:1", "no_proxy": "other, .EXAMPLE.org"}, ""),
        ({"http_proxy": "http://b:1", "no_proxy": "example.org", "no_grpc_proxy": "other"}, "b:1"),
        ({"https_proxy": "b:1"}, ""),  # gRPC ignores a proxy without http://
    ],
)
def test_the_proxy_has_no_password(
    settings: dict[str, str], proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert proxy_of("topics.example.org:7557") == proxy


def test_a_member_of_another_study_is_refused_and_the_server_knows() -> None:
    service = Echo()
    with serving(service, study="5" * 64) as server:
        with linked(server.port, study="5" * 64) as link:
            assert link.ask(b"news") == b"north:news"
        with (
            linked(server.port, study="7" * 64) as link,
            pytest.raises(FederationError, match=f"begins with {'5' * 16}, that of north with 7"),
        ):
            link.ask(b"news")
    assert service.failure == "north: its study is not the one that the server serves"
