"""Waiting for what happens in other threads."""

import threading
import time
from collections.abc import Callable
from typing import Any

from fedtopics.contract.events import Event

PATIENCE = 10.0  # seconds; a test that waits so long has failed
HOST = "127.0.0.1"


class KilledError(BaseException):
    """Ends a program at once, as a process that dies: it has no time to say a word."""


def until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.005)


class Notes(list[dict[str, Any]]):
    """What a run or a client was told, in order."""

    def __call__(self, event: Event) -> None:
        self.append(event.plain())

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in list(self) if note["event"] == kind]


class Background:
    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._found: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        if (error := self.error()) is not None:
            raise error
        return self._found

    def error(self) -> BaseException | None:
        self._thread.join(2 * PATIENCE)
        assert not self.running, "it never ended"
        return self._error
