"""Labels of a client's documents by which the last reply summed them: they protect the next one.

Two replies about the same clustering differ by the sum of the documents that moved between them. So
documents move in groups, which needs the labels of the last reply, also after a restart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtopics.files import make_folder, read_bytes, write_durably

Clustering = tuple[int, int, int]
"""Which start, how many clusters, which half of the documents."""
Labels = NDArray[np.int64]
FILE = "labels.safetensors"


class ReleasedLabels:
    """The labels of the last reply about each clustering, stored in a folder for a later process.

    Where they protect nothing there is no folder.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / FILE
        self._labels: dict[Clustering, Labels] = {}
        self._earlier: dict[Clustering, tuple[bytes, Labels]] = {}  # than the last question's
        if self._file is not None and self._file.exists():
            for key, labels in load(read_bytes(self._file)).items():
                start, number, half = map(int, key.split("-"))
                self._labels[start, number, half] = labels

    def before(self, clustering: Clustering, question: bytes, labels: Labels) -> Labels:
        """Return the labels of the last reply; of the first, and of other documents, these.

        A reply to the same question counts as none: it has not been added up if it is asked again.
        """
        asked, before = self._earlier.get(clustering, (b"", labels))
        if asked != question:
            before = self._labels.get(clustering, labels)
        return before if len(before) == len(labels) else labels

    def keep(self, clustering: Clustering, question: bytes, labels: Labels) -> None:
        """Remember the labels of a reply to a question."""
        self._earlier[clustering] = question, self.before(clustering, question, labels)
        self._labels[clustering] = labels

    def of(self, number: int, half: int) -> list[Labels]:
        """Return the labels of all clusterings of so many clusters."""
        wanted = (number, half)
        return [labels for (_, k, part), labels in self._labels.items() if (k, part) == wanted]

    def forget(self) -> None:
        """Start a new study, in which nothing was released yet."""
        if self._labels:
            self._labels, self._earlier = {}, {}
            self.store()

    def store(self) -> None:
        """Write the labels to disk, before the reply leaves."""
        if self._file is not None:
            make_folder(self._file.parent)
            named = {"-".join(map(str, key)): labels for key, labels in self._labels.items()}
            write_durably(self._file, save(named))
