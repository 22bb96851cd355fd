"""A small web server for what a process shows of itself: its own pages, GET alone.

On a loopback address it answers only who calls it by such an address: else a page from elsewhere
could read it, by a name that leads here (DNS rebinding).
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from socket import AF_INET6
from socketserver import TCPServer
from typing import Any

from fedtopics.errors import InputError

LOOPBACK = "127.0.0.1"
PATIENCE = 10.0  # seconds for a request
HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
Page = Callable[[], tuple[HTTPStatus, str, str]]
"""Returns status, media type and text."""


@contextmanager
def serving(host: str, port: int, pages: Mapping[str, Page]) -> Iterator[str]:
    """Serve pages by path from another thread, in a with statement; yield their address.

    Port 0 takes a free one. InputError if the address cannot be listened on.
    """
    try:
        server = _Server(host, port, pages)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        why = "is in use" if taken else "cannot be listened on"
        raise InputError(f"Port {port} of {host} {why}; name another one.") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://{server.name}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        self.address_family = AF_INET6 if ":" in host else self.address_family
        super().__init__((host, port), _Handler)
        self.pages = pages
        shown = f"[{host}]" if ":" in host else host
        self.name = f"{shown}:{self.server_port}"
        names = {self.name, f"localhost:{self.server_port}"}
        self.hosts = names if is_loopback(self.server_address[0]) else None

    def server_bind(self) -> None:
        """As of `HTTPServer`, which would ask a resolver for the host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: who asked has gone, or sent what is no request."""


def is_loopback(host: Any) -> bool:
    """Whether an address, as a socket has it, is of this machine alone."""
    return ip_address(str(host)).is_loopback


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    protocol_version = "HTTP/1.0"
    server_version, sys_version = "fedtopics", ""

    def do_GET(self) -> None:
        """Answer with the page of a path."""
        page = self.server.pages.get(self.path)
        if self.server.hosts is not None and self.headers.get("Host") not in self.server.hosts:
            return self._answer(HTTPStatus.MISDIRECTED_REQUEST, TEXT, "Not here.\n")
        if page is None:
            return self._answer(HTTPStatus.NOT_FOUND, TEXT, "There is no such page.\n")
        return self._answer(*page())

    def _answer(self, status: HTTPStatus, media: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Write nothing."""
