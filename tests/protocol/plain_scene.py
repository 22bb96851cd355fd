"""A tiny program over plain aggregation: a server and clients in threads, which can be killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.contract.interfaces import Call
from fedtopics.contract.replies import Announced, Bounds
from fedtopics.federation.local import LocalClients
from fedtopics.protocol.exchange import Patience
from fedtopics.protocol.link import LinkError
from fedtopics.protocol.outliers import Robust, Rule
from fedtopics.protocol.plain import PlainClients
from fedtopics.protocol.plain_client import Remote, StateError
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_rounds import FederationSettings, Rounds
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.values import dumps, loads
from tests.helpers.background import KilledError, until

NAMES = ("east", "north", "south")
ROUNDS = 5
TEMPLATE = {"documents": Announced({}), "x": Bounds((3,))}


def rules_of(
    quorum: int, join: float, wait: float, round_: float, outliers: Rule = "none"
) -> FederationSettings:
    """The settings of plain aggregation, in the order of a round."""
    return FederationSettings(
        quorum=quorum,
        join_timeout=join,
        quorum_timeout=wait,
        round_timeout=round_,
        outliers=outliers,
    )


class TinyDoor:
    """A client with a state between two calls of a round; `change` may change its replies."""

    def __init__(self, name: str) -> None:
        self.seed = NAMES.index(name) + 1
        self.documents = 10 * len(name)
        self.x = np.zeros(3)
        self.calls: list[tuple[str, Any]] = []
        self.change: Callable[[str, dict[str, Any]], Any] = lambda function, reply: reply

    def call(self, call: Call) -> dict[str, Any]:
        assert all(earlier <= call.position for _, earlier in self.calls), "a run does not go back"
        self.calls.append((call.function, call.position))
        reply: dict[str, Any] = self.change(call.function, self.repeat(call))
        return reply

    def repeat(self, call: Call) -> dict[str, Any]:
        function = call.function
        payload = call.payload
        if function == "size":
            return {"documents": self.documents}
        if function == "first":
            far = 40 if self.seed == 3 else 1  # what rules against outliers have to do with
            self.x = far * np.sin(payload["w"] * self.seed + self.seed / 3)
        else:
            self.x = self.x * payload["mean"]
        return {"documents": self.documents, "x": self.documents * self.x}

    def check_members(self, members: Sequence[str]) -> None: ...
    def check_sum(self, documents: int) -> None: ...
    def write_total(self, *what: Any) -> None: ...
    def leave(self, *what: Any) -> None: ...


@dataclass
class Saved:
    w: Any = field(default_factory=lambda: np.zeros(3))
    round: int = 0
    step: int = 0
    turn: int = 0


def program(
    clients: Any, saved: Saved, after: Callable[[], None], reports: list[Any], rounds: int = ROUNDS
) -> Any:
    """Two sums a round; a checkpoint behind every second one."""
    if not saved.round:
        sizes = clients.call("size", {"documents": Announced({})})
        assert {type(reply["documents"]) for reply in sizes.values()} == {int}
    w = saved.w
    for number in range(saved.round + 1, rounds + 1):

        def work(w: Any = w, number: int = number) -> Any:
            first = clients.sum("first", TEMPLATE, round=number, w=w)
            mean = first["x"] / first["documents"]
            return mean, clients.sum("second", TEMPLATE, round=number, mean=mean)

        (mean, second), report = clients.round(number, work)
        reports.append(report)
        w = w + mean + second["x"] / second["documents"]
        if number % 2 == 0 and isinstance(clients, PlainClients):
            saved.w = w
            saved.round = number
            saved.step = clients.step
            saved.turn = clients.turn
            after()
    return w


def here(*members: Sequence[str], rule: Rule = "none") -> Any:
    """The model of one process, with the members of each round (the last ones of all further)."""
    saved = Saved()
    robust = Robust(rule, lambda _: None)
    for number in range(1, ROUNDS + 1):
        names = members[min(number, len(members)) - 1]
        clients = LocalClients({name: TinyDoor(name) for name in names}, robust=robust)
        saved.w = program(clients, saved, lambda: None, [], number)
        saved.round = number
    return saved.w


class TinyLink:
    """A link to the server that is there now. `kill_at` has numbers of calls that kill."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.count = 0
        self.kill_at: dict[int, bool] = {}  # whether the call arrives before

    def _call(self, method: str, *given: Any) -> Any:
        if self.scene.is_over:
            raise KilledError
        if self.scene.service is None:
            raise LinkError("It is away")
        arrives = self.kill_at.pop(self.count, None)
        self.count += 1
        if arrives is False:
            raise KilledError
        answer = getattr(self.scene.service, method)(self.name, *given)
        if arrives:
            raise KilledError
        return answer

    def ask(self, message: bytes) -> bytes:
        return bytes(self._call("ask", message))

    def say(self, message: bytes) -> None:
        self._call("say", message)

    def fetch(self, what: bytes) -> bytes:
        return bytes(self._call("fetch", what))


