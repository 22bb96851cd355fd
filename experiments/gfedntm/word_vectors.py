"""Word vectors, from the files and objects in which they usually come.

Files are of word2vec's two formats: text, with a first line of counts or without (GloVe), and
binary. Nothing that can carry code is opened.
"""

from __future__ import annotations

import codecs
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError

HEADER = re.compile(rb"(\d{1,12}) (\d{1,12})\s*")
LONGEST_LINE = 1 << 20  # bytes; a longer line is no word with its vector
LONGEST_WORD = 1 << 12  # bytes, in the binary format
PICKLE = b"\x80"  # begins every pickle since protocol 2, and no text
NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")


@dataclass(frozen=True)
class WordVectors:
    """A vector for each word.

    Parameters
    ----------
    index : dict of str to int
        The row of each word.
    vectors : float array of shape (n_words, dimension)

    Examples
    --------
    >>> vectors = WordVectors.of({"tea": [3.0, 4.0], "milk": [0.0, 2.0]})
    >>> len(vectors), "sand" in vectors, vectors["milk"].tolist()
    (2, False, [0.0, 2.0])
    >>> vectors.unit(["tea", "sand"]).round(6).tolist()
    [[0.6, 0.8]]
    """

    index: dict[str, int]
    vectors: NDArray[np.floating]

    @classmethod
    def of(cls, data: Any, words: Iterable[str] | None = None) -> WordVectors:
        """Make word vectors of a file, gensim's KeyedVectors, or a mapping.

        Parameters
        ----------
        data : path, object with ``key_to_index`` and ``vectors``, mapping of words to vectors
        words : iterable of str, optional
            The words to keep; all if not given.

        Raises
        ------
        DataError
            If the file is not one of word vectors, or vectors differ in length or are not finite.
        """
        if isinstance(data, (str, Path)):
            return read_word_vectors(data, words)
        wanted = None if words is None else set(words)
        if hasattr(data, "key_to_index") and hasattr(data, "vectors"):
            rows = {word: data.vectors[row] for word, row in data.key_to_index.items()}
        elif isinstance(data, Mapping):
            rows = dict(data)
        else:
            raise DataError(
                f"{type(data).__name__} holds no word vectors; give a path, KeyedVectors, or a "
                "mapping of words to vectors."
            )
        kept = {word: row for word, row in rows.items() if wanted is None or word in wanted}
        return cls({word: number for number, word in enumerate(kept)}, _stack(list(kept.values())))

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def __getitem__(self, word: str) -> NDArray[np.floating]:
        row: NDArray[np.floating] = self.vectors[self.index[word]]
        return row

    def unit(self, words: Iterable[str]) -> NDArray[np.float64]:
        """Return the vectors at unit length, without the words whose direction is unknown.

        Returns
        -------
        float64 array of shape (n_known, dimension)
            Words that have no vector, or one of zeros, have no row.
        """
        known = [self.index[word] for word in words if word in self.index]
        rows: NDArray[np.float64] = self.vectors[known].astype(np.float64)
        rows = rows[rows.any(1)]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows


def _stack(rows: list[Any]) -> NDArray[np.float32]:
    """Put vectors of one length under one another."""
    try:
        with np.errstate(over="ignore"):  # infinite then, and refused below
            vectors = np.array(rows, np.float32) if rows else np.empty((0, 0), np.float32)
    except (TypeError, ValueError):
        raise DataError("Word vectors differ in length, or are not numbers.") from None
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise DataError("A word vector is not a list of finite numbers.")
    return vectors


def read_word_vectors(path: str | Path, words: Iterable[str] | None = None) -> WordVectors:
    """Read a word2vec file, text or binary, or a GloVe file; only the words asked for.

    The first vector of a word counts, as in gensim. Of words not asked for, the numbers are
    skipped unread, so a file of many gigabytes does not fill the memory.

    Parameters
    ----------
    path : path
        Text and words are UTF-8. Unpack a compressed file first.
    words : iterable of str, optional
        The words to keep; all if not given.

    Raises
    ------
    DataError
        If the file cannot be read, is damaged, or is a pickle, as gensim's .kv files are: a
        pickle can carry code.
    """
    wanted = None if words is None else {word.encode(errors="surrogatepass") for word in words}
    kept: dict[str, NDArray[np.float32]] = {}
    try:
        with Path(path).open("rb") as file:
            for place, word, numbers in _records(file, path):
                if wanted is not None and word not in wanted:
                    continue
                kept.setdefault(_decoded(word, place), _vector(numbers, place))
    except OSError as error:
        raise DataError(f"Word vectors {path} cannot be read: {error.strerror}.") from None
    return WordVectors.of(kept)


