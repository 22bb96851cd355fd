"""What tests of clients share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a client's ledger is."""
    return tmp_path / "ledger.jsonl"
