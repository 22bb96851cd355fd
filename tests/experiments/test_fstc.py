"""FSTC's experiments: tables and verdicts on hand-made rows, and a small run to its figures."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from experiments.fstc import parts as fstc_parts
from experiments.fstc import runs as fstc_runs
from experiments.fstc.methods import DATA_SETS, ENCODERS, OTHER, OWN, methods
from experiments.fstc.parts import PARTS, PICTURES, SWEEPS, Task, usable_seeds
from experiments.fstc.results import plain, sentences, tables, write_results
from experiments.fstc.runs import representation, reproduce
from experiments.fstc.significance import UTest
from experiments.fstc.tasks import Settings
from experiments.report import QUICK, versions
from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import DataError, StudyError
from fedtopics.inference.vectors import nearest_centres
from fedtopics.networks.trained_encoder import score
from tests.helpers.command_line import Typed

THEMES = "abcd"


def themed(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [
        " ".join(f"{THEMES[i % 4]}word{word}" for word in rng.integers(0, 9, 6)) for i in range(n)
    ]


class ThemeEncoder:
    """Embeddings of which a text's theme is one direction; the rest is noise that it gives."""

    fingerprint = "theme"

    def __call__(self, texts: list[str]) -> Any:
        digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
        noise = [np.random.default_rng([*digest]).normal(0, 0.02, 384) for digest in digests]
        return (np.eye(4, 384)[[THEMES.index(text[0]) for text in texts]] + noise).astype("f4")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTOPICS_CACHE", "off")
    monkeypatch.setattr("fedtopics.text.embeddings.sentence_encoder", lambda _: ThemeEncoder())
    table = pa.table({"text": themed(80), "label": [i % 4 for i in range(80)]})
    for name in ("agnews", "stackoverflow"):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def rows(settings: Settings, **acc: float) -> list[dict[str, Any]]:
    """A row a task: 80 / 70 unless given by its name, each seed a point better in ACC."""
    task_rows = []
    for task in (task for part in PARTS for task in settings.tasks(part)):
        given = acc.get(task.name, 80.0)
        cost = {"seconds": 2.0, "core_seconds": 1.5, "rounds": 40, "bytes": 3.2e6}
        row = task.row | {"acc": given + task.seed, "nmi": 70.0, "versions": {}} | cost
        if task.part == "picture":
            row |= {"neighbours": 90.0, "points": [[0.0, 1.0, 0], [2.0, 3.0, 1]]}
        task_rows.append(row)
    return task_rows


def test_table_2(folder: Path) -> None:
    settings = Settings(folder, seeds=3)
    both, _, second, *_ = tables(settings, rows(settings, fsbert=60.0))
    by_title = {row[0]: row[1:] for row in second.rows}
    assert by_title["FSBERT"] == (
        "3",
        "61.00 ± 0.82",
        "70.00 ± 0.00",
        "60.55 ± 0.00",
        "51.79 ± 0.00",
        "1.5",
        "40",
        "3.20",
    )
    assert by_title["FSTC (frozen)"][3:5] == ("79.70 ± 1.13", "68.83 ± 0.28")
    assert both.rows[2] == (
        "FSBERT",
        "61.0 ± 0.8 / 70.0 ± 0.0",
        "66.0 / 31.6",
        "61.0 ± 0.8 / 70.0 ± 0.0",
        "60.5 / 51.8",
    )
    assert both.rows[-1][2::2] == ("-", "-")
    assert by_title["FSTC, discriminative start (ours)"][3:5] == ("-", "-"), "ours is new"


def test_tables_of_the_other_parts(folder: Path) -> None:
    settings = Settings(folder, seeds=1)
    made = tables(settings, rows(settings, late=81.5))
    assert made[3].title == "Mann-Whitney U tests, one-sided, of table 2 (* p < 0.01)"
    ablation, losses, weights, clients, shares, skew, noise, views, encoders, tuning = made[4:-1]
    by_title = {row[0]: row[1:] for row in ablation.rows}
    assert by_title["from k-means: with the mixture from the middle"] == ("81.5 / 70.0",) * 2
    assert by_title["from discriminative clustering: the start alone"][0] == "80.0 / 70.0"
    assert clients.header[1:] == ("m = 2", "m = 4", "m = 8", "m = 10")
    assert shares.header[1:] == ("5:5", "6:4", "7:3", "8:2", "9:1")
    assert noise.header[1:] == ("0%", "10%", "30%")
    assert [table.rows[2][0] for table in (losses, weights, skew, views, encoders)] == [
        "FSTC-RSTC (frozen): squared error",
        "FSTC (frozen), lambda 0.001",
        "discriminative clustering (ours)",
        "FSTC-STC (frozen): texts as they are",
        "all-MiniLM-L6-v2: discriminative clustering (ours)",
    ]
    assert tuning.rows[2] == ("FSTC-STC (fine-tuned)", "80.00", "70.00", "2")


