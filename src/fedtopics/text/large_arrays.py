"""Arrays that may be larger than memory: beyond a size they lie in a file without a name."""

from __future__ import annotations

import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

LARGE = 64 << 20  # bytes


class GrowingArray:
    """One-dimensional numbers, appended part by part.

    The file is where the system keeps temporary ones (``TMPDIR``). Nobody else can open it, and it
    is gone with the last array of it, also where the program is killed. What was read of it is in
    memory as long as there is room.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[NDArray[Any]] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def append(self, values: NDArray[Any]) -> None:
        """Append numbers."""
        self._parts.append(np.asarray(values, self._dtype))
        self._bytes += self._parts[-1].nbytes
        if self._bytes > LARGE:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 as long as arrays
            for part in self._parts:
                part.tofile(self._file)
            self._parts.clear()

    def array(self) -> NDArray[Any]:
        """Return all numbers."""
        if self._file is None:
            return np.concatenate([np.zeros(0, self._dtype), *self._parts])
        self._file.flush()
        return np.memmap(self._file, self._dtype)


def set_aside(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the same matrix; where it is large, what it holds lies in files."""
    parts = []
    for values in (matrix.data, matrix.indices):
        growing = GrowingArray(values.dtype)
        growing.append(values)
        parts.append(growing.array())
    return sparse.csr_array((*parts, matrix.indptr), matrix.shape)
