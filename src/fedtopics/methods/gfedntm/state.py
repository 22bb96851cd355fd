"""What the server of gFedNTM keeps from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedtopics.methods.aggregation import Payload, ServerOptimizer
from fedtopics.methods.base import Checkpoint
from fedtopics.networks import Tensors, to_arrays

AVERAGE_MOMENTUM = 0.1  # of the running statistics, as in torch's batch normalisation


@dataclass
class State:
    """All that outlives a round on the server."""

    weights: Tensors
    optimizer: ServerOptimizer
    averages: Tensors = field(default_factory=dict)
    round: int = 0
    best: Tensors = field(default_factory=dict)
    best_loss: float = np.inf
    waited: int = 0
    stopped: bool = False

    def snapshot(self) -> Tensors:
        """Copy what makes the model: weights and running statistics."""
        tensors = {f"weights/{name}": tensor for name, tensor in self.weights.items()}
        tensors |= {f"averages/{stage}": average for stage, average in self.averages.items()}
        return {name: tensor.clone() for name, tensor in tensors.items()}

    def adopt(self, tensors: Tensors) -> None:
        """Take up a snapshot, in place."""
        for name, weight in self.weights.items():
            weight.copy_(tensors[f"weights/{name}"])
        self.averages = {n: t.clone() for n, t in _below("averages/", tensors).items()}

    def checkpoint(self) -> Checkpoint:
        """Turn into named arrays and numbers."""
        tensors = self.snapshot()
        tensors |= {f"optimizer/{name}": t for name, t in self.optimizer.state().items()}
        tensors |= {f"best/{name}": t for name, t in self.best.items()}
        numbers = {
            "best_loss": self.best_loss,
            "waited": self.waited,
            "stopped": int(self.stopped),
        }
        return Checkpoint(self.round, to_arrays(tensors), numbers)

    def restore(self, saved: Checkpoint) -> None:
        """Take up a checkpoint."""
        tensors = {name: torch.from_numpy(array) for name, array in saved.arrays.items()}
        self.adopt(tensors)
        self.optimizer.restore(_below("optimizer/", tensors))
        self.best = _below("best/", tensors)
        self.round = saved.round
        self.best_loss, self.waited = saved.numbers["best_loss"], int(saved.numbers["waited"])
        self.stopped = bool(saved.numbers["stopped"])

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


def _below(prefix: str, tensors: Tensors) -> Tensors:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
