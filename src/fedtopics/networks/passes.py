"""Forward and backward passes through a network, cut where documents depend on each other.

If passes are cut at the totals of batch normalisation, the sums over several clients give exactly
the pass over their united minibatch. The inputs of a part are leaves of autograd, so a backward
step runs through one part.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from fedtopics.networks.base import Batch, Shared, Stage, Tensors
from fedtopics.networks.neural import NeuralTopicModel, batch_weights, through


def autograd_leaves(tensors: Mapping[str, Tensor]) -> Tensors:
    """Detach tensors and let autograd collect their gradients."""
    return {name: tensor.detach().requires_grad_() for name, tensor in tensors.items()}


def gradients(
    outputs: Sequence[Tensor], seeds: Sequence[Tensor] | None, inputs: Sequence[Tensors]
) -> list[Tensors]:
    flat = [tensor for tensors in inputs for tensor in tensors.values()]
    derivatives = iter(torch.autograd.grad(outputs, flat, seeds, allow_unused=True))
    return [
        {name: derivative for name in tensors if (derivative := next(derivatives)) is not None}
        for tensors in inputs
    ]


class ClientPass:
    """A client's part of one minibatch's pass, paused at each cut. Has no ``finish_weights``."""

    def __init__(self, network: NeuralTopicModel, weights: Tensors, batch: Batch) -> None:
        self.network = network
        self.batch = batch
        self.weights = autograd_leaves(batch_weights(network, weights, batch))
        self.weight_gradients: Tensors = {}
        self._inputs: list[tuple[Tensors, Tensors]] = [({}, {})]
        self._outputs: list[tuple[Tensors, Tensor]] = []
        self._carried_gradients: Tensors = {}

    def forward(self, stage: int, shared: Tensors) -> Tensor:
        if stage > 0:
            self._enter(shared)
        carried, entered = self._inputs[stage]
        output = self.network.stages[stage].local(self.weights, self.batch, carried, entered)
        self._outputs.append(output)
        return output[1].detach()

    def loss(self, shared: Tensors) -> tuple[float, Tensors]:
        """Return the summed loss and its gradient with respect to shared values."""
        self._enter(shared)
        carried, entered = self._inputs[-1]
        loss = self.network.loss(self.weights, self.batch, carried, entered)
        return float(loss.detach()), self._back([loss], None, len(self.network.stages))

    def backward(self, stage: int, totals_gradient: Tensor) -> Tensors:
        """Go back through a stage; return the gradient of the previous stage's shared values."""
        carried, sums = self._outputs[stage]
        outputs = [*(carried[name] for name in self._carried_gradients), sums]
        return self._back(outputs, [*self._carried_gradients.values(), totals_gradient], stage)

    def _enter(self, shared: Tensors) -> None:
        self._inputs.append((autograd_leaves(self._outputs[-1][0]), autograd_leaves(shared)))

    def _back(
        self, outputs: Sequence[Tensor], seeds: Sequence[Tensor] | None, stage: int
    ) -> Tensors:
        of_weights, self._carried_gradients, of_shared = gradients(
            outputs, seeds, inputs=[self.weights, *self._inputs[stage]]
        )
        for name, gradient in of_weights.items():
            earlier = self.weight_gradients.get(name)
            self.weight_gradients[name] = gradient if earlier is None else earlier + gradient
        return of_shared


class ServerPass:
    """The server's part of a pass: from totals to shared values, and back to finish weights."""

    def __init__(self, network: NeuralTopicModel, weights: Tensors) -> None:
        self.network = network
        self.weights = autograd_leaves({name: weights[name] for name in network.finish_weights})
        self.weight_gradients: Tensors = {}
        self._tape: list[tuple[Tensor, Tensors]] = []

    def finish(self, stage: int, totals: Tensor, n: float) -> Tensors:
        leaf = totals.detach().requires_grad_()
        shared = self.network.stages[stage].finish(self.weights, leaf, n)
        self._tape.append((leaf, shared))
        return {name: tensor.detach() for name, tensor in shared.items()}

    def backward(self, stage: int, shared_gradients: Tensors) -> Tensor:
        """Return the gradient of a stage's totals, given the gradients of the shared values."""
        totals, shared = self._tape[stage]
        of_weights, of_totals = gradients(
            [shared[name] for name in shared_gradients],
            seeds=[*shared_gradients.values()],
            inputs=[self.weights, {"totals": totals}],
        )
        self.weight_gradients.update(of_weights)  # a weight is used in one stage's finish
        return of_totals["totals"]


def finish_all(
    network: NeuralTopicModel, weights: Tensors, averages: Tensors
) -> dict[str, Tensors]:
    """Return, by stage name, the shared values that follow from running averages of the sums."""
    return {
        stage.name: stage.finish(weights, averages[stage.name], 1.0) for stage in network.stages
    }


def run_through(
    network: NeuralTopicModel, weights: Tensors, batch: Batch, shared: Shared | None
) -> tuple[Tensor, Tensors]:
    """Run a whole pass over one batch without a cut; return the summed loss, and sums by stage."""

    def share(stage: Stage, total: Tensor) -> Tensors:
        return shared[stage.name] if shared else stage.finish(weights, total, len(batch))

    carried, entered, sums = through(network.stages, weights, batch, share)
    detached = {name: total.detach() for name, total in sums.items()}
    return network.loss(weights, batch, carried, entered), detached


def sums_of_one_document(network: NeuralTopicModel, weights: Tensors) -> Tensors:
    """Return each stage's sums over one document of one word, which have the shapes of all sums."""
    bag = sparse.csr_array(([1.0], [0], [0, 1]), (1, network.n_words))
    batch = network.batch(bag, None, np.zeros((1, network.settings.embedding.dimension)))
    return run_through(network, batch_weights(network, weights, batch), batch, None)[1]
