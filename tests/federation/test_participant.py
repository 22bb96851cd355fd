"""A client's part in a study: where it keeps what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import RunError
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.server import _proposal
from fedtopics.federation.study import Study
from tests.helpers.federation import study, subjects

SIZES = {"north": 12, "south": 12}


def planned(**changes: Any) -> Study:
    return study().model_copy(update=changes).with_clients(SIZES)


def joined(plan: Study, out: Path | None = None) -> Path:
    part = Participation("north", subjects(SIZES)["north"], OPEN_POLICY, out)
    try:
        part.consider(_proposal(plan))
    finally:
        part.close()
    return part.out


def test_each_study_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = planned(name="letters"), planned(name="letters", seed=8)
    home = Path("runs/north")
    assert joined(first) == home / "letters"
    assert joined(second) == home / second.fingerprint, "another study has the name"
    assert joined(first) == home / "letters", "the same study goes on where it was"
    assert joined(planned(name="reports", seed=9)) == home / "reports"
    assert Study.read(home / "letters/study.toml").fingerprint == first.fingerprint
    assert Study.read(home / "letters/study.toml").name == "letters"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../evil", "evil"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "study"),
        ("", "study"),
        ("Bücher & Briefe\n", "Bücher-Briefe"),
        ("x" * 500, "x" * 60),
    ],
)
def test_a_study_cannot_choose_another_place(
    name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert joined(planned(name=name)) == Path("runs/north") / folder


def test_a_named_folder_holds_one_study(tmp_path: Path) -> None:
    plan = planned(name="letters")
    assert joined(plan, tmp_path) == tmp_path
    assert joined(plan, tmp_path) == tmp_path
    with pytest.raises(RunError, match="in another study; name another folder with --out"):
        joined(planned(name="letters", seed=8), tmp_path)


def test_a_look_needs_no_folder(tmp_path: Path) -> None:
    joined(planned(), tmp_path)
    part = Participation("north", subjects(SIZES)["north"], OPEN_POLICY, tmp_path)
    other = planned(seed=8)
    assert part.look(_proposal(other)).fingerprint == other.fingerprint
