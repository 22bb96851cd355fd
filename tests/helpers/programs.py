"""Clients of a tiny method, whose functions are the test's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtopics import Policy
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger

POLICY = Policy(methods=("tiny",), min_persons=1, min_persons_per_word=1, min_clients_in_sum=1)


@dataclass
class Half:
    functions: Mapping[str, Callable[..., dict[str, Any]]]
    method: str = "tiny"
    calls: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)  # of the calls
    attempt: int = 1  # by the door
    summed: int = 0
    persons: int | None = None
    most_rounds: int | None = None
    noisy: bool = False

    @property
    def allowed(self) -> tuple[str, ...]:
        return tuple(self.functions)

    def execute(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        self.calls.append(function)
        self.attempts.append(self.attempt)
        return self.functions[function](**payload)


def door(name: str, half: Any, ledger: Path | None = None, policy: Policy = POLICY) -> Door:
    return Door(name, half, policy, Ledger("tiny", "f00d", ledger))
