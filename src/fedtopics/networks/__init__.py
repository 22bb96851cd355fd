"""The torch side of neural topic models: networks and their losses, nothing about federation.

A network is a chain of *stages*. A stage computes, document by document, what it can; where the
documents of a minibatch need each other (batch normalisation), it gives sums over documents, and
``finish`` computes what all share from the totals, which a federation sums over its clients. The
weights are plain dictionaries of tensors, so that they can travel and be stored.
"""

from __future__ import annotations

from fedtopics.extras import Registry
from fedtopics.networks.adapter import Adapter, represent, score
from fedtopics.networks.base import (
    Batch,
    NetworkSettings,
    Noise,
    Shared,
    Stage,
    Tensors,
    rows_of,
    to_arrays,
    to_tensor,
    to_tensors,
)
from fedtopics.networks.neural import NeuralTopicModel, batch_weights
from fedtopics.networks.neurallda import NeuralLDA
from fedtopics.networks.prodlda import CombinedTM, ProdLDA, ZeroShotTM

NETWORKS: Registry[type[NeuralTopicModel]] = Registry("network", "fedtopics.networks")


def register(network: type[NeuralTopicModel]) -> type[NeuralTopicModel]:
    """Make a network known under its name, as `Registry.register`; a class decorator."""
    return NETWORKS.register(network.name, network)


for _network in (ProdLDA, NeuralLDA, CombinedTM, ZeroShotTM):
    register(_network)
find_network = NETWORKS.find

__all__ = [
    "Adapter", "Batch", "CombinedTM", "NetworkSettings", "NeuralLDA", "NeuralTopicModel", "Noise",
    "ProdLDA", "Shared", "Stage", "Tensors", "ZeroShotTM", "batch_weights", "find_network",
    "register", "represent", "rows_of", "score", "to_arrays", "to_tensor", "to_tensors",
]  # fmt: skip