def test_the_first_table_has_what_files_hold_beside_what_is_published(folder: Path) -> None:
    counted = {"part": "sets", "data": "agnews", "clusters": 4, "texts": 7999, "words": 22.65}
    other = {"part": "sets", "data": "searchsnippets", "clusters": 8, "texts": 12340, "words": 17.9}
    first, *_ = tables(Settings(folder), [counted, other])
    assert first.title == "Table 1: what the files hold"
    assert first.header == (
        "set",
        "clusters",
        "published",
        "texts",
        "published",
        "words",
        "published",
    )
    assert first.rows == (
        ("AgNews", "4", "4", "7,999", "8,000", "22.6", "23"),
        ("SearchSnippets", "8", "-", "12,340", "-", "17.9", "-"),
    )


def test_whether_it_is_chance(folder: Path) -> None:
    """p of U tests of five scores against five, of which 252 orders are equally likely."""
    scored_rows = rows(Settings(folder, seeds=5), paper=90.0, fsbert=70.0, fsccl=89.5)
    title, table = next(
        (table.title, {row[0]: row[1:] for row in table.rows})
        for table in tables(Settings(folder), scored_rows)
        if table.title.startswith("Mann-Whitney")
    )
    assert title == "Mann-Whitney U tests, one-sided, of table 2 (* p < 0.01)"
    assert table["FSTC (frozen) above FSBERT"][0] == "0.004*", "1 / 252"
    assert table["FSTC (frozen) above FSBERT"][1] == "1.000", "all are equal in NMI"
    assert table["FSTC (frozen) above FSCCL (frozen)"][0] == "0.345", "U is 15 of 25"
    fewer = [row for row in scored_rows if row["seed"] == 0 or row["name"] != "paper"]
    pair = {"data": "agnews", "score": "acc", "one": "paper", "other": "fsbert"}
    assert str(UTest.of(fewer, **pair)) == "too few"
    assert str(UTest.of([], **pair)) == "-"


def test_only_what_is_there_is_written(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = Settings(folder, folder, seeds=2)
    scored_rows = rows(settings)
    assert not any("points" in row for row in plain(settings, scored_rows)["runs"])
    weights = [row for row in scored_rows if (row["part"], row["data"]) == ("lambda", "agnews")]
    names = [path.name for path in write_results(settings, weights)]
    assert names == ["fstc.md", "fstc.json", "fstc-lambda.png", "fstc-lambda.svg"]
    text = (folder / "fstc.md").read_text("utf-8")
    assert "| FSTC (frozen), lambda 0.1 | 80.5 ± 0.5 / 70.0 ± 0.0 |" in text
    assert ", table 2" not in text


def test_every_method_is_one(folder: Path) -> None:
    settings = Settings(folder)
    studies = {
        (task.part, task.data, task.name, *task.varied.values()): settings.study(task).method
        for part in PARTS
        for task in settings.tasks(part)
    }
    assert all(method.n_components == 4 for method in studies.values())
    paper = studies["table2", "stackoverflow", "paper"]
    assert (paper.first_labels, paper.mixture_from, paper.alignment) == ("kmeans", 0, 0.01)
    assert (paper.max_rounds, paper.network.local_steps) == (40, 100)
    assert studies["table2", "agnews", "paper"].alignment == 1
    plain_ = studies["ablation", "stackoverflow", "plain", "kmeans"]
    assert (plain_.first_labels, plain_.mixture_from, plain_.alignment) == ("kmeans", None, 0.01)
    assert (plain_.max_rounds, plain_.network.local_steps) == (10, 40)
    late = studies["ablation", "agnews", "late", "discriminative"]
    assert (late.first_labels, late.mixture_from) == ("discriminative", 0.5)
    assert studies["clients", "stackoverflow", "fsccl", 8].max_rounds == 10
    assert studies["skew", "agnews", "fstc", "skewed", "own"].masses == "own"


def test_what_a_result_depends_on(folder: Path) -> None:
    """A preset is its values; a setting that is off is as if there were none."""
    settings = Settings(folder)
    task = Task(
        part="views", data="agnews", name="stc", seed=0, method={"name": "fstc", "preset": "stc"}
    )

    def made_of(**changed: Any) -> str:
        return str(fstc_runs._name(settings, replace(task, **changed))["made_of"])

    same = {"alignment": 0.0, "network": {"deletion": 0.0}, "loss": "squared"}
    assert made_of(part="table2", method=task.method | same) == made_of()
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"data": "stackoverflow"},
        {"method": task.method | {"network": {"deletion": 0.2}}},
        {"split": {"by": "even", "n_clients": 2}},
        {"n_documents": 40},
        {"damaged": 0.1},
        {"method": task.method | {"loss": "cross_entropy"}},
        {"method": task.method | ENCODERS[OWN]},
        {"method": task.method | ENCODERS[OTHER]},
    ]
    before = [made_of(), *(made_of(**other) for other in others)]
    assert len(set(before)) == 10
    pq.write_table(pq.read_table(folder / "agnews.parquet"), folder / "biomedical.parquet")
    after = [made_of(), *(made_of(**other) for other in others)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True] * 9 + [False]


