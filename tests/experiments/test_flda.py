"""F-LDA's experiments: verdicts on hand-made rows, and a small run from files to a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.commands import group
from experiments.flda import runs as flda_runs
from experiments.flda.results import alike_pair, page, plain, sentences, tables
from experiments.flda.runs import DATA_SETS, MODELS, Settings, reproduce, slices, tasks
from fedtopics import cli
from fedtopics.errors import DataError

MEDICAL, TWEETS = DATA_SETS
SETTINGS = Settings(Path("data"), seeds=2)


def rows(**c_v: float) -> list[dict[str, Any]]:
    """Rows in which every model scores .5, the second seed a tenth more, unless given."""
    return [
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
            "m": 12.0 if model.startswith("pairwise") else 4.0,
            "own": 3.0,
            "own_c_v": c_v.get(model.replace("-", "_"), 0.5),
        }
        for data in DATA_SETS
        for model in MODELS
        for seed in range(2)
    ]


def test_claims_that_hold() -> None:
    found = list(sentences(SETTINGS, rows(flda_3=0.55, flda_2=0.52, pooled_guided=0.7, alone=0.4)))
    assert (
        "medical_questions: guided LDA beats regular LDA, pooled: holds "
        "(c_v 0.750 above 0.550; diversity 0.700 above 0.500)." in found
    )
    assert (
        "depression_tweets: F-LDA (round 3) beats federated regular LDA: holds "
        "(c_v 0.600 above 0.550; diversity 0.550 above 0.500)." in found
    )
    assert (
        "medical_questions: rounds change c_v by a tenth at most and stay above clients alone: "
        "holds (0.550, 0.570, 0.600; alone 0.450)." in found
    )


def test_claims_that_do_not_hold() -> None:
    found = list(sentences(SETTINGS, rows(flda_3=0.7, pooled=0.8)))
    assert (
        "medical_questions: round 3 is above pooled regular LDA: does not hold "
        "(c_v 0.750 not above 0.850; diversity 0.700 not above 0.800)." in found
    )
    assert (
        "medical_questions: rounds change c_v by a tenth at most and stay above clients alone: "
        "does not hold (0.550, 0.550, 0.750; alone 0.550)." in found
    ), "equal is not above, and the last step is more than a tenth"


def test_tables() -> None:
    first, second = tables(SETTINGS, rows(pooled=0.8))
    assert (first.title, second.title) == (
        "medical_questions, 700 a round",
        "depression_tweets, 1000 a round",
    )
    by_title = {row[0]: row[1:] for row in first.rows}
    assert by_title["pooled: regular LDA"][:4] == (
        "0.850 ± 0.050", "0.800 ± 0.000", "10.0 ± 0.0", "0.600 ± 0.000",
    )  # fmt: skip
    assert by_title["pooled: regular LDA"][4:] == (*"---", "3", "-", "-"), (
        "nothing leaves who is alone"
    )
    assert by_title["federated: F-LDA, round 3"][4:] == (*"---", "3", "8", "29")
    merged = by_title["federated: the paper, pairwise, round 3"][4:7]
    assert merged == ("12.0 ± 0.0", "3.0 ± 0.0", "0.500 ± 0.000")


def test_one_topic_has_no_diversity() -> None:
    collapsed = rows()
    for row in collapsed:
        if row["model"] == "transitive-3":
            row |= {"diversity": float("nan"), "topics": 1.0, "m": 1.0}
    text = page(SETTINGS, collapsed, plain(SETTINGS, collapsed))
    assert "| federated: the paper, transitive, round 3 | 0.550 ± 0.050 | - | 1.0 ± 0.0 |" in text
    assert "M has 4.0, 4.0, 1.0 topics after rounds 1 to 3, and a client 3.0 of them" in text


def test_the_pair_that_is_most_alike() -> None:
    sent = {
        "a": {"topics": [{"tea": 1.0}, {"sand": 0.5, "sea": 0.5}]},
        "b": {"topics": [{"sand": 1.0}]},
        "c": {"topics": [{"sand": 0.5, "sea": 0.4}, {"milk": 1.0}]},
    }
    assert alike_pair(sent) == (
        ("a", {"sand": 0.5, "sea": 0.5}),
        ("c", {"sand": 0.5, "sea": 0.4}),
    )


def test_every_method_is_one() -> None:
    for data, name, seed in tasks(SETTINGS):
        study = flda_runs._study(SETTINGS.method(MODELS[name], data), seed)
        assert study.method.n_components == 10
        if name in ("transitive-3", "pairwise-3"):
            linkage = {"transitive-3": "single", "pairwise-3": "pairs"}[name]
            assert study.method.linkage == linkage
            assert study.method.threshold == data.gamma
            assert study.method.documents_per_round == data.a_round
            assert study.method.max_rounds == 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Texts of four themes, a theme a text."""
    rng = np.random.default_rng(0)
    for data in DATA_SETS:
        texts = [
            " ".join(f"{'abcd'[number % 4]}word{i}" for i in rng.integers(0, 12, 8))
            for number in range(1100)
        ]
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{data.name}.parquet")
    return tmp_path


def test_documents_are_dealt_out_once(folder: Path) -> None:
    settings = Settings(folder, quick=True)
    dealt = slices(settings, MEDICAL, 0)
    ids = [id_ for corpus in dealt.values() for id_ in corpus.ids.to_pylist()]
    assert {name: len(corpus) for name, corpus in dealt.items()} == dict.fromkeys(dealt, 360)
    assert len(set(ids)) == len(ids) == 1080
    again = slices(settings, MEDICAL, 0)["client1"].ids.to_pylist()
    assert again == dealt["client1"].ids.to_pylist()
    assert again != slices(settings, MEDICAL, 1)["client1"].ids.to_pylist()


def test_files_that_do_not_do(folder: Path) -> None:
    with pytest.raises(DataError, match=r"has 1,100 documents, 6,300 are needed; give"):
        slices(Settings(folder), MEDICAL, 0)
    with pytest.raises(DataError, match=r"There is no medical_questions\.parquet in .*nowhere"):
        slices(Settings(folder / "nowhere"), MEDICAL, 0)


def test_a_small_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tomotopy")
    pytest.importorskip("matplotlib")
    few = {name: model for name, model in MODELS.items() if name not in ("lda", "prodlda")}
    monkeypatch.setattr(flda_runs, "MODELS", few)
    monkeypatch.setattr("experiments.flda.results.MODELS", few)
    out = folder / "out"
    command = ["experiments", "flda", "--data", str(folder), "--out", str(out)]
    monkeypatch.setattr("sys.argv", [*command, "--quick", "--json"])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(group)
    found = json.loads(capsys.readouterr().out)
    assert {row["model"] for row in found["runs"]} == few.keys()
    by_model = {row["model"]: row for row in found["runs"] if row["data"] == TWEETS.name}
    assert by_model["pooled"]["c_v"] > 0.5, "themes that share no word are found"
    assert by_model["flda-3"]["rounds"] == 3
    assert by_model["flda-3"]["bytes"] > by_model["transitive-3"]["bytes"] > 0
    assert {path.name for path in out.iterdir()} == {
        "flda.md", "flda.json", "flda.png", "flda.svg", "runs.jsonl",
    }  # fmt: skip

    trained: list[str] = []
    reproduce(Settings(folder, out, quick=True), lambda event: trained.append(event["event"]))
    assert trained == ["model"], "what is there is not trained again"
