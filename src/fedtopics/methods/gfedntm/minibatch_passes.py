"""The passes of gFedNTM over a minibatch: one client's, or those of several clients at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.methods.core.aggregation import Payload, Rows
from fedtopics.methods.core.client import Documents, drawn_anew, leaves
from fedtopics.networks.base import Batch, Tensors, rows_of, to_arrays, to_tensor, to_tensors
from fedtopics.networks.neural import NeuralTopicModel, batch_weights
from fedtopics.networks.passes import ClientPass, autograd_leaves, gradients, run_through
from fedtopics.text.embeddings import Vectors


@dataclass(frozen=True)
class Drawn:
    """A client's documents of a minibatch."""

    bag: sparse.csr_array  # of all its documents
    rows: Documents
    rng: np.random.Generator  # of their noise
    vectors: Vectors | None  # their embeddings


class Passes(ABC):
    """Passes through a network, over minibatches that a subclass draws."""

    network: NeuralTopicModel
    _pass: ClientPass

    @abstractmethod
    def drawn(self, vocabulary: str, round: int) -> list[Drawn]:
        """Return the documents of a round, whose number a minibatch follows from, by client."""

    @drawn_anew(noise=True)
    @leaves(
        "Sums over the minibatch: of the posterior's parameters and their squares (4 n_topics "
        "numbers), or of theta and its products (n_topics + n_topics**2)."
    )
    def forward(
        self, vocabulary: str, round: int, stage: int, shared: Payload, weights: Payload
    ) -> dict[str, Any]:
        """Run one stage of the pass over this round's minibatch; stage 0 starts a pass."""
        if stage == 0:
            batch = self._minibatch(vocabulary, round)
            self._pass = ClientPass(self.network, self._tensors(weights), batch)
        sums = self._pass.forward(stage, self._tensors(shared))
        return {"sums": sums.numpy(), "documents": len(self._pass.batch)}

    @drawn_anew(noise=True)
    @leaves(
        "The minibatch's summed loss, and summed gradients: of the normalised topics "
        "(n_topics, n_words) and of the mean of theta (n_topics,)."
    )
    def loss(self, vocabulary: str, round: int, shared: Payload) -> dict[str, Any]:
        """Compute the loss and its gradient with respect to what all documents share."""
        loss, gradient = self._pass.loss(self._tensors(shared))
        return {"loss": loss, "shared": to_arrays(gradient), "documents": len(self._pass.batch)}

    @drawn_anew(noise=True)
    @leaves(
        "Summed gradients: of what the stage before shares (four numbers a topic), or, at the "
        "first stage, of the weights; of the first layer, the rows of the minibatch's words."
    )
    def backward(
        self, vocabulary: str, round: int, stage: int, gradient: NDArray[Any]
    ) -> dict[str, Any]:
        """Go back through a stage."""
        upstream = self._pass.backward(stage, to_tensor(gradient, torch.float64))
        reply: dict[str, Any] = {"documents": len(self._pass.batch)}
        if stage > 0:
            return reply | {"shared": to_arrays(upstream)}
        weights = self._packed(self._pass.batch, self._pass.weights, self._pass.weight_gradients)
        return reply | {"weights": weights}

    @drawn_anew(noise=True)
    @leaves(
        "The minibatch's summed loss, the sums of `forward`, and the summed gradients of the "
        "weights and, with the server's statistics, of what they make."
    )
    def gradients(
        self, vocabulary: str, round: int, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Compute the gradients of this round's minibatch at once (Algorithm 1, GetClientGrad)."""
        batch = self._minibatch(vocabulary, round)
        used = autograd_leaves(batch_weights(self.network, self._tensors(weights), batch))
        fixed = {stage: autograd_leaves(self._tensors(values)) for stage, values in shared.items()}
        loss, sums = run_through(self.network, used, batch, fixed or None)
        of_weights, *of_shared = gradients([loss], None, [used, *fixed.values()])
        return {
            "weights": self._packed(batch, used, of_weights),
            "shared": dict(zip(fixed, map(to_arrays, of_shared), strict=True)),
            "sums": to_arrays(sums),
            "loss": float(loss.detach()),
            "documents": len(batch),
        }

    def _minibatch(self, vocabulary: str, number: int) -> Batch:
        drawn = self.drawn(vocabulary, number)
        bag = rows_of([(each.bag, each.rows) for each in drawn])
        noise = self.network.draw(*((each.rng, len(each.rows)) for each in drawn))
        vectors = [each.vectors for each in drawn if each.vectors is not None]
        return self.network.batch(bag, noise, np.concatenate(vectors) if vectors else None)

    def _tensors(self, arrays: Payload) -> Tensors:
        return to_tensors(arrays, self.network.dtype)

    def _packed(self, batch: Batch, weights: Tensors, gradients: Tensors) -> dict[str, Any]:
        """Return a gradient for each weight, zero for those that the loss does not use."""
        tensors = {
            name: gradients[name] if name in gradients else torch.zeros_like(weight)
            for name, weight in weights.items()
        }
        packed: dict[str, Any] = to_arrays(tensors)
        for name in self.network.row_weights:
            rows = batch.spread(tensors[name]).numpy()
            packed[name] = Rows(batch.words, rows, self.network.n_words)
        return packed


class Together(Passes):
    """Several clients' halves in one process: passes over all of their minibatches at once.

    What comes out is the sum of their replies, up to rounding; each draws as it would alone.
    """

    functions = frozenset({"forward", "loss", "backward", "gradients"})

    def __init__(self, halves: Sequence[Any]) -> None:
        self._halves = halves
        self.documents: list[int] = []  # of each client in the last minibatch

    @property
    def network(self) -> Any:  # type: ignore[override]
        return self._halves[0].network

    def drawn(self, vocabulary: str, round: int) -> list[Drawn]:
        drawn = [each for half in self._halves for each in half.drawn(vocabulary, round)]
        self.documents = [len(each.rows) for each in drawn]
        return drawn
