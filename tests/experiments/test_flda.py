"""F-LDA's experiments: verdicts on hand-made rows, and a small run from files to a picture."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.flda import runs as flda_runs
from experiments.flda import tables as flda_tables
from experiments.flda import words
from experiments.flda.models import DATA_SETS, MODELS, NEW_DOCUMENTS, SAME_DOCUMENTS
from experiments.flda.results import alike_pair, page, plain
from experiments.flda.rounds import Round, merge_again, message_bytes, trajectory
from experiments.flda.runs import Settings, reproduce, slices, tasks
from experiments.flda.similarities import tasks as pairs_of
from experiments.flda.subjects import Subjects, deal_by_subject, found, found_own, own_subjects
from experiments.flda.tables import tables
from experiments.flda.training import Trained, all_found, score_all, train_and_score
from fedtopics.errors import DataError, StudyError
from tests.helpers.command_line import Typed

MEDICAL, TWEETS = DATA_SETS
NOT_IN_A_CLAIM = {
    "lda",
    "prodlda",
    "anew-new",
    "anew-same",
    "skewed-pooled",
    "skewed-pooled-all",
    "skewed-alone",
    "skewed-federated",
    "skewed-federated-all",
    "skewed-flda-2",
    "skewed-transitive-1",
    "skewed-transitive-2",
    "skewed-pairwise-1",
    "skewed-pairwise-2",
}
SETTINGS = Settings(Path("data"), seeds=2)


def rows(**c_v: float) -> list[dict[str, Any]]:
    """Rows in which every model scores .5, the second seed a tenth more, unless given."""
    return judged() + [
        {
            "data": data.name,
            "model": model,
            "seed": seed,
            "c_v": c_v.get(model.replace("-", "_"), 0.5) + 0.1 * seed,
            "diversity": c_v.get(model.replace("-", "_"), 0.5),
            "topics": 10.0,
            "shown_c_v": 0.6,
            "rounds": 3.0,
            "replies": 8.0,
            "bytes": 29_000.0,
            "training_seconds": 10.0 if "pooled" in model else 6.0,
            "most_training_seconds": 7.0,
            "found": 0.2,
            "found_own": 0.6 if "alone" in model else 0.3,
            "found_in_own": 0.3 if "transitive" in model else 0.58,
        }
        | (merged(model) if MODELS[model].where == "federated" else {})
        for data in DATA_SETS
        for model in MODELS
        for seed in range(2)
    ]


def merged(model: str) -> dict[str, Any]:
    """Three rounds, of which the paper's pairwise reading has larger and less stable ones."""
    if MODELS[model].method.get("name") != "flda":
        return {}
    pairwise = model.removeprefix("skewed-").startswith("pairwise")
    last = {"m": 12.0 if pairwise else 4.0, "own": 3.0, "own_c_v": 0.5}
    later_round = last | {
        "c_v": 0.5,
        "alike": 0.8 if pairwise else 0.99,
        "sent_alike": 0.6,
        "seconds": 0.5,
        "m_bytes": 6000.0 if pairwise else 2000.0,
        "own_bytes": 2000.0,
    }
    return last | {
        "each_round": [later_round | {"alike": None, "sent_alike": None}, later_round, later_round]
    }


def judged() -> list[dict[str, Any]]:
    """Similarities: the cosine is .9, or .85 by pairs that are found; Jaccard .88, others .92."""
    similarity_rows = []
    for pairs, seed in pairs_of(range(2)):
        aucs = {"cosine": 0.85 if "LDA" in pairs else 0.9, "jaccard": 0.88}
        if pairs not in {data.name for data in DATA_SETS}:
            aucs |= {"hellinger": 0.92, "jensen_shannon": 0.92}
        scores = {name: {"auc": value, "accuracy": 0.9} for name, value in aucs.items()}
        row = {"data": pairs, "model": "similarity", "seed": seed, "pairs": 60, "same": 27}
        similarity_rows.append(row | {"scores": scores})
    return similarity_rows


