"""Which cluster each of a client's documents was told of as: what protects the next reply.

Of two replies about the same clustering, the difference of the sums is what moved between them. So
documents move in groups, which needs the labels that were told, also by a process before this one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtopics.inference.points import move_together

Clustering = tuple[int, int, int]
"""Which start, how many clusters, which half of the documents."""
Labels = NDArray[np.int64]
FILE = "labels.safetensors"


class ToldLabels:
    """The labels last told of each clustering.

    Parameters
    ----------
    least : int
        Fewest documents of a reply. Where one is enough, nothing has to be known later.
    folder : path, optional
        Where a later process finds them.
    """

    def __init__(self, least: int, folder: Path | None) -> None:
        self._least = least
        self._file = None if folder is None or least < 2 else folder / FILE
        self._told: dict[Clustering, Labels] = {}
        if self._file is not None and self._file.exists():
            for key, labels in load(self._file.read_bytes()).items():
                start, number, half = map(int, key.split("-"))
                self._told[start, number, half] = labels

    def together(self, clustering: Clustering, labels: Labels) -> Labels:
        """Let documents leave what was told of them in groups alone; remember where they are."""
        before = self._told.get(clustering)
        if before is not None and len(before) == len(labels):
            labels = move_together(before, labels, clustering[1], self._least)
        self._told[clustering] = labels
        return labels

    def of(self, number: int, half: int) -> list[Labels]:
        """Return what was told of all clusterings of so many clusters."""
        return [told for (_, k, part), told in self._told.items() if (k, part) == (number, half)]

    def forget(self) -> None:
        """Begin anew."""
        self._told = {}
        self.keep()

    def keep(self) -> None:
        """Write them down, before the reply leaves."""
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part = self._file.with_suffix(".part")
            part.write_bytes(save({"-".join(map(str, key)): v for key, v in self._told.items()}))
            part.replace(self._file)
