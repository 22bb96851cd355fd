"""The synthetic experiment: a tiny run from nothing to a figure, and verdicts on hand-made rows."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.gfedntm import figure3 as experiment
from experiments.gfedntm import figure3_results
from experiments.gfedntm import figure3_runs as runs
from experiments.gfedntm.figure3 import RECIPES, Settings
from experiments.gfedntm.figure3_runs import CLIENTS, Case, Task, reference
from experiments.gfedntm.figure3_scores import Scores
from fedtopics.metrics import document_similarity, topic_similarity
from tests.helpers.command_line import Typed

TINY = Case(n_documents=60, n_validation=4)
TINY_METHOD = {
    "paper": {"preset": "paper", "max_rounds": 3, "hidden": (8, 8)},
    "lda": {"name": "lda", "max_rounds": 2, "initialisation": "random", "inner_steps": 5},
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Settings, "cases", [TINY, replace(TINY, shared=40)])
    recipes = {name: replace(RECIPES[name], method=given) for name, given in TINY_METHOD.items()}
    monkeypatch.setattr(experiment, "RECIPES", recipes)
    monkeypatch.setattr(Settings, "recipe", lambda _, model: recipes[model])
    return tmp_path


def test_from_nothing_to_a_figure_and_again(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, experiments: Typed
) -> None:
    arguments = ("gfedntm-figure3", "--quick", "--model", "paper", "--model", "lda")
    code, said, _ = experiments(*arguments, "--out", "out")
    assert code == 0
    assert "1 of 20: paper, K' = 10, eta = 0.01, alpha = 0.1, federated, seed 0" in said
    assert "figure3.better" not in said, "verdicts need a whole run"
    assert said.count("Made-up texts or few documents, to see that it runs") == 1
    page = (tiny / "out/figure3.md").read_text()
    assert "softmax three times, columns shifted" in page
    assert (tiny / "out/figure3.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (tiny / "out/runs.jsonl").read_text().splitlines()]
    assert len(rows) == 20 + 2 * 3
    assert figure3_results.sentences(Settings(), rows) == [], "verdicts need all models"

    assert experiments(*arguments[:-2], "--out", "out")[0] == 0, "what was trained before as well"
    assert page == (tiny / "out/figure3.md").read_text()
    with (tiny / "out/runs.jsonl").open("a") as file:
        file.write('{"model": "lda", "half a li')
    monkeypatch.setattr(experiment, "run", lambda *_: pytest.fail("is there already"))
    monkeypatch.setattr(experiment, "reference", lambda *_: pytest.fail("is there already"))
    code, printed, _ = experiments(*arguments, "--out", "out", "--json")
    assert code == 0
    assert (
        json.loads(printed)["runs"] == json.loads((tiny / "out/figure3.json").read_text())["runs"]
    )


def test_a_row_is_what_the_model_scores(tiny: Path) -> None:
    task = Task(TINY, "paper", "client2", 0)
    models = []
    train = runs.train

    def trained(*given: Any, **named: Any) -> Any:
        models.append(train(*given, **named))
        return models[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "train", trained)
        row = runs.run(task, Settings().recipe("paper"), lambda _: None)
    (model,) = models
    assert list(model.documents) == ["client2"]
    truth = runs.drawn(TINY, 0)
    theta = np.concatenate([docs.theta for docs in truth.validation.values()])
    _, validation = runs.corpora(TINY, 0)
    assert row["tss"] == topic_similarity(
        truth.beta, model.beta, truth.words, model.vocabulary.words
    )
    assert row["dss"] == document_similarity(theta, model.transform(validation))
    assert row["rounds"] == 3
    assert row["readings"]["as the decoder uses it"] == row["tss"]
    assert row["readings"]["softmax three times, columns shifted"] == pytest.approx(
        reference("even", TINY, 0)["tss"], rel=1e-3
    )


def test_references(tiny: Path) -> None:
    scores = {name: reference(name, TINY, 0) for name in ("random", "even", "oracle")}
    assert scores["oracle"]["tss"] == pytest.approx(50)
    assert scores["oracle"]["dss"] < scores["random"]["dss"] < scores["even"]["dss"]
    assert scores["random"]["tss"] < scores["even"]["tss"] < 12


def test_an_unknown_model(experiments: Typed) -> None:
    code, _, said = experiments("gfedntm-figure3", "--model", "x")
    assert (code, "There is no model 'x'; choose from: " in said) == (2, True)


def row(case: Case, model: str, scenario: str, tss: float, dss: float, **more: Any) -> Any:
    return asdict(Task(case, model, scenario, 0)) | {
        "tss": tss,
        "dss": dss,
        "dss_refined": dss / 2,
        **more,
    }


def test_clients_alone_count_when_all_are_there() -> None:
    case = Case()
    rows = [row(case, "lda", name, tss=10 + i, dss=0) for i, name in enumerate(CLIENTS)]
    assert Scores(rows).of(case, "lda", "alone", "tss") == [12.0]
    assert Scores(rows[:-1]).of(case, "lda", "alone", "tss") == []


def test_networks_have_fewer_seeds_and_every_setting_has_all_scenarios() -> None:
    settings = Settings()
    every = list(experiment.tasks(settings))
    assert len(settings.cases) == 20
    first = 2 * 7 * (2 * 10 + 5 * 3)
    networks = 5 * 3 * 9 * (3 + 1)
    assert len(every) == len(set(every)) == first + (10 + 3) * 3 * 18 + networks
    assert {task.case for task in every[: 7 * 35]} == {Case()}