def test_word_vectors_are_of_the_same_texts_or_of_others(folder: Path) -> None:
    settings = Settings(folder)
    assert settings.known_to(OWN, "agnews") == ["agnews"]
    assert settings.known_to(OTHER, "agnews") == ["stackoverflow"]
    assert settings.known_to("all-MiniLM-L6-v2", "agnews") == []
    (folder / "stackoverflow.parquet").unlink()
    with pytest.raises(StudyError, match=r"Beside agnews\.parquet there are no texts"):
        settings.known_to(OTHER, "agnews")
    task = next(task for task in settings.tasks("encoders") if task.varied["encoder"] == OWN)
    row = fstc_runs._scored(replace(settings, quick=True), task, lambda event: None)
    assert (task.name, row["acc"]) == ("fsbert", 100), "words tell themes apart"


def test_other_sets_are_taken_if_they_are_there(folder: Path) -> None:
    assert {task.data for task in Settings(folder).tasks("table2")} == {"agnews", "stackoverflow"}
    pq.write_table(pq.read_table(folder / "agnews.parquet"), folder / "searchsnippets.parquet")
    settings = Settings(folder, seeds=1)
    assert {task.data for task in settings.tasks("skew")} == {
        "agnews",
        "stackoverflow",
        "searchsnippets",
    }
    assert {task.data for task in settings.tasks("clients")} == {"stackoverflow"}
    scored_rows = rows(settings)
    assert [row[4] for row in tables(settings, scored_rows)[3].rows] == ["-"] * 9, (
        "none is published"
    )
    assert sentences(settings, scored_rows) == [], "verdicts are of all data sets of the paper"


def test_seeds_that_leave_a_client_out_are_passed_over() -> None:
    corpus = Corpus.of(pa.table({"text": ["x"] * 60, "label": [0] * 60}))
    seeds = usable_seeds(corpus, {"by": "dirichlet", "n_clients": 4, "alpha": 0.5}, 2)
    assert len(seeds) == 2
    assert seeds != [0, 1], "of one label, a client easily gets nothing"


