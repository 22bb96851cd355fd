"""The labels of the last reply: only their owner reads them, and a later process does."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np

from fedtopics.methods.released_labels import FILE, ReleasedLabels


def test_labels_are_stored_for_their_owner_alone(tmp_path: Path) -> None:
    first = ReleasedLabels(2, tmp_path / "run")
    first.together((0, 2, 1), np.array([0, 1, 1, 0]))
    first.store()
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600
    later = ReleasedLabels(2, tmp_path / "run")
    assert [labels.tolist() for labels in later.of(2, 1)] == [[0, 1, 1, 0]]
    moved = later.together((0, 2, 1), np.array([1, 1, 1, 0]))  # one document alone does not move
    assert moved.tolist() == [0, 1, 1, 0]


def test_nothing_is_stored_where_one_document_is_enough(tmp_path: Path) -> None:
    labels = ReleasedLabels(1, tmp_path)
    labels.together((0, 2, 1), np.array([0, 1]))
    labels.store()
    assert not (tmp_path / FILE).exists()
