"""Three calls over gRPC: `Ask`, `Say` and `Fetch`, each made by a member, each with a deadline.

Both sides show a certificate that the study names (mutual TLS): there is no authority. What is
large travels in chunks, of which a call may take as long as a slow network needs.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from fedtopics.errors import FederationError, FedTopicsError, StudyError
from fedtopics.protocol.link import LinkError, Service
from fedtopics.protocol.roster import Key, Roster, fingerprint, host_of, name_of

PROTOCOL = 3
PATH = f"/fedtopics.{PROTOCOL}/"
DEADLINE = 30.0  # seconds of a call, and more for what is large
SLOWEST = 64_000  # bytes a second
CHUNK = 1 << 20  # bytes
AT_ONCE = 4  # large messages that a server collects at the same time
CALLS = 3  # of a member at the same time
SECONDS = 1000  # milliseconds
OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20 * SECONDS), ("grpc.keepalive_timeout_ms", 10 * SECONDS),
    ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5 * SECONDS),
    ("grpc.http2.max_ping_strikes", 0), ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 5 * SECONDS),
    ("grpc.enable_retries", 0), ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * CHUNK),
]  # fmt: skip
REFUSED = grpc.StatusCode.FAILED_PRECONDITION  # for good, with a sentence
BUSY = grpc.StatusCode.RESOURCE_EXHAUSTED
FRESH = 3  # errors in a row after which the channel is made anew


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, where the host may be an IPv6 address in brackets."""
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):(\d{1,5})", address)
    if found is None or int(found[2]) > 65_535:
        raise StudyError(f"{address!r} is not an address; write HOST:PORT, as in localhost:7557.")
    return found[1].strip("[]"), int(found[2])


def _seconds(size: int) -> float:
    return DEADLINE + size / SLOWEST


