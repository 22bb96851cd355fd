"""The made-up files of quick runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from experiments.made_up import write


def test_columns(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", ("agnews", "stackoverflow"), 30)
    first, second = (pq.read_table(folder / f"{n}.parquet") for n in ("agnews", "stackoverflow"))
    assert first.column_names == ["text", "tokens", "label", "node"]
    assert len(first) == len(second) == 30
    assert first["text"][0].as_py() == " ".join(first["tokens"][0].as_py())
    assert first["text"] != second["text"]
    assert len(set(first["node"].to_pylist())) == 3
    assert {len(word) for word in first["tokens"][0].as_py()} == {4}
    assert set(first["label"].to_pylist()) <= set(range(8))