class Scene:
    """A server and clients, each in a thread, that are started again when they are killed."""

    def __init__(self, folder: Path, rules: FederationSettings) -> None:
        self.folder = folder
        self.rules = rules
        self.timeout = 60.0
        self.stays = 5.0
        self.service: PlainServer | None = None
        self.is_over = False
        self.events: list[Any] = []
        self.reports: list[Any] = []
        self.doors = {name: TinyDoor(name) for name in NAMES}
        self.links = {name: TinyLink(self, name) for name in NAMES}
        self.saved = {name: Saved() for name in ("server", *NAMES)}
        self.kill_at: dict[int, int] = {}  # the number of an entry: bytes of it that are written
        self._pool = ThreadPoolExecutor(8)

    def close(self) -> None:
        self.is_over = True
        if self.service is not None:
            self.service.fail("the test is over")
        self._pool.shutdown()

    def kinds(self) -> set[str]:
        return {event.plain()["event"] for event in self.events}

    def serve(self) -> Any:
        started = self._pool.submit(self._again, self.server)
        until(lambda: self.service is not None or started.done())
        return started

    def join(self, name: str, software: str = "tiny") -> Any:
        return self._pool.submit(self._again, lambda: self._client(name, software))

    def _again(self, work: Callable[[], Any]) -> Any:
        while not self.is_over:
            with suppress(KilledError):
                return work()
        return None

    def server(self) -> Any:
        saved = self.saved["server"]
        notify = self.events.append
        log = Log(self.folder / "log", saved.step)
        append = log.append

        def killing(content: bytes) -> None:
            written = self.kill_at.pop(log.next, None)
            if written is None or written > len(content):
                append(content)
            else:
                log._path(log.next).write_bytes((bytes(32) + content)[:written])
            if written is not None:
                raise KilledError

        log.append = killing  # type: ignore[method-assign]
        server = PlainServer(
            names=NAMES,
            software="tiny",
            log=log,
            largest=1 << 27,
            state=lambda: dumps(vars(saved)),
            notify=notify,
        )
        clients = PlainClients(
            source=Rounds(server, self.rules, self.rules.quorum or 1, notify),
            names=NAMES,
            own="",
            door=None,
            step=saved.step,
            turn=saved.turn,
            notify=notify,
        )
        self.service = server
        try:
            model = program(clients, saved, log.cut, self.reports)
            server.wait_until_done(self.stays)
            return model
        finally:
            self.service = None

    def _client(self, name: str, software: str) -> Any:
        folder = self.folder / name
        saved = self.saved[name]
        notify = self.events.append
        folder.mkdir(exist_ok=True)
        remote = Remote(self.links[name], software, 1, folder, Patience(self.timeout, notify))
        door: Any = self.doors[name]
        door.x = np.zeros(3)
        clients = PlainClients(
            source=remote,
            names=NAMES,
            own=name,
            door=door,
            step=saved.step,
            turn=saved.turn,
            notify=notify,
        )
        try:
            model = program(clients, saved, lambda: None, [])
        except StateError as error:
            vars(saved).update(loads(error.content))
            return self._client(name, software)
        clients.done()
        return model
