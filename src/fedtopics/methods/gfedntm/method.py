"""Federated neural topic models: vocabulary consensus, then combined minibatch gradients.

Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models (gFedNTM), Algorithm 1. `GFedNTM`
is what the server executes; `client` has what a client does.

We deviate in one point, because Algorithm 1 does not do what the paper claims for it ("equivalent
to a centralised training"): batch normalisation is synchronised over the clients by sums
(``norm="sync"``). With each client's own statistics (``norm="local"``, the paper's way), clients
that write about different things destroy the model; see docs/exactness.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedtopics.methods.aggregation import ServerOptimizer
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Run
from fedtopics.methods.events import RoundFacts
from fedtopics.methods.final import describe
from fedtopics.methods.gfedntm.exchange import client_weights, exchange_of, first_sums
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import NetworkState, Update
from fedtopics.methods.gfedntm.warm_start import AVERAGES, check_fits, start_network
from fedtopics.methods.plan import Plan
from fedtopics.methods.training import Arrays, Program, Step
from fedtopics.model.topic_model import TopicModel
from fedtopics.networks import to_arrays
from fedtopics.networks.passes import finish_all, shapes_of

SLOWEST = 0.01  # of the learning rate


class GFedNTM(Program[GFedNTMSettings, NetworkState]):
    """The server's half.

    A model of this network that is trained further goes on with all its weights and running
    statistics, and its rounds count on; the moments of Adam are no part of a model, and start anew.

    Parameters
    ----------
    plan : Plan

    Raises
    ------
    StudyError
        If the plan starts from another number of topics, or is to go on as it is and is another
        network.
    """

    def __init__(self, plan: Plan[GFedNTMSettings]) -> None:
        super().__init__(plan)
        if plan.start is not None:
            plan.start.check_number(plan.settings.n_components)
            if plan.start.continued is not None:
                check_fits(plan.start.continued, plan.settings)

    def first_state(self, agreement: Agreement, run: Run) -> NetworkState:
        """Draw the first weights, or take them from a model, from topics or from anchors."""
        settings, start = self.settings, self.plan.start
        state = self._initial_state(agreement)
        if start is not None:
            start_network(state, start, agreement.vocabulary.words)
        elif settings.initialisation == "anchors":
            topics = agreement.first_topics(settings.n_components)
            state.network.start_from(state.weights, topics)
        if settings.norm == "server" and not state.averages and state.network.stages:
            sums, documents = first_sums(agreement, state, self.first_round + 1)
            state.average(sums, documents)
        return state

    def exchange(self, agreement: Agreement, state: NetworkState, round_: int) -> Update:
        """Ask for the gradients of a round's minibatches (Algorithm 1, GetClientGrad)."""
        has_cuts, n_clients = bool(state.network.stages), len(agreement.clients.names)
        return exchange_of(self.settings, has_cuts, n_clients)(agreement, state, round_)

    def step(
        self, agreement: Agreement, state: NetworkState, found: Update, round_: int
    ) -> Step[NetworkState]:
        """Move the weights, in place (equation 3)."""
        measured = self.settings.tolerance > 0
        before = {n: w.clone() for n, w in state.weights.items()} if measured else {}
        part = 1.0
        if self.settings.learning_rate_decay == "linear":
            done = round_ - self.first_round - 1
            part = max(1 - done / self.settings.max_rounds, SLOWEST)
        state.optimizer.step(found.gradients, found.documents, part)
        state.average(found.sums, found.documents)
        facts: RoundFacts = {"loss": found.loss / found.documents, "documents": found.documents}
        if not measured:
            return Step(state, facts)
        moved = sum(float((w - before[n]).square().sum()) for n, w in state.weights.items())
        size = sum(float(w.square().sum()) for w in before.values())
        return Step(state, facts, change=float(np.sqrt(moved / size)))

    def validate(
        self, agreement: Agreement, state: NetworkState, round_: int
    ) -> tuple[float, int] | None:
        """Return the mean loss of documents held back and their number, if it is time for it."""
        if not self.settings.validation_share or round_ % self.settings.validate_every:
            return None
        payload = _for_evaluation(state)
        reply = agreement.sum("validate", {"loss": ()}, round=round_, **payload)
        return reply["loss"] / reply["documents"], reply["documents"]

    def best(self, state: NetworkState) -> Arrays:
        """Copy what makes the model."""
        return state.snapshot()

    def with_best(self, state: NetworkState, best: Arrays) -> NetworkState:
        """Return the state whose copy it is."""
        state.restore_snapshot(best)
        return state

    def save(self, state: NetworkState) -> Arrays:
        """Turn a state into named arrays."""
        return state.arrays()

    def load(self, agreement: Agreement, arrays: Arrays) -> NetworkState:
        """Turn back."""
        state = self._initial_state(agreement)
        state.restore(arrays)
        return state

    def model(self, agreement: Agreement, state: NetworkState, rounds: int, run: Run) -> TopicModel:
        """Make the model of the last state."""
        finished = finish_all(state.network, state.weights, state.averages)
        make = partial(
            TopicModel,
            inference=state.network,
            weights=state.weights,
            shared=finished | {AVERAGES: state.averages},
            text=self.plan.text,
            info={
                "method": "gfedntm",
                "rounds": rounds,
                "seed": self.plan.seed,
                "length": agreement.length,
            },
        )
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
