"""Models in the forms of other libraries, as tables, and as a card, which says what was kept."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedtopics import Study, TopicModel
from fedtopics.errors import FedTopicsError
from fedtopics.federation.finished_model import privacy_summary
from fedtopics.model.card import card, promise
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.model.shown_words import CLASS_BASED, WordRanking
from tests.helpers.command_line import fedtopics
from tests.helpers.models import BETA, WORDS, made


def test_topic_info() -> None:
    assert made().get_topic_info(2)[0] == {
        "topic": 1,
        "label": "",
        "suggested": "",
        "share": 0.4375,
        "count": 18,  # of 17.5 documents
        "name": "1___init___flu_tea_oak",
        "words": ["__init__", "flu"],
        "coherence": {"npmi": pytest.approx(np.nan, nan_ok=True)},
        "clients": {"north": 0.25, "south": 1.0},
    }
    assert [(row["topic"], row["count"], row["label"]) for row in made().get_topic_info()] == [
        (1, 18, ""),
        (0, 15, "Trees | shrubs"),
        (2, 8, ""),  # of 7.5 documents
    ]


def test_pandas() -> None:
    frame = made().to_pandas(3)
    assert list(frame.columns) == [
        "Topic",
        "Count",
        "Name",
        "CustomName",
        "Representation",
        "Share",
        "Coherence_npmi",
        "Share_north",
        "Share_south",
    ]
    assert frame["Topic"].tolist() == [1, 0, 2]
    assert frame["Count"].tolist() == [18, 15, 8]
    assert frame["Representation"][1] == ["oak", "elm", "flu"]
    assert frame["CustomName"].isna().tolist() == [True, False, True]
    assert frame["CustomName"][1] == "Trees | shrubs"
    assert frame["Share_south"].tolist() == [1, 0, 0]
    assert frame["Coherence_npmi"][2] == -0.25
    assert pd.api.types.is_integer_dtype(frame["Count"])
    assert "Coherence_npmi" not in made().to_pandas(relevance=0.5)
    assert made(labels={}).to_pandas()["CustomName"].isna().all()


def test_pandas_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedTopicsError, match=r"package pandas, .*: pip install pandas"):
        made().to_pandas()


def test_pyldavis() -> None:
    given = made().to_pyldavis()
    np.testing.assert_allclose(given["topic_term_dists"], BETA, rtol=1e-12)
    np.testing.assert_allclose(given["doc_topic_dists"], [[0.5, 0.25, 0.25], [0, 1, 0]], atol=1e-11)
    assert given["doc_lengths"].tolist() == [75, 25]  # of a hundred words
    assert given["vocab"] == list(WORDS)
    assert given["term_frequency"].tolist() == [30, 25, 20, 15, 10]
    dtypes = {array.dtype for name, array in given.items() if name != "vocab"}
    assert dtypes == {np.dtype(np.float64)}


def test_octis() -> None:
    model = made()
    output = model.to_octis(n_words=2)
    assert output.keys() == {"topics", "topic-word-matrix"}
    assert output["topics"] == [["oak", "elm"], ["__init__", "flu"], ["oak", "elm"]]
    np.testing.assert_allclose(output["topic-word-matrix"], BETA, rtol=1e-12)
    documents = [["oak", "oak", "elm"], [], ["__init__"]]
    theta = model.to_octis(documents)["topic-document-matrix"]
    assert theta.shape == (3, 3)
    assert theta.dtype == np.float64
    np.testing.assert_array_equal(theta, model.transform(documents).T)


def test_gensim() -> None:
    topics = made().to_gensim(2)
    assert topics == [
        (0, [("oak", 0.4), ("elm", 0.3)]),
        (1, [("__init__", 0.4), ("flu", 0.2)]),
        (2, [("oak", 0.2), ("elm", 0.2)]),
    ]
    assert {type(value) for _, words in topics for _, value in words} == {float}
    by_lift = made().to_gensim(1, relevance=0)
    assert by_lift == [(0, [("oak", 0.4)]), (1, [("__init__", 0.4)]), (2, [("__init__", 0.2)])]


@pytest.mark.parametrize("reading", [WordRanking(1.0, by_sums=True), CLASS_BASED])
def test_gensim_of_the_words_that_topics_are_read_from(reading: WordRanking) -> None:
    topics = made(word_ranking=reading).to_gensim(2, relevance=1)
    assert topics[0] == (0, [("__init__", 0.75), ("oak", 0.25)])
    assert topics[1] == (1, [("oak", 0.25), ("elm", 0.25)])
    assert topics[2][1][0][1] == 0


def test_csv() -> None:
    text = as_csv(made(labels={0: 'Trees, "shrubs"'}).get_topic_info(2))
    assert text.splitlines()[1] == "1,,0.4375,18,__init__ flu,,0.25,1.0"
    assert list(csv.DictReader(io.StringIO(text)))[1] == {
        "topic": "0",
        "label": 'Trees, "shrubs"',
        "share": "0.375",
        "count": "15",
        "words": "oak elm",
        "coherence_npmi": "0.5",
        "share_north": "0.5",
        "share_south": "0.0",
    }


def test_markdown() -> None:
    assert as_markdown(made().get_topic_info(2)).splitlines() == [
        "| topic | label | words | share | documents | npmi | north | south |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |",
        r"| 1 |  | \_\_init\_\_ flu | 43.8% | 18 | - | 25.0% | 100.0% |",
        r"| 0 | Trees \| shrubs | oak elm | 37.5% | 15 | 0.500 | 50.0% | 0.0% |",
        "| 2 |  | oak elm | 18.8% | 8 | -0.250 | 25.0% | 0.0% |",
    ]


def test_card() -> None:
    lines = card(made()).splitlines()
    assert "| topic | label | share | words |" in lines
    assert r"| 0 | Trees \| shrubs | 37.5% | oak, elm, flu, tea, \_\_init\_\_ |" in lines
    lines = card(made(labels={})).splitlines()
    assert "| topic | share | words |" in lines
    assert r"| 0 | 37.5% | oak, elm, flu, tea, \_\_init\_\_ |" in lines


def test_a_card_says_which_bound_was_kept(tmp_path: Path) -> None:
    bound = {"epsilon": 3.0, "delta": 1e-6, "unit": "document", "seeded": False}
    made(info={"privacy": bound}).save_pretrained(tmp_path)
    said = (tmp_path / "README.md").read_text("utf-8")
    assert "- Differentially private for each document: epsilon 3, delta 1e-06, for every" in said
    assert TopicModel.from_pretrained(tmp_path).info["privacy"] == bound
    tried = made(info={"privacy": bound | {"seeded": True}})
    assert "Differentially private" not in card(tried)
    assert "hides nothing from anybody who knows the seed" in promise(tried)
    assert promise(made()) == ""
    assert privacy_summary(Study(method={"name": "lda"})) | {"data_sent": []} == {
        "masked": False,
        "data_sent": [],
    }


@pytest.fixture
def saved(here: Path) -> Path:
    return made(coherence={}).save_pretrained(Path("model"))


def test_the_command_prints_a_table_with_labels(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedtopics(monkeypatch, "topics", saved, "--words", 2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "    1  43.8%  __init__ flu",
        "              south 100%  north 25%",
        "    0  37.5%  Trees | shrubs: oak elm",
    ]
    assert fedtopics(monkeypatch, "topics", saved, "--words", 2, "-o", "topics.txt") == 0
    assert capsys.readouterr().out == "3 topics are in topics.txt.\n"
    assert Path("topics.txt").read_text().splitlines() == lines
