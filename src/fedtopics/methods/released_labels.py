"""Labels of a client's documents by which the last reply summed them: they protect the next one.

Two replies about the same clustering differ by the sum of the documents that moved between them. So
documents move in groups, which needs the labels of the last reply, also after a restart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtopics.files import make_folder, write_durably
from fedtopics.inference.points import move_together

Clustering = tuple[int, int, int]
"""Which start, how many clusters, which half of the documents."""
Labels = NDArray[np.int64]
FILE = "labels.safetensors"


class ReleasedLabels:
    """The labels of the last reply about each clustering, stored in a folder for a later process.

    `least` is the fewest documents of a reply. Where one is enough, nothing is stored.
    """

    def __init__(self, least: int, folder: Path | None) -> None:
        self._least = least
        self._file = None if folder is None or least < 2 else folder / FILE
        self._labels: dict[Clustering, Labels] = {}
        if self._file is not None and self._file.exists():
            for key, labels in load(self._file.read_bytes()).items():
                start, number, half = map(int, key.split("-"))
                self._labels[start, number, half] = labels

    def together(self, clustering: Clustering, labels: Labels) -> Labels:
        """Let documents change their cluster in groups only; remember their clusters."""
        before = self._labels.get(clustering)
        if before is not None and len(before) == len(labels):
            labels = move_together(before, labels, clustering[1], self._least)
        self._labels[clustering] = labels
        return labels

    def of(self, number: int, half: int) -> list[Labels]:
        """Return the labels of all clusterings of so many clusters."""
        wanted = (number, half)
        return [labels for (_, k, part), labels in self._labels.items() if (k, part) == wanted]

    def forget(self) -> None:
        """Start a new study, in which nothing was released yet."""
        if self._labels:
            self._labels = {}
            self.store()

    def store(self) -> None:
        """Write the labels to disk, before the reply leaves."""
        if self._file is not None:
            make_folder(self._file.parent)
            named = {"-".join(map(str, key)): labels for key, labels in self._labels.items()}
            write_durably(self._file, save(named))
