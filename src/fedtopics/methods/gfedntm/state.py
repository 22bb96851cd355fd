"""What the program of gFedNTM keeps from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.methods.core.aggregation import Payload, ServerOptimizer
from fedtopics.methods.core.training import below, prefixed
from fedtopics.networks.base import Tensors, to_arrays
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.networks.passes import Shapes, finish_all

AVERAGE_MOMENTUM = 0.1  # of the running statistics, as in torch's batch normalisation


@dataclass
class NetworkState:
    """A network in training."""

    network: NeuralTopicModel
    shapes: Shapes  # of what its clients send
    weights: Tensors
    optimizer: ServerOptimizer  # which changes the weights in place
    averages: Tensors = field(default_factory=dict)  # running statistics by stage, in float64

    def model_arrays(self) -> dict[str, NDArray[Any]]:
        """Copy what determines the model: weights and running statistics."""
        tensors = prefixed("weights", self.weights) | prefixed("averages", self.averages)
        return to_arrays({name: tensor.clone() for name, tensor in tensors.items()})

    def restore_model(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `model_arrays` returned, in place."""
        for name, array in below("weights", arrays).items():
            self.weights[name].copy_(torch.from_numpy(array))
        self.averages = {n: torch.tensor(a) for n, a in below("averages", arrays).items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that outlives a round, as named arrays."""
        return self.model_arrays() | to_arrays(prefixed("optimizer", self.optimizer.state()))

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned, in place."""
        self.restore_model(arrays)
        optimizer = below("optimizer", arrays)
        self.optimizer.restore({n: torch.from_numpy(a) for n, a in optimizer.items()})

    def average(self, sums: Payload, n: float) -> None:
        """Update the running statistics by the sums over this round's n documents."""
        for stage, total in sums.items():
            mean = torch.from_numpy(total) / n
            self.averages.setdefault(stage, mean).lerp_(mean, AVERAGE_MOMENTUM)


def topics_in(network: NeuralTopicModel, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return beta of what `NetworkState.arrays` returned, float64 of shape (n_topics, n_words)."""
    weights = {name: torch.from_numpy(a) for name, a in below("weights", arrays).items()}
    averages = {name: torch.from_numpy(a) for name, a in below("averages", arrays).items()}
    return np.asarray(network.beta(weights, finish_all(network, weights, averages)), np.float64)


@dataclass
class Update:
    """The sum of a round's replies: gradients over n documents, their loss and statistics."""

    gradients: dict[str, Any]
    documents: int
    loss: float
    sums: Payload