def test_what_does_not_do(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(
        StudyError, match=r"There is no part 'figure9'; choose from: table2, ablation,"
    ):
        Settings(folder, only=("figure9",))
    with pytest.raises(DataError, match=r"There is no agnews\.parquet in .*nowhere; name its fold"):
        reproduce(Settings(folder / "nowhere", folder))
    pq.write_table(pa.table({"text": ["x"]}), folder / "agnews.parquet")
    with pytest.raises(DataError, match=r"There is no column 'label' in .*agnews\.parquet"):
        reproduce(Settings(folder, folder))


def test_a_training_in_several_parts_is_done_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    trained: list[Task] = []

    def scored(settings: Settings, task: Task, on_event: Any) -> dict[str, Any]:
        trained.append(task)
        return {"acc": float(len(trained)), "nmi": 70.0}

    monkeypatch.setattr(fstc_runs, "_scored", scored)
    out = folder / "out"
    events = []
    assert {row["part"] for row in reproduce(Settings(folder, out, 1, only=("table2",)))} == {
        "sets",
        "table2",
    }
    assert len(trained) == 18
    scored_rows = reproduce(Settings(folder, out, 1, only=("lambda", "table2")), events.append)
    assert {row["part"] for row in scored_rows} == {"sets", "table2", "lambda"}
    assert {task.name for task in trained[18:]} == {"paper", "fstc"}, (
        "FSBERT and discriminative clustering are there"
    )
    assert events[0] == {
        "event": "model",
        "name": "lambda, agnews, fsbert, seed 0",
        "done": 0,
        "models": 24,
    }
    one, other = (
        next(row for row in scored_rows if (row["part"], row.get("name")) == (part, "fsbert"))
        for part in ("table2", "lambda")
    )
    same = ("acc", "cost", "versions")
    assert [one[key] for key in same] == [other[key] for key in same]
    assert one["versions"] == versions(fstc_runs.PACKAGES)
    assert one["cost"].keys() == {"core_seconds", "megabytes"}
    runs_file = out / "runs.jsonl"
    *lines, _ = runs_file.read_text("utf-8").splitlines(keepends=True)
    runs_file.write_text("".join(lines), "utf-8")
    scored_rows = reproduce(Settings(folder, out, 1, only=("table2",)))
    assert scored_rows[0] == {
        "part": "sets",
        "data": "agnews",
        "clusters": 4,
        "texts": 80,
        "words": 6.0,
    }
    assert {(row["part"], row["data"]) for row in scored_rows[2:]} == {
        ("table2", "agnews"),
        ("table2", "stackoverflow"),
        ("lambda", "agnews"),
    }, "a part of which a line has no row is not shown"


def small(name: str) -> tuple[TopicModel, Corpus]:
    texts = themed(80)
    corpus = Corpus.of(texts).with_embeddings(ThemeEncoder()(texts)[:, :8])
    method = methods(DATA_SETS["agnews"])[name] | {"n_components": 4, "coherence": "nothing"}
    if name in ("fsccl", "fstc"):
        without = {"deletion": 0.0} if name == "fsccl" else {}
        method |= {"max_rounds": 2, "network": {"local_steps": 5, **without}}
    embedding = {} if name == "ftfidf" else {"embedding": {"dimension": 8}}
    clients = {"one": corpus.take(range(40)), "two": corpus.take(range(40, 80))}
    return train(
        Study.make(method=method | embedding, vocabulary={"min_clients_per_word": 1}), clients
    ), corpus


@pytest.mark.parametrize("name", PICTURES)
def test_clusters_follow_from_what_is_pictured(name: str) -> None:
    model, corpus = small(name)
    seen = representation(model, corpus)
    if name == "fstc":
        head = {name: torch.from_numpy(weight) for name, weight in model.weights.items()}
        clusters = score(head, torch.from_numpy(seen)).numpy().argmax(1)
    elif name == "discriminative":
        weights = model.weights
        clusters = (seen @ weights["directions"].T / 0.15 + weights["bias"]).argmax(1)
    else:
        clusters = nearest_centres(seen, model.weights["centres"])[0]
    assert clusters.tolist() == model.main_topics(corpus).tolist()


def test_a_small_run(folder: Path, monkeypatch: pytest.MonkeyPatch, experiments: Typed) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(SWEEPS, "clients", replace(SWEEPS["clients"], values=(2,)))
    monkeypatch.setattr(fstc_parts, "PICTURES", ("fsbert",))
    out = folder / "out"
    options = ("--quick", "--only", "clients, picture", "--json")
    code, printed, _ = experiments("fstc", "--data", folder, "--out", out, *options)
    assert code == 0
    report = json.loads(printed)
    by_name = {row["name"]: row for row in report["runs"] if row["part"] == "clients"}
    assert by_name.keys() == {"fsbert", "fsccl", "paper", "discriminative", "fstc"}
    assert (by_name["fsbert"]["acc"], by_name["fsbert"]["nmi"]) == pytest.approx((100, 100))
    assert by_name["discriminative"]["acc"] == 100
    assert by_name["fstc"]["rounds"] == by_name["fsccl"]["rounds"] == 2
    assert by_name["fstc"]["bytes"] > by_name["discriminative"]["bytes"] > 0
    (pictured,) = (row for row in report["runs"] if row["part"] == "picture")
    assert (pictured["acc"], pictured["neighbours"]) == (100, 100)
    assert {path.name for path in out.iterdir()} == {
        "fstc.md",
        "fstc.json",
        "fstc-clients.png",
        "fstc-clients.svg",
        "fstc-picture.png",
        "fstc-picture.svg",
        "runs.jsonl",
    }
    assert "aword" not in (out / "runs.jsonl").read_text("utf-8"), "of no document"
    assert (out / "fstc.md").read_text("utf-8").count(QUICK) == 1
    assert "published" not in (out / "fstc.md").read_text("utf-8").lower().partition("table 1")[2]

    trained: list[str] = []
    settings = Settings(folder, out, quick=True, only=("clients", "picture"))
    reproduce(settings, lambda event: trained.append(event["event"]))
    assert trained == ["model"], "what is there is not trained again"
