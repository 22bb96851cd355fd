"""Without nvflare, the commands for FLARE say what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.errors import FedTopicsError
from fedtopics.integrations.flare_command import group


@pytest.mark.parametrize("command", ["train", "allow"])
def test_the_extra_is_named(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.toml").write_text("")
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda _: None)
    with pytest.raises(FedTopicsError, match=r"nvflare.*pip install \"fedtopics\[flare\]\"$"):
        group.main([command, str(tmp_path / "study.toml")], standalone_mode=False)
