"""How experiments are run: folders, seeds, files, and the command that repeats them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import experiments.flda.runs as flda
import experiments.fstc.tasks as fstc
from experiments.gfedntm import amwmd, figure3
from fedtopics.errors import DataError

ON_FILES = {
    "flda": flda.Settings,
    "fstc": fstc.Settings,
    "gfedntm-amwmd": amwmd.Settings,
}


@pytest.mark.parametrize("name", ON_FILES)
def test_on_files(name: str, tmp_path: Path) -> None:
    settings: Any = ON_FILES[name](tmp_path, Path("out"), 2)
    assert settings.command == f"python -m experiments {name} --data FOLDER --seeds 2"
    assert (settings.folder, settings.used_seeds) == (Path("out"), range(2))
    with pytest.raises(DataError, match=r"There is no a\.parquet in .*; name its folder with --d"):
        settings.file("a")
    (tmp_path / "a.parquet").touch()
    assert settings.file("a") == tmp_path / "a.parquet"


@pytest.mark.parametrize("name", ("flda", "fstc"))
def test_a_quick_run_has_a_folder_and_a_seed(name: str) -> None:
    settings = ON_FILES[name](Path("data"), seeds=3, quick=True)
    assert settings.command == f"python -m experiments {name} --data FOLDER --quick"
    assert (settings.folder, settings.used_seeds) == (Path(f"runs/{name}-quick"), range(1))


def test_without_files() -> None:
    settings = figure3.Settings()
    assert settings.command == "python -m experiments gfedntm-figure3 --seeds 10"
    assert settings.folder == Path("runs/gfedntm-figure3")
