"""Documents and clients in every form that an estimator takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from fedtopics import FLDA, LDA, Corpus, Policy, ShortTextClustering
from fedtopics.errors import DataError, PolicyError, StudyError
from tests.helpers.clients import ALL, BOATS, TEXTS, TREES


def small(**parameters: Any) -> LDA:
    return LDA(2, max_rounds=5, min_clients_per_word=1, **parameters)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ("english", {}),
        ("de", {"stop_words": "german"}),
        ("german", {"stop_words": "german"}),
        (None, {"stop_words": "none"}),
        (["oak", "elm"], {"stop_words": "none", "own_stop_words": ("oak", "elm")}),
        (np.array(["oak"]), {"stop_words": "none", "own_stop_words": ("oak",)}),
    ],
)
def test_stop_words(given: Any, settings: dict[str, Any]) -> None:
    study = LDA(stop_words=given)._study()
    assert study.text.model_dump(include=set(settings)) == settings
    assert clone(LDA(stop_words=given))._study() == study


@pytest.mark.parametrize("given", [5, [1, 2], [["oak"]]])
def test_what_are_no_stop_words(given: Any) -> None:
    with pytest.raises(StudyError, match="give a language such as 'english' or 'de', a list of"):
        small(stop_words=given).fit(ALL)


def shouted(text: str) -> list[str]:
    return text.upper().split()


def test_an_analyzer_finds_the_words() -> None:
    model = small(analyzer=shouted).fit(ALL)
    assert {*model.vocabulary_} == {word.upper() for word in TREES + BOATS}
    tokens = small(lowercase=False).fit([shouted(text) for text in ALL])
    assert model.beta_.tobytes() == tokens.beta_.tobytes()
    np.testing.assert_array_equal(model.transform(ALL), tokens.transform(list(map(shouted, ALL))))
    assert model.find_topics("oak") == tokens.find_topics(["OAK"])


def test_a_tokenizer_leaves_stop_words_and_ngrams_to_the_rules() -> None:
    def dashed(text: str) -> list[str]:
        return text.split("-")

    texts = [text.replace(" ", "-").upper() + "-the" for text in ALL]
    model = small(tokenizer=dashed, stop_words=["oak", "the"], ngrams=(1, 2)).fit(texts)
    assert {*TREES, *BOATS} - {"oak"} <= {*model.vocabulary_}
    assert any(" " in word for word in model.vocabulary_)
    assert not any({"oak", "the"} & {*word.split()} for word in model.vocabulary_)


def test_a_model_of_words_of_ones_own_refuses_texts(tmp_path: Path) -> None:
    """What it would make of them were other words, silently."""
    model = small(analyzer=shouted).fit(ALL)
    with pytest.raises(DataError, match="on lists of words, but these documents are texts"):
        model.model_.transform(ALL)
    folder = model.save(tmp_path / "model")
    with pytest.raises(DataError, match="on lists of words"):
        LDA.load(folder).transform(ALL)
    np.testing.assert_array_equal(
        LDA.load(folder, analyzer=shouted).transform(ALL), model.transform(ALL)
    )


@pytest.mark.parametrize(
    "function", [lambda text: text.nothing, lambda text: text, lambda text: {}[text]]
)
def test_a_function_that_fails_quotes_no_document(function: Callable[[str], Any]) -> None:
    with pytest.raises(DataError, match=r"raised [A-Za-z]+Error on a document") as error:
        small(analyzer=function).fit(ALL)
    assert not {*TREES, *BOATS} & {*str(error.value).split()}
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


@pytest.fixture(scope="module")
def counted() -> tuple[Any, Any]:
    vectorizer = CountVectorizer()
    return vectorizer.fit_transform(ALL), vectorizer.get_feature_names_out()


@pytest.mark.parametrize(
    "form", [lambda x: x, sparse.coo_array, lambda x: x.toarray(), lambda x: x.astype(float)]
)
def test_counts_are_the_documents(form: Any, counted: tuple[Any, Any]) -> None:
    counts, words = counted
    expected = small(coherence="documents").fit(ALL)
    model = small().fit(form(counts), words=words)
    assert model.vocabulary_ == expected.vocabulary_
    assert model.beta_.tobytes() == expected.beta_.tobytes()
    np.testing.assert_array_equal(model.transform(form(counts)), expected.transform(ALL))
    np.testing.assert_array_equal(model.transform(ALL), expected.transform(ALL))
    assert model.score(form(counts)) == pytest.approx(expected.score(ALL), rel=0.1)


def test_counts_without_words_are_said(counted: tuple[Any, Any]) -> None:
    with pytest.warns(UserWarning, match=r"Counts have no words.*words=vectorizer.get_feature"):
        assert small().fit(counted[0]).vocabulary_[0].startswith("x")


def test_a_table_enters_a_pipeline() -> None:
    table = pd.DataFrame({"said": ALL, "kind": "letter"})
    pipeline = make_pipeline(small(text="said"), Normalizer()).fit(table)
    expected = small().fit(ALL)
    assert pipeline[0].beta_.tobytes() == expected.beta_.tobytes()
    np.testing.assert_allclose(
        pipeline.transform(table)[:3], normalize(expected.transform(ALL[:3]))
    )
    assert clone(pipeline[0]).text == "said"


@pytest.mark.parametrize(
    ("counts", "words", "message"),
    [
        (TfidfVectorizer().fit_transform(ALL), None, "not weights such as TF-IDF"),
        (sparse.csr_array([[1, -1]]), ["oak", "elm"], "whole numbers, not negative"),
        (sparse.csr_array([[1, 2]]), ["oak"], r"shape \(1, 2\) and 1 words; give one word per"),
        (sparse.csr_array((0, 2), dtype=int), ["oak", "elm"], "The corpus is empty"),
        (ALL, ["oak", "elm"], "Word counts must be numbers"),
    ],
)
def test_what_are_no_counts(counts: Any, words: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        small().fit(counts, words=words)


def test_a_key_may_be_anything() -> None:
    model = small().fit_clients(
        {3: TEXTS["boats"], ("a", 1): TEXTS["trees"], "Stadt Köln": TEXTS["trees"]}
    )
    assert model.clients_ == {"3": 3, "a-1": ("a", 1), "Stadt-Koln": "Stadt Köln"}
    assert model.model_.documents.keys() == {"3", "a-1", "Stadt-Koln"}
    shares = [name for name in model.get_topic_info() if name.startswith("Share_")]
    assert {*shares} == {"Share_3", "Share_('a', 1)", "Share_Stadt Köln"}


@pytest.mark.parametrize("key", [None, float("nan"), pd.NaT, pd.NA, "", " "], ids=repr)
def test_a_key_is_not_missing(key: Any) -> None:
    with pytest.raises(DataError, match=r"1 of 2 clients have no name .*; name them, or leave"):
        small().fit_clients({key: TEXTS["boats"], "trees": TEXTS["trees"]})


def test_the_model_is_that_of_plain_names() -> None:
    plain = small().fit_clients({"boats": TEXTS["boats"], "trees": TEXTS["trees"]})
    table = pd.DataFrame({"text": ALL, "who": ["boats"] * 40 + ["trees"] * 40})
    for form in (
        table,
        table.astype({"who": "category"}),
        pa.Table.from_pandas(table),
        pl.from_pandas(table),
        pl.from_pandas(table).with_columns(pl.col("who").cast(pl.Categorical)),
        table.sample(frac=1, random_state=0).sort_index(),
    ):
        model = small().fit_clients(form, client="who")
        assert model.beta_.tobytes() == plain.beta_.tobytes()
        assert model.clients_ == {"boats": "boats", "trees": "trees"}


@pytest.mark.parametrize(
    ("given", "client", "message"),
    [
        (pd.DataFrame({"text": ALL, "who": "a"}), None, r"name it with client=... \(it has"),
        (pd.DataFrame({"text": ["a"], "who": [["x"]]}), "who", "Row 1 of column 'who' is a list"),
        (pd.DataFrame({"text": ALL, "who": "a"}), "whose", "no column 'whose'"),
        (
            pd.DataFrame({"text": ["a", "b"], "who": [1, np.nan]}),
            "who",
            "1 of 2 rows have no client",
        ),
        (TEXTS, "who", "client= names a column, but the data are not a table"),
        ("letters", None, "The documents are not those of several clients"),
        ({}, None, "There are no clients"),
    ],
)
def test_what_are_no_clients(given: Any, client: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        small().fit_clients(given, client=client)


def test_policies_by_key_or_name() -> None:
    given = {"Stadt Köln": TEXTS["trees"], "b": TEXTS["boats"]}
    for key in ("Stadt Köln", "Stadt-Koln"):
        with pytest.raises(PolicyError, match="at least 41 persons"):
            small().fit_clients(given, policies={key: Policy(min_persons=41)})


def test_what_is_said_of_clients_has_their_keys() -> None:
    flda = FLDA(2, max_rounds=1, iterations=50, min_new_documents=1).fit_clients({1: ALL, 2: ALL})
    assert flda.optimal_topics_.keys() == {1, 2}
    sides = np.repeat([-1.0, 1.0], 40)[:, None] + np.random.default_rng(0).normal(0, 0.1, (80, 3))
    corpus = Corpus.of(ALL).with_embeddings(sides)
    clustering = ShortTextClustering(2, embedding_dimension=3, min_clients_per_word=1).fit_clients(
        {1: corpus.take(range(40)), 2: corpus.take(range(40, 80))}
    )
    assert (
        clustering.labels_.keys()
        == clustering.sizes_.keys()
        == clustering.unclear_.keys()
        == {1, 2}
    )
    assert sorted(clustering.labels_[1].tolist()) == clustering.labels_[1].tolist()
    assert clustering.sizes_[1].sum() == 40