def test_tables() -> None:
    every = {table.title: table for table in tables(SETTINGS, rows(pooled=0.8))}
    by_title = {row[0]: row[1:] for row in every["medical_questions, 280 a round"].rows}
    assert by_title["pooled: regular LDA"] == (
        "0.850 ± 0.050",
        "0.800 ± 0.000",
        "10.0 ± 0.0",
        "0.600 ± 0.000",
        *"---",
        "3",
        "-",
        "-",
    )
    assert by_title["federated: F-LDA, round 3"][4:] == (
        "4.0 ± 0.0",
        "3.0 ± 0.0",
        "0.500 ± 0.000",
        "3",
        "8",
        "29",
    )
    skewed = every["depression_tweets, documents dealt out by subject"]
    by_title = {row[0]: row[1:] for row in skewed.rows}
    assert by_title["alone: regular LDA"][2:] == ("0.200 ± 0.000", "0.600 ± 0.000", *"----")


def test_tables_of_rounds_messages_and_cost() -> None:
    every = tables(SETTINGS, rows())
    by_title = {table.title: {row[0]: row[1:] for row in table.rows} for table in every}
    assert by_title["medical_questions, 6 rounds of 140 new documents"][
        "F-LDA: like the round before / at a client"
    ][-3:] == (
        "- / -",
        "0.99 / 0.60",
        "0.99 / 0.60",
    )
    messages = by_title["M or M\\* in a message"]["medical_questions, the paper, pairwise, round 2"]
    assert messages == ("12.0", "6.0", "3.0", "2.0", "67%")
    assert by_title["What is computed where"]["F-LDA, 3 rounds, a client"] == ("1.50", "1.50")
    assert [row[:3] for row in every[-1].rows[2:5]] == [
        ("variational LDA", "4", "4"),
        ("ProdLDA", "4", "4"),
        ("similarities", "12", "12"),
    ]


def test_one_topic_has_no_diversity() -> None:
    collapsed = rows()
    for row in collapsed:
        if row["model"] == "transitive-3":
            row |= {"diversity": float("nan"), "topics": 1.0, "m": 1.0}
    text = page(SETTINGS, collapsed, plain(SETTINGS, collapsed))
    assert "| federated: the paper, transitive, round 3 | 0.550 ± 0.050 | - | 1.0 ± 0.0 |" in text


def test_documents_by_subject() -> None:
    of = np.repeat([0, 1, 2], 30)
    dealt = deal_by_subject(of, 3, 20, seed=0)
    drawn = np.concatenate(dealt)
    assert [len(part) for part in dealt] == [20, 20, 20]
    assert len(set(drawn.tolist())) == 60, "each document once"
    assert max(len(set(of[part].tolist())) for part in dealt) <= 2, "and a subject in one place"
    assert all(
        (one == other).all()
        for one, other in zip(dealt, deal_by_subject(of, 3, 20, seed=0), strict=True)
    )


def test_whose_subjects_are_found() -> None:
    subjects_by_client = own_subjects(
        {"north": np.array([0] * 9 + [1] * 5), "south": np.array([0] + [1] * 5 + [2] * 3)}
    )
    assert subjects_by_client == {"north": [0], "south": [2]}, (
        "nine of ten are enough, half are not"
    )
    subjects: list[Any] = [{"tea": 1.0}, {"milk": 1.0}, {"sea": 3.0, "sand": 4.0}]
    topics: dict[str, Any] = {"north": [{"tea": 0.5}], "south": [{"milk": 1.0}, {"sand": 0.2}]}
    assert found(subjects, topics["south"]).tolist() == pytest.approx([0, 1, 0.8])
    assert found(subjects, []).tolist() == [0, 0, 0]
    assert found_own(subjects, subjects_by_client, topics) == pytest.approx(0.9)


