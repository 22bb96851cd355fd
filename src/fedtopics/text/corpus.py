"""Documents of one organisation, kept once as Arrow arrays and read in batches."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from fedtopics import waiting
from fedtopics.errors import DataError, refuse
from fedtopics.text.columns import Column, concatenate, is_missing, is_tokens
from fedtopics.text.readers import files_of, read_table
from fedtopics.text.tables import EMBEDDING_NAMES, ID_NAMES, LABEL_NAMES, Columns, Table, is_table
from fedtopics.text.times import are_dates, dated

BATCH = 4096
FIRST_DOCUMENTS = 3  # documents whose words are counted as a check for people
COLUMNS = ("ids", "documents", "labels", "raw", "rounds", "persons", "times", "groups")
Document = str | list[str]


@dataclass(frozen=True, repr=False)  # its own repr would print documents
class Corpus:
    """Documents in their original order, empty ones included.

    Examples
    --------
    >>> corpus = Corpus.of(["Trees and shrubs", "", "Rivers and lakes"])
    >>> len(corpus), corpus.n_empty
    (3, 1)
    >>> corpus
    Corpus(documents: 3, empty: 1, texts)
    """

    ids: pa.ChunkedArray  # of strings
    documents: pa.ChunkedArray  # of strings, or of lists of strings (already tokenised)
    labels: pa.ChunkedArray | None = None  # only for evaluation; no method sees them
    embeddings: NDArray[np.floating[Any]] | None = None  # (n_documents, dimension)
    raw: pa.ChunkedArray | None = None  # texts of tokenised documents, for sentence models
    rounds: pa.ChunkedArray | None = None  # arrival of documents, as round numbers or times
    persons: pa.ChunkedArray | None = None  # whose each document is: strings; "" if unknown
    times: pa.ChunkedArray | None = None  # when each was written, for topics by period
    groups: pa.ChunkedArray | None = None  # structs: columns by which documents are compared
    embedded_by: str = ""  # fingerprint of the encoder of the embeddings, if it was trained
    source: str = ""  # column and file of the documents, for people
    person_column: str = ""  # the name of the column of persons

    @classmethod
    def of(cls, data: Any, columns: Columns | None = None) -> Corpus:
        """Make a corpus from a path, texts, token lists, a Series, a DataFrame or an Arrow table.

        A DataFrame may be from pandas, polars or pyarrow.

        Raises
        ------
        DataError
            If there are no documents, or the column of text cannot be determined.
        """
        if isinstance(data, Corpus):
            return data
        if isinstance(data, (str, Path)):
            if isinstance(data, str) and not Path(data).exists() and any(map(str.isspace, data)):
                raise DataError("The documents are one string; give a list of strings.")
            return cls.read(data, columns)
        return (
            cls._from_table(Table.of(data), columns or Columns())
            if is_table(data)
            else cls._from_collection(data)
        )

    @classmethod
    def read(cls, path: str | Path, columns: Columns | None = None) -> Corpus:
        """Read CSV, TSV, JSON lines, Parquet, a folder of .txt files, or a format of `FORMATS`.

        CSV and JSON lines may be compressed (.gz). Text is UTF-8, UTF-16 with a byte order mark, or
        has the encoding that `columns` names. The name of the file may be a pattern, such as
        parts/*.parquet, for several files. Files of Excel, LibreOffice, SPSS and Stata, and .sql
        files with a query, need the extra ``files``.

        Raises
        ------
        DataError
            If the file is missing, is of another kind, cannot be parsed, or lacks a column.
        """
        columns = columns or Columns()
        first, *others = (
            cls._from_table(read_table(file, options=columns.options), columns)
            for file in files_of(Path(path))
        )
        if not others:
            return first
        return replace(
            cls.pool([first, *others]),
            source=f"{first.source} and {len(others)} more files",
            person_column=first.person_column,
        )

    @classmethod
    def of_counts(cls, counts: Any, words: Sequence[str]) -> Corpus:
        """Make a corpus from word counts, such as those of scikit-learn's ``CountVectorizer``.

        The order of words is lost.

        Parameters
        ----------
        counts : sparse or dense array of shape (n_documents, n_words)
            Whole numbers, not negative.
        words : sequence of str
            The word of each column.

        Raises
        ------
        DataError
            If numbers are not counts, or words are missing or repeated.

        Examples
        --------
        >>> Corpus.of_counts([[2, 0], [1, 1]], ["oak", "elm"]).documents.to_pylist()
        [['oak', 'oak'], ['oak', 'elm']]
        """
        try:
            table = sparse.csr_array(counts)
            with np.errstate(invalid="ignore"):  # NaN is not a whole number
                whole = table.data.astype(np.int64)
            names = pa.array([*map(str, words)], pa.large_string())
        except (TypeError, ValueError):
            raise DataError(
                "Word counts must be numbers, with one row per document, and words must be strings."
            ) from None
        if table.ndim != 2 or table.shape[1] != len(names):
            raise DataError(
                f"There are counts of shape {table.shape} and {len(names)} words; give one word "
                "per column, such as vectorizer.get_feature_names_out()."
            )
        _check_words(words)
        refuse(
            {
                "Word counts must be whole numbers, not negative; give counts, such as a "
                "CountVectorizer's, not weights such as TF-IDF.": bool(
                    (whole != table.data).any() or (whole < 0).any()
                ),
                "The corpus is empty; give at least one document.": table.shape[0] == 0,
            },
            error=DataError,
        )
        before = np.concatenate([[0], np.cumsum(whole)])
        flat = names.take(pa.array(np.repeat(table.indices, whole)))
        documents = pa.LargeListArray.from_arrays(pa.array(before[table.indptr]), flat)
        return cls(_numbered(len(documents)), pa.chunked_array([documents]))

    @property
    def is_numbered(self) -> bool:
        """Whether the identifiers are only the numbers of rows."""
        return bool(self.ids.equals(_numbered(len(self))))

    @classmethod
    def pool(cls, corpora: Iterable[Corpus]) -> Corpus:
        """Concatenate corpora, for the centralised scenario in which texts may be pooled."""
        corpora = list(corpora)
        kinds = {
            "labels": "strings",
            "rounds": "numbers or to dates",
            "times": "dates",
            "groups": "the same columns, of one type each",
        }
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            parts = [getattr(corpus, name) for corpus in corpora]
            try:
                columns[name] = None if any(part is None for part in parts) else concatenate(parts)
            except pa.ArrowException:
                raise DataError(
                    f"The corpora have {name} of different types; convert all to {kinds[name]}."
                    if name in kinds
                    else "Only some corpora are tokenised; give all in the same form."
                ) from None
        if all(corpus.is_numbered for corpus in corpora):  # else rows of several would be alike
            columns["ids"] = _numbered(len(columns["documents"]))
        vectors = [corpus.embeddings for corpus in corpora if corpus.embeddings is not None]
        encoders = {corpus.embedded_by for corpus in corpora}
        return cls(
            **columns,
            embeddings=np.concatenate(vectors) if len(vectors) == len(corpora) else None,
            embedded_by=encoders.pop() if len(encoders) == 1 else "",
        )

    @classmethod
    def _from_collection(cls, data: Any) -> Corpus:
        if getattr(data, "shape", ())[1:] == (1,):
            data = data[:, 0]
        if isinstance(data, np.ndarray) and data.ndim != 1:
            raise DataError(
                f"Documents must be one column of texts, not an array of shape {data.shape}."
            )
        try:
            parts = [data[i : i + BATCH] for i in range(0, len(data), BATCH)]
        except Exception:  # a foreign type may raise anything
            raise DataError(
                f"Documents must be a list, a column or a table, not of type {type(data).__name__}."
            ) from None
        if not parts:
            raise DataError("The corpus is empty; give at least one document.")
        documents = Column(parts, "").documents()
        return cls(_numbered(len(documents)), documents)

    @classmethod
    def _from_table(cls, table: Table, columns: Columns) -> Corpus:
        if table.n_rows == 0:
            what = "has a header and no rows" if any(table.names) else "is empty"
            raise DataError(f"{table.where} {what}; give at least one document.")
        # A folder has no columns, so none needs a name.
        columns = replace(Columns(), rules=columns.rules) if table.is_folder else columns
        name = table.document_column(columns)
        dates = partial(_dates, columns.date_format)

        def dates_of_texts(column: Column) -> pa.ChunkedArray:
            return dates(column) if column.has_text else column.values()

        ids = table.read_column(columns.id, ID_NAMES, Column.names)
        corpus = cls(
            ids=_numbered(table.n_rows) if ids is None else ids,
            documents=table.column(name).documents(),
            labels=table.read_column(columns.label, LABEL_NAMES, Column.values),
            embeddings=table.read_column(
                columns.embedding,
                EMBEDDING_NAMES,
                lambda column: column.embeddings(strict=columns.embedding is not None),
            ),
            raw=table.read_column(
                None if columns.tokens is None else columns.text,
                (),
                lambda column: column.documents(may_be_words=False),
            ),
            rounds=table.read_column(columns.rounds, (), Column.values),
            persons=table.read_column(columns.person, (), Column.names),
            times=table.read_column(columns.time, (), dates),
            groups=_structs(
                {
                    name: table.read_column(None, [column.lower()], dates_of_texts)
                    or table.read_column(None, [column.lower()], Column.values)
                    for name, column in columns.by.items()
                }
            ),
            source=table.source(name) + _unused_dates(table, columns, name),
            person_column=columns.person or "",
        )
        return corpus if columns.rules is None else corpus.split_by(columns.rules.analyser())

    def __len__(self) -> int:
        return len(self.documents)

    def __repr__(self) -> str:
        counts = [
            f"documents: {len(self):,}",
            f"empty: {self.n_empty:,}",
            "lists of tokens" if self.is_tokenised else "texts",
        ]
        if self.embeddings is not None:
            counts.append(f"embeddings: {self.embeddings.shape[1]} dimensions")
        parts = {
            "raw texts": self.raw,
            "labels": self.labels,
            "rounds": self.rounds,
            "persons": self.persons,
            "times": self.times,
        }
        counts += [name for name, column in parts.items() if column is not None]
        return f"Corpus({', '.join([*counts, self.source] if self.source else counts)})"

    @property
    def is_tokenised(self) -> bool:
        """Whether the documents are lists of words, which stay unchanged."""
        return is_tokens(self.documents.type)

    @property
    def is_empty(self) -> NDArray[np.bool_]:
        """Which documents have no visible character or token."""
        length = (
            pc.list_value_length(self.documents)
            if self.is_tokenised
            else pc.binary_length(pc.utf8_trim_whitespace(self.documents))
        )
        return np.asarray(pc.equal(length, 0).to_numpy().astype(bool))

    @property
    def n_empty(self) -> int:
        """Number of documents without a visible character or token."""
        return int(self.is_empty.sum())

    @cached_property
    def owners(self) -> NDArray[np.int64] | None:
        """The number of each document's person; None if each document is a person of its own."""
        return (
            None
            if self.persons is None
            else np.asarray(self.persons.combine_chunks().dictionary_encode().indices, np.int64)
        )

    @property
    def person_numbers(self) -> NDArray[np.int64]:
        """The number of each document's person, also where each document is one of its own."""
        return np.arange(len(self)) if self.owners is None else self.owners

    def owners_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the `owners` of these `rows`."""
        return None if self.owners is None else self.owners[rows]

    def n_persons(self, rows: NDArray[np.int64] | slice = slice(None)) -> int:
        """Return of how many persons the documents in these `rows` are."""
        return len(np.unique(self.person_numbers[rows]))

    @property
    def columns(self) -> pa.Table:
        """The columns that were read for a role or a comparison, by their names in a study."""
        roles = {"time": self.times, "label": self.labels, "person": self.persons}
        columns = {name: column for name, column in roles.items() if column is not None}
        if self.groups is not None:
            groups = pa.Table.from_struct_array(self.groups)
            columns |= dict(zip(groups.column_names, groups.columns, strict=True))
        return pa.table(columns)

    @property
    def unit(self) -> str:
        """What thresholds count, in the plural: by the column of persons, if there is one."""
        if self.owners is None:
            return "documents"
        column = self.person_column
        return f"{column}s" if re.fullmatch("[a-z]*[a-rt-z]", column) else "persons"

    @property
    def whose(self) -> str:
        """Of how many persons the documents are, for people."""
        if self.owners is None:
            return "each a person of its own"
        most = np.bincount(self.owners).max(initial=0)
        return f"of {self.n_persons():,} {self.unit}, at most {most:,} of one"

    @cached_property
    def content(self) -> bytes:
        """A digest of texts and embeddings, by which the same documents are recognised."""
        content = hashlib.sha256(self.embedded_by.encode())
        for column in (self.documents, self.raw):
            if column is not None:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, pa.schema([("", column.type)])) as stream:
                    stream.write_table(pa.table([column], [""]))
                content.update(sink.getvalue())
        if self.embeddings is not None:
            content.update(self.embeddings.tobytes())
        return content.digest()

    @property
    def first_words(self) -> list[int]:
        """Numbers of words of the first documents, so that people can check what was read."""
        return [
            len(text.split() if isinstance(text, str) else text)
            for text in self.documents.slice(0, FIRST_DOCUMENTS).to_pylist()
        ]

    @property
    def text_bytes(self) -> int:
        """Bytes of all texts in UTF-8, or of the tokens if there are no texts."""
        column = self.documents if self.raw is None else self.raw
        flat = pc.list_flatten(column) if is_tokens(column.type) else column
        return int(pc.sum(pc.binary_length(flat)).as_py() or 0)

    def batches(self) -> Iterator[list[Document]]:
        """Yield the documents in order, a few thousand at a time."""
        return _batches(self.documents)

    def texts(self) -> Iterator[list[str]]:
        """Yield each document as one string: raw text, text, or joined tokens."""
        for batch in _batches(self.documents if self.raw is None else self.raw):
            yield [text if isinstance(text, str) else " ".join(text) for text in batch]

    def split_by(self, analyse: Callable[[str], list[str]]) -> Corpus:
        """Return texts as lists of words, keeping the texts; lists are unchanged."""
        if self.is_tokenised:
            return self
        kind = pa.large_list(pa.large_string())
        chunks = [pa.array(words, kind) for words in split(self.texts(), analyse)]
        return replace(
            self,
            documents=pa.chunked_array(chunks, kind),
            raw=self.documents if self.raw is None else self.raw,
        )

    def with_embeddings(
        self, embeddings: NDArray[np.floating[Any]] | None, embedded_by: str = ""
    ) -> Corpus:
        """Return the corpus with these embeddings, (n_documents, dimension), or without any."""
        return replace(self, embeddings=embeddings, embedded_by=embedded_by)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Corpus:
        """Return the corpus of these rows, in this order."""
        index = pa.array(rows, pa.int64())
        taken: dict[str, Any] = {
            name: None if column is None else column.take(index)
            for name, column in ((name, getattr(self, name)) for name in COLUMNS)
        }
        if self.embeddings is not None:
            taken["embeddings"] = self.embeddings[np.asarray(rows, np.int64)]
        return replace(self, **taken)


def split(
    batches: Iterable[Sequence[str]], analyse: Callable[[str], list[str]]
) -> Iterator[list[list[str]]]:
    """Yield `batches` of words, which `analyse` finds; DataError if a pattern takes too long."""
    done = 0
    for batch in batches:
        words = []
        for text in batch:
            done += 1
            try:
                words.append(analyse(text))
            except TimeoutError:
                raise DataError(
                    f"Matching the token_pattern in document {done:,} takes more than "
                    f"{waiting.PATTERN:g} s; use a named pattern, or a simpler one."
                ) from None
        yield words


def _check_words(words: Sequence[str]) -> None:
    seen: set[str] = set()
    for column, word in enumerate(words, 1):
        if isinstance(words, str) or is_missing(word) or str(word) in seen:
            raise DataError(f"Column {column} of the counts has no word, or a repeated one.")
        seen.add(str(word))


def column_of(data: Any, name: str) -> list[Any]:
    """Return a column of a table or file of documents, None for missing values."""
    if isinstance(data, Corpus) and name in data.columns.column_names:
        data = data.columns
    if isinstance(data, (str, Path)) and Path(data).expanduser().exists():
        data = read_table(Path(data))
    if not is_table(data):
        raise DataError(
            f"{name!r} names a column, but the documents are neither a table nor a file; give a "
            "table or a file, or give one value per document."
        )
    return Table.of(data, "the documents").column(name).plain()


def _dates(date_format: str | None, column: Column) -> pa.ChunkedArray:
    """Return the values of a column, as times if there is a `date_format`."""
    if date_format is None:
        return column.values()
    times = dated(np.fromiter(column.plain(), object), date_format, column.place)
    return Column([times], column.place).values()


def _unused_dates(table: Table, columns: Columns, text: str) -> str:
    """Mention columns of dates of which nothing is used."""
    used = {
        *(text, columns.text, columns.tokens, columns.id, columns.label, columns.embedding),
        *(columns.rounds, columns.person, columns.time, *columns.by.values()),
    }
    heads = [table.head(name) for name in table.names if name and name not in used]
    dates = [head.place for head in heads if are_dates(head)]
    return f" (not used: dates in {', '.join(dates)})" if dates else ""


def _structs(columns: Mapping[str, pa.ChunkedArray | None]) -> pa.ChunkedArray | None:
    """Return columns as one, without those that are not there; None if none is."""
    present = {name: column for name, column in columns.items() if column is not None}
    return pa.table(present).to_struct_array() if present else None


def _batches(column: pa.ChunkedArray) -> Iterator[list[Document]]:
    for batch in pa.table([column], [""]).to_batches(max_chunksize=BATCH):
        yield cast("list[Document]", batch.column(0).to_pylist())


def _numbered(n: int) -> pa.ChunkedArray:
    return pa.chunked_array([pc.cast(pa.array(np.arange(n)), pa.large_string())])


def corpus_fingerprint(corpus: Corpus) -> str:
    """Return a digest of everything that training uses: all but identifiers and labels.

    Leaves the client
        Nothing. The digest is not sent, because a few documents could be guessed from it.
    """
    content = hashlib.sha256()
    for column in (corpus.documents, corpus.raw, corpus.rounds):
        for row in () if column is None else column:
            content.update(json.dumps(row.as_py(), default=str).encode() + b"\n")
        content.update(b"\0")
    for person in () if corpus.persons is None else corpus.persons:
        content.update(json.dumps(person.as_py()).encode() + b"\n")
    for column in (corpus.times, corpus.groups):
        for value in () if column is None else column:
            content.update(f"{value}\n".encode())
    if corpus.embeddings is not None:
        content.update(f"{corpus.embeddings.dtype} {corpus.embeddings.shape}".encode())
        content.update(corpus.embeddings.tobytes())
    return content.hexdigest()
