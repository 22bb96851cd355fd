"""The labels of the last reply: only their owner reads them, and a later process does."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np

from fedtopics.methods.released_labels import FILE, ReleasedLabels


def test_labels_are_stored_for_their_owner_alone(tmp_path: Path) -> None:
    first = ReleasedLabels(tmp_path / "run")
    first.keep((0, 2, 1), b"first", np.array([0, 1, 1, 0]))
    first.store()
    assert stat.S_IMODE((tmp_path / "run" / FILE).stat().st_mode) == 0o600
    later = ReleasedLabels(tmp_path / "run")
    assert [labels.tolist() for labels in later.of(2, 1)] == [[0, 1, 1, 0]]
    now = np.array([1, 1, 1, 0])
    assert later.before((0, 2, 1), b"second", now).tolist() == [0, 1, 1, 0]
    assert later.before((0, 2, 1), b"second", now[:3]).tolist() == [1, 1, 1], "of other documents"
    assert later.before((1, 2, 1), b"second", now).tolist() == [1, 1, 1, 0], "of another start"


def test_without_a_folder_nothing_is_stored(tmp_path: Path) -> None:
    labels = ReleasedLabels(None)
    labels.keep((0, 2, 1), b"first", np.array([0, 1]))
    labels.store()
    assert not any(tmp_path.iterdir())


def test_a_question_that_is_asked_again_was_not_answered() -> None:
    labels, clustering = ReleasedLabels(None), (0, 2, 1)
    told = [np.array([0, 0]), np.array([0, 1]), np.array([1, 1])]
    labels.keep(clustering, b"first", told[0])
    for again in told[1:]:
        assert labels.before(clustering, b"second", again).tolist() == [0, 0]
        labels.keep(clustering, b"second", again)
    assert labels.before(clustering, b"third", told[0]).tolist() == [1, 1]
