"""What a fitted estimator says, by names that analysts know; folders, progress, a search."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from fedtopics import FLDA, LDA, NMF, GuidedLDA, NeuralLDA, Study, TopicEstimator, train
from fedtopics.errors import StudyError
from tests.helpers.clients import ALL, BOATS, TEXTS, TREES, documents
from tests.helpers.models import made, table

SETTINGS: dict[str, Any] = {"n_components": 2, "max_rounds": 20, "min_clients_per_word": 1}


@pytest.fixture(scope="module")
def model() -> LDA:
    return LDA(**SETTINGS).fit_clients(TEXTS)


def subject(model: Any, words: list[str]) -> int:
    """The topic with most of these words."""
    index = model.model_.vocabulary.index
    return int(model.beta_[:, [index[word] for word in words]].sum(1).argmax())


def test_topics_are_the_same_by_every_name(model: LDA) -> None:
    assert model.topics() == model.topics_ == model.model_.topics()
    assert model.topics(3) == [words[:3] for words in model.topics_]
    for words, topic in zip(model.topics_, model.get_topics().values(), strict=True):
        assert {word for word, _ in topic} == {*words}
        assert topic == sorted(topic, key=lambda entry: -entry[1])
    assert model.get_topic(1, 4) == model.get_topics(4)[1]
    np.testing.assert_array_equal(model.components_, model.beta_)
    shares = model.model_.word_shares
    for word, share in model.get_topic(0):
        assert share == shares[0, model.model_.vocabulary.index[word]]
    with pytest.raises(StudyError, match="topic=2 cannot be used; give a whole number, 0 to 1"):
        model.get_topic(2)


LETTERS = pd.DataFrame(
    {
        "id": range(40),
        "letter": documents(TREES, 5)[:20] + documents(BOATS, 5)[:20],
        "comment": ["longer than any of the letters that people wrote about ships"] * 40,
        "sent": ["2026-01-05"] * 20 + ["2026-02-07"] * 20,
    }
)
TEXTS_OF_LETTERS = LETTERS["letter"].tolist()


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, of, **how: m.transform(of, **how).tolist(),
        lambda m, of, **how: m.get_document_info(of, **how).to_dict(),
        lambda m, of, **how: m.score(of, **how),
        lambda m, of, **how: m.suggest_labels(of, **how),
        lambda m, of, **how: m.representative_documents(of, **how).to_dict(),
        lambda m, of, **how: m.document_map(of, **how).theta.tolist(),
        lambda m, of, **how: m.plot_words(of, **how).content,
        lambda m, of, **how: m.topics_over_time(of, LETTERS["sent"].tolist(), **how).to_dict(),
        lambda m, of, **how: m.plot_over_time(of, LETTERS["sent"].tolist(), **how).content,
        lambda m, of, **how: m.topics_per_class(of, LETTERS["sent"].tolist(), **how).to_dict(),
    ],
)
def test_every_question_takes_a_table_and_the_column_of_its_text(model: LDA, ask: Any) -> None:
    of_lists, of_tables = copy.copy(model), copy.copy(model)  # labels are suggested in place
    assert ask(of_tables, LETTERS, text="letter") == ask(of_lists, TEXTS_OF_LETTERS)


def test_columns_of_dates_and_effects_come_from_the_table() -> None:
    model = LDA(**SETTINGS, text="letter").fit(LETTERS)
    by_name = model.topics_over_time(LETTERS, "sent")
    assert by_name.to_dict() == model.topics_over_time(LETTERS, LETTERS["sent"]).to_dict()
    assert model.plot_over_time(LETTERS, "sent").title == "what grew, what shrank"
    terms = {row["term"] for row in model.effects("sent", LETTERS).rows()}
    assert terms == {"Intercept", "sent[T.2026-02-07]"}


@pytest.mark.parametrize("name", ["topics", "clients", "map", "similarity", "hierarchy"])
def test_figures_are_reached_from_the_estimator(model: LDA, name: str) -> None:
    figure = getattr(model, f"plot_{name}")()
    assert figure == getattr(model.model_, f"plot_{name}")()


def test_document_info(model: LDA) -> None:
    trees = subject(model, TREES)
    texts = ["oak fir elm", "nothing known", "yawl brig", "oak"]
    info = model.get_document_info(pd.Series(texts, index=[7, 8, 9, 5]))
    assert info.index.tolist() == [7, 8, 9, 5]
    assert info["Document"].tolist() == texts
    assert info["Topic"].tolist() == [trees, -1, 1 - trees, trees]
    assert info["Name"].isna().tolist() == [False, True, False, False]
    assert info["CustomName"].isna().all()
    assert info["Representation"][7] == model.topics_[trees]
    assert info["Top_n_words"][9] == " - ".join(model.topics_[1 - trees])
    probabilities = np.where([True, False, True, True], model.transform(texts).max(1), -1)
    np.testing.assert_array_equal(info["Probability"].fillna(-1), probabilities)
    assert info["Representative_document"].tolist() == [True, False, True, True]


def test_finding_topics(model: LDA) -> None:
    trees = subject(model, TREES)
    for query in ("an oak", "Elm and larch", ["oak", "fir"], "beeches"):
        topics, near = model.find_topics(query)
        assert topics == [trees, 1 - trees]
        assert sum(near) == pytest.approx(1)
        assert near[0] > 0.9
    assert model.find_topics("oak", top_n=1)[0] == [trees]


def test_before_fit() -> None:
    for name, given in {
        "topics": [],
        "get_topic_info": [],
        "find_topics": ["oak"],
        "score": [ALL],
        "save": ["nowhere"],
        "merge_topics": [[0, 1]],
    }.items():
        with pytest.raises(NotFittedError):
            getattr(LDA(), name)(*given)
    assert not hasattr(LDA(), "topics_")
    assert not hasattr(FLDA(), "optimal_topics_")
    assert not Path("nowhere").exists()


def test_score_is_that_of_held_out_words(model: LDA) -> None:
    """Two subjects of eight words each: one of two topics tells a word by eight, not sixteen."""
    new = documents(TREES, 8) + documents(BOATS, 9)
    assert model.score(new) == pytest.approx(-np.log(8), abs=0.15)
    one = LDA(**SETTINGS).fit(ALL).reduce_topics(1)
    assert one.n_components == 1
    assert one.score(new) == pytest.approx(-np.log(16), abs=0.05)


def test_groups_of_a_study_need_no_documents() -> None:
    fitted = LDA()
    fitted.model_ = made(groups=(table("funded", "no", "yes"), table("time", "2024-01-01")))
    frame = fitted.topics_per_class(classes="funded")
    assert frame["Class"].tolist() == ["no"] * 3 + ["yes"] * 3
    assert frame["Frequency"].tolist() == [180.0, 180.0, 240.0] * 2
    assert frame["Share"].tolist() == [0.3, 0.3, 0.4] * 2
    assert fitted.topics_over_time()["Share"].tolist() == [0.3, 0.3, 0.4]


def test_topics_over_time_and_per_class(model: LDA) -> None:
    boats = subject(model, BOATS)
    frame = model.topics_over_time(ALL, [2024] * 40 + [2025] * 40)  # boats, then trees
    assert frame.columns.tolist() == [
        "Topic",
        "Words",
        "Frequency",
        "Timestamp",
        "Name",
        "Share",
        "Documents",
        "Clients",
    ]
    share = frame.set_index(["Timestamp", "Topic"])["Share"]
    assert share[2024, boats] > 0.9
    assert share[2025, boats] < 0.1
    assert frame["Frequency"].sum() == pytest.approx(80, abs=1e-3)
    pd.testing.assert_frame_equal(
        model.topics_over_time(TEXTS, {"boats": [2024] * 40, "trees": [2025] * 40}), frame
    )
    per_class = model.topics_per_class(ALL, ["sea"] * 40 + ["wood"] * 40)
    assert per_class["Class"].tolist() == ["sea", "sea", "wood", "wood"]
    np.testing.assert_array_equal(per_class["Share"], frame["Share"])


def test_later_clients_join_those_before() -> None:
    model = LDA(**SETTINGS).fit_clients({"Stadt Köln": TEXTS["trees"], 2: TEXTS["boats"]})
    model.partial_fit_clients({3: ALL}, names={3: "Third"})
    assert model.clients_ == {"Stadt-Koln": "Stadt Köln", "2": 2, "3": 3}
    assert model.model_.client_names == {"Stadt-Koln": "Stadt Köln", "3": "Third"}
    assert model.model_.documents.keys() == model.clients_.keys()


@pytest.mark.parametrize(
    "estimator",
    [
        LDA(2, max_rounds=2, alpha=0.3, stop_words=["the"], settings={"eta": 0.2}),
        NMF(2, random_state=np.int64(4)),
        NeuralLDA(2, max_rounds=2, hidden=(9, 9)),
        GuidedLDA([["yawl"], ["oak"]], iterations=5, min_persons_per_word=2),
        TopicEstimator(2, method="lda", max_rounds=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_save_and_load(estimator: TopicEstimator, tmp_path: Path) -> None:
    estimator.fit(ALL)
    for kind in (type(estimator), TopicEstimator):
        loaded = kind.load(estimator.save(tmp_path / "model"))
        assert type(loaded) is type(estimator)
        assert loaded._study() == estimator._study()
        assert loaded.topics_ == estimator.topics_
        np.testing.assert_array_equal(loaded.transform(ALL), estimator.transform(ALL))
        assert loaded.fit(ALL).beta_.tobytes() == estimator.beta_.tobytes()


def test_a_model_of_a_run_is_loaded(tmp_path: Path) -> None:
    method = {"name": "lda", "n_components": 2, "max_rounds": 2}
    study = Study.make(method=method, vocabulary={"min_clients_per_word": 1})
    model = train(study, TEXTS, out=tmp_path / "run")
    for kind in (LDA, TopicEstimator):
        loaded = kind.load(tmp_path / "run", max_rounds=3, min_clients_per_word=1)
        assert loaded.beta_.tobytes() == model.beta.tobytes()
        assert loaded._study() == study.with_rounds(3)
    assert LDA.load(tmp_path / "run").partial_fit(ALL).model_.documents == {
        "all": 80,
        "boats": 40,
        "trees": 40,
    }


def test_a_file_of_others_runs_nothing(model: LDA, tmp_path: Path) -> None:
    """Names that are no estimator of ours, and parameters that are functions, are left out."""
    path = model.save(tmp_path) / "estimator.json"
    saved = {"callback": "print", "analyzer": "eval", "start": [1], "nothing": 1}
    path.write_text(json.dumps({"estimator": "sys", "parameters": saved}))
    assert LDA.load(tmp_path).get_params() == LDA().get_params()


def test_callback_gets_events() -> None:
    events: list[dict[str, Any]] = []
    LDA(2, max_rounds=3, callback=events.append).fit(ALL)
    kinds = [event["event"] for event in events]
    assert kinds.count("round") == 3
    assert kinds[-1] == "finished"


def test_tables_of_documents_have_their_index() -> None:
    series = pd.Series(ALL, index=[f"letter-{number}" for number in range(len(ALL))])
    model = NMF(2).fit(series)
    assert [*model.get_document_info(series).index] == [*series.index]
    for given in (series, series.to_frame("text")):
        maps = (fitted.document_map(given).to_pandas() for fitted in (model, model.model_))
        for frame in (model.representative_documents(given), *maps):
            assert len(frame) > 2
            assert [*frame.index] == [series.index[row] for row in frame["Document"]]
    representatives = model.representative_documents({"a": series[:40], "b": series[40:]})
    assert [series[name] for name in representatives.index] == [*representatives["Text"]]
    for frame in (model.representative_documents(ALL), model.document_map(ALL).to_pandas()):
        assert [*frame.index] == [*frame["Document"]]
    assert [*model.get_document_info(ALL).index] == [*range(len(ALL))]


def test_a_score_without_known_words_is_the_lowest() -> None:
    model = NMF(2).fit(ALL)
    with pytest.warns(UserWarning, match="no words that the model knows"):
        assert model.score(["zebra zebra", ""]) == math.log(1e-12)
    assert model.score(ALL) > math.log(1e-12)
