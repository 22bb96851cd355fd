"""An asyncio loop in a thread of its own, and how other threads reach it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Run an asyncio loop until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop; wait for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop; wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the loop; do not wait."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the loop; do not wait."""
        self._loop.call_soon_threadsafe(function, *arguments)
