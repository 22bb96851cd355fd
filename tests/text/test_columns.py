"""Which column of a table holds the text, and what the others hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedtopics.errors import DataError
from fedtopics.text.columns import Columns
from fedtopics.text.corpus import BATCH, Corpus
from tests.helpers.documents import CANARY, texts, write


def test_named_columns_win_over_usual_ones() -> None:
    table = pa.table({"text": ["no"], "own": ["yes"], "id": ["no"], "key": ["k"], "kind": ["l"]})
    corpus = Corpus.of(table, Columns(text="own", id="key", label="kind"))
    assert corpus.documents.to_pylist() == ["yes"]
    assert corpus.ids.to_pylist() == ["k"]
    assert corpus.labels is not None
    assert corpus.labels.to_pylist() == ["l"]


def test_tokens_column_by_name() -> None:
    table = pa.table({"text": ["a b"], "tokens": [["c"]]})
    assert texts(table) == ["a b"]
    assert texts(table, Columns(tokens="tokens")) == [["c"]]


def test_usual_names_in_any_case() -> None:
    assert texts(pa.table({"Title": ["no"], "TEXT": ["yes"]})) == ["yes"]


def test_text_is_kept_beside_tokens_when_both_are_named() -> None:
    table = pa.table({"text": ["A b.", None], "tokens": [["a", "b"], ["c", "d"]]})
    corpus = Corpus.of(table, Columns(tokens="tokens", text="text"))
    assert corpus.documents.to_pylist() == [["a", "b"], ["c", "d"]]
    assert corpus.raw is not None
    assert corpus.raw.to_pylist() == ["A b.", ""]
    assert Corpus.of(table, Columns(tokens="tokens")).raw is None
    assert Corpus.of(table).raw is None


def test_text_beside_tokens_must_be_strings() -> None:
    table = pa.table({"own": [["A"]], "tokens": [["a"]]})
    with pytest.raises(DataError, match=r"Column 'own' of the table is list.* must hold strings"):
        Corpus.of(table, Columns(tokens="tokens", text="own"))
    with pytest.raises(DataError, match="no column 'text' in the table"):
        Corpus.of(table, Columns(tokens="tokens", text="text"))


def test_texts_are_strings_whatever_the_documents_are() -> None:
    tokens = [["a", "b"]] * BATCH + [[]]
    assert [len(batch) for batch in Corpus.of(tokens).texts()] == [BATCH, 1]
    assert list(Corpus.of([["a", "b"], []]).texts()) == [["a b", ""]]
    assert list(Corpus.of(["A b.", None]).texts()) == [["A b.", ""]]
    table = pa.table({"text": ["A b."], "tokens": [["a", "b"]]})
    assert list(Corpus.of(table, Columns(tokens="tokens", text="text")).texts()) == [["A b."]]


ROWS = [[0.5, 1.5], [2.5, 3.0]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float16()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float16(), 2),
        pa.list_(pa.float64(), 2),
    ],
    ids=str,
)
def test_embeddings(kind: pa.DataType) -> None:
    rows = [np.array(row, kind.value_type.to_pandas_dtype()) for row in [*ROWS, *ROWS]]
    column = pa.chunked_array([pa.array(rows[:1], kind), pa.array(rows, kind)[1:]])
    corpus = Corpus.of(pa.table({"text": list("abcd"), "embedding": column}))
    assert corpus.embeddings is not None
    assert corpus.embeddings.dtype == np.float32
    assert corpus.embeddings.flags.c_contiguous
    np.testing.assert_array_equal(corpus.embeddings, [*ROWS, *ROWS])
    np.testing.assert_array_equal(corpus.take([1]).embeddings, ROWS[1:])


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ([CANARY, "b", "c"], "is string; it must hold lists of floats"),
        ([[CANARY], ["b"], ["c"]], r"is list<\w+: string>; it must hold lists of floats"),
        ([[1, 2], [3, 4], [5, 6]], r"is list<\w+: int64>; it must hold lists of floats"),
        ([[0.5], None, None], "2 of 3 rows have no embedding, the first of them row 2"),
        ([[0.5], [], [1.5]], "1 of 3 rows have no embedding, the first of them row 2"),
        (
            [[0.5], [0.5, 1.5], [0.5]],
            "1 of 3 rows have an embedding of another length than 1, the first of them row 2",
        ),
        ([[0.5], [1.5], [None]], "1 of 3 rows have missing, NaN or infinite numbers"),
        ([[0.5], [np.nan], [np.inf]], "2 of 3 rows have missing, NaN .* the first of them row 2"),
        ([[-np.inf], [0.5], [1.5]], "1 of 3 rows have missing, NaN .* the first of them row 1"),
        ([[0.5], [0.5], [1e300]], "1 of 3 rows have missing, NaN .* the first of them row 3"),
    ],
)
def test_unusable_embeddings(tmp_path: Path, column: list[Any], complaint: str) -> None:
    table = pa.table({"text": [CANARY, "b", "c"], "embedding": column})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=complaint) as error:
        Corpus.read(tmp_path / "a.parquet", Columns(embedding="embedding"))
    assert f"olumn 'embedding' of {tmp_path / 'a.parquet'}" in str(error.value)
    assert CANARY not in str(error.value)
    unasked = Corpus.read(tmp_path / "a.parquet").embeddings  # for networks that see none
    assert unasked is None or np.isnan(unasked).any() or np.isinf(unasked).any()


def test_unusable_embeddings_of_fixed_size() -> None:
    column = pa.array([[0.5, 1.5], None], pa.list_(pa.float32(), 2))
    table = pa.table({"text": ["a", "b"], "own": column})
    with pytest.raises(DataError, match="'own' of the table, 1 of 2 rows have no embedding"):
        Corpus.of(table, Columns(embedding="own"))


def test_a_csv_column_named_embedding_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,embedding\none,0.5 1.5\n")
    assert Corpus.read(path, Columns(text="text")).embeddings is None


def test_missing_column_names_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,text,label\na,one,x\n")
    with pytest.raises(DataError, match=r"no column 'body' in .*a\.csv; it has: id, text, label"):
        Corpus.read(path, Columns(text="body"))


def test_no_column_can_be_told() -> None:
    with pytest.raises(DataError, match=r"Cannot tell which column of the table .* one of: a, b\."):
        Corpus.of(pd.DataFrame({"a": ["x"], "b": ["y"]}))


def test_column_of_numbers() -> None:
    with pytest.raises(DataError, match="Column 'text' of the table is int64"):
        Corpus.of(pd.DataFrame({"text": [1, 2]}))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="text"):
        Corpus.read(write(tmp_path / "a.csv", "text,text\none,two\n"))
    assert texts(write(tmp_path / "b.csv", "text,,\none,,\n")) == ["one"]
