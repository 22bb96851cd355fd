"""What a card says of privacy is what was kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Study, TopicModel
from fedtopics.federation.program import privacy_summary
from fedtopics.model.card import card, promise
from tests.helpers.models import made

BOUND: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "unit": "document", "seeded": False}


@pytest.fixture
def model() -> TopicModel:
    return made()


def test_a_bound(model: TopicModel, tmp_path: Path) -> None:
    private = replace(model, info={**model.info, "privacy": BOUND})
    private.save_pretrained(tmp_path)
    said = (tmp_path / "README.md").read_text("utf-8")
    assert "- Differentially private for each document: epsilon 3, delta 1e-06, of all" in said
    assert TopicModel.from_pretrained(tmp_path).info["privacy"] == BOUND


def test_noise_from_a_seed_is_no_bound(model: TopicModel) -> None:
    tried = replace(model, info={**model.info, "privacy": {**BOUND, "seeded": True}})
    assert "Differentially private" not in card(tried)
    assert "hides nothing from who knows the seed" in promise(tried)


def test_nothing_is_promised_without(model: TopicModel) -> None:
    assert promise(model) == ""
    assert privacy_summary(Study(method={"name": "lda"})) == {"masked": False}
