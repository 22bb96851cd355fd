"""The torch side of neural topic models: networks and their losses, nothing about federation.

A network is a chain of *stages*. A stage computes, document by document, what it can; where the
documents of a minibatch need each other (batch normalisation), it gives sums over documents and
what all documents share is computed from the totals by ``finish``. Whoever holds all documents
adds nothing to that; a federation sums over its clients first. The weights are plain dictionaries
of tensors, so that they can travel and be stored.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from fedtopics.errors import StudyError
from fedtopics.networks.adapter import Adapter, represent, score
from fedtopics.networks.base import (
    Batch,
    NetworkSettings,
    Noise,
    Stage,
    Tensors,
    to_arrays,
    to_tensor,
    to_tensors,
)
from fedtopics.networks.neural import NeuralTopicModel, batch_weights
from fedtopics.networks.neurallda import NeuralLDA
from fedtopics.networks.prodlda import CombinedTM, ProdLDA, ZeroShotTM

_NETWORKS: dict[str, type[NeuralTopicModel]] = {}
ENTRY_POINTS = "fedtopics.networks"


def register(network: type[NeuralTopicModel]) -> type[NeuralTopicModel]:
    """Make a network known under its name; a class decorator.

    Raises
    ------
    StudyError
        If the name is that of another network. A class of the same module and name replaces
        itself: its module was loaded again.
    """
    taken, given = _full_name(_NETWORKS.get(network.name, network)), _full_name(network)
    if taken != given:
        raise StudyError(
            f"The network {given} has the name {network.name!r}, which is that of {taken}; give "
            "it a name of its own."
        )
    _NETWORKS[network.name] = network
    return network


def _full_name(network: type[NeuralTopicModel]) -> str:
    return f"{network.__module__}.{network.__qualname__}"


for _ours in (ProdLDA, NeuralLDA, CombinedTM, ZeroShotTM):
    register(_ours)


def find_network(name: str) -> type[NeuralTopicModel]:
    """Return the network of a name: one of ours, a registered one, or an installed package's.

    Raises
    ------
    StudyError
        If there is none.
    """
    if name not in _NETWORKS:
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            try:
                register(entry.load())
            except StudyError:  # its name is taken
                raise
            except Exception as error:  # a package of somebody else: almost any kind
                raise StudyError(
                    f"The network {name!r} of the installed {entry.value} cannot be loaded "
                    f"({type(error).__name__}); install its package anew."
                ) from None
    if name not in _NETWORKS:
        known = ", ".join(_NETWORKS)
        raise StudyError(f"There is no network {name!r}; known: {known}. Install or register it.")
    return _NETWORKS[name]


__all__ = [
    "Adapter",
    "Batch",
    "CombinedTM",
    "NetworkSettings",
    "NeuralLDA",
    "NeuralTopicModel",
    "Noise",
    "ProdLDA",
    "Stage",
    "Tensors",
    "ZeroShotTM",
    "batch_weights",
    "find_network",
    "register",
    "represent",
    "score",
    "to_arrays",
    "to_tensor",
    "to_tensors",
]
