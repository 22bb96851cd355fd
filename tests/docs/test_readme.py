"""What the README shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fedtopics
from fedtopics import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    first, second = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(first, names)  # noqa: S102
    *topics, found = capsys.readouterr().out.splitlines()
    assert topics == [" ".join(words) for words in names["model"].topics_]
    assert len(topics) == 20
    assert found.startswith("graph nodes edges networkx directed")
    assert names["theta"].max() > 0.8

    assert "max_rounds=" in second
    names["clients"] = {name: corpus.take(range(60)) for name, corpus in names["clients"].items()}
    exec(re.sub(r"max_rounds=\d+", "max_rounds=2", second), names)  # noqa: S102
    for scenario in ("alone", "centralised", "federated"):
        assert len(names[scenario].topics_) == 10


def test_the_commands_of_the_reference_exist() -> None:
    shown = re.findall(r"^\| `fedtopics (\w+)", REFERENCE, re.MULTILINE)
    assert set(shown) == set(cli.COMMANDS)


def test_public_names() -> None:
    assert sorted(fedtopics.__all__) == [
        "Columns", "CombinedTM", "Corpus", "FLDA", "GuidedLDA", "LDA", "MixtureTM", "NMF",
        "NeuralLDA", "Policy", "ProdLDA", "ShortTextClustering", "Study", "TopicEstimator",
        "TopicModel", "ZeroShotTM", "train",
    ]  # fmt: skip
    assert all(getattr(fedtopics, name) for name in fedtopics.__all__)
