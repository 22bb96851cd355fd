"""Columns of any kind: what is not needed does no harm; an error names column and row."""

import datetime as dt
import decimal
import uuid
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtopics import NMF, Columns, Corpus
from fedtopics.datasets import split_clients
from fedtopics.errors import DataError, InputError
from fedtopics.model.evaluation import evaluate
from fedtopics.text.columns import Column, is_missing
from tests.helpers.documents import CANARY, columns_of, texts

NOTHING = [
    None,
    "",
    "  ",
    "\n\u00a0",
    "\u200b",
    float("nan"),
    np.nan,
    np.datetime64("NaT"),
    pd.NA,
    pd.NaT,
    decimal.Decimal("NaN"),
]
MIXED = [3, CANARY, [1], None, {"a": 1}, b"\xff", "\ud800", 2.5, object()]


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
def test_what_is_missing_is_so_everywhere(nothing: Any) -> None:
    assert is_missing(nothing)
    frame = pd.DataFrame({"text": ["oak"] * 3, "of": pd.Series(["a", nothing, "b"], dtype=object)})
    corpus = Corpus.of(frame, Columns(id="of", label="of", person="of", time="of", rounds="of"))
    assert columns_of(corpus) == {
        "documents": ["oak"] * 3,
        **{name: ["a", "", "b"] for name in ("ids", "persons")},
        **{name: ["a", None, "b"] for name in ("labels", "times", "rounds")},
    }
    with pytest.raises(
        DataError, match=r"1 of 3 rows have no client, the first of them row 2: 'of'"
    ):
        NMF(2).fit_clients(frame, client="of")


OAKS = {"text": ["oak"] * len(MIXED)}
COLUMNS = ("id", "label", "embedding")
OBJECTS = {name: pl.Series(MIXED, dtype=pl.Object) for name in COLUMNS[:2]}


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (pd.DataFrame(OAKS | dict.fromkeys(COLUMNS, MIXED)), COLUMNS),
        (pl.DataFrame(OAKS).with_columns(**OBJECTS), tuple(OBJECTS)),
    ],
    ids=["pandas", "polars"],
)
def test_a_column_that_nobody_needs_does_no_harm(frame: Any, names: tuple[str, ...]) -> None:
    corpus = Corpus.of(frame)
    assert columns_of(corpus) == {
        "documents": OAKS["text"],
        "ids": [str(n) for n in range(len(MIXED))],
    }
    assert corpus.embeddings is None
    for name in names:
        with pytest.raises(DataError, match=f"'{name}' of the table") as error:
            Corpus.of(frame, Columns(**{name: name}))
        assert CANARY not in str(error.value)


def test_two_columns_of_one_name_hurt_only_who_asks() -> None:
    frame = pd.DataFrame([["oak", 1, 2, "x"]], columns=["text", "id", "id", "y"])
    assert Corpus.of(frame).ids.to_pylist() == ["0"]
    table = pa.Table.from_arrays(
        [pa.array(["oak"]), pa.array([1]), pa.array([2])], ["text", "x", "x"]
    )
    assert texts(table) == ["oak"]
    with pytest.raises(DataError, match="Several columns of the table are named 'x'; rename all"):
        Corpus.of(table, Columns(id="x"))
    with pytest.raises(DataError, match="Several columns of the table are named 'text'"):
        Corpus.of(pd.DataFrame([["oak", "elm"]], columns=["text", "text"]))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (7, "is of type int"),
        (2.5, "is of type float"),
        (b"\xff", "is of type bytes"),
        ("\ud800", "has bytes that are not UTF-8, or part of a character"),
        ([CANARY], "differs in kind from the rows before"),
        ({"a": CANARY}, "is of type dict"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("form", ["list", "array", "series", "frame"])
def test_a_text_that_is_none(value: Any, problem: str, form: str) -> None:
    rows = [CANARY, None, "elm", value, 3]
    data: Any = {
        "list": rows,
        "array": pd.Series(rows, dtype=object).to_numpy(),
        "series": pd.Series(rows, dtype=object),
        "frame": pd.DataFrame({"text": pd.Series(rows, dtype=object)}),
    }[form]
    place = "row 4 of column 'text' of the table" if form == "frame" else "row 4"
    with pytest.raises(DataError, match=f"must all be strings, .*: {place} {problem}") as error:
        Corpus.of(data)
    assert CANARY not in str(error.value)


def test_words_that_are_none() -> None:
    for words in (["a", None], ["a", 3], ("a", float("nan"))):
        with pytest.raises(DataError, match="row 2 has a word of type"):
            Corpus.of([["a"], words])
    with pytest.raises(DataError, match="row 1 has bytes that are not UTF-8"):
        Corpus.of([["\ud800"]])


def test_names_of_any_kind_are_texts() -> None:
    key = uuid.UUID(int=7)
    ids = [7, "x", 2.5, True, dt.date(2024, 5, 31), decimal.Decimal("1.50"), key, None]
    corpus = Corpus.of(pd.DataFrame({"text": ["oak"] * 8, "id": pd.Series(ids, dtype=object)}))
    assert corpus.ids.to_pylist() == ["7", "x", "2.5", "True", "2024-05-31", "1.50", str(key), ""]
    for values, names in (([1.0, 2.5], ["1", "2.5"]), ([1, None], ["1", ""])):
        assert Column([values], "").names().to_pylist() == names


@pytest.mark.parametrize(
    "column",
    [
        pd.Categorical(["a", None, "b"]),
        pd.Series(["a", None, "b"], dtype="string"),
        pd.Series(["a", pd.NA, "b"], dtype=object),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.string_view()),
        np.array(["a", None, "b"], object),
    ],
    ids=lambda column: str(getattr(column, "dtype", getattr(column, "type", ""))),
)
def test_texts_in_other_forms(column: Any) -> None:
    assert Column([column], "").documents().to_pylist() == ["a", "", "b"]
    assert Column([column], "").names().to_pylist() == ["a", "", "b"]
    assert Column([column], "").plain() == ["a", None, "b"]


