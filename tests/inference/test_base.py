"""Inferences by name: one that is registered from outside is saved and loaded like ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel

from fedtopics import TopicModel
from fedtopics.errors import StudyError
from fedtopics.inference import INFERENCES, Inference, Layout, Weights, find, register
from fedtopics.inference.lda import VariationalLDA
from fedtopics.methods import registry
from fedtopics.methods.lda.method import METHOD
from fedtopics.networks.topic_networks import ProdLDA
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary

WORDS = ("oak", "elm", "yawl", "brig")


class Halves(BaseModel):
    n_components: int = 2
    sharpness: float = 3.0


class FirstHalf(Inference):
    """Two groups: words of the first half of the vocabulary, and the others."""

    name: ClassVar[str] = "halves"
    settings_type: ClassVar[type[BaseModel]] = Halves
    shows: ClassVar[Any] = "clusters"

    def layout(self) -> Layout:
        return {"topics": ((2, self.n_words), self.precision)}

    def beta(self, weights: Weights, shared: Any) -> Any:
        return weights["topics"]

    def infer(self, weights: Weights, shared: Any, counts: Any, embeddings: Any) -> NDArray[Any]:
        scores = np.exp(self.settings.sharpness * (counts @ weights["topics"].T))
        return np.asarray(scores / scores.sum(1, keepdims=True))


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    before = dict(INFERENCES._items)
    yield
    INFERENCES._items.clear()
    INFERENCES._items.update(before)


def model() -> TopicModel:
    topics = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    return TopicModel(
        inference=FirstHalf(len(WORDS), Halves(sharpness=2.0)),
        weights={"topics": topics},
        shared={},
        vocabulary=Vocabulary(WORDS, np.full(4, 5), np.full(4, 10)),
        text=TextRules(),
        shares={"a": np.array([0.25, 0.75])},
        documents={"a": 20},
        word_sums=np.ones((2, 4)),
    )


def test_a_registered_one_is_saved_and_loaded(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no network 'halves'"):
        find("halves")
    register(FirstHalf)
    path = model().save_pretrained(tmp_path / "model")
    back = TopicModel.from_pretrained(path)
    assert isinstance(back.inference, FirstHalf)
    assert back.inference.settings == Halves(sharpness=2.0)
    e = np.exp(2)
    np.testing.assert_allclose(back.transform(["oak elm"]), [np.array([e, 1]) / (e + 1)], rtol=1e-6)


def test_a_method_brings_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.METHODS, "_items", {})
    registry.register(replace(METHOD, name="mine", inferences=(FirstHalf,)))
    assert find("halves") is FirstHalf


def test_ours_and_networks_are_there_by_name() -> None:
    assert find("lda") is VariationalLDA
    assert find("prodlda") is ProdLDA
    for name in INFERENCES.names:
        assert find(name).name == name
    other: Any = type("Other", (FirstHalf,), {"name": "lda"})
    with pytest.raises(StudyError, match="'lda', which is that of"):
        register(other)
