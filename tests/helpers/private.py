"""Who could read what a run left on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

OTHERS = 0o077


def open_to_others(folder: Path) -> list[str]:
    """Return what below a folder, itself included, others than its owner could do anything with."""
    paths = [folder, *sorted(folder.rglob("*"))]
    assert len(paths) > 1, "there is nothing"
    return [str(path.relative_to(folder)) for path in paths if path.stat().st_mode & OTHERS]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The umask takes nothing away: what is private is so on purpose."""
    before = os.umask(0)
    yield
    os.umask(before)
