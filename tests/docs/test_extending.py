"""The network that docs/how-to/extend.md shows is exact in a federation; networks of packages.

What else the page adds is tested by tests/test_one_place.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, softmax

from fedtopics import Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.networks import find_network, register
from tests.helpers import ordinary as one_process
from tests.helpers import pages
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.registries import install, restored


class OrdinaryETM(one_process.OrdinaryNeuralLDA):
    def topics(self) -> Tensor:
        return softmax(self.topic_embeddings @ self.word_embeddings.T + self.word_bias, 1)


@pytest.fixture
def extended() -> Iterator[dict[str, Any]]:
    names = pages.run(pages.DOCS / "how-to/extend.md")
    with restored():
        register(names["ETM"])
        yield names


def test_the_network_of_the_page_finds_the_subjects(
    extended: dict[str, Any], tmp_path: Path
) -> None:
    model = extended["model"]
    subjects_found = {
        name
        for topic in model.topics(5)
        for name, words in extended["words"].items()
        if set(topic) <= set(words)
    }
    assert subjects_found == {"forest", "harbour"}
    assert_same_bits(TopicModel.from_pretrained(model.save_pretrained(tmp_path)), model)


def test_the_network_of_the_page_is_that_of_one_process(
    extended: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    minibatches = one_process.record_minibatches(monkeypatch)
    plan = study(network=extended["ETM"].name, precision="float64")
    model = train(plan, subjects(one_process.SIZES), at_once=False)
    assert len(minibatches) == 50
    weights = one_process.ordinary(model, plan, minibatches, OrdinaryETM)
    assert weights.keys() == model.weights.keys()
    assert one_process.difference(model.weights, weights) < 1e-6


def test_a_network_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys.py").write_text(
        "from fedtopics.networks import ProdLDA\nclass Other(ProdLDA):\n    name = 'somebodys'\n"
    )
    install(tmp_path, "somebodys", "somebodys:Other")
    monkeypatch.syspath_prepend(tmp_path)
    assert Study.make(method={"name": "gfedntm", "network": "somebodys"})
    assert find_network("somebodys") is sys.modules["somebodys"].Other


def test_a_broken_installed_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "broken", "no_such_module:Broken")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StudyError, match="'broken' of the installed no_such_module:Broken cannot"):
        Study.make(method={"name": "gfedntm", "network": "broken"})
