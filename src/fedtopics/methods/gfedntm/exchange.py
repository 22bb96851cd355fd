"""The exchanges of a round of gFedNTM, which depend on how batches are normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray

from fedtopics.methods.core.aggregation import Payload
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.replies import Announced, Field, Template
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import NetworkState, Update
from fedtopics.networks.base import Tensors, to_arrays, to_tensor, to_tensors
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.networks.passes import ServerPass


def add_up_gradients(
    settings: GFedNTMSettings, agreement: Agreement, state: NetworkState, round_: int
) -> Update:
    """Let the clients compute gradients, or take local steps; return their sum."""
    if settings.local_steps > 1:
        averages = to_arrays(state.averages) if settings.norm == "server" else {}
        return _local_steps(settings, averages, agreement, state, round_)
    if settings.norm == "server":
        return _server_statistics(settings, agreement, state, round_)
    # A single client's statistics are those of all; without a cut there are none.
    local = len(agreement.clients.names) == 1 or not state.network.stages
    if settings.norm == "local" or local:
        return _client_statistics(settings, agreement, state, round_)
    return _synchronised_statistics(settings, agreement, state, round_)


def _fields(state: NetworkState, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Field]:
    """Return the template of arrays in the network's precision."""
    dtype = str(state.network.dtype).removeprefix("torch.")
    return {name: Field(shape, dtype=dtype) for name, shape in shapes.items()}


def _sums(state: NetworkState) -> dict[str, Field]:
    """Return the template of the sums of each stage."""
    sums = state.shapes.sums
    return {
        stage.name: Field(sums[stage.name], squares=stage.squares) for stage in state.network.stages
    }


def _rows(state: NetworkState, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Field]:
    """Return the template of gradients, some of which come as rows of the words there are."""
    fields = _fields(state, shapes)
    words = fields.keys() & set(state.network.row_weights)
    return fields | {name: replace(fields[name], rows=True) for name in words}


def client_weights(network: NeuralTopicModel, weights: Tensors) -> dict[str, NDArray[Any]]:
    """Return the weights that clients need; the server finishes totals with the rest."""
    return to_arrays({n: t for n, t in weights.items() if n not in network.finish_weights})


def _synchronised_statistics(
    settings: GFedNTMSettings, agreement: Agreement, state: NetworkState, round_: int
) -> Update:
    """Compute one pass over the union of the minibatches, with a sum at each of its cuts."""
    network, shapes = state.network, state.shapes
    server = ServerPass(network, state.weights)
    same = Announced(agreement.sizes, same=True)

    def ask(function: str, template: Template, **payload: Any) -> dict[str, Any]:
        return agreement.sum(function, {**template, "documents": same}, round=round_, **payload)

    weights = client_weights(network, state.weights)
    shared: dict[str, Any] = {}
    sums = {}
    for number, stage in enumerate(network.stages):
        summed = {"sums": _sums(state)[stage.name]}
        reply = ask("forward", summed, stage=number, shared=shared, weights=weights)
        weights = {}  # sent once
        sums[stage.name] = reply["sums"]
        totals = to_tensor(reply["sums"], torch.float64)
        shared = to_arrays(server.finish(number, totals, reply["documents"]))
    *earlier, last = [_fields(state, shapes.shared[stage.name]) for stage in network.stages]
    reply = ask("loss", {"loss": agreement.loss(), "shared": last}, shared=shared)
    documents, loss = reply["documents"], reply["loss"]
    templates = [
        {"weights": _rows(state, shapes.client_weights)},
        *({"shared": each} for each in earlier),
    ]
    for number, template in reversed(list(enumerate(templates))):
        upstream = to_tensors(reply["shared"], network.dtype)
        gradient = server.backward(number, upstream).numpy()
        reply = ask("backward", template, stage=number, gradient=gradient)
    total = reply["weights"] | to_arrays(server.weight_gradients)
    return Update(total, documents, loss, sums)


def _client_statistics(
    settings: GFedNTMSettings, agreement: Agreement, state: NetworkState, round_: int
) -> Update:
    """Normalise at each client by its own minibatch: the paper's Algorithm 1."""
    fields: Template = {"weights": _rows(state, state.shapes.weights), "shared": {}}
    payload = {"weights": to_arrays(state.weights), "shared": {}}
    return _pass_once(settings, agreement, state, "gradients", fields, round_, **payload)[0]


def _server_statistics(
    settings: GFedNTMSettings, agreement: Agreement, state: NetworkState, round_: int
) -> Update:
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
    fields: Template = {
        "weights": _rows(state, shapes.client_weights),
        "shared": {name: _fields(state, shared) for name, shared in shapes.shared.items()},
    }
    update, shared = _pass_once(settings, agreement, state, "gradients", fields, round_, **payload)
    for i, stage in enumerate(network.stages):
        server.backward(i, to_tensors(shared[stage.name], network.dtype))
    update.gradients |= to_arrays(server.weight_gradients)
    return update


def _local_steps(
    settings: GFedNTMSettings, averages: Payload, agreement: Agreement, state: NetworkState,
    round_: int,
) -> Update:  # fmt: skip
    """Let each client take several steps, and average their differences (FedAvg)."""
    payload = {"weights": to_arrays(state.weights), "averages": averages}
    looks = {name: size * settings.local_steps for name, size in agreement.sizes.items()}
    fields: Template = {
        "descent": _fields(state, state.shapes.weights), "documents": Announced(looks),
    }  # fmt: skip
    return _pass_once(settings, agreement, state, "steps", fields, round_, **payload)[0]


def _pass_once(
    settings: GFedNTMSettings, agreement: Agreement, state: NetworkState, function: str,
    fields: Template, round_: int, **payload: Any,
) -> tuple[Update, Any]:  # fmt: skip
    """Ask for a whole pass over a minibatch; return the update, and gradients of what is shared."""
    loss = agreement.loss(settings.local_steps)
    template: Template = {**fields, "sums": _sums(state), "loss": loss}
    reply = agreement.sum(function, template, round=round_, **payload)
    total = reply["descent"] if "descent" in fields else reply["weights"]
    return Update(total, reply["documents"], reply["loss"], reply["sums"]), reply.get("shared")


def first_sums(agreement: Agreement, state: NetworkState, round_: int) -> tuple[Payload, int]:
    """Return the first stage's sums over a round's minibatches, and the number of documents."""
    stage = state.network.stages[0].name
    template: Template = {"sums": _sums(state)[stage]}
    weights = client_weights(state.network, state.weights)
    payload = {"stage": 0, "shared": {}, "weights": weights}
    reply = agreement.sum("forward", template, round=round_, **payload)
    return {stage: reply["sums"]}, reply["documents"]