def test_a_named_index_is_a_column() -> None:
    frame = pd.DataFrame({"text": ["oak", "elm"]}, index=pd.Index(["k1", "k2"], name="id"))
    assert Corpus.of(frame).ids.to_pylist() == ["k1", "k2"]


@pytest.fixture(scope="module")
def model() -> Any:
    return NMF(2, max_rounds=5).fit(["oak elm fir tree", "ketch yawl brig ship"] * 20)


BAD: list[Any] = [
    MIXED,
    [["oak"], 3],
    pd.DataFrame({"text": MIXED}),
    pd.Series(MIXED),
    np.array([1.5]),
    7,
    None,
    {"oak"},
    [b"oak"],
    pl.Series([1, 2]),
    pa.table({"text": [1]}),
    pa.array([[1]]),
    pd.DataFrame({"text": pd.Series(["2024"], dtype="period[M]")}),
    np.array("oak"),
    object(),
    pl.DataFrame({"text": pl.Series([object()], dtype=pl.Object)}),
    (text for text in ["oak"]),
]


@pytest.mark.parametrize("data", BAD, ids=lambda data: type(data).__module__ + type(data).__name__)
def test_no_error_of_others_reaches_who_gives_data(data: Any, model: Any) -> None:
    inner = model.model_
    for call in (
        Corpus.of,
        model.transform,
        NMF(2).fit,
        lambda d: NMF(2).fit_clients({"a": d, "b": d}),
        lambda d: evaluate(inner, d),
        inner.main_topics,
        inner.get_document_info,
        inner.representative_documents,
        lambda d: inner.topics_per_class(d, ["a"]),
        lambda d: inner.topics_over_time(d, ["a"]),
        lambda d: split_clients(d, "even", n_clients=2),
        lambda d: inner.topics_per_class(["oak"] * 9, d),
        inner.document_map,
        lambda d: inner.topics_over_time(["oak"] * 9, d),
        inner.with_suggested_labels,
    ):
        if data is None and call in (inner.document_map, inner.with_suggested_labels):
            continue
        with pytest.raises(InputError) as error:
            call(data)
        assert CANARY not in str(error.value)


def test_lists_are_no_classes(model: Any) -> None:
    for classes in ([["a"], ["b"]], [["a"], ["b", "c"]], [[], []], [{"a": 1}, "b"]):
        with pytest.raises(DataError, match="Row 1 of the times or classes is of type"):
            model.topics_per_class(["oak elm"] * 2, classes)
    with pytest.raises(DataError, match="There are 2 documents but 3 times or classes"):
        model.topics_per_class(["oak elm"] * 2, ["a", "b", "c"])
    table = pa.table({"text": ["oak elm", "ketch yawl"], "label": [["a"], ["b"]]})
    with pytest.raises(DataError, match="Row 1 of the labels is of type list"):
        evaluate(model.model_, Corpus.of(table))


VALUES = st.one_of(
    *(st.none(), st.text(max_size=3), st.integers(), st.floats(), st.booleans(), st.dates()),
    *(st.binary(max_size=2), st.lists(st.text(max_size=2), max_size=2)),
    *(st.just("\ud800"), st.just(pd.NaT)),
)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(values=st.lists(VALUES, min_size=1, max_size=6))
def test_any_column_is_read_or_refused_by_its_row(values: list[Any]) -> None:
    frame = pd.DataFrame({"text": ["oak"] * len(values), "of": pd.Series(values, dtype=object)})
    assert len(Corpus.of(frame)) == len(values)
    for name in ("text", "id", "label", "person", "time", "rounds", "embedding"):
        try:
            corpus = Corpus.of(frame, Columns(**{name: "of"}))
        except DataError as error:
            assert "column 'of' of the table" in str(error)
        else:
            assert len(corpus) == len(values)


@pytest.mark.parametrize(("words", "column"), [(["ash", "ash"], 2), (["", "ash"], 1), ("ab", 1)])
def test_each_column_of_counts_has_a_word_of_its_own(words: Any, column: int) -> None:
    with pytest.raises(DataError, match=f"Column {column} of the counts has no word"):
        Corpus.of_counts([[1, 0], [0, 1]], words)
