"""Commands that make a model live on: continue, compare, and tracking."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedtopics.methods.warm_start import fingerprint_of
from fedtopics.model.topic_model import TopicModel
from tests.helpers.command_line import STUDY, Typed

pytestmark = pytest.mark.usefixtures("without_figures")

CONTINUE = ["continue", "out/model", "--study", "study.toml"]


def study_of(method: str, **changes: object) -> None:
    """Write the fixture's study for another method."""
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in changes.items())
    given = STUDY.replace("[method]\n", f'[method]\nname = "{method}"\n{lines}')
    if "max_rounds" in changes:
        given = given.replace("max_rounds = 12\n", "")
    Path("study.toml").write_text(given)


def events_of(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run) / "events.jsonl").read_text().splitlines()]


@pytest.fixture
def trained(typed: Typed) -> Path:
    """A run of the fixture's study."""
    assert typed("run", "study.toml", "--out", "out")[0] == 0
    return Path("out/model")


# Going on


def test_more_rounds(trained: Path, typed: Typed) -> None:
    code, out, err = typed(*CONTINUE, "--rounds", 5)
    assert (code, err) == (0, "")
    known = TopicModel.from_pretrained(trained)
    print_ = fingerprint_of(known)
    assert f"goes on with model {print_[:16]} of gfedntm after 12 rounds, with its words" in out
    assert "topic, its share of all documents, its words" in out
    assert "The run is in runs/study-continued, the model in" in out
    assert "What changed:  fedtopics compare out/model runs/study-continued/model" in out
    more = TopicModel.from_pretrained("runs/study-continued/model")
    assert more.info["rounds"] == 17
    assert more.vocabulary.words == known.vocabulary.words
    assert more.info["continued"]["model"] == print_
    rounds = [event["round"] for event in events_of("runs/study-continued") if "loss" in event]
    assert rounds == [13, 14, 15, 16, 17]

    code, _, err = typed(*CONTINUE, "--rounds", 5)
    assert code == 2
    assert "There is a run in runs/study-continued already" in err
    code, out, _ = typed(*CONTINUE, "--rounds", 5, "--resume")
    assert code == 0
    assert TopicModel.from_pretrained("runs/study-continued/model").info == more.info
    code, _, err = typed(*CONTINUE, "--rounds", 6, "--resume")
    assert (code, "is of study" in err) == (2, True)


def test_words_agreed_anew(trained: Path, typed: Typed) -> None:
    for name in ("north", "south"):
        text = Path(f"{name}.csv").read_text()
        Path(f"{name}.csv").write_text(text.replace(f"{name}a", f"{name}new"))
    code, out, _ = typed(*CONTINUE, "--vocabulary", "agree", "--out", "more")
    assert code == 0
    assert "rounds, in words agreed on anew" in out
    more = TopicModel.from_pretrained("more/model")
    assert {"northnew", "southnew"} <= {*more.vocabulary.words}
    assert "northa" not in more.vocabulary.words
    assert more.info["rounds"] == 12


