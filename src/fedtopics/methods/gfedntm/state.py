"""What the server of gFedNTM keeps from round to round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Payload, ServerOptimizer
from fedtopics.networks import NeuralTopicModel, Tensors, to_arrays
from fedtopics.networks.passes import Shapes

AVERAGE_MOMENTUM = 0.1  # of the running statistics, as in torch's batch normalisation


@dataclass
class NetworkState:
    """A network in training.

    Parameters
    ----------
    network : NeuralTopicModel
    shapes : Shapes
        Of what its clients send.
    weights : tensors
    optimizer : ServerOptimizer
        Of these weights, which it changes in place.
    averages : mapping of stage name to float64 tensor
        Running statistics.
    """

    network: NeuralTopicModel
    shapes: Shapes
    weights: Tensors
    optimizer: ServerOptimizer
    averages: Tensors = field(default_factory=dict)

    def snapshot(self) -> Mapping[str, NDArray[Any]]:
        """Copy what makes the model: weights and running statistics."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"averages/{stage}": average for stage, average in self.averages.items()}
        return to_arrays({name: tensor.clone() for name, tensor in tensors.items()})

    def restore_snapshot(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore a copy, in place."""
        for name, weight in self.weights.items():
            weight.copy_(torch.from_numpy(arrays[f"weights/{name}"]))
        self.averages = {n: t.clone() for n, t in _below("averages/", arrays).items()}

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Turn into named arrays."""
        optimizer = {f"optimizer/{name}": t for name, t in self.optimizer.state().items()}
        return {**self.snapshot(), **to_arrays(optimizer)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Turn back, in place."""
        self.restore_snapshot(arrays)
        self.optimizer.restore(_below("optimizer/", arrays))

    def average(self, sums: Payload, n: float) -> None:
        """Let the running statistics follow the sums over this round's n documents."""
        for stage, total in sums.items():
            now = torch.from_numpy(total) / n
            self.averages.setdefault(stage, now).lerp_(now, AVERAGE_MOMENTUM)


@dataclass
class Update:
    """What one round gives: gradients summed over n documents, their loss and statistics."""

    gradients: dict[str, Any]
    documents: int
    loss: float
    sums: Payload


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
    return {
        name.removeprefix(prefix): torch.from_numpy(array)
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
