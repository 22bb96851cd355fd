"""Participants that look often at what came: most of these tests end them."""

import pytest

from fedtopics.engines import decisions, node


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decisions, node):
        monkeypatch.setattr(module, "TICK", 0.02)