Record = tuple[str, bytes, list[bytes] | bytes]  # its place for messages, the word, its numbers


def _records(file: BinaryIO, path: str | Path) -> Iterator[Record]:
    """Tell the format from the file's first bytes, and go through it."""
    start = file.read(LONGEST_WORD)
    if not start:
        raise DataError(f"Word vectors {path}: the file is empty.")
    if start.startswith(PICKLE):
        raise DataError(
            f"Word vectors {path}: a pickle, such as gensim's .kv files, can carry code and is "
            "not opened; save them with KeyedVectors.save_word2vec_format."
        )
    file.seek(0)
    header = HEADER.fullmatch(file.readline(LONGEST_LINE))
    if header is None:
        file.seek(0)
        return _text_records(file, path, None, None)
    n_words, dimension = int(header[1]), int(header[2])
    if NOT_TEXT.search(start) or not _is_utf8(start):
        return _binary_records(file, path, n_words, dimension)
    return _text_records(file, path, n_words, dimension)


def _text_records(
    file: BinaryIO, path: str | Path, n_words: int | None, dimension: int | None
) -> Iterator[Record]:
    """Go through lines of a word and its numbers; a word may hold spaces, as some of GloVe's do."""
    n_seen = 0
    first_number = 1 if n_words is None else 2
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), first_number):
        place = f"Word vectors {path}, line {number}"
        line = line.rstrip()
        if not line:
            continue
        if dimension is None:
            dimension = line.count(b" ")
        if not dimension:
            raise DataError(f"{place}: no numbers follow the word; the file holds no vectors.")
        word, *numbers = line.rsplit(b" ", dimension)
        if len(numbers) != dimension:
            raise DataError(
                f"{place}: {len(numbers)} numbers where {dimension} belong; the file is damaged."
            )
        n_seen += 1
        yield place, word, numbers
    if n_words is not None and n_seen != n_words:
        raise DataError(
            f"Word vectors {path}, line 1 announces {n_words} words, but {n_seen} follow; the "
            "file is damaged or incomplete."
        )


def _binary_records(
    file: BinaryIO, path: str | Path, n_words: int, dimension: int
) -> Iterator[Record]:
    """Go through words, a space, and the bytes of float32 numbers, least significant first."""
    size = 4 * dimension
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = file.tell()
        for number in range(1, n_words + 1):
            place = f"Word vectors {path}, read as binary, word {number} of {n_words}"
            space = data.find(b" ", at, at + LONGEST_WORD)
            if space < 0 or not size or space + 1 + size > len(data):
                raise DataError(f"{place} is damaged, or the file ends before it.")
            yield place, data[at:space].lstrip(b"\n"), data[space + 1 : space + 1 + size]
            at = space + 1 + size


def _is_utf8(start: bytes) -> bool:
    """Whether bytes that may end within a character are UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def _decoded(word: bytes, place: str) -> str:
    """Return the word as a string."""
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise DataError(f"{place}: the word is not UTF-8; convert the file.") from None


def _vector(numbers: list[bytes] | bytes, place: str) -> NDArray[np.float32]:
    """Return the numbers of one word."""
    try:
        if isinstance(numbers, bytes):
            vector = np.frombuffer(numbers, "<f4").astype(np.float32)
        else:
            with np.errstate(over="ignore"):  # infinite then, and refused below
                vector = np.array([float(number) for number in numbers]).astype(np.float32)
    except ValueError:
        raise DataError(f"{place}: not all that follows the word is a number.") from None
    if not np.isfinite(vector).all():
        raise DataError(f"{place}: a number is not finite.")
    return vector