class GrpcLink:
    """A member's link to its server.

    Parameters
    ----------
    address : str
        HOST:PORT.
    key : Key
        Of the member.
    server : bytes
        The certificate of the server, PEM.
    deadline : float
        Seconds of a call.
    """

    def __init__(self, address: str, key: Key, server: bytes, deadline: float = DEADLINE) -> None:
        split_address(address)
        self._address = address
        self._credentials = grpc.ssl_channel_credentials(server, key.pem, key.certificate)
        name = ("grpc.ssl_target_name_override", host_of(name_of(server, "The certificate")))
        self._options = [*OPTIONS, name]
        self._more = deadline - DEADLINE
        self._errors = 0
        self._channel: grpc.Channel | None = None

    def ask(self, message: bytes) -> bytes:
        """See `Link.ask`."""
        with self._call(DEADLINE) as (channel, seconds):
            answer: bytes = channel.unary_unary(f"{PATH}Ask")(message, timeout=seconds)
            return answer

    def say(self, message: bytes) -> None:
        """See `Link.say`."""
        with self._call(_seconds(len(message))) as (channel, seconds):
            channel.stream_unary(f"{PATH}Say")(_chunks(message), timeout=seconds)

    def fetch(self, what: bytes, size: int) -> bytes:
        """See `Link.fetch`."""
        with self._call(_seconds(size)) as (channel, seconds):
            return b"".join(channel.unary_stream(f"{PATH}Fetch")(what, timeout=seconds))

    @contextmanager
    def _call(self, seconds: float) -> Iterator[tuple[grpc.Channel, float]]:
        if self._channel is None:
            self._channel = grpc.secure_channel(self._address, self._credentials, self._options)
        try:
            yield self._channel, seconds + self._more
            self._errors = 0
        except grpc.RpcError as error:
            self._errors += 1
            if self._errors % FRESH == 0:
                self.close()
            raise self._reason(error) from None

    def _reason(self, error: grpc.RpcError) -> FederationError:
        code, details = error.code(), error.details() or ""
        if code is REFUSED:
            return FederationError(details)
        if "CERTIFICATE_VERIFY_FAILED" in details or "Handshake" in details:
            return LinkError(
                f"{self._address} and this member do not accept each other's certificates; compare "
                "them with those that the study names"
            )
        if code is grpc.StatusCode.UNAVAILABLE:
            return LinkError(f"{self._address} cannot be reached")
        if code is BUSY:
            return LinkError(f"{self._address} is busy")
        return LinkError(f"{self._address} does not answer")

    def close(self) -> None:
        """Close the connection; a next call makes another one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _chunks(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for start in range(0, max(len(view), 1), CHUNK):
        yield bytes(view[start : start + CHUNK])


class GrpcServer:
    """Serves the members of a study until it is stopped.

    Parameters
    ----------
    service : Service
    address : str
        HOST:PORT to listen at; port 0 takes a free one.
    key : Key
        Of the server.
    roster : Roster
        Whoever is not in it is refused.
    """

    def __init__(self, service: Service, address: str, key: Key, roster: Roster) -> None:
        host, port = split_address(address)
        names = {fingerprint(pem): name for name, pem in roster.members.items()}
        self._calls = _Calls(service, names)
        threads = futures.ThreadPoolExecutor(CALLS * len(names) + CALLS)
        self._server = grpc.server(threads, options=[*OPTIONS, ("grpc.max_concurrent_streams", 16)])
        self._server.add_generic_rpc_handlers((self._calls,))
        roots = b"".join(roster.members.values())
        pair = [(key.pem, key.certificate)]
        credentials = grpc.ssl_server_credentials(pair, roots, require_client_auth=True)
        place = f"[{host}]" if ":" in host else host
        try:
            self.port = self._server.add_secure_port(f"{place}:{port}", credentials)
        except RuntimeError:
            raise FederationError(
                f"{address} cannot be listened at: it is used already, or not an address of this "
                "machine; choose another with --listen."
            ) from None
        self.address = f"{place}:{self.port}"
        self._server.start()

    def stop(self) -> None:
        """Stop; calls that are on their way have a second to end."""
        self._server.stop(1.0).wait(5.0)


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The three calls, by the names of members."""

    def __init__(self, service: Service, names: Mapping[str, str]) -> None:
        self._service = service
        self._names = names  # by the SHA-256 of a certificate
        self._present: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        """Return what handles a call."""
        method = handler_call_details.method
        handlers = {
            f"{PATH}Ask": grpc.unary_unary_rpc_method_handler(self._ask),
            f"{PATH}Say": grpc.stream_unary_rpc_method_handler(self._say),
            f"{PATH}Fetch": grpc.unary_stream_rpc_method_handler(self._fetch),
        }
        other = re.match(r"/fedtopics\.(\d+)/", method)
        if method not in handlers and other is not None:
            return grpc.unary_unary_rpc_method_handler(lambda _, context: _refuse(
                context, f"This server speaks protocol {PROTOCOL}, the member {other[1]}; install "
                "the same fedtopics on both sides.",
            ))  # fmt: skip
        return handlers.get(method)

    @contextmanager
    def _of_member(self, context: grpc.ServicerContext) -> Iterator[str]:
        """Find out who calls; refuse strangers, and more calls than a member needs."""
        pem = b"".join(context.auth_context().get("x509_pem_cert", []))
        name = self._names.get(fingerprint(pem)) if pem else None
        if name is None:
            _refuse(context, "The study does not name this certificate.")
            return
        with self._lock:
            self._present[name] += 1
            is_one_too_many = self._present[name] > CALLS
        try:
            if is_one_too_many:
                context.abort(BUSY, "There are too many calls of this member at once.")
            yield name
        except FedTopicsError as error:
            _refuse(context, str(error))
        finally:
            with self._lock:
                self._present[name] -= 1

    def _ask(self, message: bytes, context: grpc.ServicerContext) -> bytes:
        with self._of_member(context) as name:
            return self._service.ask(name, message)
        return b""

    def _say(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._of_member(context) as name:
            message = self._collected(chunks, self._service.most(name), context)
            self._service.say(name, message)
        return b""

    def _collected(
        self, chunks: Iterator[bytes], most: int, context: grpc.ServicerContext
    ) -> bytes:
        """Collect a message; of large ones only a few at the same time."""
        first = next(chunks, b"")
        if len(first) < CHUNK:
            return first
        begun = time.monotonic()
        if not self._room.acquire(timeout=DEADLINE):
            context.abort(BUSY, "The server is busy with other members.")
        try:
            message = bytearray(first)
            for chunk in chunks:
                message += chunk
                if len(message) > most:
                    raise FederationError(
                        f"A message is larger than {most >> 20:,} megabytes; raise "
                        "largest_message in the study's [federation]."
                    )
                if time.monotonic() - begun > 2 * DEADLINE + len(message) / SLOWEST:
                    context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "The message is too slow.")
            return bytes(message)
        finally:
            self._room.release()

    def _fetch(self, what: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        with self._of_member(context) as name:
            yield from _chunks(self._service.fetch(name, what))


def _refuse(context: grpc.ServicerContext, sentence: str) -> bytes:
    context.abort(REFUSED, sentence)
    raise AssertionError
