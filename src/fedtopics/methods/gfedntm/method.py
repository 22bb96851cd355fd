"""Federated neural topic models: vocabulary consensus, then combined minibatch gradients.

Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models (gFedNTM), Algorithm 1.
`GFedNTM` is what the server executes, `GFedNTMClient` what a client executes.

We deviate in one point, because Algorithm 1 does not do what the paper claims for it ("equivalent
to a centralised training"): batch normalisation is synchronised over the clients by sums
(``norm="sync"``). With each client's own statistics (``norm="local"``, the paper's way), clients
that write about different things destroy the model; see docs/exactness.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.methods.aggregation import Payload, Rows, ServerOptimizer, Template
from fedtopics.methods.agreement import Agreement, describe, reach_agreement
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.client import Documents, in_order
from fedtopics.methods.gfedntm.state import State, Update
from fedtopics.methods.gfedntm.warm_start import AVERAGES, begin, check_fits
from fedtopics.methods.minibatches import MinibatchClient
from fedtopics.methods.settings import GFedNTMSettings
from fedtopics.methods.warm_start import Start
from fedtopics.model.topic_model import TopicModel
from fedtopics.networks import (
    Batch,
    NeuralTopicModel,
    Noise,
    Tensors,
    batch_weights,
    to_arrays,
    to_tensor,
    to_tensors,
)
from fedtopics.networks.passes import (
    ClientPass,
    ServerPass,
    finish_all,
    gradients,
    leaves,
    run_through,
    shapes_of,
)
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import TextRules, VocabularyLimits

SLOWEST = 0.01  # of the learning rate


class GFedNTM:
    """The server's half.

    Parameters
    ----------
    settings : GFedNTMSettings
    text : TextRules
    limits : VocabularyLimits
    seed : int
    start : Start, optional
        A model or topics to begin with. A model of this network that is trained further goes on
        with all its weights and running statistics, and its rounds count on; the moments of Adam
        are no part of a model, and begin anew.

    Raises
    ------
    StudyError
        If `start` has another number of topics, or is to go on as it is and is another network.
    """

    def __init__(
        self,
        settings: GFedNTMSettings,
        text: TextRules,
        limits: VocabularyLimits,
        seed: int,
        start: Start | None = None,
    ) -> None:
        self.settings = settings
        self.text = text
        self.limits = limits
        self.seed = seed
        self.start = start
        self._further = None if start is None else start.further
        self._done = 0 if start is None else start.done
        if start is not None:
            start.check_number(settings.n_components)
        if self._further is not None:
            check_fits(self._further, settings)

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Execute Algorithm 1: agree on the words, then round after round on the weights."""
        settings = self.settings
        draw = settings.draw(self.seed)
        agreement = reach_agreement(
            clients, run, self.limits, settings.n_components, draw, self._further
        )
        network = settings.build(len(agreement.vocabulary))
        state = self._first_state(network)
        asked = _Asked(agreement, network)
        saved = run.restore()
        if saved is not None:
            state.restore(saved)
        elif self.start is not None:
            begin(state, network, self.start, agreement.vocabulary.words)
        elif settings.initialisation == "anchors":
            network.start_from(state.weights, agreement.first_topics(settings.n_components))
        exchange = self._exchange(network, len(clients.names))
        if settings.norm == "server" and not state.averages:
            self._first_average(asked, state)
        last = state.round if state.stopped else self._done + settings.max_rounds
        for number in run.rounds(state.round, last):
            state.round = number
            update, report = agreement.round(number, partial(exchange, asked, state))
            if not np.isfinite(update.loss):
                raise StudyError(
                    f"The loss of round {state.round} is no number; lower learning_rate."
                )
            change = self._step(state, update)
            run.event(
                "round",
                round=state.round,
                loss=update.loss / update.documents,
                documents=update.documents,
                **report,
            )
            stop = self._stop(asked, state, change, run)
            state.stopped = bool(stop)
            if run.due(state.round) or stop:
                run.checkpoint(state.checkpoint())
            if stop:
                run.event("stopped", round=state.round, reason=stop)
                break
        if state.best:
            state.adopt(state.best)
        # One round more, so that all that the model says is of the same clients.
        work = partial(self._model, agreement, network, state)
        return clients.round(state.round + 1, work)[0]

    def _first_state(self, network: NeuralTopicModel) -> State:
        weights = network.initial_weights(self.seed)
        rate = 1.0 if self.settings.optimizer == "fedavg" else self.settings.learning_rate
        optimizer = ServerOptimizer(self.settings.optimizer, weights, rate, self.settings.beta1)
        return State(weights, optimizer)

    def _exchange(
        self, network: NeuralTopicModel, n_clients: int
    ) -> Callable[[_Asked, State], Update]:
        if self.settings.local_steps > 1:
            return self._averaged_steps
        if self.settings.norm == "server":
            return self._server_statistics
        # One client's own statistics are those of all; without a cut there are none.
        if self.settings.norm == "local" or n_clients == 1 or not network.stages:
            return self._own_statistics
        return self._synchronised

    def _synchronised(self, clients: _Asked, state: State) -> Update:
        """Take one pass over the union of the minibatches, a sum at each of its cuts."""
        network, shapes = clients.network, clients.shapes
        own = ServerPass(network, state.weights)
        ask = partial(clients.sum, round=state.round)
        weights = _client_weights(network, state.weights)
        shared: dict[str, Any] = {}
        sums = {}
        for number, stage in enumerate(network.stages):
            summed = {"sums": shapes.sums[stage.name]}
            reply = ask("forward", summed, stage=number, shared=shared, weights=weights)
            weights = {}  # sent once
            sums[stage.name] = reply["sums"]
            totals = to_tensor(reply["sums"], torch.float64)
            shared = to_arrays(own.finish(number, totals, reply["documents"]))
        *earlier, last = [shapes.shared[stage.name] for stage in network.stages]
        reply = ask("loss", {"loss": (), "shared": last}, shared=shared)
        documents, loss = reply["documents"], reply["loss"]
        templates = [{"weights": shapes.client_weights}, *({"shared": each} for each in earlier)]
        for number, template in reversed(list(enumerate(templates))):
            upstream = to_tensors(reply["shared"], network.dtype)
            gradient = own.backward(number, upstream).numpy()
            reply = ask("backward", template, stage=number, gradient=gradient)
        total = reply["weights"] | to_arrays(own.weight_gradients)
        return Update(total, documents, loss, sums)

    def _own_statistics(self, clients: _Asked, state: State) -> Update:
        """Let each client normalise by its own minibatch: the paper's Algorithm 1."""
        weights = to_arrays(state.weights)
        template = clients.one_pass({"weights": clients.shapes.weights, "shared": {}})
        reply = clients.sum("gradients", template, round=state.round, weights=weights, shared={})
        return Update(reply["weights"], reply["documents"], reply["loss"], reply["sums"])

    def _server_statistics(self, clients: _Asked, state: State) -> Update:
        """Normalise by the server's running statistics, in one exchange."""
        network, shapes = clients.network, clients.shapes
        own = ServerPass(network, state.weights)
        payload = {
            "weights": _client_weights(network, state.weights),
            "shared": {
                stage.name: to_arrays(own.finish(i, state.averages[stage.name], 1.0))
                for i, stage in enumerate(network.stages)
            },
        }
        template: Template = {"weights": shapes.client_weights, "shared": shapes.shared}
        reply = clients.sum("gradients", clients.one_pass(template), round=state.round, **payload)
        for i, stage in enumerate(network.stages):
            own.backward(i, to_tensors(reply["shared"][stage.name], network.dtype))
        total = reply["weights"] | to_arrays(own.weight_gradients)
        return Update(total, reply["documents"], reply["loss"], reply["sums"])

    def _averaged_steps(self, clients: _Asked, state: State) -> Update:
        """Let each client take several steps and average how far they went (FedAvg)."""
        payload = {"weights": to_arrays(state.weights), "averages": to_arrays(state.averages)}
        if self.settings.norm != "server":
            payload["averages"] = {}
        template = clients.one_pass({"descent": clients.shapes.weights})
        reply = clients.sum("steps", template, round=state.round, **payload)
        return Update(reply["descent"], reply["documents"], reply["loss"], reply["sums"])

    def _first_average(self, clients: _Asked, state: State) -> None:
        """Begin the running statistics with those of the first minibatches."""
        if not clients.network.stages:
            return
        stage = clients.network.stages[0].name
        weights = _client_weights(clients.network, state.weights)
        template = {"sums": clients.shapes.sums[stage]}
        first = state.round + 1
        reply = clients.sum("forward", template, round=first, stage=0, shared={}, weights=weights)
        state.average({stage: reply["sums"]}, reply["documents"])

    def _step(self, state: State, update: Update) -> float:
        """Move the weights; return the change relative to their norm."""
        measured = self.settings.tolerance > 0
        before = {n: w.clone() for n, w in state.weights.items()} if measured else {}
        part = 1.0
        if self.settings.learning_rate_decay == "linear":
            part = max(1 - (state.round - self._done - 1) / self.settings.max_rounds, SLOWEST)
        state.optimizer.step(update.gradients, update.documents, part)
        state.average(update.sums, update.documents)
        if not measured:
            return np.inf
        moved = sum(float((w - before[n]).square().sum()) for n, w in state.weights.items())
        size = sum(float(w.square().sum()) for w in before.values())
        return float(np.sqrt(moved / size))

    def _stop(self, clients: _Asked, state: State, change: float, run: Run) -> str:
        """Return why training stops here, or nothing."""
        if change < self.settings.tolerance:
            return f"the weights changed by {change:.2e}, less than the tolerance"
        if not self.settings.validation_share or state.round % self.settings.validate_every:
            return ""
        payload = _evaluation(clients.network, state)
        reply = clients.sum("validate", {"loss": ()}, round=state.round, **payload)
        loss = reply["loss"] / reply["documents"]
        run.event("validation", round=state.round, loss=loss, documents=reply["documents"])
        if loss < state.best_loss:
            state.best, state.best_loss, state.waited = state.snapshot(), loss, 0
            return ""
        state.waited += 1
        if state.waited < self.settings.patience:
            return ""
        return f"no better validation loss than {state.best_loss:.4f} in {state.waited} validations"

    def _model(self, agreement: Agreement, network: NeuralTopicModel, state: State) -> TopicModel:
        make = partial(
            TopicModel,
            inference=network,
            weights=state.weights,
            shared=finish_all(network, state.weights, state.averages) | {AVERAGES: state.averages},
            text=self.text,
            info={
                "method": "gfedntm",
                "rounds": state.round,
                "seed": self.seed,
                "length": agreement.length,
            },
        )
        return describe(agreement, self.settings, _evaluation(network, state), make)


