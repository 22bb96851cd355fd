"""What docs/how-to/extend.md registers from outside appears everywhere."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from fedtopics import Policy, Study, TopicEstimator, TopicModel, train
from fedtopics.cli import app
from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.study import example_study
from fedtopics.methods import registry
from fedtopics.methods.core.settings import STOP_RULES
from fedtopics.methods.registry import METHODS
from fedtopics.metrics import METRICS
from fedtopics.networks import NETWORKS
from fedtopics.text.tables import FORMATS
from tests.helpers import pages
from tests.helpers.background import Notes
from tests.helpers.federation import tokens_of, train_until_killed
from tests.helpers.registries import restored
from tests.helpers.studies import written

STUDY = """
[method]
name = "unigrams"
n_components = 2
stop_when = {enough = 3.0}
[vocabulary]
min_clients_per_word = 1
[clients.forest]
data = "forest.csv"
label = "kind"
[clients.harbour]
data = "harbour.csv"
label = "kind"
"""
METHOD = {"name": "unigrams", "n_components": 2, "stop_when": {"enough": 3.0}}
LIMITS = {"min_clients_per_word": 1}


@pytest.fixture
def page() -> Iterator[dict[str, Any]]:
    names = pages.run(pages.DOCS / "how-to/extend.md")
    with restored():
        registry.register(names["UNIGRAMS"])
        STOP_RULES.register("enough", names["enough"])
        METRICS.register("longest_word", names["LONGEST"])
        FORMATS.register(".bars", names["read_bars"])
        yield names


def test_a_function_that_does_not_say_what_leaves_is_not_called(page: dict[str, Any]) -> None:
    class Whispering(page["UnigramsClient"]):  # type: ignore[misc]
        def count_words(self, **payload: Any) -> dict[str, Any]:
            return {}

    silent = replace(page["UNIGRAMS"], client=Whispering)
    with restored():
        registry.register(silent)
        with pytest.raises(PolicyError, match="publishes no function 'count_words'"):
            train(Study.make(method=METHOD, vocabulary=LIMITS), page["corpora"])


@pytest.fixture
def folder(page: dict[str, Any], here: Path) -> Path:
    """The page's documents as files, and a study of them; everything.csv has all."""
    everything = "kind,text\n"
    for name, corpus in page["corpora"].items():
        rows = "".join(f"{name},{' '.join(row)}\n" for row in tokens_of(corpus))
        (here / f"{name}.csv").write_text(f"kind,text\n{rows}")
        everything += rows
    (here / "everything.csv").write_text(everything)
    written(here, STUDY)
    return here


def fedtopics(*arguments: str) -> Result:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def subjects(page: dict[str, Any], topics: list[list[str]]) -> list[str]:
    return [
        n
        for topic in topics
        for n, vocabulary in page["words"].items()
        if set(topic) <= set(vocabulary)
    ]


def test_without_registering_nothing_is_known() -> None:
    pages.run(pages.DOCS / "how-to/extend.md")
    assert "unigrams" not in METHODS.names
    assert "etm" not in NETWORKS.names
    assert "enough" not in STOP_RULES.names
    assert "longest_word" not in METRICS.names
    assert ".bars" not in FORMATS.names
    with pytest.raises(StudyError, match="no method 'unigrams'; choose from: gfedntm, lda"):
        Study.make(method=METHOD)


def test_a_method_in_a_study_file(page: dict[str, Any], folder: Path) -> None:
    study = Study.read(folder / "study.toml")
    events = Notes()
    assert study.agreed["method"]["name"] == "unigrams"
    assert study.method.max_rounds == 20
    assert re.search(r"^# max_rounds = 20  # most rounds$", example_study("unigrams"), re.MULTILINE)
    model = train(study, out="out", on_event=events.append)
    assert sorted(subjects(page, model.topics(5))) == ["forest", "harbour"]
    assert [(n, sorted(s)) for n, s in model.shares.items()] == [
        ("forest", [0, 1]),
        ("harbour", [0, 1]),
    ]
    # Each topic has its documents' words, and 0.1 of each word.
    assert model.weights["pseudo_counts"].sum(0) == pytest.approx([40 * 12 + 1.6] * 2)
    assert np.array_equal(TopicModel.from_pretrained("out/model").beta, model.beta)
    (stopped,) = events.of("stopped")
    assert (stopped["round"], stopped["reason"]) == (3, "3 rounds are enough")
    assert len(events.of("round")) == 3


