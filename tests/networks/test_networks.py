"""The register of networks, and networks written from the base class."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fedtopics.errors import StudyError
from fedtopics.federation.simulation import train
from fedtopics.networks import NETWORKS, find_network, register
from fedtopics.networks.base import Batch, Tensors
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.networks.topic_networks import ProdLDA
from tests.helpers.federation import embedded, study, subjects


@pytest.fixture(autouse=True)
def register_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NETWORKS, "_items", dict(NETWORKS._items))


def test_a_name_that_is_taken_is_refused() -> None:
    class Better(ProdLDA):  # its author forgot the name
        pass

    with pytest.raises(StudyError, match=r"Better has the name 'prodlda', which is that of fedto"):
        register(Better)
    assert find_network("prodlda") is ProdLDA


class Plain(NeuralTopicModel):
    """Written from the class's own docstring: a mixture that uses neither bias nor centres."""

    name = "plain"
    sees_embedding = True

    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        sampled = self.sample(weights, batch, carried, shared)
        chances = sampled["theta"] @ torch.softmax(weights["beta_logits"], 1)
        counts = torch.from_numpy(batch.counts.toarray())
        missed = -(counts * (chances + 1e-10).log()).sum()
        return missed + self.divergence(weights, sampled["mu"], sampled["log_variance"])

    def beta(self, weights: Tensors, shared: Mapping[str, Tensors]) -> Tensor:
        return torch.softmax(weights["beta_logits"].double(), 1)


@pytest.mark.parametrize("norm", ["sync", "local", "server"])
def test_weights_that_a_loss_does_not_use_stay(norm: str) -> None:
    register(Plain)
    model = train(study(network="plain", norm=norm), embedded(subjects({"a": 40, "b": 60})))
    start = model.inference.initial_weights(0)
    for name in ("word_bias", "embedding_centres"):
        assert torch.equal(model.weights[name], start[name]), name
    assert not torch.equal(model.weights["beta_logits"], start["beta_logits"])
