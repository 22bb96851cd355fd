"""What the README shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtopics
from fedtopics import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def small_clients(n_clients: int) -> dict[str, fedtopics.Corpus]:
    rng = np.random.default_rng(0)
    words = {
        n: [n + c for c in "abcdefghijklmnop"] for n in ("networkx", "scipy", "sklearn")[:n_clients]
    }
    return {
        name: fedtopics.Corpus.of([" ".join(rng.choice(own, 9)) for _ in range(60)])
        for name, own in words.items()
    }


def test_the_python_of_the_readme_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedtopics.datasets.package_documentation", small_clients)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert "max_rounds=" in block
        exec(re.sub(r"max_rounds=\d+", "max_rounds=20", block), names)  # noqa: S102
    assert len(names["model"].topics_) == 10
    assert names["theta"].shape == (1, 10)
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_the_commands_of_the_readme_exist() -> None:
    shown = set(re.findall(r"`fedtopics (\w+)", README))
    assert shown == set(cli.COMMANDS)


def test_the_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    pages = [README, *(p.read_text(encoding="utf-8") for p in (ROOT / "docs").glob("*.md"))]
    targets = {t for page in pages for t in re.findall(r"`?make ([\w-]+)`", page)} | {"demo"}
    assert {"demo", "bench", "skew", "bench-scale"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([\w./-]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page, link)


def test_public_names() -> None:
    assert sorted(fedtopics.__all__) == [
        "Columns", "CombinedTM", "Corpus", "FLDA", "GuidedLDA", "LDA", "MixtureTM", "NMF",
        "NeuralLDA", "Policy", "ProdLDA", "ShortTextClustering", "Study", "TopicEstimator",
        "TopicModel", "ZeroShotTM", "train",
    ]  # fmt: skip
    assert all(getattr(fedtopics, name) for name in fedtopics.__all__)
