"""Each number of a kept page, and of a marked table of a paper, follows from the kept rows."""

import json
from pathlib import Path
from shutil import copy, copytree

import pytest

from experiments import pages
from experiments.commands import group
from experiments.pages import EXPERIMENTS, FIGURE_4, KEPT, MARKED, PAPERS, differing
from fedtopics.errors import RunError

PAGE = "papers/flda/README.md"


def test_what_is_kept_is_what_its_rows_say() -> None:
    assert list(differing(write=False)) == []
    text = "".join(path.read_text("utf-8") for path in PAPERS.glob("*/README.md"))
    marked = MARKED.findall(text)
    assert {name for _, name, _ in marked} == {"figure3", "flda", "fstc", *FIGURE_4}
    assert len(marked) == text.count("<!-- row"), "each line of that kind is read"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of F-LDA's rows alone, and one page of a paper with one of its tables."""
    copytree(KEPT / "flda", tmp_path / "results/flda")
    copy(KEPT / "quality.jsonl", tmp_path / "results")
    (tmp_path / "papers/flda").mkdir(parents=True)
    (tmp_path / PAGE).write_text(
        "Before.\n\n<!-- rows of flda: medical_questions, 280 a round -->\n\n\nAfter.\n"
    )
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "KEPT", tmp_path / "results")
    monkeypatch.setattr(pages, "PAPERS", tmp_path / "papers")
    monkeypatch.setattr(pages, "EXPERIMENTS", {"flda": EXPERIMENTS["flda"]})
    monkeypatch.setattr(pages, "FIGURE_4", {})
    return tmp_path


def test_changed_numbers_are_found_and_mended(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = kept / "results/flda/runs.jsonl"
    first, *others = rows.read_text().splitlines()
    changed = json.loads(first) | {"c_v": 9.5}
    rows.write_text("\n".join([first, *others, json.dumps(changed)]))  # the last one counts
    with pytest.raises(SystemExit) as end:
        group.main(["pages"], standalone_mode=False)
    assert end.value.code == 1
    assert (
        "These differed from their rows: results/flda/flda.md, papers/flda/README.md."
        in capsys.readouterr().out
    )
    group.main(["pages", "--write"], standalone_mode=False)
    group.main(["pages"], standalone_mode=False)
    assert "All are as their rows." in capsys.readouterr().out
    page = (kept / PAGE).read_text()
    assert page.startswith("Before.\n\n<!-- ")
    assert page.endswith("\n\nAfter.\n")
    line = next(line for line in page.splitlines() if line.startswith("| pooled: regular LDA |"))
    assert line in (kept / "results/flda/flda.md").read_text()


def test_a_table_that_is_not_there(kept: Path) -> None:
    (kept / PAGE).write_text("<!-- rows of flda: Of another -->\n\n| old |\n")
    with pytest.raises(RunError, match=r"README.md has a line for a table 'Of another' that no"):
        list(differing(write=True))
