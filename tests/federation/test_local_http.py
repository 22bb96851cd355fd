"""The small web server: this machine alone, its own pages, GET."""

from __future__ import annotations

import http.client
from http import HTTPStatus

import pytest

from fedtopics.errors import InputError
from fedtopics.federation.local_http import HTML, LOOPBACK, serving

PAGES = {"/": lambda: (HTTPStatus.OK, HTML, "<p>ü</p>")}


def ask(
    address: str, path: str = "/", method: str = "GET", host: str | None = None
) -> http.client.HTTPResponse:
    place = address.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=10)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    return connection.getresponse()


def test_a_page() -> None:
    with serving(LOOPBACK, 0, PAGES) as address:
        answer = ask(address)
        assert (answer.status, answer.read().decode()) == (200, "<p>ü</p>")
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert ask(address, "/../etc/passwd").status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(address, method=method).status == 501
    with pytest.raises(ConnectionRefusedError):
        ask(address)


def test_a_name_that_leads_here_is_refused() -> None:
    """Else a page of another site, whose name suddenly has this machine's address, could read."""
    with serving(LOOPBACK, 0, PAGES) as address:
        port = address.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "", LOOPBACK, f"{LOOPBACK}:1"):
            assert ask(address, host=host).status == 421, host
        assert ask(address, host=f"localhost:{port}").status == 200


def test_other_addresses_are_called_by_any_name() -> None:
    with serving("0.0.0.0", 0, PAGES) as address:  # noqa: S104
        port = address.rpartition(":")[2]
        assert ask(f"http://{LOOPBACK}:{port}", host="pod.cluster.example").status == 200


def test_ports_that_cannot_be_had() -> None:
    with serving(LOOPBACK, 0, PAGES) as address:
        port = int(address.rpartition(":")[2])
        with (
            pytest.raises(InputError, match=f"Port {port} of 127.0.0.1 is in use; name another"),
            serving(LOOPBACK, port, PAGES),
        ):
            pass
    with (
        pytest.raises(InputError, match=r"Port 1 of 192\.0\.2\.1 cannot be listened on"),
        serving("192.0.2.1", 1, PAGES),
    ):
        pass
