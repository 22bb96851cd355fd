"""Federated neural topic models (gFedNTM), Algorithm 1: agree on words, then combine gradients.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, Algorithm 1. With batch
normalisation inside each client, the algorithm is not "equivalent to a centralised training": it
fails if clients write about different things (docs/concepts/exactness.md). So we normalise by sums
over all clients (``norm="sync"``). Two more defaults differ: Adam, and minibatches in proportion to
clients' numbers of documents. ``preset="paper"`` has all three as published.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.events import RoundFacts
from fedtopics.methods.core.final import describe
from fedtopics.methods.core.interfaces import Run
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.training import Arrays, Program, RoundResult
from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.gfedntm.gradients import Gradients, Update, evaluation_payload
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import AVERAGES, NetworkState, beta_of, check_fits, set_weights
from fedtopics.methods.registry import Method
from fedtopics.model.topics import Topics
from fedtopics.networks.passes import finish_all


class GFedNTM(Program[GFedNTMSettings, NetworkState]):
    """The method's program; training a model further keeps everything except Adam's moments."""

    def __init__(self, plan: Plan[GFedNTMSettings]) -> None:
        super().__init__(plan)
        if self.continued is not None:
            check_fits(self.continued, plan.settings)

    def first_state(self, agreement: Agreement, run: Run) -> NetworkState:
        """Return W(0): random, from a model, or from topics that were given or are found first."""
        settings = self.settings
        state = NetworkState.initial(settings, agreement, self.plan.seed)
        set_weights(state, agreement, self.plan)
        # In the first round, running statistics are those of the round's own minibatches.
        if settings.norm == "server" and not state.averages and state.network.stages:
            first = Gradients(settings, agreement, state, self.rounds_before + 1)
            sums, documents = first.first_sums()
            state.average(sums, documents)
        return state

    def exchange(self, agreement: Agreement, state: NetworkState, round_: int) -> Update:
        return Gradients(self.settings, agreement, state, round_).sum()

    def step(
        self, agreement: Agreement, state: NetworkState, reply: Update, round_: int
    ) -> RoundResult[NetworkState]:
        """Take the optimiser's step in place; "sgd" is W(r) = W(r - 1) - rate * gradient (3)."""
        settings = self.settings
        before = {n: w.clone() for n, w in state.weights.items()} if settings.tolerance else {}
        rounds_done = (round_ - self.rounds_before - 1) * (settings.learning_rate_decay == "linear")
        rate_factor = max(1 - rounds_done / settings.max_rounds, 0.01)
        state.optimizer.step(reply.gradients, reply.documents, rate_factor)
        state.average(reply.sums, reply.documents)
        facts: RoundFacts = {"loss": reply.loss / reply.documents, "documents": reply.documents}
        if not before:
            return RoundResult(state, facts)
        moved = sum(float((w - before[n]).square().sum()) for n, w in state.weights.items())
        size = sum(float(w.square().sum()) for w in before.values())
        return RoundResult(state, facts, change=float(np.sqrt(moved / size)))

    def validate(
        self, agreement: Agreement, state: NetworkState, round_: int
    ) -> tuple[float, int] | None:
        if not self.settings.validation_share or round_ % self.settings.validate_every:
            return None
        template, payload = {"loss": agreement.loss()}, evaluation_payload(state)
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
        state = NetworkState.initial(self.settings, agreement, self.plan.seed)
        state.restore(arrays)
        return state

    @staticmethod
    def topics_of(settings: Any, n_words: int, arrays: Arrays) -> NDArray[np.float64]:
        return beta_of(settings.build(n_words), arrays)

    def model(self, agreement: Agreement, state: NetworkState, rounds: int, run: Run) -> Topics:
        finished = finish_all(state.network, state.weights, state.averages)
        shared = finished | {AVERAGES: state.averages}
        trained = state.network, state.weights, rounds, shared
        make = self.made(*trained, length=agreement.length)
        return describe(agreement, self.settings, evaluation_payload(state), make)


METHOD = Method(
    "gfedntm", "gFedNTM", GFedNTMSettings, GFedNTM, GFedNTMClient, version=4,
    starts_from_models=True,
)  # fmt: skip
