"""Each number of a kept page follows from the kept rows."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest

from experiments import pages
from experiments.commands import group
from experiments.pages import EXPERIMENTS, FIGURE_4, KEPT, page_again, path_of


@pytest.mark.parametrize("name", [*EXPERIMENTS, *FIGURE_4])
def test_a_kept_page_is_what_its_rows_say(name: str) -> None:
    assert page_again(name) == path_of(name).read_text("utf-8")


def test_a_number_that_was_changed_is_found_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "results"
    copytree(KEPT / "flda", kept / "flda")
    monkeypatch.setattr(pages, "KEPT", kept)
    monkeypatch.setattr(pages, "EXPERIMENTS", {"flda": EXPERIMENTS["flda"]})
    monkeypatch.setattr(pages, "FIGURE_4", {})
    rows = kept / "flda" / "runs.jsonl"
    first, *others = rows.read_text().splitlines()
    changed = json.loads(first) | {"c_v": 0.9}
    rows.write_text("\n".join([json.dumps(changed), *others]))
    with pytest.raises(SystemExit) as end:
        group.main(["pages"], standalone_mode=False)
    assert end.value.code == 1
    assert "These differed from their rows: flda/flda.md." in capsys.readouterr().out
    group.main(["pages", "--write"], standalone_mode=False)
    group.main(["pages"], standalone_mode=False)
    assert "All are as their rows." in capsys.readouterr().out
