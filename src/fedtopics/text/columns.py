"""Columns of a table of documents: which holds the text, and what the others hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedtopics.errors import DataError

if TYPE_CHECKING:
    from fedtopics.text.rules import TextRules

TEXT_NAMES = ("text", "texts", "document", "documents", "doc", "content", "body", "abstract")
TOKEN_NAMES = ("tokens", "token")
ID_NAMES = ("id", "ids", "doc_id", "document_id", "identifier")
LABEL_NAMES = ("label", "labels", "class", "category")
EMBEDDING_NAMES = ("embedding", "embeddings")


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; what is ``None`` is looked for under its usual names.

    With both `tokens` and `text`, the tokens are the documents and the text is kept beside them.
    A column of embeddings that cannot be used is refused if it is named here, else left out. One
    of rounds, authors or times is never looked for. With `rules` texts become lists of words by
    these, whatever a study's rules are.
    """

    text: str | None = None
    tokens: str | None = None
    id: str | None = None
    label: str | None = None
    embedding: str | None = None
    rounds: str | None = None
    author: str | None = None
    time: str | None = None
    rules: TextRules | None = None


def find_column(
    table: pa.Table, wanted: str | None, usual: Sequence[str], where: str
) -> str | None:
    """Return the name of a column: the wanted one, or else the first of the usual ones."""
    names = table.column_names
    lower = {name.lower(): name for name in reversed(names)}
    usually = next((lower[name] for name in usual if name in lower), None)
    if wanted is not None and wanted not in names:
        raise DataError(f"There is no column {wanted!r} in {where}; it has: {', '.join(names)}.")
    name = usually if wanted is None else wanted
    if names.count(name) > 1:
        raise DataError(f"Several columns of {where} are named {name!r}; rename all but one.")
    return name


def document_column(table: pa.Table, columns: Columns, where: str) -> str:
    """Return the name of the column of documents: as named, usually named, or the only text."""
    wanted = columns.text if columns.tokens is None else columns.tokens
    name = find_column(table, wanted, TEXT_NAMES + TOKEN_NAMES, where)
    strings = [f.name for f in table.schema if is_text(f.type)]
    if name is None and len(strings) == 1:
        name = find_column(table, strings[0], (), where)
    if name is None:
        raise DataError(
            f"Cannot tell which column of {where} holds the text; name one of: "
            f"{', '.join(table.column_names)}."
        )
    kind = table[name].type
    if not is_text(kind) and not is_tokens(kind):
        raise DataError(
            f"Column {name!r} of {where} is {kind}; it must hold strings, or lists of strings."
        )
    return name


def raw_column(table: pa.Table, columns: Columns, where: str) -> pa.ChunkedArray | None:
    """Return the texts beside tokens, if both columns are named; refuse other than strings."""
    if columns.tokens is None or columns.text is None:
        return None
    name = find_column(table, columns.text, (), where)
    if not is_text(table[name].type):
        raise DataError(f"Column {name!r} of {where} is {table[name].type}; it must hold strings.")
    return as_documents(table[name])


def embedding_column(
    table: pa.Table, columns: Columns, where: str
) -> NDArray[np.floating[Any]] | None:
    """Return the embeddings, float32 of shape (n_documents, dimension), if there is a column."""
    name = find_column(table, columns.embedding, EMBEDDING_NAMES, where)
    if name is None:
        return None
    column = table[name]
    if is_list(column.type) and pa.types.is_floating(column.type.value_type):
        return _embeddings(column, name, where, strict=columns.embedding is not None)
    if columns.embedding is None:
        return None  # a column that happens to be called so
    raise DataError(f"Column {name!r} of {where} is {column.type}; it must hold lists of floats.")


def _embeddings(
    column: pa.ChunkedArray, name: str, where: str, strict: bool
) -> NDArray[np.floating[Any]]:
    """Return the rows; where nobody asked for them, NaN for those that cannot be used."""
    place = f"{name!r} of {where}"
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    usual = int(np.bincount(lengths[lengths > 0], minlength=1).argmax())
    another = f"have an embedding of another length than {usual}"
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        flat = np.ascontiguousarray(
            pc.list_flatten(column.filter(pa.array(lengths == usual))).to_numpy(), np.float32
        )
    vectors = np.full((len(column), usual), np.nan, np.float32)
    vectors[lengths == usual] = flat.reshape(-1, usual) if usual else np.nan
    if strict:
        bad = ~np.isfinite(vectors).all(axis=1) & (lengths == usual)
        _refuse_rows(lengths == 0, place, "have no embedding", "give each row one")
        _refuse_rows(lengths != usual, place, another, "give all the same length")
        _refuse_rows(bad, place, "have missing, NaN or infinite numbers", "compute these anew")
    return vectors


def _refuse_rows(bad: NDArray[np.bool_], place: str, problem: str, remedy: str) -> None:
    if bad.any():
        raise DataError(
            f"In column {place}, {int(bad.sum())} of {len(bad)} rows {problem}, the first of them "
            f"row {int(bad.argmax()) + 1} (counted from 1); {remedy}."
        )


def as_documents(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings or lists of strings as the large types of Arrow; what is null is empty."""
    if is_tokens(column.type):
        column = column.cast(pa.large_list(pa.large_string()))
        if pc.list_flatten(column).null_count:
            raise DataError("Documents must not have missing words; leave them out.")
        return pc.if_else(pc.is_null(column), pa.scalar([], column.type), column)
    return pc.fill_null(column.cast(pa.large_string()), "")


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_tokens(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of strings."""
    return is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type))
