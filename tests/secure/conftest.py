"""Participants that look often at what came: most of these tests end them."""

from collections.abc import Iterator

import pytest

from fedtopics.engines import adder, decisions, node
from tests.helpers.masked import Clients


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decisions, node):
        monkeypatch.setattr(module, "TICK", 0.02)


@pytest.fixture
def clients() -> Iterator[Clients]:
    found = Clients()
    yield found
    found.kill()


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a client whose connection breaks at once."""
    monkeypatch.setattr(adder, "GRACE", 0.0)
