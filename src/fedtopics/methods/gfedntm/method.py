"""Federated neural topic models (gFedNTM), Algorithm 1: a vocabulary, then combined gradients.

The clients' vocabularies are merged and W(0) is drawn. In each round each client computes gradients
of a minibatch by the weights, they are added up, and all participants take the step.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, Algorithm 1. We deviate in one
point, as it is not "equivalent to a centralised training": batch normalisation is synchronised by
sums over the clients (``norm="sync"``). With each client's own statistics (``norm="local"``, as in
the paper), clients that write about different things destroy the model; see docs/exactness.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.methods.core.aggregation import Payload, ServerOptimizer
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.events import RoundFacts
from fedtopics.methods.core.final import describe
from fedtopics.methods.core.interfaces import Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import Announced, Field, Template
from fedtopics.methods.core.training import Arrays, Program, Step
from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import (
    AVERAGES,
    NetworkState,
    Update,
    begin,
    check_fits,
    topics_in,
)
from fedtopics.methods.registry import Method
from fedtopics.model.topic_model import TopicModel
from fedtopics.networks.base import Tensors, to_arrays, to_tensor, to_tensors
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.networks.passes import ServerPass, finish_all, shapes_of

SLOWEST = 0.01  # of the learning rate


class GFedNTM(Program[GFedNTMSettings, NetworkState]):
    """The method's program; a model that is trained further keeps all but the moments of Adam."""

    def __init__(self, plan: Plan[GFedNTMSettings]) -> None:
        super().__init__(plan)
        if plan.start is not None:
            plan.start.check_number(plan.settings.n_components)
            if plan.start.continued is not None:
                check_fits(plan.start.continued, plan.settings)

    def first_state(self, agreement: Agreement, run: Run) -> NetworkState:
        """Draw W(0), or take it from a model or from topics, given or found."""
        settings = self.settings
        state = self._initial_state(agreement)
        begin(state, agreement, self.plan)
        if settings.norm == "server" and not state.averages and state.network.stages:
            sums, documents = first_sums(agreement, state, self.first_round + 1)
            state.average(sums, documents)
        return state

    def exchange(self, agreement: Agreement, state: NetworkState, round_: int) -> Update:
        return add_up_gradients(self.settings, agreement, state, round_)

    def step(
        self, agreement: Agreement, state: NetworkState, reply: Update, round_: int
    ) -> Step[NetworkState]:
        """Update the weights in place: W(r) = W(r - 1) - rate * gradient (equation 3)."""
        measured = self.settings.tolerance > 0
        before = {n: w.clone() for n, w in state.weights.items()} if measured else {}
        part = 1.0
        if self.settings.learning_rate_decay == "linear":
            done = round_ - self.first_round - 1
            part = max(1 - done / self.settings.max_rounds, SLOWEST)
        state.optimizer.step(reply.gradients, reply.documents, part)
        state.average(reply.sums, reply.documents)
        facts: RoundFacts = {"loss": reply.loss / reply.documents, "documents": reply.documents}
        if not measured:
            return Step(state, facts)
        moved = sum(float((w - before[n]).square().sum()) for n, w in state.weights.items())
        size = sum(float(w.square().sum()) for w in before.values())
        return Step(state, facts, change=float(np.sqrt(moved / size)))

    def validate(
        self, agreement: Agreement, state: NetworkState, round_: int
    ) -> tuple[float, int] | None:
        if not self.settings.validation_share or round_ % self.settings.validate_every:
            return None
        payload = _for_evaluation(state)
        template = {"loss": agreement.loss()}
        reply = agreement.sum("validate", template, round=round_, **payload)
        return reply["loss"] / reply["documents"], reply["documents"]

    def best(self, state: NetworkState) -> Arrays:
        return state.model_arrays()

    def with_best(self, state: NetworkState, best: Arrays) -> NetworkState:
        state.restore_model(best)
        return state

    def save(self, state: NetworkState) -> Arrays:
        return state.arrays()

    def load(self, agreement: Agreement, arrays: Arrays) -> NetworkState:
        state = self._initial_state(agreement)
        state.restore(arrays)
        return state

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return topics_in(settings.build(n_words), arrays)

    def model(self, agreement: Agreement, state: NetworkState, rounds: int, run: Run) -> TopicModel:
        finished = finish_all(state.network, state.weights, state.averages)
        shared = finished | {AVERAGES: state.averages}
        length = agreement.length
        make = self.made(state.network, state.weights, rounds, shared, length=length)
        return describe(agreement, self.settings, _for_evaluation(state), make)

    def _initial_state(self, agreement: Agreement) -> NetworkState:
        settings = self.settings
        network = settings.build(len(agreement.vocabulary))
        weights = network.initial_weights(self.plan.seed)
        rate = 1.0 if settings.optimizer == "fedavg" else settings.learning_rate
        optimizer = ServerOptimizer(settings.optimizer, weights, rate, settings.beta1)
        return NetworkState(network, shapes_of(network), weights, optimizer)


def _for_evaluation(state: NetworkState) -> dict[str, Any]:
    shared = finish_all(state.network, state.weights, state.averages)
    return {
        "weights": client_weights(state.network, state.weights),
        "shared": {stage: to_arrays(values) for stage, values in shared.items()},
    }


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


METHOD = Method(
    "gfedntm", "gFedNTM", GFedNTMSettings, GFedNTM, GFedNTMClient, version=4,
    starts_from_models=True,
)  # fmt: skip
