"""A member's link and the server over gRPC; every wait has a deadline.

TLS is mutual with pinned, self-signed certificates: each side trusts only those of the roster.
Both sides refuse versions before TLS 1.3, unless a program imports grpc before this module.

An interrupted call resumes at the first byte that is missing. These names in the metadata serve
this; a side that does not know them sends all bytes again:

- "request": from the member, the SHA-256 of a large Say;
- "held": from the server, how many bytes of this Say it has;
- "have", "answer": from the member, how many bytes of the answer it has, and their SHA-256;
- "skipped": from the server, how many of these it does not send again.
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from hashlib import sha256
from io import SEEK_END, BytesIO
from typing import Any, ClassVar
from urllib.parse import urlsplit

# gRPC reads this when it is imported; its lines about broken connections help nobody.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# gRPC's Python interface cannot forbid TLS 1.2. With this only cipher, for which neither side has a
# secret, its handshakes fail; those of TLS 1.3 have ciphers of their own.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from grpc import StatusCode

from fedtopics import waiting
from fedtopics.errors import FederationError, FedTopicsError, first_problem
from fedtopics.escaping import as_sentence
from fedtopics.protocol.link import (
    OTHER_STUDY,
    OTHER_VERSION,
    LinkError,
    Service,
    check_size,
    reason_of,
    split_address,
)
from fedtopics.versions import VERSION, WIRE

SOFTWARE = "fedtopics-version"  # name in the metadata of answers
CHUNK = 64 << 10  # bytes sent at once: what an interruption costs at most
LARGE = 1 << 20  # bytes: a request of more is a Say, and an answer of more is of a Fetch
SLOWEST = 64_000  # bytes per second
LARGEST_ANSWER = 1 << 30  # bytes of an answer
CALLS = 6  # of a member at once: one of each kind, and ending ones
LARGE_REQUESTS = 8  # that the server collects at once
TRAFFIC = {"sent": 0, "received": 0}  # bytes of messages of this process
NEW_CHANNEL = 3  # errors in a row


OPTIONS = [
    # A dead connection is noticed within half a minute, by pings that the other side tolerates.
    ("grpc.keepalive_time_ms", round(1000 * waiting.KEEPALIVE)),
    ("grpc.keepalive_timeout_ms", round(1000 * waiting.KEEPALIVE_ANSWER)),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", round(1000 * waiting.PING_INTERVAL)),
    # No retries; no compression, which could turn a few bytes into many.
    ("grpc.enable_retries", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Half a megabyte of a call waits unread; by gRPC's own estimate, many would.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 512 << 10),
    ("grpc.max_receive_message_length", LARGE),
    # Server: enough streams per connection that ended ones do not matter.
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.server_handshake_timeout_ms", round(1000 * waiting.HANDSHAKE)),
    # Client: "min_reconnect_backoff" is the longest time for one attempt to connect. Without its
    # own pool, a new channel would use the old connection.
    ("grpc.initial_reconnect_backoff_ms", round(1000 * waiting.FIRST_CONNECT)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * waiting.LAST_CONNECT)),
    ("grpc.min_reconnect_backoff_ms", round(1000 * waiting.ONE_CONNECT)),
    ("grpc.use_local_subchannel_pool", 1),
]


def _first_set(*names: str) -> str:
    return next((os.environ[name] for name in names if name in os.environ), "")


def proxy_of(address: str) -> str:
    """Return the proxy through which gRPC reaches an address, without its password; "" if none."""
    url = urlsplit(_first_set("grpc_proxy", "https_proxy", "http_proxy"))
    ends = re.findall(r"[^,\s]+", _first_set("no_grpc_proxy", "no_proxy").lower())
    is_used = url.scheme == "http" and not split_address(address)[0].lower().endswith(tuple(ends))
    return url.netloc.rpartition("@")[2] if is_used else ""


class _Deadline:
    """Ends a call that takes longer than its seconds and its bytes allow."""

    watched: ClassVar[set[_Deadline]] = set()

    def __init__(self, seconds: float, end: Callable[[], object] = bool) -> None:
        self.end = end
        self.passed = False
        self._at = time.monotonic() + seconds
        self.watched.add(self)
        self.watch()

    @classmethod
    @cache
    def watch(cls) -> None:
        """Watch all deadlines in one thread, which starts with the first."""
        threading.Thread(target=cls._end_late, daemon=True).start()

    @classmethod
    def _end_late(cls) -> None:
        while True:
            time.sleep(waiting.CHECK_DEADLINES)
            for deadline in cls.watched.copy():
                if deadline._at < time.monotonic():
                    deadline.passed = True
                    deadline.end()

    def extend(self, seconds: float) -> None:
        self._at += seconds

    def close(self) -> None:
        self.watched.discard(self)

    def write(self, content: bytes, first: int) -> Iterator[bytes]:
        """Cut content from its byte `first` on into chunks, without a copy of all of it."""
        view = memoryview(content)
        for start in range(first, len(view), CHUNK):
            chunk = bytes(view[start : start + CHUNK])
            self.extend(len(chunk) / SLOWEST)
            TRAFFIC["sent"] += len(chunk)
            yield chunk

    def read(self, chunks: Iterable[bytes], most: int, content: BytesIO) -> bytes:
        """Append chunks to content; stop at the first byte too many."""
        for chunk in chunks:
            self.extend(content.write(chunk) / SLOWEST)
            TRAFFIC["received"] += len(chunk)
            if content.tell() > most:
                break
        return content.getvalue()


class GrpcServer:
    """Serves the members of a study until `close`; port 0 of the address picks a free one."""

    def __init__(
        self,
        service: Service,
        address: str,
        key: bytes,
        certificate: bytes,
        members: Mapping[str, bytes],
        study: str = "",  # its digest
        seconds: float = waiting.CALL,
    ) -> None:
        self._service = service
        self._study = study
        self._methods = {"Ask": service.ask, "Say": service.say, "Fetch": service.fetch}
        self._seconds = seconds
        self._names = {  # by certificate in DER
            x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER): name
            for name, pem in members.items()
        }
        self._calls: dict[str, list[tuple[str, _Deadline]]] = {name: [] for name in members}
        self._lock = threading.Lock()
        self._large = threading.Semaphore(LARGE_REQUESTS)
        # What has arrived of each member's last large Say, under its size and SHA-256.
        self._partial: dict[str, tuple[str, BytesIO]] = {}
        with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
            import resource

            # Half-open connections of strangers must not use up what members need.
            most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        # Threads for all calls of each member, and some to refuse further calls.
        self._pool = ThreadPoolExecutor(CALLS * (len(members) + 1))
        self._server = grpc.server(self._pool, [self], options=OPTIONS)
        split_address(address, least_port=0)
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], b"\n".join(members.values()), require_client_auth=True
        )
        try:
            self.port: int = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            raise FederationError(
                f"This machine cannot listen on {address}: the port is in use, or the address "
                "belongs to another machine; choose another address with --listen."
            ) from None
        self.address = f"{address.rpartition(':')[0]}:{self.port}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(waiting.ANSWERS_ON_THEIR_WAY).wait(waiting.SERVER_STOPS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def service(self, details: Any) -> Any:
        """Return the handler of a call by its path, for gRPC; None if there is none."""
        path = re.fullmatch(r"/fedtopics\.([0-9]{1,9})/(\w+)", details.method)
        return (
            None
            if path is None or (path[1] == f"{WIRE}" and path[2] not in self._methods)
            else grpc.stream_stream_rpc_method_handler(partial(self._serve, path[1], path[2]))
        )

    def _serve(
        self, version: str, method: str, chunks: Iterator[bytes], context: Any
    ) -> Iterator[bytes]:
        """Answer a call as a stream, because gRPC waits for other calls without our deadline."""
        try:
            (pem,) = context.auth_context()["x509_pem_cert"]  # as TLS has verified it
            name = self._names.get(ssl.PEM_cert_to_DER_cert(pem.decode()))
            if name is None:
                raise FederationError("This certificate does not belong to a member of the study.")
            if version != f"{WIRE}":
                self._service.differs(name, OTHER_VERSION)
                raise FederationError(
                    f"The server uses version {WIRE} of the protocol, and {name} version "
                    f"{version}; install the same version of fedtopics at all members and the "
                    "server."
                )
            theirs = dict(context.invocation_metadata()).get("study") or self._study
            if theirs != self._study:
                self._service.differs(name, OTHER_STUDY)
                raise FederationError(
                    f"The server serves another study: its digest begins with {self._study[:16]}, "
                    f"that of {name} with {theirs[:16]}; compare the files of the study."
                )
            yield from self._answer(name, method, chunks, context)
        except LinkError as error:
            context.abort(StatusCode.RESOURCE_EXHAUSTED, str(error))
        except FedTopicsError as error:
            context.abort(StatusCode.FAILED_PRECONDITION, str(error))
        except grpc.RpcError:
            return  # nobody waits for the answer any more
        except Exception as fault:
            self._service.fail(f"the server failed: {reason_of(fault)}")
            context.abort(StatusCode.INTERNAL, "the server failed")

    def _answer(
        self, name: str, method: str, chunks: Iterator[bytes], context: Any
    ) -> Iterator[bytes]:
        announced = dict(context.invocation_metadata())
        with ExitStack() as held:
            deadline = held.enter_context(self._counted(name, method, context.cancel))
            size = _number(announced.get("size"))
            check_size(size, self._service.largest if method == "Say" else LARGE)
            digest = announced.get("request", "")
            part = self._resumed(name, f"{size} {digest}") if digest else BytesIO()
            if method == "Say":  # the member waits for this before it sends
                context.send_initial_metadata([(SOFTWARE, VERSION), ("held", f"{part.tell()}")])
            if size > LARGE:  # only few of these may be in memory at once
                began = time.monotonic()
                deadline.extend(self._seconds)
                if not self._large.acquire(timeout=self._seconds):
                    raise LinkError("too many members send large messages at once")
                held.callback(self._large.release)
                deadline.extend(time.monotonic() - began - self._seconds)
            request = deadline.read(chunks, size, part)
            if len(request) >= size:  # chunks also end when the connection does
                self._partial.pop(name, None)
            if len(request) != size or digest not in ("", sha256(request).hexdigest()):
                raise LinkError("the request is not complete")
            answer = self._methods[method](name, request) or b""
            begin = memoryview(answer)[: _number(announced.get("have"))]
            skipped = len(begin) if sha256(begin).hexdigest() == announced.get("answer") else 0
            if method != "Say":
                context.send_initial_metadata([(SOFTWARE, VERSION), ("skipped", f"{skipped}")])
            yield from deadline.write(answer, skipped)

    def _resumed(self, name: str, announced: str) -> BytesIO:
        """Return what has arrived of a member's request, to append the rest."""
        before, content = self._partial.pop(name, ("", BytesIO()))
        # A copy: the interrupted call may not have noticed its end yet.
        part = BytesIO(content.getvalue() if before == announced else b"")
        part.seek(0, SEEK_END)
        self._partial[name] = announced, part
        while (
            sum(other.tell() for _, other in [*self._partial.values()])
            > LARGE_REQUESTS * self._service.largest
        ):
            self._partial.pop(next(iter(self._partial)), None)  # the oldest
        return part

    @contextmanager
    def _counted(self, name: str, method: str, end: Callable[[], object]) -> Iterator[_Deadline]:
        """Give a call its deadline; end the member's older one; refuse too many."""
        with self._lock:
            calls = self._calls[name]
            if len(calls) >= CALLS:
                raise LinkError(f"{name} makes more than {CALLS} calls at once")
            for older, deadline in calls:
                if older == method != "Ask":  # an older Ask is answered by the service
                    deadline.end()
            call = method, _Deadline(self._seconds, end)
            calls.append(call)
        try:
            yield call[1]
        finally:
            call[1].close()
            with self._lock:
                calls.remove(call)


