"""The server's optimisers, which change the weights by the clients' combined update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.payload import SparseRows
from fedtopics.networks.base import Tensors

BETA2 = 0.999
EPSILON = 1e-8
KEYS = "step", "exp_avg", "exp_avg_sq"  # of Adam's state, as in torch
OptimizerName = Literal["sgd", "adam", "fedavg", "fedadam"]


@dataclass(eq=False, repr=False)
class ServerOptimizer:
    """The server's step with the combined update; it changes the weights in place.

    ``sgd`` is equation 3 of the gFedNTM paper. ``fedavg`` and ``fedadam`` use the mean parameter
    change of local steps as a gradient (Reddi et al., Adaptive Federated Optimization, ICLR 2021).
    """

    name: OptimizerName
    weights: Tensors
    learning_rate: float
    beta1: float
    _steps: int = field(default=0, init=False)
    # Mean and mean square of gradients
    _moments: dict[str, list[NDArray[Any]]] = field(default_factory=dict, init=False)

    def step(
        self,
        gradients: Mapping[str, NDArray[Any] | SparseRows],
        documents: int,
        rate_factor: float = 1.0,
    ) -> None:
        """Update the weights from gradients summed over documents (the paper's equation 2)."""
        self._steps += 1
        scale = 1 / documents
        rate = self.learning_rate * rate_factor
        dense = {n: g.dense() if isinstance(g, SparseRows) else g for n, g in gradients.items()}
        if self.name not in ("adam", "fedadam"):
            for name, weight in self.weights.items():
                weight.numpy()[...] -= rate * scale * dense[name]
            return
        from fedtopics.networks.compiled_loops import adam

        first, second = (1 - beta**self._steps for beta in (self.beta1, BETA2))
        numbers = (
            scale,
            self.beta1,
            1 - self.beta1,
            BETA2,
            1 - BETA2,
            rate / first,
            second**-0.5,
            EPSILON,
        )
        for name, weight in self.weights.items():
            if name not in self._moments:
                self._moments[name] = [np.zeros_like(weight.numpy()) for _ in range(2)]
            kind = weight.numpy().dtype
            arrays = weight.numpy(), *self._moments[name], np.ascontiguousarray(dense[name], kind)
            adam(*(array.reshape(-1) for array in arrays), np.array(numbers, kind))

    def state(self) -> dict[str, NDArray[Any]]:
        return {
            f"{name}.{key}": array
            for name, moments in self._moments.items()
            for key, array in zip(KEYS, (np.array(self._steps, np.float32), *moments), strict=True)
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        for name in self.weights:
            if f"{name}.step" in state:
                steps, *self._moments[name] = (state[f"{name}.{key}"].copy() for key in KEYS)
                self._steps = int(steps)