def test_whether_words_stay_by_default(trained: Path, typed: Typed) -> None:
    """They do with the same method and the same rules of text."""
    Path("study.toml").write_text(STUDY + '[text]\nstop_words = "none"\n')
    code, out, _ = typed(*CONTINUE, "--rounds", 1, "--out", "a")
    assert (code, "in words agreed on anew" in out) == (0, True)
    code, out, _ = typed(*CONTINUE, "--rounds", 1, "--out", "b", "--vocabulary", "keep")
    assert (code, "with its words" in out) == (0, True)
    study_of("lda", max_rounds=2)
    code, out, _ = typed(*CONTINUE, "--out", "c")
    assert (code, "of gfedntm after 12 rounds, in words agreed on anew" in out) == (0, True)


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("lda", {}),
        ("flda", {"iterations": 30, "coherence": "documents", "min_new_documents": 10}),
    ],
)
@pytest.mark.parametrize("vocabulary", ["keep", "agree"])
def test_other_methods(
    method: str,
    more: dict[str, Any],
    vocabulary: str,
    folder: Path,
    typed: Typed,
) -> None:
    if method == "flda":
        pytest.importorskip("tomotopy")
    study_of(method, max_rounds=3, **more)
    assert typed("run", "study.toml", "--out", "out")[0] == 0
    code, _, err = typed(*CONTINUE, "--rounds", 2, "--vocabulary", vocabulary)
    assert (code, err) == (0, "")
    found = TopicModel.from_pretrained("runs/study-continued/model")
    assert found.info["rounds"] == (5 if vocabulary == "keep" else 2)
    assert found.info["continued"]["method"] == method


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["continue", "out/model"], "", "Missing option '--study'."),
        (["continue", "nowhere", "--study", "study.toml"], "", "There is no model in nowhere"),
        (["continue", "out/model", "--study", "x.toml"], "", "x.toml cannot be used: No such file"),
        (CONTINUE, "n_components = 4", "There are 3 topics to begin with, the study asks for 4;"),
        (CONTINUE, "hidden = [9, 9]", "hidden = (100, 100), the study's (9, 9), so it cannot go"),
        ([*CONTINUE, "--resume"], "", "There is no run in runs/study-continued to resume"),
        ([*CONTINUE, "--vocabulary", "old"], "", "Invalid value for '--vocabulary'"),
        (CONTINUE, 'name = "kmeans"', "The method 'kmeans' cannot begin with a model; use"),
    ],
)
def test_what_does_not_go_on(
    arguments: list[str], change: str, message: str, trained: Path, typed: Typed
) -> None:
    if change:
        kept = "" if "n_comp" in change else "n_components = 3\n"
        text = STUDY.replace("n_components = 3\n", f"{kept}{change}\n")
        Path("study.toml").write_text(text)
    code, out, err = typed(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("runs").exists()


def test_a_server_begins_with_a_model(
    trained: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def serve(*_: object, on_event: Any, **how: Any) -> TopicModel:
        given.append(how)
        for event in events_of("out"):
            if event["event"] == "continued":
                on_event(event)
        return TopicModel.from_pretrained(trained)

    monkeypatch.setattr("fedtopics.federation.server.serve", serve)
    server = ["server", "study.toml", "--insecure"]
    for more, words in (
        (["--start", "out/model"], "keep"),
        (["--start", "out/model", "--vocabulary", "agree"], "agree"),
        ([], "agree"),
    ):
        assert typed(*server, *more)[0] == 0
        assert given[-1]["vocabulary"] == words
        assert (given[-1]["start"] is not None) == bool(more)
    code, _, err = typed(*server, "--vocabulary", "keep")
    assert (code, "--vocabulary goes with --start MODEL." in err) == (2, True)


# Comparing


def test_a_model_beside_itself(trained: Path, typed: Typed) -> None:
    code, out, _ = typed("compare", "out/model", "out/model", "--json", "--words", 4)
    found = json.loads(out)
    assert code == 0
    assert sorted((pair["a"], pair["b"]) for pair in found["pairs"]) == [(0, 0), (1, 1), (2, 2)]
    assert [len(pair["common"]) for pair in found["pairs"]] == [4, 4, 4]
    assert (found["new"], found["gone"], found["similarity"]) == ([], [], pytest.approx(1))
    assert (found["words_common"], found["words_new"], found["words_gone"]) == (52, 0, 0)


def test_what_is_printed(trained: Path, typed: Typed) -> None:
    Path("north.csv").write_text(Path("north.csv").read_text().replace("north", "west"))
    assert typed("run", "study.toml", "--out", "other")[0] == 0
    code, out, _ = typed("compare", "out/model", "other/model", "--words", 5)
    assert code == 0
    first, second, *_ = out.splitlines()
    found = re.match(
        r"(\d) topics are the same, from a cosine of 0\.\d\d on.*\. "
        r"(\d) are new in B, (\d) of A are gone\.",
        first,
    )
    assert found is not None
    same, new, gone = map(int, found.groups())
    assert same + new == same + gone == 3
    assert second == "Words: 26 of both, 26 new, 26 gone."
    assert ("new in B" in out, "gone from A" in out) == (new > 0, gone > 0)
    code, out, _ = typed("compare", "out/model", "other/model", "--threshold", 1)
    assert code == 0
    assert out.startswith("0 topics are the same, from a cosine of 1.00 on. 3 are new in B, 3 of A")
    code, _, err = typed("compare", "out/model", "other/model", "--threshold", 0)
    assert (code, "Invalid value for '--threshold'" in err) == (2, True)
    assert typed("compare", "out/model", "nowhere")[0] == 2


# Tracking


def test_a_run_that_is_tracked(
    folder: Path,
    typed: Typed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[tuple[str, Any]] = []

    def tracker(title: str) -> type:
        class Fake:
            def __init__(self, *given: Any, **named: Any) -> None:
                self.kinds: list[str] = []
                made.append((title, (given, named, self)))

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self.kinds.append("closed")

            def __call__(self, event: dict[str, Any]) -> None:
                self.kinds.append(event["event"])

        return Fake

    monkeypatch.setattr("fedtopics.federation.tracking.TensorBoard", tracker("TensorBoard"))
    monkeypatch.setattr("fedtopics.federation.tracking.MLflow", tracker("MLflow"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    both = ["--track", "tensorboard", "--track", "mlflow", "--track", "mlflow"]
    code, out, _ = typed("run", "study.toml", "--out", "out", *both)
    assert code == 0
    assert "agreed on 52 words" in out, "the display is there as well"
    assert [title for title, _ in made] == ["TensorBoard", "MLflow"]
    assert made[0][1][0][0] == Path("out/tensorboard")
    assert made[1][1][1]["tracking_uri"] == f"sqlite:///{folder}/out/mlflow/mlflow.db"
    kinds = [event["event"] for event in events_of("out")]
    for _, one in made:  # what clients alone are told is not in the run's folder
        assert [kind for kind in one[2].kinds if kind != "languages"] == [*kinds, "closed"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somewhere")
    code, _, _ = typed(*CONTINUE, "--rounds", 1, "--track", "mlflow")
    assert code == 0
    assert made[2][1][1]["tracking_uri"] is None


def test_a_tracker_that_is_not_installed(
    folder: Path,
    typed: Typed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedtopics.extras.find_spec", lambda module: None)
    for name in ("tensorboard", "mlflow"):
        code, _, err = typed("run", "study.toml", "--track", name)
        assert code == 1
        assert f"install it with: pip install 'fedtopics[{name}]'" in err
    assert not Path("runs").exists()
    assert typed("run", "study.toml", "--track", "paper")[0] == 2


# Merging


def test_merge(typed: Typed) -> None:
    """Each client's own model: a study of that client alone."""
    for name, other in (("north", "south"), ("south", "north")):
        alone = STUDY.replace(f'[clients.{other}]\ndata = "{other}.csv"\n', "")
        Path("alone.toml").write_text(alone.replace("[method]", '[method]\nname = "nmf"'))
        assert typed("run", "alone.toml", "--out", name)[0] == 0
    code, out, _ = typed("merge", "north", "south/model", "-o", "both", "--topics", 4)
    assert code == 0
    assert "4 of 6 topics of 2 models are in both." in out
    assert TopicModel.from_pretrained("both").documents.keys() == {"north", "south"}
    assert typed("topics", "both")[0] == 0
    assert typed("transform", "both", "north.csv", "-o", "theta.parquet")[0] == 0
    assert typed("report", "both")[0] == 0
    page = " ".join(Path("both/report.md").read_text().split())
    assert "Merged from 2 models that were trained apart, by how similar their 6 topics" in page
    code, _, err = typed("merge", "north", "south", "-o", "both")
    assert (code, "There is a model in both already" in err) == (2, True)
    code, _, err = typed("merge", "north", "north", "-o", "other")
    assert (code, "Two models have a client 'north'" in err) == (2, True)
    assert typed("merge", "north", "a=north", "-o", "other")[0] == 0
    code, _, err = typed("merge", "north", "south", "-o", "x", "--topics", 2, "--threshold", 0.5)
    assert (code, "exclude each other" in err) == (2, True)