class _Asked:
    """The clients, asked about one network: what their replies look like follows from it."""

    def __init__(self, agreement: Agreement, network: NeuralTopicModel) -> None:
        self.network = network
        self.shapes = shapes_of(network)
        self.sum = agreement.sum

    def one_pass(self, fields: Template) -> Template:
        """Say that a reply also has what every pass over a minibatch gives."""
        return {**fields, "sums": self.shapes.sums, "loss": ()}


class GFedNTMClient(MinibatchClient[GFedNTMSettings]):
    """The client's half: gradients of minibatches, whose noise is a function of (seed, round).

    Raises
    ------
    DataError
        If the network sees embeddings and the documents have none.
    """

    method = "gfedntm"
    version = 4
    published = (
        "size", "vocabulary", "adopt", "projections", "forward", "loss", "backward",
        "gradients", "steps", "validate", "shares", "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: GFedNTMSettings) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        cuts = len(settings.build(1).stages)
        if settings.local_steps > 1:
            round_ = {"steps": f"each round, over {settings.local_steps} minibatches"}
        elif settings.norm == "sync" and cuts > 0:
            often = "each round" if cuts == 1 else "twice a round"
            round_ = {"forward": often, "loss": "each round", "backward": often}
        else:
            round_ = {"gradients": "each round"}
        if settings.norm == "server" and cuts > 0:
            round_ = {"forward": "once"} | round_
        if settings.validation_share:
            round_["validate"] = f"every {settings.validate_every} rounds"
        return round_

    def __init__(self, name: str, corpus: Corpus, settings: GFedNTMSettings, *given: Any) -> None:
        super().__init__(name, corpus, settings, *given)
        needed = settings.needed_embedding is not None
        self._embeddings = corpus.embeddings if needed else None
        if needed and self._embeddings is None:
            raise DataError(
                f"The documents of client {name!r} have no embeddings, which the network "
                f"{settings.network!r} sees; compute them first with Study.embedded."
            )

    @property
    def held_back(self) -> float:
        """Share of the documents that training does not see."""
        return self.settings.validation_share

    def begin(self, length: float) -> None:
        """Build the network."""
        self._network = self.settings.build(self.bag.shape[1], length)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        """Find theta of all documents by the encoder, some at a time."""
        rows = self.known
        evaluated = self._evaluate(rows, **model)
        for some, (batch, given, used) in zip(in_order(rows), evaluated, strict=True):
            yield some, self._network.theta(used, given, batch).double().numpy()

    def forward(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        stage: int,
        shared: Payload,
        weights: Payload,
    ) -> dict[str, Any]:
        """Run one stage of the pass over this round's minibatch; stage 0 begins it anew.

        Leaves the client
            Sums over the minibatch: of the posterior's parameters and their squares
            (4 n_topics numbers), or of theta and its products (n_topics + n_topics**2).
        """
        if stage == 0:
            batch = self._minibatch(vocabulary, round)
            self._pass = ClientPass(self._network, self._tensors(weights), batch)
        sums = self._pass.forward(stage, self._tensors(shared))
        return {"sums": sums.numpy(), "documents": len(self._pass.batch)}

    def loss(self, vocabulary: str, round: int, shared: Payload) -> dict[str, Any]:  # noqa: A002
        """Compute the loss and its gradient with respect to what all documents share.

        Leaves the client
            The minibatch's summed loss, and summed gradients: of the normalised topics (n_topics,
            n_words) and of the mean of theta (n_topics,).
        """
        loss, gradient = self._pass.loss(self._tensors(shared))
        return {"loss": loss, "shared": to_arrays(gradient), "documents": len(self._pass.batch)}

    def backward(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        stage: int,
        gradient: NDArray[Any],
    ) -> dict[str, Any]:
        """Go back through a stage.

        Leaves the client
            Summed gradients: of what the stage before shares (4 n_topics numbers), or, at the
            first stage, of the weights; of the first layer, the rows of the minibatch's words.
        """
        upstream = self._pass.backward(stage, to_tensor(gradient, torch.float64))
        reply: dict[str, Any] = {"documents": len(self._pass.batch)}
        if stage > 0:
            return reply | {"shared": to_arrays(upstream)}
        weights = self._packed(self._pass.batch, self._pass.weights, self._pass.weight_gradients)
        return reply | {"weights": weights}

    def gradients(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        weights: Payload,
        shared: Mapping[str, Payload],
    ) -> dict[str, Any]:
        """Compute the gradients of this round's minibatch at once (Algorithm 1, GetClientGrad).

        Leaves the client
            The minibatch's summed loss, the sums of `forward`, and the summed gradients of the
            weights and, with the server's statistics, of what they make.
        """
        batch = self._minibatch(vocabulary, round)
        used = leaves(batch_weights(self._network, self._tensors(weights), batch))
        given = {stage: leaves(self._tensors(values)) for stage, values in shared.items()}
        loss, sums = run_through(self._network, used, batch, given or None)
        of_weights, *of_shared = gradients([loss], None, [used, *given.values()])
        return {
            "weights": self._packed(batch, used, of_weights),
            "shared": dict(zip(given, map(to_arrays, of_shared), strict=True)),
            "sums": to_arrays(sums),
            "loss": float(loss.detach()),
            "documents": len(batch),
        }

    def steps(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        weights: Payload,
        averages: Payload,
    ) -> dict[str, Any]:
        """Take several local Adam steps, from fresh moments (FedAvg's client update).

        Leaves the client
            How far the weights went down, times the number of documents; the summed loss and the
            sums of `forward` over the minibatches.
        """
        start = self._tensors(weights)
        local = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        optimizer = torch.optim.Adam(
            local.values(), lr=self.settings.local_learning_rate, fused=True
        )
        running = to_tensors(averages, torch.float64)
        first = (round - 1) * self.settings.local_steps + 1
        totals: Tensors = {}
        loss_sum, documents = 0.0, 0
        for number in range(first, first + self.settings.local_steps):
            batch = self._minibatch(vocabulary, number)
            given = finish_all(self._network, local, running) if running else None
            used = batch_weights(self._network, local, batch)
            loss, sums = run_through(self._network, used, batch, given)
            optimizer.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            totals = {stage: totals.get(stage, 0) + total for stage, total in sums.items()}
            loss_sum, documents = loss_sum + float(loss.detach()), documents + len(batch)
        descent = {n: (start[n] - local[n].detach()) * documents for n in start}
        return {
            "descent": to_arrays(descent),
            "sums": to_arrays(totals),
            "loss": loss_sum,
            "documents": documents,
        }

    def validate(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        weights: Payload,
        shared: Mapping[str, Payload],
    ) -> dict[str, Any]:
        """Compute the loss of the documents held back, without noise.

        Leaves the client
            The summed loss and the number of documents.
        """
        self.check(vocabulary)
        rows = self.minibatches.held
        total = 0.0
        for batch, given, used in self._evaluate(rows, weights, shared):
            total += float(run_through(self._network, used, batch, given)[0])
        return {"loss": total, "documents": len(rows)}

    def _minibatch(self, vocabulary: str, number: int) -> Batch:
        rows = self.minibatch(vocabulary, number)
        noise = self._network.draw(np.random.default_rng([*self._seed, 2, number]), len(rows))
        return self._batch(rows, noise)

    def _batch(self, rows: Documents, noise: Noise | None = None) -> Batch:
        embeddings = None if self._embeddings is None else self._embeddings[rows]
        return self._network.batch(self.bag[rows], noise, embeddings)

    def _evaluate(
        self, rows: NDArray[np.int64], weights: Payload, shared: Mapping[str, Payload]
    ) -> Iterator[tuple[Batch, dict[str, Tensors], Tensors]]:
        tensors = self._tensors(weights)
        given = {stage: self._tensors(values) for stage, values in shared.items()}
        for some in in_order(rows):
            batch = self._batch(some)
            yield batch, given, batch_weights(self._network, tensors, batch)

    def _tensors(self, arrays: Payload) -> Tensors:
        return to_tensors(arrays, self._network.dtype)

    def _packed(self, batch: Batch, weights: Tensors, gradients: Tensors) -> dict[str, Any]:
        """Return a gradient for each weight, zero for those that the loss does not use."""
        tensors = {
            name: gradients[name] if name in gradients else torch.zeros_like(weight)
            for name, weight in weights.items()
        }
        packed: dict[str, Any] = to_arrays(tensors)
        for name in self._network.row_weights:
            rows = batch.spread(tensors[name]).numpy()
            packed[name] = Rows(batch.words, rows, self._network.n_words)
        return packed


def _client_weights(network: NeuralTopicModel, weights: Tensors) -> dict[str, NDArray[Any]]:
    return to_arrays({n: t for n, t in weights.items() if n not in network.finish_weights})


def _evaluation(network: NeuralTopicModel, state: State) -> dict[str, Any]:
    shared = finish_all(network, state.weights, state.averages)
    return {
        "weights": _client_weights(network, state.weights),
        "shared": {stage: to_arrays(values) for stage, values in shared.items()},
    }
