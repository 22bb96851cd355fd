"""The commands for F-LDA as a user types them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtopics.cli import app, flda
from fedtopics.methods.flda.labelled_pairs import TopicPair, read_pairs, write_pairs
from tests.helpers.command_line import Typed
from tests.helpers.labelled_pairs import MIRRORED, ROUNDS, write_run
from tests.helpers.models import made

TREES = [
    TopicPair("oak elm", "elm oak", 0.987),
    TopicPair("fir pine", "ketch", 0.123),
    TopicPair("ash", "yew", 0.456),
]


def test_from_a_run_to_its_threshold(here: Path, typed: Typed) -> None:
    rounds = [{"north": [{f"w{k}": 1.0}], "south": [{f"w{k}": 1.0}]} for k in range(6)]
    rounds += [{"north": [{"oak": 1.0}], "south": [{f"v{k}": 1.0}]} for k in range(6)]
    write_run(here / "run", rounds)
    sampling = ["sample-pairs", "run", "-o", "pairs.csv", "--pairs", 20, "--seed", 3]
    assert typed(*sampling, command=flda.flda_group)[1] == (
        "12 pairs (all) are in pairs.csv, with cosines from 0.00 to 1.00.\n"
        "Write 1 (same topic) or 0 (different topics) into the last column. Then run:  "
        "fedtopics flda threshold pairs.csv\n"
    )
    write_pairs(
        "pairs.csv",
        [replace(pair, same=pair.first == pair.second) for pair in read_pairs("pairs.csv")],
    )
    summary = json.loads(typed("threshold", "pairs.csv", "--json", command=flda.flda_group)[1])
    assert summary.pop("threshold") == pytest.approx(0.5, abs=1e-3)
    assert summary == {"pairs": 12, "labelled": 12, "same": 6, "decided_alike": 12}


def topic(id_: int, words: str, occurrences: float) -> dict[str, Any]:
    return {"id": id_, "words": words.split(), "occurrences": occurrences, "clients": ["north"]}


HISTORY: list[dict[str, Any]] = [
    {
        "round": 1,
        "documents": 1500,
        "arrived": {"north": 1200, "south": 300},
        "threshold": 0.4,
        "topics": [topic(0, "oak elm", 75.0), topic(1, "ketch sloop", 25.0)],
        "new": [0, 1],
        "vanished": [],
    },
    {
        "round": 2,
        "documents": 300,
        "arrived": {"north": 0, "south": 300},
        "threshold": 0.45,
        "topics": [topic(0, "elm oak", 20.0), topic(7, "flu cough", 30.0)],
        "new": [7],
        "vanished": [topic(1, "ketch sloop", 25.0)],
    },
    {
        "round": 3,
        "documents": 0,
        "arrived": {"north": 0, "south": 0},
        "threshold": 0.45,
        "topics": [topic(0, "elm oak", 0.0)],
        "new": [],
        "vanished": [],
    },
]


def save_model(folder: Path, **info: Any) -> Path:
    return made(info=info).save_pretrained(folder)


def test_topics_over_rounds(here: Path, typed: Typed) -> None:
    save_model(here / "run" / "model", method="flda", history=HISTORY)
    shown = typed("topics", "run", "--history")[1]
    assert shown.splitlines()[1:] == [
        "            1       2       3",
        "    0   75.0%   40.0%    0.0%  elm oak",
        "    1   25.0%       -       -  ketch sloop",
        "    7       -   60.0%       -  flu cough",
        "",
        "round 1: 2 topics of 1,500 documents (north 1,200, south 300); topics with a "
        "cosine of at least 0.40 count as the same",
        "",
        "round 2: 2 topics of 300 documents (north 0, south 300); topics with a "
        "cosine of at least 0.45 count as the same",
        "  new: 7 flu cough",
        "  vanished: 1 ketch sloop",
        "",
        "round 3: 1 topics of 0 documents (north 0, south 0); topics with a "
        "cosine of at least 0.45 count as the same",
    ]
    assert typed("topics", "run/model", "--history")[1] == shown


WRONG = {
    "no run": (["sample-pairs", "nowhere", "-o", "new.csv"], "no topics-*.json in nowhere, so"),
    "one client": (["sample-pairs", "alone", "-o", "new.csv"], "in no round did two clients send"),
    "no file to write": (["sample-pairs", "run"], "Missing option '--out' / '-o'."),
    "no pairs": (["sample-pairs", "run", "-o", "new.csv", "--pairs", "0"], "Invalid value for"),
    "labels there": (
        ["sample-pairs", "run", "-o", "pairs.csv"],
        "pairs.csv already contains 10 labels, which would be lost; give another file name.",
    ),
    "something else there": (["sample-pairs", "run", "-o", "notes.csv"], "notes.csv already exist"),
    "no file": (
        ["threshold", "none.csv"],
        "no file none.csv; make it with: fedtopics flda sample-pairs RUN -o none.csv",
    ),
    "notes": (["threshold", "notes.csv"], "notes.csv is not a table of pairs"),
    "nothing labelled": (
        ["threshold", "few.csv"],
        "few.csv: 0 of 3 pairs have a label, but a threshold needs 10; write 1 or 0 into",
    ),
    "a threshold of five": (["threshold", "pairs.csv", "--compare", "5"], "Invalid value for"),
    "no model": (["topics", "run", "--history"], "There is no model in run; name the folder"),
    "a model without rounds of topics": (
        ["topics", "lda", "--history"],
        "The model in lda/model is from lda, which keeps no history of topics; give a model of",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str, here: Path, typed: Typed) -> None:
    write_run(here / "run")
    write_run(here / "alone", [{"north": ROUNDS[0]["north"]}])
    save_model(here / "lda" / "model", method="lda")
    write_pairs("pairs.csv", MIRRORED)
    write_pairs("few.csv", TREES)
    (here / "notes.csv").write_text("mine\n")
    before = {path: path.read_bytes() for path in here.glob("*.csv")}
    arguments, message = WRONG[case]
    code, out, err = typed(*arguments, command=app if arguments[0] == "topics" else flda.flda_group)
    assert (code, out) == (2, "")
    assert message in err
    assert {path: path.read_bytes() for path in here.glob("*.csv")} == before
