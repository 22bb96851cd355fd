"""Documents from wherever they are: rows in = rows out."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from fedtopics.errors import DataError
from fedtopics.text.corpus import BATCH, Corpus
from fedtopics.text.tables import Columns
from tests.helpers.documents import CANARY, columns_of


@pytest.mark.parametrize(
    "data",
    [
        ["one", None, "three"],
        ("one", "", "three"),
        np.array(["one", None, "three"], dtype=object),
        np.array([["one"], [None], ["three"]], dtype=object),
        pd.Series(["one", None, "three"], index=[5, 9, 7]),
        pd.Series(["one", np.nan, "three"], dtype=object),
        pd.DataFrame({"text": ["one", None, "three"], "n": [1, 2, 3]}, index=[3, 1, 2]),
        pd.DataFrame({"unusual": ["one", "", "three"], "n": [1, 2, 3]}),
        pl.Series(["one", None, "three"]),
        pl.DataFrame({"text": ["one", None, "three"], "n": [1, 2, 3]}),
        pa.array(["one", None, "three"]),
        pa.chunked_array([["one"], [None, "three"]]),
        pa.table({"text": ["one", None, "three"]}),
        pa.table({"text": pa.array(["one", None, "three"]).dictionary_encode()}),
        pa.table({"text": pa.array(["one", None, "three"], pa.string_view())}),
    ],
    ids=lambda data: type(data).__module__.split(".")[0] + "." + type(data).__name__,
)
def test_rows_in_are_rows_out(data: Any) -> None:
    corpus = Corpus.of(data)
    assert columns_of(corpus) == {"documents": ["one", "", "three"], "ids": ["0", "1", "2"]}
    assert len(corpus) == 3
    assert corpus.n_empty == 1
    assert not corpus.is_tokenised


@pytest.mark.parametrize(
    "data",
    [
        [["one", "two"], [], ["three"]],
        [("one", "two"), (), ("three",)],
        [["one", "two"], None, ["three"]],
        np.array([["one", "two"], [], ["three"]], dtype=object),
        pd.Series([["one", "two"], None, ["three"]]),
        pd.DataFrame({"tokens": [["one", "two"], [], ["three"]], "name": ["a", "b", "c"]}),
        pl.Series([["one", "two"], None, ["three"]]),
        pl.DataFrame({"tokens": [["one", "two"], [], ["three"]]}),
        pa.table({"tokens": [["one", "two"], None, ["three"]]}),
    ],
    ids=lambda data: type(data).__module__.split(".")[0] + "." + type(data).__name__,
)
def test_token_lists(data: Any) -> None:
    corpus = Corpus.of(data)
    assert corpus.documents.to_pylist() == [["one", "two"], [], ["three"]]
    assert corpus.is_tokenised
    assert corpus.n_empty == 1


def test_only_empty_documents() -> None:
    assert Corpus.of([None, "", " \t\n"]).n_empty == 3
    assert Corpus.of([[], []]).documents.to_pylist() == [[], []]
    corpus = Corpus.of([None] * BATCH + ["one"])
    assert (len(corpus), corpus.n_empty) == (BATCH + 1, BATCH)


def test_batches_keep_the_order() -> None:
    given = [str(i) for i in range(BATCH + 3)]
    batches = list(Corpus.of(given).batches())
    assert [len(batch) for batch in batches] == [BATCH, 3]
    assert [text for batch in batches for text in batch] == given


def test_what_is_shown_is_counts_alone() -> None:
    corpus = Corpus(
        ids=pa.chunked_array([[CANARY, CANARY]]),
        documents=pa.chunked_array([[[CANARY, "<b>"], []]]),
        labels=pa.chunked_array([[CANARY, CANARY]]),
        embeddings=np.zeros((2, 5), np.float32),
        raw=pa.chunked_array([[CANARY, ""]]),
    )
    counts = ["documents: 2", "empty: 1", "lists of tokens", "embeddings: 5 dimensions"]
    counts += ["raw texts", "labels"]
    assert repr(corpus) == f"Corpus({', '.join(counts)})"
    assert repr(Corpus.of([CANARY])) == "Corpus(documents: 1, empty: 0, texts)"


def test_take() -> None:
    table = {
        "text": ["a", "b", "c"],
        "id": ["x", "y", "z"],
        "label": [1, 2, 3],
        "who": [3, None, 4],
    }
    taken: Any = Corpus.of(pa.table(table), Columns(person="who")).take(np.array([2, 0, 1]))
    assert columns_of(taken) == {
        "documents": ["c", "a", "b"],
        "ids": ["z", "x", "y"],
        "labels": [3, 1, 2],
        "persons": ["4", "3", ""],
    }
    assert Corpus.pool([taken, taken]).persons.to_pylist() == ["4", "3", ""] * 2
    assert "persons" in repr(taken)
    assert Corpus.of(pa.table(table)).persons is None, "they are not looked for"
    nothing: Any = Corpus.of(["a", "b"]).with_embeddings(np.eye(2)).take([])
    assert nothing.embeddings.shape == (0, 2)


def test_pool() -> None:
    first = Corpus.of(pa.table({"text": ["a", ""], "label": [1, 2], "embedding": [[0.5], [1.5]]}))
    both: Any = Corpus.pool(
        [first, Corpus.of(pa.table({"text": ["c"], "label": [3], "embedding": [[2.5]]}))]
    )
    assert columns_of(both) == {
        "documents": ["a", "", "c"],
        "ids": ["0", "1", "2"],
        "labels": [1, 2, 3],
    }
    np.testing.assert_array_equal(both.embeddings, [[0.5], [1.5], [2.5]])


def test_raw_texts_follow_their_rows() -> None:
    names = Columns(tokens="tokens", text="text")
    first = Corpus.of(pa.table({"text": ["A.", "B."], "tokens": [["a"], ["b"]]}), names)
    second = Corpus.of(pa.table({"text": ["C."], "tokens": [["c"]]}), names)
    assert list(first.take([1, 0, 1]).texts()) == [["B.", "A.", "B."]]
    both = Corpus.pool([first, second])
    assert [text for batch in both.texts() for text in batch] == ["A.", "B.", "C."]
    assert Corpus.pool([first, Corpus.of([["c"]])]).raw is None


def test_pool_drops_labels_that_some_lack() -> None:
    labelled = Corpus.of(pa.table({"text": ["a"], "label": [1], "embedding": [[0.5]]}))
    both = Corpus.pool([labelled, Corpus.of(["b"])])
    assert columns_of(both) == {"documents": ["a", "b"], "ids": ["0", "1"]}
    assert both.embeddings is None


def test_pool_refuses_documents_and_labels_of_two_kinds() -> None:
    with pytest.raises(DataError, match="Only some corpora are tokenised"):
        Corpus.pool([Corpus.of(["a"]), Corpus.of([["a"]])])
    numbers = Corpus.of(pa.table({"text": ["a"], "label": [1]}))
    words = Corpus.of(pa.table({"text": ["b"], "label": ["x"]}))
    with pytest.raises(DataError, match="labels of different types; convert all to strings"):
        Corpus.pool([numbers, words])
    both: Any = Corpus.pool(
        [words, Corpus.of(pa.table({"text": ["c"], "label": pa.array(["y"], pa.large_string())}))]
    )
    assert both.labels.to_pylist() == ["x", "y"]


EMPTY = ([], np.array([], dtype=object), pd.DataFrame({"text": []}))
NO_TEXTS = (
    [CANARY, [CANARY]],
    [[CANARY], CANARY],
    [CANARY] * BATCH + [[CANARY]],
    [CANARY, 3],
    [[CANARY], 3],
    [[CANARY, None]],
    [b"\xff"],
    [CANARY + "\ud800"],
    {CANARY: CANARY},
    {CANARY},
    3,
    None,
    np.array([1.0, 2.0]),
    np.array([[CANARY, "a"], ["b", "c"]]),
    pd.Series([1, 2]),
)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        *((data, "give at least one document") for data in EMPTY),
        (f"a sentence with {CANARY}", "The documents are one string"),
        *((data, "Documents must") for data in NO_TEXTS),
    ],
    ids=str,
)
def test_what_is_no_collection_of_texts(data: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        Corpus.of(data)
    assert CANARY not in str(error.value)


def test_embeddings_know_their_encoder_where_they_go() -> None:
    corpus = Corpus.of(["a", "b", "c"]).with_embeddings(np.eye(3), "one")
    assert corpus.take([2, 0]).embedded_by == "one"
    assert Corpus.pool([corpus, corpus]).embedded_by == "one"
    assert Corpus.pool([corpus, corpus.with_embeddings(np.eye(3), "two")]).embedded_by == ""
    assert corpus.with_embeddings(np.eye(3)).embedded_by == ""
    assert corpus.with_embeddings(None).embeddings is None