def test_what_a_round_merged(tmp_path: Path) -> None:
    tea = {"tea": 0.8, "milk": 0.6}
    sea = {"sea": 0.6, "sand": 0.8}
    for number, topics in enumerate([{"a": [tea], "b": [tea, sea]}, {"a": [sea], "b": [sea]}], 1):
        sent = {
            name: {
                "topics": client_topics,
                "seeds": [-1] * len(client_topics),
                "occurrences": [9.0] * len(client_topics),
                "documents": 9,
            }
            for name, client_topics in topics.items()
        }
        (tmp_path / f"topics-{number:05d}.json").write_text(json.dumps(sent))
    settings = flda_runs._study(SETTINGS.method(MODELS["pairwise-3"], TWEETS), 0).method
    one, other = rounds = merge_again(settings, tmp_path)  # type: ignore[arg-type]
    assert [topic.words for topic in one.state.topics] == [tea, dict(sorted(sea.items()))]
    assert (len(one.own("a")), len(one.own("b"))) == (1, 2)
    first, second = trajectory(rounds, 10, [["tea", "milk"], ["sea", "sand"]] * 5)
    assert (first["m"], first["own"], first["alike"]) == (2, 1.5, None)
    assert (second["m"], second["own"]) == (1, 1)
    assert second["alike"] == pytest.approx(1), "what is left was there before"
    assert second["sent_alike"] == pytest.approx(0.5), "at a it was not"
    assert message_bytes(one.state.topics) == first["m_bytes"] > message_bytes([])
    assert isinstance(other, Round)


def test_merging_that_leaves_no_topic() -> None:
    scores = score_all(None, [], 3)
    assert (scores["topics"], scores["rounds"]) == (0, 3)
    assert np.isnan([scores["c_v"], scores["diversity"], scores["shown_c_v"]]).all()
    empty = Trained(("a", "b"), None, scores, [])
    assert all_found(Subjects([{"tea": 1.0}], np.zeros(3, np.int64)), [empty]) == 0


def test_one_client_that_finds_nothing_is_refused(folder: Path) -> None:
    settings = Settings(folder, quick=True)
    study = flda_runs._study(
        settings.method(MODELS["transitive-3"], TWEETS) | {"min_new_documents": 500}, 0
    )
    pooled = {"all": slices(settings, TWEETS, 0)["client1"]}
    with pytest.raises(StudyError, match="No topic remains"):
        train_and_score(
            study, names=("client1",), clients=pooled, reference=[], on_event=lambda _: None
        )


def test_topics_in_words() -> None:
    regular = [[("tea", 0.5), ("milk", 0.25)], [("sea", 0.75)]]
    guided = [[("sea", 0.5)], [("tea", 0.5), ("cup", 0.125)]]
    word_rows = [
        {"data": MEDICAL.name, "model": name, "seed": 0, "words": {"client1": topics}}
        for name, topics in (("alone", regular), ("pooled", regular), ("pooled-guided", guided))
    ]
    alone, both = words.tables(SETTINGS, word_rows)
    assert alone.title == "medical_questions, regular LDA of client1, alone"
    assert alone.rows == (("1", "tea .500, milk .250"), ("2", "sea .750"))
    assert both.rows == (
        ("1", "tea .500, *milk* .250", "tea .500, *cup* .125", "0.87"),
        ("2", "sea .750", "sea .500", "1.00"),
    )
    assert words.plain(SETTINGS, [*word_rows, {"model": "lda"}])["runs"] == word_rows


def test_the_pair_that_is_most_alike() -> None:
    sent = {
        "a": {"topics": [{"tea": 1.0}, {"sand": 0.5, "sea": 0.5}]},
        "b": {"topics": [{"sand": 1.0}]},
        "c": {"topics": [{"sand": 0.5, "sea": 0.4}, {"milk": 1.0}]},
    }
    assert alike_pair(sent) == (("a", {"sand": 0.5, "sea": 0.5}), ("c", {"sand": 0.5, "sea": 0.4}))


