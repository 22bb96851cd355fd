"""The way of a masked update through the code is short enough to be read."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fedtopics
from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.methods.core.client import TopicClient
from fedtopics.protocol.clients import SecureClients
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.federation import study, subjects
from tests.helpers.grpc_federation import federated

PACKAGE = str(Path(fedtopics.__file__).parent)
# a whole step, with ledger, checks and the way back
MOST_FUNCTIONS = 110
MOST_MODULES = 19


class Trace:
    """The functions of the package that run, but the method's computation and the relay."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self._below: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "return" and frame is self._below:
            self._below = None
        name = frame.f_code.co_filename
        if event != "call" or self._below is not None or not name.startswith(PACKAGE):
            return
        if isinstance(frame.f_locals.get("self"), (TopicClient, SharedFunctions, LoopbackLink)):
            self._below = frame  # it computes the update; it is another machine
        elif not frame.f_code.co_name.startswith("<"):
            self.functions.add((name.removeprefix(PACKAGE), frame.f_code.co_qualname))


def test_masked_updates_take_few_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[Trace] = []
    plain: Callable[..., Any] = SecureClients.sum

    def traced(self: SecureClients, function: str, *given: Any, **payload: Any) -> Any:
        if payload.get("round") != 2 or self._member.name != "north" or traces:
            return plain(self, function, *given, **payload)
        traces.append(Trace())
        sys.setprofile(traces[0])
        try:
            return plain(self, function, *given, **payload)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(SecureClients, "sum", traced)
    plan = study(max_rounds=2).model_copy(update={"aggregation": "secure"})
    federated(plan, subjects({"north": 40, "east": 40, "south": 40}), tmp_path)
    (trace,) = traces
    assert 60 < len(trace.functions) <= MOST_FUNCTIONS
    assert 12 < len({module for module, _ in trace.functions}) <= MOST_MODULES
