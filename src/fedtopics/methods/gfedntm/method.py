"""Federated neural topic models (gFedNTM), Algorithm 1: agree on words, then combine gradients.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, Algorithm 1. With batch
normalisation inside each client, the algorithm is not "equivalent to a centralised training": it
fails if clients write about different things (docs/concepts/exactness.md). So we normalise by sums
over all clients (``norm="sync"``). Two more defaults differ: Adam, and minibatches in proportion to
clients' numbers of documents. ``preset="paper"`` has all three as published.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.events import RoundFacts
from fedtopics.contract.interfaces import Run
from fedtopics.contract.published import Reply
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.training import (
    Arrays,
    Program,
    RoundResult,
    with_prefix,
    without_prefix,
)
from fedtopics.methods.gfedntm.client import GFedNTMClient, Passes
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import (
    AVERAGES,
    NetworkState,
    check_fits,
    set_weights,
    tensors_of,
)
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics
from fedtopics.networks.base import Stage, to_arrays, to_tensor, to_tensors
from fedtopics.networks.passes import ServerPass, finish_all


def client_weights(state: NetworkState) -> dict[str, NDArray[Any]]:
    return to_arrays(
        {
            name: weight
            for name, weight in state.weights.items()
            if name not in state.network.finish_weights
        }
    )


def evaluation_payload(state: NetworkState) -> dict[str, Any]:
    """Return the parts of the network that clients need to evaluate documents."""
    shared = finish_all(state.network, state.weights, state.averages)
    return {
        "weights": client_weights(state),
        "shared": {stage: to_arrays(values) for stage, values in shared.items()},
    }


class GFedNTM(Program[GFedNTMSettings, NetworkState]):
    """The method's program; training a model further keeps everything except Adam's moments."""

    def __init__(self, plan: Plan[GFedNTMSettings]) -> None:
        super().__init__(plan)
        if self.continued is not None:
            check_fits(self.continued, plan.settings)

    def first_state(self, agreement: Agreement, run: Run) -> NetworkState:
        """Return W(0): random, from a model, or from topics that were given or are found first."""
        state = NetworkState.initial(self.settings, agreement, self.plan.seed)
        set_weights(state, agreement, self.plan)
        # In the first round, running statistics are those of the round's own minibatches.
        if self.settings.norm == "server" and not state.averages and state.network.stages:
            reply = agreement.ask(
                Passes.batch_sums,
                round=self.rounds_before + 1,
                stage=0,
                shared={},
                weights=client_weights(state),
            )
            state.average({state.network.stages[0].name: reply["sums"]}, reply["documents"])
        return state

    def exchange(self, agreement: Agreement, state: NetworkState, round_: int) -> Reply:
        """Sum the round's gradients, in exchanges that depend on how batches are normalised."""
        if self.settings.local_steps > 1:  # clients' changes are averaged (FedAvg)
            reply = agreement.ask(
                GFedNTMClient.weight_changes,
                round=round_,
                weights=to_arrays(state.weights),
                averages=to_arrays(state.averages) if self.settings.norm == "server" else {},
            )
            return reply | {"weights": reply["descent"]}
        stages = state.network.stages
        # A single client's statistics are those of all clients; without a cut there are none.
        if self.settings.norm == "sync" and len(agreement.clients.names) > 1 and stages:
            return self._synchronised_statistics(agreement, state, round_)
        return self._in_one_exchange(
            agreement, state, round_, stages if self.settings.norm == "server" else ()
        )

    def _synchronised_statistics(
        self, agreement: Agreement, state: NetworkState, round_: int
    ) -> Reply:
        """Compute one pass over the union of the minibatches, with a sum at each of its cuts."""
        network = state.network
        server = ServerPass(network, state.weights)
        weights = client_weights(state)
        shared: dict[str, Any] = {}
        sums = {}
        for number, stage in enumerate(network.stages):
            reply = agreement.ask(
                Passes.batch_sums, round=round_, stage=number, shared=shared, weights=weights
            )
            weights = {}  # sent once
            sums[stage.name] = reply["sums"]
            totals = to_tensor(reply["sums"], torch.float64)
            shared = to_arrays(server.finish(number, totals, reply["documents"]))
        reply = agreement.ask(Passes.topic_gradients, round=round_, shared=shared)
        whole = {"documents": reply["documents"], "loss": reply["loss"], "sums": sums}
        for number in reversed(range(len(network.stages))):
            upstream = to_tensors(reply["shared"], network.dtype)
            reply = agreement.ask(
                Passes.weight_gradients,
                round=round_,
                stage=number,
                gradient=server.backward(number, upstream).numpy(),
            )
        return whole | {"weights": reply["weights"] | to_arrays(server.weight_gradients)}

    def _in_one_exchange(
        self, agreement: Agreement, state: NetworkState, round_: int, stages: Sequence[Stage]
    ) -> Reply:
        """Normalise `stages` by the server's running statistics, or else at clients (Algorithm 1).

        Clients without such statistics normalise by their own minibatches, as in the paper.
        """
        server = ServerPass(state.network, state.weights)
        weights = client_weights(state) if stages else to_arrays(state.weights)
        shared = {
            stage.name: to_arrays(server.finish(i, state.averages[stage.name], 1.0))
            for i, stage in enumerate(stages)
        }
        reply = agreement.ask(Passes.gradients, round=round_, weights=weights, shared=shared)
        for i, stage in enumerate(stages):
            server.backward(i, to_tensors(reply["shared"][stage.name], state.network.dtype))
        return reply | {"weights": reply["weights"] | to_arrays(server.weight_gradients)}

    def step(
        self, agreement: Agreement, state: NetworkState, reply: Reply, round_: int
    ) -> RoundResult[NetworkState]:
        """Take the optimiser's step in place; "sgd" is W(r) = W(r - 1) - rate * gradient (3)."""
        settings = self.settings
        before = {n: w.clone() for n, w in state.weights.items()} if settings.tolerance else {}
        rounds_done = (round_ - self.rounds_before - 1) * (settings.learning_rate_decay == "linear")
        rate_factor = max(1 - rounds_done / settings.max_rounds, 0.01)
        documents = reply["documents"]
        state.optimizer.step(reply["weights"], documents, rate_factor)
        state.average(reply["sums"], documents)
        facts: RoundFacts = {"loss": reply["loss"] / documents, "documents": documents}
        if not before:
            return RoundResult(state, facts)
        moved = sum(float((w - before[n]).square().sum()) for n, w in state.weights.items())
        squared_norm = sum(float(w.square().sum()) for w in before.values())
        return RoundResult(state, facts, change=float(np.sqrt(moved / squared_norm)))

    def validate(
        self, agreement: Agreement, state: NetworkState, round_: int
    ) -> tuple[float, int] | None:
        if not self.settings.validation_share or round_ % self.settings.validate_every:
            return None
        reply = agreement.ask(
            GFedNTMClient.validation_loss, round=round_, **evaluation_payload(state)
        )
        return reply["loss"] / reply["documents"], reply["documents"]

    def best(self, state: NetworkState) -> Arrays:
        return state.model_arrays()

    def save(self, state: NetworkState) -> Arrays:
        return state.model_arrays() | with_prefix("optimizer", state.optimizer.state())

    def load(self, agreement: Agreement, arrays: Arrays) -> NetworkState:
        state = NetworkState.initial(self.settings, agreement, self.plan.seed)
        state.restore_model(arrays)
        state.optimizer.restore(without_prefix("optimizer", arrays))
        return state

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        network = settings.build(n_words)
        weights = tensors_of("weights", arrays)
        shared = finish_all(network, weights, tensors_of("averages", arrays))
        return np.asarray(network.beta(weights, shared), np.float64)

    def model(self, agreement: Agreement, state: NetworkState, rounds: int, run: Run) -> Topics:
        shared = {
            **finish_all(state.network, state.weights, state.averages),
            AVERAGES: state.averages,
        }
        return assemble_model(
            agreement,
            self.settings,
            evaluation_payload(state),
            self.made(state.network, state.weights, rounds, shared, length=agreement.length),
        )


METHOD = Method(
    name="gfedntm",
    title="gFedNTM",
    settings=GFedNTMSettings,
    program=GFedNTM,
    client=GFedNTMClient,
    version=4,
    starts_from_models=True,
)
