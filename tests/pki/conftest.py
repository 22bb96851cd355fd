"""An authority for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics import pki
from tests.helpers.certificates import HOSTS


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """An authority with a server, and the client north."""
    pki.create(tmp_path / "pki", HOSTS)
    pki.issue(tmp_path / "pki", "north")
    return tmp_path / "pki"
