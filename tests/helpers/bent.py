"""Clients in this process that reply what they like, behind their doors."""

from collections.abc import Callable
from typing import Any

import pytest

from fedtopics.contract.interfaces import Call
from fedtopics.contract.payload import SparseRows
from fedtopics.federation.door import Door

Reply = dict[str, Any]


def bend_replies(
    monkeypatch: pytest.MonkeyPatch, client: str, bend: Callable[[str, Reply], Reply]
) -> None:
    honest = Door.call

    def call(self: Door, asked: Call) -> Reply:
        reply = honest(self, asked)
        return bend(asked.function, reply) if self.client == client else reply

    monkeypatch.setattr(Door, "call", call)


def nothing(function: str, reply: Reply) -> Reply:
    """A client of LDA that has nothing in a round."""
    if function != "expected_counts":
        return reply
    counts = reply["counts"]
    return {
        "counts": SparseRows(counts.index[:0], counts.values[:0], counts.n_rows),
        "bound": 0.0,
        "documents": 0,
    }
