"""The torch side of neural topic models: networks and their losses, nothing about federation.

A network is a chain of *stages*. A stage computes, document by document, what it can; where the
documents of a minibatch need each other (batch normalisation), it gives sums over documents, and
``finish`` computes what all share from the totals, which a federation sums over its clients. The
weights are plain dictionaries of tensors, so that they can travel and be stored.

Names are loaded when they are first used: torch is an extra, and all else works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtopics.extras import Registry, load_when_used

if TYPE_CHECKING:
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
    from fedtopics.networks.topic_networks import CombinedTM, NeuralLDA, ProdLDA, ZeroShotTM

NETWORKS: Registry[type[NeuralTopicModel]] = Registry(
    "network",
    "fedtopics.networks",
    {
        "prodlda": "fedtopics.networks.topic_networks:ProdLDA",
        "neurallda": "fedtopics.networks.topic_networks:NeuralLDA",
        "combinedtm": "fedtopics.networks.topic_networks:CombinedTM",
        "zeroshottm": "fedtopics.networks.topic_networks:ZeroShotTM",
    },
)
find_network = NETWORKS.find


def register(network: type[NeuralTopicModel]) -> type[NeuralTopicModel]:
    """Make a network known under its name, as `Registry.register`; a class decorator."""
    return NETWORKS.register(network.name, network)


__all__ = [
    "Adapter", "Batch", "CombinedTM", "NetworkSettings", "NeuralLDA", "NeuralTopicModel", "Noise",
    "ProdLDA", "Shared", "Stage", "Tensors", "ZeroShotTM", "batch_weights", "find_network",
    "register", "represent", "rows_of", "score", "to_arrays", "to_tensor", "to_tensors",
]  # fmt: skip

_HOMES = {
    "adapter": ("Adapter", "represent", "score"),
    "neural": ("NeuralTopicModel", "batch_weights"),
    "topic_networks": ("CombinedTM", "NeuralLDA", "ProdLDA", "ZeroShotTM"),
}
_ELSEWHERE = {name: home for home, names in _HOMES.items() for name in names}
__getattr__ = load_when_used(__name__, dict.fromkeys(__all__, "base") | _ELSEWHERE)
