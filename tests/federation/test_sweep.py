"""How many topics: scores side by side, and what is done is not done again."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats

from fedtopics import Corpus, Policy, Study, TopicModel
from fedtopics.errors import DataError, StudyError
from fedtopics.federation import sweep as sweeping
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.sweep import CRITERIA, Criterion, held_out_loss, recommend, sweep
from fedtopics.metrics import unique_words
from tests.helpers.command_line import Refused, Typed

FAMILIES = [[f"{name}{j}" for j in range(12)] for name in ("oak", "brig", "tea", "iron")]


def documents(n: int, seed: int) -> list[list[str]]:
    """Each of the words of one family of four."""
    rng = np.random.default_rng(seed)
    return [rng.choice(FAMILIES[rng.integers(4)], 20).tolist() for _ in range(n)]


CORPORA = {"a": Corpus.of(documents(120, 0)), "b": Corpus.of(documents(90, 1))}
POLICIES = dict.fromkeys(CORPORA, OPEN_POLICY)


def model_folder(out: Path, topics: int, seed: int) -> Path:
    (study,) = (out / "models").iterdir()
    return study / f"{topics}-{seed}"


def plan(**method: Any) -> Study:
    return Study.make(method={"name": "lda", "max_rounds": 8, "coherence": "documents"} | method)


def swept(folder: Path, *topics: int) -> tuple[list[dict[str, Any]], list[str]]:
    """The summary of a sweep over two seeds, and which models were trained for it."""
    trained: list[str] = []

    def note(event: dict[str, Any]) -> None:
        if event["event"] == "model" and event["name"]:
            trained.append(event["name"])

    given: dict[str, Any] = {"corpora": CORPORA, "policies": POLICIES, "on_event": note}
    return sweep(plan(), topics, 2, folder, **given), trained


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], list[str]]:
    folder = tmp_path_factory.mktemp("sweep")
    return folder, *swept(folder, 4, 2)


def test_scores_are_those_of_the_models(done: Any) -> None:
    folder, summary, trained = done
    assert trained == [f"{topics} topics, seed {seed}" for seed in (0, 1) for topics in (2, 4)]
    assert [(row["topics"], row["seeds"]) for row in summary] == [(2, 2), (4, 2)]
    for row in summary:
        places = [model_folder(folder, row["topics"], seed) for seed in (0, 1)]
        models = [*map(TopicModel.from_pretrained, places)]
        npmi = [model.coherence["npmi"].mean() for model in models]
        assert row["npmi"] == pytest.approx(np.mean(npmi))
        assert row["npmi_margin"] == pytest.approx(12.7062 * stats.sem(npmi), rel=1e-4)
        assert row["stability_margin"] is None, "of two models, there is one pair"
        assert row["diversity"] == pytest.approx(
            np.mean([unique_words(model.topics(10), 10) for model in models])
        )
        assert models[0].documents == {"a": 108, "b": 81}, "a tenth is held out"
        assert models[1].documents == {"a": 86, "b": 64}, "and the second has four fifths of them"


def test_the_number_of_families_is_recommended(done: Any) -> None:
    _, (two, four), _ = done
    assert four["held_out"] == pytest.approx(math.log(12), abs=0.1), "of one family's twelve words"
    assert two["held_out"] > 0.4 + four["held_out"]
    assert four["stability"] > 0.95
    assert recommend([two, four])[0] == 4


def test_what_is_done_is_not_done_again(done: Any) -> None:
    folder, summary, _ = done
    assert swept(folder, 2, 4) == (summary, [])


def reversed_words(corpus: Corpus) -> Corpus:
    return Corpus.of([[word[::-1] for word in words] for words in corpus.documents.to_pylist()])


OTHERS: dict[str, Any] = {
    "documents": {"corpora": {name: reversed_words(corpus) for name, corpus in CORPORA.items()}},
    "policies": {"policies": dict.fromkeys(CORPORA, Policy(min_persons_per_word=15))},
    "settings": {"study": plan(max_rounds=2)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_study_in_the_same_folder_is_kept_apart(other: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"study": plan(max_rounds=1), "corpora": CORPORA, "policies": POLICIES}
    given |= {"topics": [2], "seeds": 2}
    first = sweep(**given, out=tmp_path / "shared")
    second = sweep(**given | OTHERS[other], out=tmp_path / "shared")
    assert second == sweep(**given | OTHERS[other], out=tmp_path / "alone")
    assert second != first
    assert sweep(**given, out=tmp_path / "shared") == first, "no model was written over"
    assert len([*(tmp_path / "shared" / "models").iterdir()]) == 2


def test_held_out_loss_by_hand(done: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TopicModel.from_pretrained(model_folder(done[0], 2, 0))
    corpus = Corpus.of([[FAMILIES[0][0]] * 8 + [FAMILIES[1][1]] * 6, ["unknown"]])
    halves = []

    def even(counts: Any, beta: Any, alpha: float, theta: Any, readout: str) -> Any:
        halves.append(counts.toarray())
        assert alpha == 0.5 and readout == "mean"
        return np.array([[0.25, 0.75], [0.5, 0.5]])

    monkeypatch.setattr(sweeping, "refine", even)
    loss = held_out_loss(model, {"a": corpus}, seed=0)
    (seen,) = halves
    hidden = model.count_words(corpus).toarray() - seen
    assert 0 < seen.sum() < 14 and hidden.min() >= 0
    assert loss == pytest.approx(
        -(hidden[0] @ np.log(np.array([0.25, 0.75]) @ model.beta)) / hidden.sum()
    )
    assert held_out_loss(model, {"a": corpus}, seed=0) == loss, "a function of the seed"
    assert math.isnan(held_out_loss(model, {"a": Corpus.of([[]])}, seed=0))
    assert sparse.issparse(model.count_words(corpus))


def test_criteria() -> None:
    names = ("topics", "npmi", "npmi_margin", "held_out", "held_out_margin")
    numbers = [(5, 0.30, 0.0, 7.0, 0.0), (10, 0.33, 0.05, 6.5, 0.1), (20, 0.20, 0.2, 6.59, 0.0)]
    single = {"stability": None, "stability_margin": None}
    rows = [dict(zip(names, scores, strict=True)) | single for scores in numbers]
    assert [criterion.best(rows) for criterion in CRITERIA] == [[5, 10, 20], [10, 20], []]
    best, reasons = recommend(rows)
    assert best == 10
    assert reasons[0] == "best by coherence (NPMI): 5, 10, 20 (no difference beyond chance or 0.01)"
    assert reasons[2].startswith("10, 20 are best by equally many scores; 10 is the smallest of")
    assert (
        recommend(
            [row | {"held_out": 8.0 if row["topics"] == 5 else 6.5, "npmi": 0.3} for row in rows]
        )[0]
        == 10
    )
    rows = [{"topics": n, "x": x, "x_margin": None} for n, x in ((2, 1.0), (3, 0.995))]
    one = Criterion("x", "x", 1)
    assert one.best(rows) == [2, 3], "a difference of .005 does not decide"
    assert "no interval, so chance may decide" in one.reason(rows, [2])
    sure = [{"topics": n, "x": x, "x_margin": 0.3} for n, x in ((2, 1.0), (3, 0.5), (4, 0.6))]
    assert one.best(sure) == [2, 4], "the interval of a difference is from both intervals"
    assert one.reason(sure, [2]) == "best by x: 2"


def test_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="at least one number of topics"):
        sweep(plan(), [], 1, tmp_path, corpora=CORPORA)
    with pytest.raises(StudyError, match="chooses the number of topics itself"):
        study = Study.make(method={"name": "discriminative", "candidates": (2, 3)})
        sweep(study, [2], 1, tmp_path, corpora=CORPORA)
    with pytest.raises(DataError, match="There are no clients"):
        sweep(plan(), [2], 1, tmp_path, corpora={})


def test_the_command(tmp_path: Path, typed: Typed, refused: Refused) -> None:
    for name, seed in (("a", 0), ("b", 1)):
        lines = [json.dumps({"text": " ".join(words)}) for words in documents(80, seed)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(
        'name = "wide"\n[method]\nname = "lda"\nmax_rounds = 3\ncoherence = "documents"\n'
        + "".join(f'[clients.{n}]\ndata = "{tmp_path}/{n}.jsonl"\ntext = "text"\n' for n in "ab")
    )
    arguments = ["sweep", tmp_path / "study.toml", "--seeds", 1, "--out", tmp_path / "o"]
    code, out, _ = typed(*arguments, "--topics", "2,4", "--json")
    assert code == 0
    table = json.loads(out)
    assert [row["topics"] for row in table["scores"]] == [2, 4]
    assert table == json.loads((tmp_path / "o" / "sweep.json").read_text())
    assert (tmp_path / "o" / "sweep.svg").read_text().startswith("<svg")
    shown = typed(*arguments, "--topics", "2,4")[1]
    assert "Recommended: " in shown and "coherence" in shown and "no interval" in shown
    assert "5,10,20" in refused(*arguments, "--topics", "2,many")
