"""A member's calls over a framework that only carries requests to it and answers back.

An answer contains the member's calls, signed with its key; the next request has their results.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, Protocol

import msgspec
from pydantic import Field

from fedtopics import waiting
from fedtopics.contract.events import OnEvent
from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.escaping import as_sentence
from fedtopics.federation.join import join
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.relay import lead_relay
from fedtopics.federation.serve import lead
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import ClientData
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.keys import framed
from fedtopics.protocol.link import LinkError, Service, check_size, reason_of
from fedtopics.protocol.messages import Message, decode, encode
from fedtopics.protocol.roster import Key


class Carrier(Protocol):
    """Brings messages to addresses and their answers back; used by one thread."""

    def addresses(self) -> Collection[str]:
        """Return the addresses that can be reached now."""

    def send(self, address: str, message: bytes) -> None:
        """Send a message, which gets at most one answer."""

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Return answers, after so many seconds at most; None means that the client failed."""


class CarriedCall(msgspec.Struct, array_like=True):
    """A call of a member."""

    method: Literal["ask", "say", "fetch"]
    content: bytes


class Calls(Message):
    """A member's calls, or the news that it computes or has ended."""

    name: str
    number: int  # grows with each set of calls of a process
    calls: list[CarriedCall]
    state: Literal["calls", "computes", "ended"]
    signature: bytes = b""


class Results(Message):
    """The results of the calls with this number, or a sentence if the server refused one."""

    session: bytes  # drawn by the server, signed by members
    number: int
    results: list[bytes]
    refusal: str = ""


def _signed(study: str, session: bytes, calls: Calls) -> bytes:
    return framed(
        "fedtopics carried", study, session, encode(msgspec.structs.replace(calls, signature=b""))
    )


class CarriedLink:
    """A member's `Link`, which answers the framework's requests; `program` runs in a thread."""

    def __init__(self, key: Key, study: str, program: Callable[[CarriedLink], None]) -> None:
        self._key = key
        self._study = study
        self._changed = threading.Condition()
        self._number = int.from_bytes(os.urandom(4), "big") << 16
        self._calls: list[CarriedCall] = []
        self._is_ready = False  # whether the program waits for the results of its calls
        self._results: Results | None = None
        self.ended = False
        self._thread = threading.Thread(target=self._run, args=(program,), daemon=True)

    def _run(self, program: Callable[[CarriedLink], None]) -> None:
        try:
            program(self)
        except Exception:  # noqa: S110 - the program has informed its own operator
            pass
        finally:
            with self._changed:
                self.ended = True
                self._changed.notify_all()

    def ask(self, message: bytes) -> bytes:
        return self._call("ask", message)

    def say(self, message: bytes) -> None:
        """See `Link.say`; it travels with the next call."""
        with self._changed:
            self._calls.append(CarriedCall("say", message))

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        return self._call("fetch", what)

    def _call(self, method: Literal["ask", "fetch"], content: bytes) -> bytes:
        with self._changed:
            self._calls.append(CarriedCall(method, content))
            self._number += 1
            self._is_ready = True
            self._results = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._results is not None, waiting.CARRIED_CALL)
            results = self._results
            self._results = None
            self._calls = []
            self._is_ready = False
        if results is None:
            raise LinkError("the server sends no more requests")
        if results.refusal:
            raise FederationError(as_sentence(results.refusal))
        return results.results[-1] if results.results else b""

    def answer(self, message: bytes) -> bytes:
        """Answer a request of the framework: deliver results, return the next calls."""
        results = decode(message, Results)
        with self._changed:
            if not self._thread.is_alive() and not self.ended:
                self._thread.start()
            if results.number == self._number and self._is_ready:
                self._results = results
                self._is_ready = False
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_ready or self.ended, waiting.CARRIED_REQUEST)
            calls = Calls(
                name=self._key.name,
                number=self._number,
                calls=self._calls if self._is_ready else [],
                state="calls" if self._is_ready else "ended" if self.ended else "computes",
            )
        calls.signature = self._key.sign(_signed(self._study, results.session, calls))
        return encode(calls)


@dataclass
class _Member:
    results: Results
    due: float = 0.0
    pause: float = waiting.FIRST_FAILED_MEMBER
    is_pending: bool = False
    has_ended: bool = False


