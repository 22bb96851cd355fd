"""Sums of replies."""

from collections.abc import Mapping
from typing import Any

from fedtopics.contract.payload import Payload, RunningSum


def add_up(replies: Mapping[str, Payload]) -> dict[str, Any]:
    total = RunningSum()
    for name in sorted(replies):
        total.add(replies[name])
    return total.total()
