"""Commands that make a model live on: continue, compare, and tracking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtopics.methods.core.plan import fingerprint_of
from fedtopics.model.topic_model import TopicModel
from tests.helpers.command_line import STUDY, Typed

CONTINUE = ["train", "study.toml", "--from", "out/model"]


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
    assert typed("train", "study.toml", "--out", "out")[0] == 0
    return Path("out/model")


def test_more_rounds(trained: Path, typed: Typed) -> None:
    code, out, err = typed(*CONTINUE, "--rounds", 5)
    assert (code, err) == (0, "")
    known = TopicModel.from_pretrained(trained)
    print_ = fingerprint_of(known)
    assert f"goes on with model {print_[:16]} of gfedntm after 12 rounds, with its words" in out
    assert "topic, its share of all documents, its words" in out
    assert "The run is in runs/study-continued, the model in" in out
    assert "What changed:  fedtopics models compare out/model runs/study-continued/model" in out
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


@pytest.mark.parametrize("vocabulary", ["keep", "agree"])
def test_other_methods(vocabulary: str, folder: Path, typed: Typed) -> None:
    study_of("lda", max_rounds=3)
    assert typed("train", "study.toml", "--out", "out")[0] == 0
    code, _, err = typed(*CONTINUE, "--rounds", 2, "--vocabulary", vocabulary)
    assert (code, err) == (0, "")
    found = TopicModel.from_pretrained("runs/study-continued/model")
    assert found.info["rounds"] == (5 if vocabulary == "keep" else 2)
    assert found.info["continued"]["method"] == "lda"


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["train", "--from", "out/model"], "", "Missing argument 'STUDY'."),
        (["train", "study.toml", "--rounds", "3"], "", "--rounds and --vocabulary go with --from"),
        (["train", "study.toml", "--keys", "x"], "", "go with --engine flare."),
        (["train", "study.toml", "--from", "nowhere"], "", "There is no model in nowhere"),
        (["train", "x.toml", "--from", "out/model"], "", "x.toml cannot be used: No such file"),
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


def test_merge(typed: Typed) -> None:
    """Each client's own model: a study of that client alone."""
    for name, other in (("north", "south"), ("south", "north")):
        alone = STUDY.replace(f'[clients.{other}]\ndata = "{other}.csv"\n', "")
        Path("alone.toml").write_text(alone.replace("[method]", '[method]\nname = "nmf"'))
        assert typed("train", "alone.toml", "--out", name)[0] == 0
    code, out, _ = typed("models", "merge", "north", "south/model", "-o", "both", "--topics", 4)
    assert code == 0
    assert "4 of 6 topics of 2 models are in both." in out
    assert TopicModel.from_pretrained("both").documents.keys() == {"north", "south"}
    assert typed("topics", "both")[0] == 0
    assert typed("transform", "both", "north.csv", "-o", "theta.parquet")[0] == 0
    assert typed("report", "both")[0] == 0
    page = " ".join(Path("both/report.md").read_text().split())
    assert "Merged from 2 models that were trained apart, by how similar their 6 topics" in page
    code, _, err = typed("models", "merge", "north", "south", "-o", "both")
    assert (code, "There is a model in both already" in err) == (2, True)
    code, _, err = typed("models", "merge", "north", "north", "-o", "other")
    assert (code, "Two models have a client 'north'" in err) == (2, True)
    assert typed("models", "merge", "north", "a=north", "-o", "other")[0] == 0
    code, _, err = typed(
        "models", "merge", "north", "south", "-o", "x", "--topics", 2, "--threshold", 0.5
    )
    assert (code, "exclude each other" in err) == (2, True)
