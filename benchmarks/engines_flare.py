"""The two parts of `engines` that NVIDIA FLARE's processes import; it needs nvflare."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.engines import answering, led
from fedtopics.integrations.flare_carrier import FlareCarrier, JobContext, ServerPart, SitePart


class Server(ServerPart):
    """Do the rounds, write what they took."""

    def __init__(self, out: str, rounds: int) -> None:
        self.out, self.rounds = out, rounds

    def lead(self, carrier: FlareCarrier, context: JobContext) -> None:
        result = led(carrier, self.rounds, Path(self.out).parent)
        Path(self.out).write_text(json.dumps(result), encoding="utf-8")


class Client(SitePart):
    """Send back what comes."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self._answer: Callable[[bytes], bytes] | None = None

    def handle(self, message: bytes, context: JobContext) -> bytes:
        if self._answer is None:
            self._answer = answering(context.site, self.rounds, context.job)
        return self._answer(message)
