"""Neural topic models in torch: networks and their losses, without federation.

Names that other networks need are imported on first use, because torch is an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtopics.extras import Registry, load_when_used

if TYPE_CHECKING:
    from fedtopics.networks.base import Batch, Shared, Stage, Tensors
    from fedtopics.networks.neural import NeuralTopicModel
    from fedtopics.networks.topic_networks import NeuralLDA, ProdLDA

__all__ = [
    "Batch",
    "NeuralLDA",
    "NeuralTopicModel",
    "ProdLDA",
    "Shared",
    "Stage",
    "Tensors",
    "find_network",
    "register",
]

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
    """Register a network under its name; a class decorator."""
    return NETWORKS.register(network.name, network)


__getattr__ = load_when_used(
    __name__,
    dict.fromkeys(("Batch", "Shared", "Stage", "Tensors"), "base")
    | dict.fromkeys(("NeuralLDA", "ProdLDA"), "topic_networks")
    | {"NeuralTopicModel": "neural"},
)