def test_a_run_is_resumed_to_the_same_bits(page: dict[str, Any], tmp_path: Path) -> None:
    def study(rounds: float) -> Study:
        return Study.make(
            method=METHOD | {"stop_when": {"enough": rounds}}, vocabulary=LIMITS, checkpoint_every=1
        )

    whole = train(study(4.0), page["corpora"])
    train_until_killed(2, study(4.0), page["corpora"], out=tmp_path / "run")
    resumed = train(study(4.0), page["corpora"], out=tmp_path / "run", resume=True)
    assert np.array_equal(resumed.beta, whole.beta)


def test_a_method_at_the_command_line(page: dict[str, Any], folder: Path) -> None:
    fedtopics("train", "study.toml", "--out", "out")
    rows = json.loads(fedtopics("topics", "out/model", "--words", "5", "--json").stdout)
    assert sorted(subjects(page, [row["words"] for row in rows])) == ["forest", "harbour"]
    assert [row["share"] for row in rows] == [0.5, 0.5]

    fedtopics("transform", "out/model", "everything.csv", "-o", "theta.parquet")
    topics = pq.read_table("theta.parquet")["topic"].to_pylist()
    assert sorted([set(topics[:40]) == {0}, set(topics[40:]) == {0}]) == [False, True]

    evaluate = ("evaluate", "out/model", "--data", "everything.csv", "--columns", "label=kind")
    assert json.loads(fedtopics(*evaluate, "--json").stdout)["purity"] == 1.0

    ledgers = json.loads(fedtopics("audit", "log", "out", "--json").stdout)
    assert {row["function"]: row["replies"] for row in ledgers["forest"]} == {
        "vocabulary": 1,
        "document_counts": 1,
        "count_words": 3,
        "topic_shares": 1,
        "word_sums": 1,
        "word_pairs": 1,
    }
    counted = next(row for row in ledgers["forest"] if row["function"] == "count_words")
    assert (counted["fields"], counted["values"]) == (["counts", "documents"], 2 * 16 + 1)
    printed = " ".join(fedtopics("audit", "log", "out").output.split())
    meaning = "How often each word that is not rare occurs in the documents of each topic."
    assert re.search(rf"count_words \(each round; [^)]*\) {meaning}", printed)
    fedtopics("report", "out")
    report = (folder / "out/report.html").read_text(encoding="utf-8")
    assert "mixture of unigrams" in report
    assert meaning in report


def test_a_policy_names_the_methods(page: dict[str, Any]) -> None:
    study = Study.make(method=METHOD, vocabulary=LIMITS)
    refusing = Policy(methods=("lda", "gfedntm"))
    with pytest.raises(PolicyError, match="of client 'forest' does not allow the method 'unigram"):
        train(study, page["corpora"], policies={"forest": refusing})
    allowing = Policy(methods=("unigrams",))
    train(study, page["corpora"], policies=dict.fromkeys(page["corpora"], allowing))


def test_a_method_in_an_estimator(page: dict[str, Any]) -> None:
    everything = [row for corpus in page["corpora"].values() for row in tokens_of(corpus)]
    estimator = TopicEstimator(2, method="unigrams", max_rounds=5, settings=LIMITS)
    for fitted in (estimator.fit_clients(page["corpora"]), estimator.fit(everything)):
        assert sorted(subjects(page, [topic[:5] for topic in fitted.topics_])) == [
            "forest",
            "harbour",
        ]
        theta = fitted.transform([["oak", "fir", "elm", "yew"], ["yawl", "dory"]])
        assert theta.argmax(1).tolist() in ([0, 1], [1, 0])


def test_a_metric_and_a_file_format(page: dict[str, Any], folder: Path) -> None:
    rows = (folder / "everything.csv").read_text().splitlines()[1:]
    Path("everything.bars").write_text("\n".join(row.replace(",", "|", 1) for row in rows))
    plan = Path("study.toml").read_text()
    for name in page["corpora"]:
        Path(f"{name}.bars").write_text(
            "\n".join(row.replace(",", "|", 1) for row in rows if row.startswith(name))
        )
        plan = plan.replace(f"{name}.csv", f"{name}.bars")
    Path("study.toml").write_text(plan)
    fedtopics("train", "study.toml", "--out", "out")
    arguments = ("evaluate", "out/model", "--data", "everything.bars", "--columns", "label=kind")
    assert "longest word" in fedtopics(*arguments).stdout
    scores = json.loads(fedtopics(*arguments, "--json").stdout)
    assert scores["longest_word"] == max(
        len(w) for vocabulary in page["words"].values() for w in vocabulary
    )
    assert scores["purity"] == 1.0