def test_every_method_is_one() -> None:
    for data, name, seed in tasks(Settings(Path("data"), seeds=1)):
        study = flda_runs._study(SETTINGS.method(MODELS[name], data), seed)
        assert study.method.n_components == 10
        if name in ("transitive-3", "pairwise-3"):
            assert study.method.linkage == {"transitive-3": "single", "pairwise-3": "pairs"}[name]
            assert study.method.threshold == data.gamma
            assert study.method.documents_per_round == data.a_round
            assert study.method.max_rounds == 3
        if name in NEW_DOCUMENTS:
            assert study.method.documents_per_round == data.a_round / 2
            assert study.method.max_rounds == 6
        if name in SAME_DOCUMENTS:
            assert (study.method.documents_per_round, study.method.max_rounds) == (None, 10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for data in DATA_SETS:
        texts = [
            " ".join(f"{'abcd'[number % 4]}word{i}" for i in rng.integers(0, 12, 8))
            for number in range(1100)
        ]
        twice = texts[:5] if data is MEDICAL else []  # a question with two answers counts once
        pq.write_table(pa.table({data.column: texts + twice}), tmp_path / f"{data.name}.parquet")
    return tmp_path


def test_documents_are_dealt_out_once(folder: Path) -> None:
    settings = Settings(folder, quick=True)
    dealt = slices(settings, MEDICAL, 0)
    ids = [id_ for corpus in dealt.values() for id_ in corpus.ids.to_pylist()]
    assert {name: len(corpus) for name, corpus in dealt.items()} == dict.fromkeys(dealt, 180)
    assert len(set(ids)) == len(ids) == 540
    again = slices(settings, MEDICAL, 0)["client1"].ids.to_pylist()
    assert again == dealt["client1"].ids.to_pylist()
    assert again != slices(settings, MEDICAL, 1)["client1"].ids.to_pylist()


def test_files_that_do_not_do(folder: Path) -> None:
    with pytest.raises(DataError, match=r"has 1,100 documents, 2,520 are needed; give"):
        slices(Settings(folder), MEDICAL, 0)
    with pytest.raises(DataError, match=r"There is no medical_questions\.parquet in .*nowhere"):
        slices(Settings(folder / "nowhere"), MEDICAL, 0)


def test_a_small_run(folder: Path, monkeypatch: pytest.MonkeyPatch, experiments: Typed) -> None:
    pytest.importorskip("tomotopy")
    pytest.importorskip("matplotlib")
    few = {name: model for name, model in MODELS.items() if name not in NOT_IN_A_CLAIM}
    monkeypatch.setattr(flda_runs, "MODELS", few)
    for module in (flda_runs, flda_tables, words):
        monkeypatch.setattr(module, "DATA_SETS", (TWEETS,))
    out = folder / "out"
    code, printed, _ = experiments("flda", "--data", folder, "--out", out, "--quick", "--json")
    assert code == 0
    report = json.loads(printed)
    assert {row["model"] for row in report["runs"]} == {*few, "similarity"}
    assert all(row["cost"]["core_seconds"] >= 0 and row["versions"] for row in report["runs"])
    by_model = {row["model"]: row for row in report["runs"] if row["data"] == TWEETS.name}
    assert by_model["pooled"]["c_v"] > 0.5, "themes that share no word are found"
    assert by_model["flda-3"]["rounds"] == 3
    assert by_model["flda-3"]["bytes"] > by_model["transitive-3"]["bytes"] > 0
    assert {path.name for path in out.iterdir()} == {
        "flda.md",
        "flda.json",
        "flda.png",
        "flda.svg",
        "runs.jsonl",
        "topics.md",
        "topics.json",
    }

    trained: list[str] = []
    reproduce(Settings(folder, out, quick=True), lambda event: trained.append(event["event"]))
    assert trained == ["model", "model"], "what is there is not trained again"