class GrpcLink:
    """A member's connection to the server over gRPC; a `Link`."""

    def __init__(
        self,
        address: str,
        key: bytes,
        certificate: bytes,
        server: bytes,
        study: str = "",  # its digest
        seconds: float = waiting.CALL,
    ) -> None:
        self._study = study
        self.through = f" through the proxy {proxy}" if (proxy := proxy_of(address)) else ""
        self._address = address + self.through
        self._seconds = seconds
        credentials, name = channel_credentials(key, certificate, server)
        self._connect = partial(
            grpc.secure_channel,
            address,
            credentials,
            options=[*OPTIONS, ("grpc.ssl_target_name_override", name)],
        )
        self._channel = self._connect()
        self._closed = False
        self._lock = threading.Lock()
        self._errors = 0  # in a row
        self._interrupted: dict[tuple[str, bytes], BytesIO] = {}  # the answer of a failed call
        self.software = "unknown"  # the server's version of fedtopics, from its last answer

    def ask(self, message: bytes) -> bytes:
        return self._call("Ask", message, LARGE)

    def say(self, message: bytes) -> None:
        self._call("Say", message, 0)

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        return self._call("Fetch", what, LARGEST_ANSWER if most is None else most)

    def close(self) -> None:
        """Close the connection: calls of other threads end with a `LinkError`."""
        with self._lock:
            self._closed = True
            self._channel.close()

    def _call(self, method: str, request: bytes, most: int) -> bytes:
        """Call the server; after an interrupted call, the same one resumes it."""
        channel = self._channel
        deadline = _Deadline(self._seconds)
        is_large = method == "Say" and len(request) > CHUNK
        content = self._interrupted.pop((method, request), BytesIO())
        announced = [
            ("study", self._study),
            ("size", f"{len(request)}"),
            ("request", sha256(request).hexdigest() if is_large else ""),
            ("have", f"{content.tell()}"),
            ("answer", sha256(content.getvalue()).hexdigest()),
        ]
        opened = Future[Any]()

        def chunks() -> Iterator[bytes]:
            metadata = dict(opened.result(self._seconds).initial_metadata()) if is_large else {}
            yield from deadline.write(request, _number(metadata.get("held")))

        try:
            answers = channel.stream_stream(f"/fedtopics.{WIRE}/{method}")(
                chunks(), metadata=announced
            )
            deadline.end = answers.cancel
            opened.set_result(answers)
            metadata = dict(answers.initial_metadata())
            # Without metadata, the call has failed, and another one may resume it.
            content.truncate(_number(metadata.get("skipped")) if metadata else content.tell())
            content.seek(0, SEEK_END)
            answer = deadline.read(answers, most, content)
            self.software = as_sentence(str(metadata.get(SOFTWARE, "unknown")))
        except grpc.RpcError as error:
            self._interrupted = {(method, request): content}
            code = StatusCode.DEADLINE_EXCEEDED if deadline.passed else error.code()
            raise self._failed(code, as_sentence(error.details() or ""), channel) from None
        except ValueError:  # another thread has closed this channel
            raise LinkError("the link was closed") from None
        finally:
            deadline.close()
        if len(answer) > most:
            answers.cancel()
            raise FederationError(f"{self._address} sent more than {most:,} bytes.")
        self._errors = 0
        return answer

    def _failed(self, code: StatusCode, details: str, channel: Any) -> Exception:
        """Count an error of a channel; return the exception for the caller."""
        if code is StatusCode.FAILED_PRECONDITION:
            return FederationError(details)
        with self._lock:
            self._errors += 1
            if channel is self._channel and not self._closed and self._errors >= NEW_CHANNEL:
                self._errors = 0
                channel.close()
                self._channel = self._connect()
        return LinkError(_reason(self._address, code, details))


