"""What nobody can mean is refused in a sentence, and empty tables have their columns."""

import inspect
import re
import warnings
from collections.abc import Callable
from copy import copy
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer

from fedtopics import NMF, GuidedLDA, ShortTextClustering, TopicEstimator, estimators
from fedtopics.errors import DataError, InputError, ModelError
from fedtopics.estimators.inputs import NAMES_HERE, check_settings
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits

KNOWN = {
    *NMFSettings.model_fields,
    *TextRules.model_fields,
    *VocabularyLimits.model_fields,
    *NMF(2).get_params(),
    *inspect.signature(NMF.fit_clients).parameters,
}

TEXTS = ["oak and beech and fir in a wood", "a ketch and a sloop and a yawl at sea"] * 20
OF_GROUPS = pd.DataFrame({"text": TEXTS, "year": [2023, 2024] * 20}).groupby("year")


@pytest.fixture(scope="module")
def model() -> NMF:
    return NMF(2, max_rounds=3).fit(TEXTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.reduce_topics("auto"), "n_topics='auto' cannot be used; give a whole number"),
        (lambda m: m.reduce_topics(1.5), "n_topics=1.5 cannot"),
        (lambda m: m.merge_topics(0), "topics_to_merge cannot be read; give a list"),
        (lambda m: m.get_topic(0, "5"), "n_words='5' cannot"),
        (lambda m: m.get_topics(2.5), "n_words=2.5 cannot"),
        (lambda m: m.get_topic_info(99), "topic=99 cannot be used; give a whole number, 0 to 1"),
        (lambda m: m.find_topics("oak", -1), "top_n=-1 cannot"),
        (
            lambda m: m.find_topics(None),
            "The query cannot be read; give a text, or a list of words",
        ),
        (lambda m: m.find_topics(5), "The query cannot be read; give a text, or a list of words"),
        (lambda m: m.transform(OF_GROUPS["text"]), "must be a list, a column or a table, not of"),
        (lambda m: m.transform(OF_GROUPS), "must be a list, a column or a table, not of"),
        (lambda _: NMF(2, passes=3), "There is no setting 'passes'; use max_rounds."),
        (lambda m: m.representative_documents(TEXTS, topic=2), "topic=2 cannot"),
        (lambda m: m.representative_documents(TEXTS, n_documents=0), "n_documents=0 cannot"),
        (lambda m: m.topics_over_time(TEXTS, [1] * 40, nr_bins=2.5), "nr_bins=2.5 cannot"),
        (lambda m: m.topics_per_class(TEXTS, ["a"] * 40, min_documents="5"), "min_documents='5'"),
        (lambda m: m.set_topic_labels(["a"]), "Give a list of 2 labels, one for each topic"),
        (lambda _: GuidedLDA(3).fit(TEXTS), "'method.seed_topics' is 3"),
        (lambda _: NMF(2, min_df=3).fit(TEXTS), "no setting 'min_df'; use min_persons_per_word."),
    ],
)
def test_what_nobody_can_mean(call: Callable[[NMF], Any], message: str, model: NMF) -> None:
    with pytest.raises(InputError, match=message):
        call(model)


def test_names_of_bertopic_lead_to_ours(model: NMF) -> None:
    with pytest.raises(AttributeError, match=r"'visualize_topics'; use plot_map"):
        model.visualize_topics()
    for ours in NAMES_HERE.values():
        name = re.split(",| or ", ours)[0]
        assert name in KNOWN or callable(attrgetter(name)(model)), ours


@pytest.mark.parametrize("kind", [getattr(estimators, name) for name in estimators.__all__])
def test_docstrings_name_only_parameters_and_settings(kind: type[TopicEstimator]) -> None:
    """Names are those in the section "Parameters", and in backticks if they are no attributes."""
    text = inspect.getdoc(kind) or ""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^\w[\w, ]*", section[1] if section else "", re.MULTILINE)
    names = {name.strip() for head in heads for name in head.split(",")}
    names |= {name for name in re.findall(r"`([a-z]\w*)(?:`| ?=)", text) if not hasattr(kind, name)}
    default = "discriminative" if kind is ShortTextClustering else "gfedntm"
    settings = dict.fromkeys(name for name in names if not name.endswith("_"))
    check_settings(settings, kind._fixed.get("method", default), kind._get_param_names())


def test_tables_without_rows_have_their_columns(model: NMF) -> None:
    none = model.topics_over_time(TEXTS[:3], ["2024-01-01"] * 3)
    assert len(none) == 0
    assert {"Topic", "Timestamp", "Share"} <= {*none}
    assert {"Topic", "Class"} <= {*model.topics_per_class(TEXTS[:3], ["a"] * 3)}
    one = copy(model).reduce_topics(1).hierarchical_topics()
    assert (len(one), [*one][:3]) == (0, ["Parent_ID", "Parent_Name", "Topics"])


def test_counts_need_their_words_where_the_model_has_others(tmp_path: Path) -> None:
    """Else each document had an even theta, without a word."""
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(TEXTS)
    words = vectorizer.get_feature_names_out()
    fitted = NMF(2, max_rounds=3).fit(counts, words=words)
    loaded = TopicEstimator.load(fitted.save(tmp_path))
    assert (loaded.transform(counts, words=words) == fitted.transform(counts)).all()
    for model in (loaded, NMF(2, max_rounds=3).fit(TEXTS)):
        with pytest.raises(DataError, match="no word of these counts; give"):
            model.transform(counts)


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "letters.csv").write_text("text\n" + "\n".join(TEXTS))
    fitted = NMF(2, max_rounds=3).fit("~/letters.csv")
    assert fitted.save("~/model") == tmp_path / "model"
    assert NMF.load("~/model").topics_ == fitted.topics_


def test_a_model_that_may_not_be_opened_is_not_damaged(
    tmp_path: Path, model: NMF, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *_: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    model.save(tmp_path)
    monkeypatch.setattr("fedtopics.model.folder.read_text", closed)
    with pytest.raises(ModelError, match=r"config\.json cannot be opened: Permission denied"):
        NMF.load(tmp_path)


def test_embeddings_in_the_place_of_labels_are_refused() -> None:
    with pytest.raises(InputError, match=r"these are embeddings; give Corpus.of\(documents\)"):
        NMF(2).fit(TEXTS, np.ones((len(TEXTS), 64)))
    NMF(2, max_rounds=1).fit(TEXTS, np.ones((len(TEXTS), 2)))


def test_a_method_without_embeddings_takes_no_model_of_them() -> None:
    with pytest.raises(
        InputError, match="The method nmf uses no embeddings; leave embedding_model out"
    ):
        NMF(2, embedding_model="all-MiniLM-L6-v2").fit(TEXTS)


def test_what_is_fitted_later_says_so() -> None:
    with pytest.raises(NotFittedError, match="This NMF instance is not fitted yet"):
        _ = NMF(2).topics_
    assert not hasattr(NMF(2), "beta_")


def test_limits_that_have_no_effect_and_lost_documents_are_named() -> None:
    clients = {"a": [*TEXTS, *["yak gnu emu"] * 3], "b": [*TEXTS, *["ibis kiwi"] * 9]}
    with pytest.warns(
        UserWarning, match="=2 has no effect, because every client's policy req"
    ) as w:
        NMF(2, max_rounds=1, min_persons_per_word=2).fit_clients(clients)
    lost = "12 of 92 documents contain none of them. A word needs enough persons at a client"
    assert any(lost in str(warning.message) for warning in w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NMF(2, max_rounds=1, min_persons_per_word=2).fit(TEXTS)
