"""A round of gFedNTM: what the server asks the clients, by the way of normalising batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Payload, Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import NetworkState, Update
from fedtopics.networks import NeuralTopicModel, Tensors, to_arrays, to_tensor, to_tensors
from fedtopics.networks.passes import ServerPass

RoundExchange = Callable[[Agreement, NetworkState, int], Update]


def exchange_of(settings: GFedNTMSettings, has_cuts: bool, n_clients: int) -> RoundExchange:
    """Return how a round is exchanged."""
    if settings.local_steps > 1:
        return partial(_averaged_steps, settings.norm == "server")
    if settings.norm == "server":
        return _server_statistics
    # One client's own statistics are those of all; without a cut there are none.
    if settings.norm == "local" or n_clients == 1 or not has_cuts:
        return _own_statistics
    return _synchronised


def client_weights(network: NeuralTopicModel, weights: Tensors) -> dict[str, NDArray[Any]]:
    """Return the weights that clients need: the rest is the server's to finish totals with."""
    return to_arrays({n: t for n, t in weights.items() if n not in network.finish_weights})


def _synchronised(agreement: Agreement, state: NetworkState, round_: int) -> Update:
    """Take one pass over the union of the minibatches, a sum at each of its cuts."""
    network, shapes = state.network, state.shapes
    server = ServerPass(network, state.weights)
    ask = partial(agreement.sum, round=round_)
    weights = client_weights(network, state.weights)
    shared: dict[str, Any] = {}
    sums = {}
    for number, stage in enumerate(network.stages):
        summed = {"sums": shapes.sums[stage.name]}
        reply = ask("forward", summed, stage=number, shared=shared, weights=weights)
        weights = {}  # sent once
        sums[stage.name] = reply["sums"]
        totals = to_tensor(reply["sums"], torch.float64)
        shared = to_arrays(server.finish(number, totals, reply["documents"]))
    *earlier, last = [shapes.shared[stage.name] for stage in network.stages]
    reply = ask("loss", {"loss": (), "shared": last}, shared=shared)
    documents, loss = reply["documents"], reply["loss"]
    templates = [{"weights": shapes.client_weights}, *({"shared": each} for each in earlier)]
    for number, template in reversed(list(enumerate(templates))):
        upstream = to_tensors(reply["shared"], network.dtype)
        gradient = server.backward(number, upstream).numpy()
        reply = ask("backward", template, stage=number, gradient=gradient)
    total = reply["weights"] | to_arrays(server.weight_gradients)
    return Update(total, documents, loss, sums)


def _own_statistics(agreement: Agreement, state: NetworkState, round_: int) -> Update:
    """Let each client normalise by its own minibatch: the paper's Algorithm 1."""
    fields: Template = {"weights": state.shapes.weights, "shared": {}}
    payload = {"weights": to_arrays(state.weights), "shared": {}}
    reply = _pass_once(agreement, state, "gradients", fields, round_, **payload)
    return Update(reply["weights"], reply["documents"], reply["loss"], reply["sums"])


def _server_statistics(agreement: Agreement, state: NetworkState, round_: int) -> Update:
    """Normalise by the server's running statistics, in one exchange."""
    network, shapes = state.network, state.shapes
    server = ServerPass(network, state.weights)
    payload = {
        "weights": client_weights(network, state.weights),
        "shared": {
            stage.name: to_arrays(server.finish(i, state.averages[stage.name], 1.0))
            for i, stage in enumerate(network.stages)
        },
    }
    fields: Template = {"weights": shapes.client_weights, "shared": shapes.shared}
    reply = _pass_once(agreement, state, "gradients", fields, round_, **payload)
    for i, stage in enumerate(network.stages):
        server.backward(i, to_tensors(reply["shared"][stage.name], network.dtype))
    total = reply["weights"] | to_arrays(server.weight_gradients)
    return Update(total, reply["documents"], reply["loss"], reply["sums"])


def _averaged_steps(
    by_averages: bool, agreement: Agreement, state: NetworkState, round_: int
) -> Update:
    """Let each client take several steps and average how far they went (FedAvg)."""
    averages = to_arrays(state.averages) if by_averages else {}
    payload = {"weights": to_arrays(state.weights), "averages": averages}
    fields: Template = {"descent": state.shapes.weights}
    reply = _pass_once(agreement, state, "steps", fields, round_, **payload)
    return Update(reply["descent"], reply["documents"], reply["loss"], reply["sums"])


def _pass_once(
    agreement: Agreement,
    state: NetworkState,
    function: str,
    fields: Template,
    round_: int,
    **payload: Any,
) -> dict[str, Any]:
    """Ask for a whole pass over a minibatch, whose reply has sums and loss besides."""
    template: Template = {**fields, "sums": state.shapes.sums, "loss": ()}
    return agreement.sum(function, template, round=round_, **payload)


def first_sums(agreement: Agreement, state: NetworkState, round_: int) -> tuple[Payload, int]:
    """Ask for the first stage's sums over a round's minibatches, and how many documents."""
    stage = state.network.stages[0].name
    template: Template = {"sums": state.shapes.sums[stage]}
    weights = client_weights(state.network, state.weights)
    payload = {"stage": 0, "shared": {}, "weights": weights}
    reply = agreement.sum("forward", template, round=round_, **payload)
    return {stage: reply["sums"]}, reply["documents"]
