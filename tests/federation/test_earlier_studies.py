"""Study files of an earlier version are read, and mean what they meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedtopics.federation.study import Study
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.text.words import named_pattern

STUDIES = Path(__file__).with_name("studies")


def without_new_defaults(now: Any, before: Any, usual: Any) -> Any:
    """Leave out keys that there were not, if they have their defaults."""
    if not (isinstance(now, dict) and isinstance(before, dict)):
        return now
    usual = usual if isinstance(usual, dict) else {}
    return {
        key: without_new_defaults(value, before.get(key), usual.get(key))
        for key, value in now.items()
        if key in before or value != usual.get(key)
    }


@pytest.mark.parametrize(
    "method",
    [
        "auto",
        "gfedntm",
        "lda",
        "nmf",
        "flda",
        "mixture",
        "kmeans",
        "discriminative",
        "fstc",
        "fsccl",
    ],
)
def test_an_earlier_study_keeps_its_settings(method: str) -> None:
    before = json.loads((STUDIES / f"{method}.json").read_text(encoding="utf-8"))
    pattern = before["text"]["token_pattern"]  # which has a name since
    before["text"]["token_pattern"] = named_pattern(pattern)
    now = Study.read(STUDIES / f"{method}.toml").model_dump(mode="json")
    clients: dict[str, Any] = {name: {} for name in now["clients"]}
    usual = Study.make(method={"name": method}, clients=clients).model_dump(mode="json")
    assert without_new_defaults(now, before, usual) == before
    changed = [key for key, value in before["method"].items() if value != usual["method"].get(key)]
    assert len(changed) > len(before["method"]) / 2, "most settings are not the default"


def test_every_method_has_an_earlier_study() -> None:
    ours = [
        name
        for name in METHODS.names
        if find_method(name).server.__module__.startswith("fedtopics.")
    ]
    assert sorted(path.stem for path in STUDIES.glob("*.toml")) == sorted(ours)
