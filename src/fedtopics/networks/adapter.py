"""The networks of short-text clustering: a residual adapter of embeddings, and heads on it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedtopics.networks.base import Tensors


class Adapter:
    """An adapter of one hidden layer, at first the identity, and a head with a score a cluster."""

    def __init__(self, dimension: int, hidden: int, n_outputs: int) -> None:
        self.shapes = {
            "adapter_in": (dimension, hidden),
            "adapter_bias": (hidden,),
            "adapter_out": (hidden, dimension),
            "head": (n_outputs, dimension),
            "head_bias": (n_outputs,),
        }

    def initial_weights(self, seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
        """Draw the first weights: uniform, by the number of inputs; the adapter adds nothing."""
        generator = torch.Generator().manual_seed(seed)
        weights = {name: torch.zeros(shape, dtype=dtype) for name, shape in self.shapes.items()}
        for name, inputs in (("adapter_in", 0), ("head", 1)):
            bound = 1 / math.sqrt(self.shapes[name][inputs])
            weights[name].uniform_(-bound, bound, generator=generator)
        return weights


def represent(weights: Tensors, points: Tensor) -> Tensor:
    """Return what the adapter makes of points, shape (n, dimension)."""
    hidden = torch.relu(points @ weights["adapter_in"] + weights["adapter_bias"])
    return points + hidden @ weights["adapter_out"]


def score(weights: Tensors, represented: Tensor) -> Tensor:
    """Return the head's outputs, shape (n, n_outputs)."""
    return represented @ weights["head"].T + weights["head_bias"]
