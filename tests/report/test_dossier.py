"""The dossier of a model: one page for an output checker."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from fedtopics import Study, train
from tests.helpers.command_line import Refused, Typed
from tests.helpers.records import write_audit

RARE = "quetzalcoatl"
PATIENTS = "text=text,person=patient"


def table(n: int, seed: int, more: str = "") -> str:
    """Documents of n patients, two each, of which the first three have another word."""
    rng = np.random.default_rng(seed)
    subjects = np.array([["oak", "elm", "fir", "ash"], ["brig", "yawl", "dory", "ketch"]])
    rows = [
        f"{' '.join(rng.choice(subjects[i % 2], 6))} {more if i < 3 else ''},p{seed}-{i}\n"
        for i in [*range(n), *range(n)]
    ]
    return "".join(["text,patient\n", *rows])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, next to the documents of its clients, and other documents."""
    folder = tmp_path_factory.mktemp("dossier")
    (folder / "own.csv").write_text(table(40, 1, RARE))
    (folder / "others.csv").write_text(table(30, 2))
    plan = Study.make(
        method={"name": "nmf", "n_components": 2, "max_rounds": 2},
        vocabulary={"min_persons_per_word": 2, "min_clients_per_word": 1},
    )
    train(plan, dict.fromkeys(["north", "south"], folder / "own.csv"), out=folder / "run")
    write_audit(folder / "run", Study.read(folder / "run/study.toml").fingerprint, persons=160)
    return folder / "run"


def test_the_page_of_a_run(typed: Typed, run: Path) -> None:
    page = run.with_name("dossier.md")
    command = ["audit", "dossier", run, "-o", page, "--data", run.with_name("own.csv")]
    command += ["--columns", PATIENTS, "--others", run.with_name("others.csv")]
    assert typed(*command, "--earlier", run / "model")[:2] == (0, f"The dossier is in {page}.\n")
    text = page.read_text()
    assert re.findall("^## [0-9] (.*)", text, re.MULTILINE) == [
        "What the model is",
        "What it contains",
        "Words and topics of fewest persons",
        "An attack",
        "Differences from earlier models",
        "Noise",
        "What to look at",
        "Digests",
    ]
    for sentence in (
        "The method is nmf; the number of topics is 2, that of words 9, and that of clients 2.",
        "| words/sums | 2 x 9 | 18 |",
        "Of 9 words, the number of those in documents of fewer than 10 patients is 1; the rarest "
        "is in documents of 3.",
        "The smallest group of patients with the same largest topic has 20;",
        "separates 40 patients of the training from 30 others with an AUC of ",
        "| membership of persons, by the model | 0.512 | 1.4% | 160 |",
        "with the earlier model 1, the number of words that only one of both has is 0;",
        "Epsilon is none, because there is no differential privacy.",
        hashlib.sha256((run / "model/model.safetensors").read_bytes()).hexdigest(),
        Study.read(run / "study.toml").fingerprint,
    ):
        assert sentence in text
    assert RARE not in text
    assert "Do not share it: it lists words." in " ".join(
        typed(*command, "--list-words")[1].split()
    )
    assert f"| {RARE} | 3 |" in page.read_text()


def test_the_page_of_a_model_alone(typed: Typed, run: Path) -> None:
    page = run.with_name("model.html")
    assert typed("audit", "dossier", run / "model", "-o", page)[0] == 0
    html = page.read_text()
    assert "The documents of the training were not given" in html
    assert "No attack on this model was tried" in html
    assert not re.search("study.toml|<script", html)


def test_what_is_refused(refused: Refused, run: Path) -> None:
    page = run.with_name("refused.md")
    unread = run.with_name("unread.csv")
    unread.write_text("text,patient\nquince,p\n")
    assert "no model in" in refused("audit", "dossier", run.parent, "-o", page)
    command = ["audit", "dossier", run, "-o", page, "--columns", PATIENTS, "--data"]
    assert "No document contains a word of the model" in refused(*command, unread)
    others = run.with_name("others.csv")
    assert "30 persons have documents in others" in refused(*command, others, "--others", others)
    assert not page.exists()
