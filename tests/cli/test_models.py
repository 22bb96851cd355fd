"""Commands that make a model live on: continue, compare, and tracking."""

import json
from pathlib import Path

import pytest

from fedtopics import TopicModel
from fedtopics.methods.core.plan import fingerprint_of
from tests.helpers.command_line import STUDY, Done, Refused, Typed

CONTINUE = ["train", "study.toml", "--from", "out/model"]


def test_more_rounds(trained: Path, typed: Typed, done: Done, refused: Refused) -> None:
    out = done(*CONTINUE, "--rounds", 5)
    before = TopicModel.from_pretrained(trained / "model")
    print_ = fingerprint_of(before)
    for sentence in (
        f"continuing from model {print_[:16]} of gfedntm after 12 rounds, with its voc",
        "topic, its share of all documents, its words",
        "The run is in runs/study-continued, the model in",
        "what changed:  fedtopics models compare out/model runs/study-continued/model",
    ):
        assert sentence in out
    more = TopicModel.from_pretrained("runs/study-continued/model")
    assert more.info["rounds"] == 17
    assert more.vocabulary.words == before.vocabulary.words
    assert more.info["continued"]["model"] == print_
    events = [
        json.loads(line)
        for line in Path("runs/study-continued/events.jsonl").read_text().splitlines()
    ]
    assert [event["round"] for event in events if "loss" in event] == [13, 14, 15, 16, 17]

    assert "There is a run in runs/study-continued already" in refused(*CONTINUE, "--rounds", 5)
    assert typed(*CONTINUE, "--rounds", 5, "--resume")[0] == 0
    assert TopicModel.from_pretrained("runs/study-continued/model").info == more.info
    assert "is of study" in refused(*CONTINUE, "--rounds", 6, "--resume")


@pytest.mark.parametrize("vocabulary", ["keep", "agree"])
def test_other_methods(vocabulary: str, folder: Path, done: Done) -> None:
    Path("study.toml").write_text(STUDY.replace("gfedntm", "lda").replace("= 12", "= 3"))
    done("train", "study.toml", "--out", "out")
    done(*CONTINUE, "--rounds", 2, "--vocabulary", vocabulary)
    continued = TopicModel.from_pretrained("runs/study-continued/model")
    assert continued.info["rounds"] == (5 if vocabulary == "keep" else 2)
    assert continued.info["continued"]["method"] == "lda"


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["train", "study.toml", "--rounds", "3"], "", "--rounds and --vocabulary need --from"),
        (["train", "study.toml", "--keys", "x"], "", "need --engine flare."),
        (["train", "study.toml", "--from", "nowhere"], "", "There is no model in nowhere"),
        (["train", "x.toml", "--from", "out/model"], "", "there is no such file"),
        (
            CONTINUE,
            "n_components = 4",
            "3 topics to begin with, but the study has n_components = 4;",
        ),
        (CONTINUE, "hidden = [9, 9]", "hidden = (100, 100), the study's (9, 9), so it cannot be"),
        ([*CONTINUE, "--resume"], "", "There is no run in runs/study-continued to resume"),
        ([*CONTINUE, "--vocabulary", "old"], "", "Invalid value for '--vocabulary'"),
        (CONTINUE, 'name = "kmeans"', "The method 'kmeans' cannot start from a model; use"),
    ],
)
def test_no_way_on(
    arguments: list[str], change: str, message: str, trained: Path, typed: Typed
) -> None:
    if change:
        left = [line for line in STUDY.splitlines() if line[:5] != change[:5]]
        left.insert(2, change)
        Path("study.toml").write_text("\n".join(left))
    code, out, err = typed(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("runs").exists()


@pytest.mark.usefixtures("folder")
def test_merge(typed: Typed, done: Done) -> None:
    for name, other in (("north", "south"), ("south", "north")):
        alone = STUDY.replace(f'[clients.{other}]\ndata = "{other}.csv"\n', "")
        Path("alone.toml").write_text(alone.replace("gfedntm", "nmf"))
        assert typed("train", "alone.toml", "--out", name)[0] == 0
    assert "4 topics (merged from 6 of 2 models) are in both." in done(
        "models", "merge", "north", "south/model", "-o", "both", "--topics", 4
    )
    assert TopicModel.from_pretrained("both").documents.keys() == {"north", "south"}
    shown = typed("topics", "both")
    assert shown[0] == 0
    assert "(others: unknown)" in shown[1] + shown[2]  # a topic of one model, in its client alone
    assert typed("transform", "both", "north.csv", "-o", "theta.parquet")[0] == 0
    assert typed("report", "both")[0] == 0
    assert (
        "Merged from 2 separately trained models, by the similarity of their 6 topics"
        in " ".join(Path("both-report.md").read_text().split())
    )
