"""How experiments are run: folders, seeds, files, and the command that repeats them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import experiments.flda.runs as flda
import experiments.fstc.tasks as fstc
from experiments.costs import measured, table
from experiments.gfedntm import amwmd, figure3
from experiments.made_up import write
from fedtopics.errors import DataError

ON_FILES = {"flda": flda.Settings, "fstc": fstc.Settings, "gfedntm-amwmd": amwmd.Settings}


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


def test_a_row_says_its_cost_and_its_versions() -> None:
    def work(megabytes: int) -> dict[str, object]:
        return {"sum": float(np.ones(megabytes << 17).sum()), "versions": {"of": "before"}}

    small, large = (measured(work, ["numpy"])(size) for size in (1, 300))
    assert (small["sum"], large["sum"]) == (1 << 17, 300 << 17)
    assert small["versions"] == {"of": "before"}, "what the work says itself stands"
    assert measured(lambda _: {}, ["numpy"])(0)["versions"] == {"numpy": np.__version__}
    assert 0 <= small["cost"]["core_seconds"] < 60
    if sys.platform == "linux":
        assert large["cost"]["megabytes"] - small["cost"]["megabytes"] == pytest.approx(299, abs=60)
        again = measured(work, [])(1)
        assert again["cost"]["megabytes"] < large["cost"]["megabytes"] - 200, "its own peak"


def test_the_whole_at_the_rate_of_what_was_measured() -> None:
    def row(hours: float, megabytes: int | None) -> dict[str, object]:
        return {"cost": {"core_seconds": 3600 * hours, "megabytes": megabytes}}

    rows_by_experiment = {
        "lda": (10, [row(0.5, 400), row(1.5, 1400), {}]),
        "nmf": (4, [row(2, None)]),
    }
    assert table(rows_by_experiment).rows == (
        ("lda", "3", "10", "2", "2.00", "10.00", "1,400"),
        ("nmf", "1", "4", "1", "2.00", "8.00", "-"),
        ("all", "4", "14", "3", "4.00", "18.00", "1,400"),
    )
    assert table(rows_by_experiment | {"flda": (2, [{}])}).rows[2:] == (
        ("flda", "1", "2", "0", "0.00", "-", "-"),
        ("all", "5", "16", "3", "4.00", "-", "1,400"),
    )


def test_columns(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ("agnews", "stackoverflow"), 30)
    first, second = (pq.read_table(folder / f"{n}.parquet") for n in ("agnews", "stackoverflow"))
    assert first.column_names == ["text", "question", "tokens", "label", "node"]
    assert len(first) == len(second) == 30
    assert first["text"][0].as_py() == " ".join(first["tokens"][0].as_py())
    assert first["text"] != second["text"]
    assert len(set(first["node"].to_pylist())) == 3
    assert {len(word) for word in first["tokens"][0].as_py()} == {4}
    assert set(first["label"].to_pylist()) <= set(range(8))