def _number(written: object) -> int:
    """Return a number that the other side announces, or 0."""
    return int(str(written)) if re.fullmatch("[0-9]{1,15}", str(written)) else 0


def _reason(address: str, code: StatusCode, details: str) -> str:
    """Return why an attempt failed, according to gRPC or the server."""
    if code is not StatusCode.UNAVAILABLE:
        return f"{address} " + {
            StatusCode.DEADLINE_EXCEEDED: "does not answer",
            StatusCode.CANCELLED: "ended the call, which was too slow or replaced by a newer one",
        }.get(code, f"does not take this call now: {details}")
    why = re.sub(".*[:(] ?(?=[A-Z])|[^a-z]*$", "", details) or "the handshake of TLS failed"
    return first_problem(
        {
            f"the certificate of {address} differs from the one in the study": (
                "CERTIFICATE_VERIFY_FAILED" in details
            ),
            f"{address} ends the connection; it may not know this member's certificate": (
                details.startswith("failed to connect") and details.endswith("Socket closed")
            ),
            f"cannot reach {address}: {why}": True,
        }
    )


def channel_credentials(
    key: bytes, certificate: bytes, server: bytes
) -> tuple[grpc.ChannelCredentials, str]:
    """Return a member's credentials, and the name in the server's certificate."""
    # gRPC compares this name instead of the host name, so the server can move to another host.
    names = x509.load_pem_x509_certificate(server).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return (
        grpc.ssl_channel_credentials(server, key, certificate),
        names.value.get_values_for_type(x509.DNSName)[0],
    )
