"""Without nvflare, the commands for FLARE say what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.cli import app
from fedtopics.errors import FedTopicsError


@pytest.mark.parametrize("words", ["train --engine flare", "init flare-site"])
def test_the_extra_is_named(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.toml").write_text("")
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda _: None)
    with pytest.raises(FedTopicsError, match=r"nvflare.*pip install \"fedtopics\[flare\]\"$"):
        app.main([*words.split(), str(tmp_path / "study.toml")], standalone_mode=False)
