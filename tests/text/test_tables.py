"""Files of documents and their columns: rows in = rows out; errors name a file, and quote none."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedtopics.errors import DataError
from fedtopics.text.corpus import BATCH, Corpus
from fedtopics.text.tables import FORMATS, Columns
from tests.helpers.documents import CANARY, columns_of, texts, write

MANY = "a,one\n" * 60
LONG = "word " * 1_000_000  # five million characters: a book of several volumes


def test_csv_values_stay_text(tmp_path: Path) -> None:
    corpus = Corpus.read(write(tmp_path / "A.CSV", "id,text\n007,NA\n1.0,null\n,2020\n"))
    assert columns_of(corpus) == {"documents": ["NA", "null", "2020"], "ids": ["007", "1.0", ""]}
    assert texts(write(tmp_path / "b.csv", "text,,\none,,\n")) == ["one"]
    path = write(tmp_path / "c.csv", "text,embedding\none,0.5 1.5\n")
    assert Corpus.read(path, Columns(text="text")).embeddings is None


@pytest.mark.parametrize("suffix", ["jsonl", "ndjson"])
def test_json_lines(tmp_path: Path, suffix: str) -> None:
    lines = '{"text": "one", "id": 1}\n{"text": null, "id": 2}\n{"id": 3, "text": "a\\nb"}\n'
    corpus = Corpus.read(write(tmp_path / f"a.{suffix}", lines))
    assert columns_of(corpus) == {"documents": ["one", "", "a\nb"], "ids": ["1", "2", "3"]}


def test_json_lines_of_tokens_and_of_dates_which_stay_as_they_are(tmp_path: Path) -> None:
    lines = '{"tokens": ["one", "Two"]}\n{"tokens": []}\n{"tokens": null}\n'
    corpus = Corpus.read(write(tmp_path / "a.jsonl", lines))
    assert corpus.documents.to_pylist() == [["one", "Two"], [], []]
    assert corpus.is_tokenised
    assert corpus.n_empty == 2
    lines = '{"text": "one", "id": "2020-01-31"}\n{"text": "two", "id": "2020-02-01"}\n'
    corpus = Corpus.read(write(tmp_path / "a.jsonl", lines))
    assert corpus.ids.to_pylist() == ["2020-01-31", "2020-02-01"]
    assert texts(write(tmp_path / "b.jsonl", '{"text": "2020-01-31"}\n')) == ["2020-01-31"]
    assert texts(write(tmp_path / "c.jsonl", '{"tokens": ["2020-01-31"]}\n')) == [["2020-01-31"]]


def test_compressed(tmp_path: Path) -> None:
    lines = '{"text":"one"}\n{}\n{"text":"three"}\n'
    for name, content in ("a.csv.gz", "text\none\n\nthree\n"), ("a.jsonl.gz", lines):
        path = write(tmp_path / name, gzip.compress(content.encode()))
        assert texts(path) == ["one", "", "three"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_document_may_be_long(tmp_path: Path, name: str) -> None:
    rows = ["short", LONG, "short"]
    csv = "id,text\n" + "".join(f"1,{text}\n" for text in rows)
    lines = "".join(f'{{"text": "{text}"}}\n' for text in rows)
    assert texts(write(tmp_path / name, csv if name == "a.csv" else lines)) == rows


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"body": ["one", None], "doc_id": [4, 5], "label": [True, False]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert columns_of(Corpus.read(tmp_path / "a.parquet")) == {
        "documents": ["one", ""],
        "ids": ["4", "5"],
        "labels": [True, False],
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            f"id,text\n{MANY}b,{CANARY},three,four\n{MANY}",
            "row 61 has 4 fields, the header 2",
        ),
        ("a.csv", f'id,text\n{MANY}a,"{CANARY}\n{MANY}', "row 61 .* a quote that is never closed"),
        (
            "a.csv",
            f'id,text\n{MANY}a,"{CANARY}" x\n{MANY}',
            "row 61 has text after a closing quote",
        ),
        ("a.csv", f"id,text\na,one\n{CANARY}\n", "row 2 has 1 field, the header 2"),
        ("a.csv", f"text\none\nleft, {CANARY}\n", "row 2 has 2 fields, the header 1"),
        ("a.tsv", f"id\ttext\na\tone\t{CANARY}\n", "row 1 has 3 fields, the header 2"),
        ("a.csv", f'text\none\n"{CANARY}', "row 2 .* a quote that is never closed"),
        ("a.csv", f'text\none\n"{CANARY}" two\n', "row 2 has text after a closing quote"),
        ("a.csv", f'"text\none\n{CANARY}', "the header contains a quote that is never"),
        (
            "a.jsonl",
            f'{{"text": "one"}}\n{{"text": "{CANARY}\n',
            "Row 2 of .* is not a JSON object",
        ),
        ("a.jsonl", f'{{"text": "one"}}\n\n"{CANARY}"\n', "Row 2 of .* is not a JSON object"),
        ("a.jsonl", f'{{"text": "{CANARY}"}}\n{{"text": 7}}\n', "row 2 of column .* type int"),
        ("a.jsonl", f'{{"text": "{CANARY}"}}\n{{"text": NaN}}\n{{"text": Infinity}}', "row 3 of"),
        ("a.jsonl", f'{{"text": "{CANARY}"}}\n{{"text": "\\ud800"}}\n', "2 .* part of a char"),
        ("a.parquet", CANARY, r"a\.parquet is a text; rename it to end in \.csv"),
        (
            "a.csv.gz",
            CANARY,
            r"cannot be read as \.csv; it is damaged, a different kind of file",
        ),
        ("a.csv", f"text\none\n{CANARY} caf\xe9\n".encode("latin-1"), "Row 2 .* not UTF-8"),
        (
            "a.csv",
            "caf\xe9,text\n".encode("latin-1"),
            "The first line of .* is not UTF-8; it may be cp1252",
        ),
        ("a.csv", b"\xff\xfet\0e\0x\0t\0\n\0x", r"is not utf-16(?!.*cp1252)"),
        ("a.jsonl", f'{{"text": "{CANARY} caf\xe9"}}\n'.encode("latin-1"), "1 .* not UTF-8"),
        ("a.csv", "text\n5 €\n".encode("cp1252"), "Row 1 .* not UTF-8; it may be cp1252"),
        ("a.csv", b"text\noak\xa0elm\n", "Row 1 .* not UTF-8; it may be cp1252"),
        ("a.csv", "", r"a\.csv is empty"),
        ("a.tsv", "", r"a\.tsv is empty"),
        ("a.jsonl", "\n", r"a\.jsonl is empty"),
        ("a.csv.gz", gzip.compress(b"", mtime=0), r"a\.csv\.gz is empty"),
        ("a.csv", "text,id\n", r"a\.csv has a header and no rows"),
    ],
)
def test_broken_file_is_named_not_quoted(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as e:
        Corpus.read(path)
    assert str(path) in str(e.value)
    assert CANARY not in str(e.value)


@pytest.mark.parametrize(("name", "kind"), [("a.docx", ".docx"), ("a", r"\(no suffix\)")])
def test_unknown_suffix(tmp_path: Path, name: str, kind: str) -> None:
    with pytest.raises(DataError, match=rf"unknown kind {kind}; give one of \.csv, \.tsv"):
        Corpus.read(write(tmp_path / name, "text\none\n"))


def test_a_format_of_ones_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_lines(path: Path) -> pa.Table:
        rows = [line.split("|", 1) for line in path.read_text().split("\n")]
        return pa.table({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})

    path = write(tmp_path / "a.bars", "x|one\ny|two|three")
    with pytest.raises(DataError, match=r"unknown kind \.bars; give one of \.csv, \.tsv"):
        Corpus.read(path)
    monkeypatch.setattr(FORMATS, "_items", dict(FORMATS._items))
    FORMATS.register(".bars", read_lines)
    assert columns_of(Corpus.read(path)) == {"documents": ["one", "two|three"], "ids": ["x", "y"]}
    write(path, CANARY)
    with pytest.raises(DataError, match=r"cannot be read as \.bars") as error:
        Corpus.read(path)
    assert CANARY not in str(error.value)


def test_named_columns_win_over_usual_ones() -> None:
    table = pa.table({"text": ["no"], "own": ["yes"], "id": ["no"], "key": ["k"], "kind": ["l"]})
    corpus = Corpus.of(table, Columns(text="own", id="key", label="kind"))
    assert columns_of(corpus) == {"documents": ["yes"], "ids": ["k"], "labels": ["l"]}


def test_text_is_kept_beside_tokens_when_both_are_named() -> None:
    table = pa.table({"text": ["A b.", None], "tokens": [["a", "b"], ["c", "d"]]})
    both: Any = Corpus.of(table, Columns(tokens="tokens", text="text"))
    tokens = Corpus.of(table, Columns(tokens="tokens"))
    alone = Corpus.of(table)
    assert both.documents.to_pylist() == tokens.documents.to_pylist() == [["a", "b"], ["c", "d"]]
    assert both.raw.to_pylist() == alone.documents.to_pylist() == ["A b.", ""]
    assert tokens.raw is alone.raw is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("own", "row 1 of column 'own' of the table is of type list"),
        ("text", "no column 'text' in the table"),
    ],
)
def test_text_beside_tokens_must_be_strings(text: str, says: str) -> None:
    table = pa.table({"own": [["A"]], "tokens": [["a"]]})
    with pytest.raises(DataError, match=says):
        Corpus.of(table, Columns(tokens="tokens", text=text))


def test_texts_are_strings_whatever_the_documents_are() -> None:
    assert [len(batch) for batch in Corpus.of([["a", "b"]] * BATCH + [[]]).texts()] == [BATCH, 1]
    assert list(Corpus.of([["a", "b"], []]).texts()) == [["a b", ""]]
    assert list(Corpus.of(["A b.", None]).texts()) == [["A b.", ""]]


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
    corpus: Any = Corpus.of(pa.table({"text": list("abcd"), "embedding": column}))
    assert corpus.embeddings.dtype == np.float32
    assert corpus.embeddings.flags.c_contiguous
    np.testing.assert_array_equal(corpus.embeddings, [*ROWS, *ROWS])
    np.testing.assert_array_equal(corpus.take([1]).embeddings, ROWS[1:])


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ([CANARY, "b", "c"], "is of type string; it must contain lists of floats"),
        (
            [[CANARY], ["b"], ["c"]],
            r"is of type list<\w+: string>; it must contain lists of floats",
        ),
        ([[1, 2], [3, 4], [5, 6]], r"is of type list<\w+: int64>; it must contain lists of floats"),
        ([[0.5], None, None], "2 of 3 rows have no embedding, the first of them row 2"),
        ([[0.5], [], [1.5]], "1 of 3 rows have no embedding, the first of them row 2"),
        ([[0.5], [0.5, 1.5], [0.5]], "1 of 3 rows have an embedding whose length is not .* row 2"),
        ([[0.5], [1.5], [None]], "1 of 3 rows have missing, NaN or infinite numbers"),
        ([[0.5], [np.nan], [np.inf]], "2 of 3 rows have missing, NaN .* the first of them row 2"),
        ([[-np.inf], [0.5], [1.5]], "1 of 3 rows have missing, NaN .* the first of them row 1"),
        ([[0.5], [0.5], [1e300]], "1 of 3 rows have missing, NaN .* the first of them row 3"),
    ],
)
def test_unusable_embeddings(tmp_path: Path, column: list[Any], complaint: str) -> None:
    pyarrow.parquet.write_table(
        pa.table({"text": [CANARY, "b", "c"], "embedding": column}), tmp_path / "a.parquet"
    )
    with pytest.raises(DataError, match=complaint) as error:
        Corpus.read(tmp_path / "a.parquet", Columns(embedding="embedding"))
    assert f"olumn 'embedding' of {tmp_path / 'a.parquet'}" in str(error.value)
    assert CANARY not in str(error.value)
    unasked = Corpus.read(tmp_path / "a.parquet").embeddings  # for networks that see none
    assert unasked is None or np.isnan(unasked).any() or np.isinf(unasked).any()