class CarriedServer:
    """Serves the members at a carrier's addresses, in a thread, until it is closed."""

    def __init__(self, service: Service, carrier: Carrier, study: Study) -> None:
        self._service = service
        self._carrier = carrier
        self._study = study.fingerprint
        self._roster = study.members
        self._session = os.urandom(16)
        self._members: dict[str, _Member] = {}  # by address
        self._served: SimpleQueue[tuple[str, Results]] = SimpleQueue()
        self._ends = float("inf")
        self._pool = ThreadPoolExecutor(2 * len(self._roster.names) + 2)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Bring the last results, and stop."""
        self._ends = time.monotonic() + waiting.LAST_RESULTS
        self._thread.join(2 * waiting.LAST_RESULTS)
        self._pool.shutdown(wait=False)

    def _run(self) -> None:
        looked = 0.0
        try:
            while time.monotonic() < self._ends and not self._is_over():
                if time.monotonic() - looked > waiting.CHECK:
                    looked = time.monotonic()
                    for address in self._carrier.addresses():
                        self._members.setdefault(address, _Member(Results(self._session, -1, [])))
                self._send()
                for address, content in self._carrier.receive(waiting.CARRIED_ANSWERS):
                    self._take(address, content)
        except FederationError as error:
            self._service.fail(str(error).removesuffix("."))

    def _is_over(self) -> bool:
        """Whether all members have ended, after `close` was called."""
        return self._ends < float("inf") and all(m.has_ended for m in self._members.values())

    def _send(self) -> None:
        while not self._served.empty():
            address, results = self._served.get()
            self._members[address].results = results
            self._members[address].due = 0.0
        now = time.monotonic()
        for address, member in self._members.items():
            if not member.is_pending and not member.has_ended and member.due <= now:
                member.is_pending = True
                member.due = float("inf")
                self._carrier.send(address, encode(member.results))

    def _take(self, address: str, content: bytes | None) -> None:
        member = self._members[address]
        member.is_pending = False
        try:
            calls = decode(content or b"", Calls)
        except FederationError:
            calls = None
        if calls is None or not self._roster.verify(
            calls.name, calls.signature, _signed(self._study, self._session, calls)
        ):
            member.due = time.monotonic() + member.pause  # its process may be back by then
            member.pause = min(2 * member.pause, waiting.LAST_FAILED_MEMBER)
            return
        member.pause = waiting.FIRST_FAILED_MEMBER
        match calls.state:
            case "computes":
                member.due = 0.0
            case "ended":
                member.has_ended = True
                self._service.left(calls.name)
            case "calls":
                self._pool.submit(self._serve, address, calls)

    def _serve(self, address: str, calls: Calls) -> None:
        service = self._service
        methods = {"ask": service.ask, "say": service.say, "fetch": service.fetch}
        results = []
        refusal = ""
        try:
            for call in calls.calls:
                if call.method == "say":
                    check_size(len(call.content), service.largest)
                results.append(methods[call.method](calls.name, call.content) or b"")
        except FedTopicsError as error:
            refusal = str(error)
        except Exception as fault:
            refusal = "The server failed."
            self._service.fail(f"the server failed: {reason_of(fault)}")
        self._served.put((address, Results(self._session, calls.number, results, refusal)))


class SiteSettings(ClientData):
    """A site's own settings: a study's table [clients.NAME], and the fields below."""

    out: Path | None = Field(None, description="folder with one folder per run: ledger, model")
    key: Path | None = Field(None, description="folder of the client's key")
    insecure_seed: bool = Field(False, description="random choices that everybody can repeat")
    first_release: bool = Field(False, description="as `fedtopics join --first-release`")
    texts_changed: bool = Field(False, description="as `fedtopics join --texts-changed`")


def join_carried(
    study: Study,
    folder: Path,
    link: CarriedLink,
    on_event: OnEvent,
    key: Key,
    settings: SiteSettings,
) -> None:
    """Take part in a study with a site's documents."""
    switches = settings.model_dump(include={"insecure_seed", "first_release", "texts_changed"})
    part = Participation(
        key=key,
        policy=Policy.of(settings.policy),
        corpus=settings.read(key.name, study.method.by),
        out=folder,
        on_event=on_event,
        embedding_model=settings.embedding_model,
        **switches,
    )
    join(part, study, link=link)


def lead_carried(
    study: Study, folder: Path, carrier: Carrier, on_event: OnEvent
) -> TopicModel | None:
    """Serve a study as its relay or as its trusted server, which returns the model."""

    def listen(service: Service, _: Any) -> closing[CarriedServer]:
        return closing(CarriedServer(service, carrier, study))

    if not study.is_secure:
        return lead(study, folder, listen, on_event)
    lead_relay(study, folder, listen, lambda event: on_event(event.plain()))
    return None
