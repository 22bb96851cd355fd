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
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.aggregation import Payload, Rows, ServerOptimizer, Template
from fedtopics.corpus import Corpus
from fedtopics.errors import DataError, StudyError
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.coherence import count_pairs, federated_coherence, is_usual
from fedtopics.methods.minibatches import Minibatches
from fedtopics.methods.settings import GFedNTMSettings
from fedtopics.methods.state import State, Update
from fedtopics.networks import Batch, NeuralTopicModel, Tensors, to_arrays, to_tensor, to_tensors
from fedtopics.passes import (
    ClientPass,
    ServerPass,
    batch_weights,
    finish_all,
    gradients,
    leaves,
    run_through,
    shapes_of,
)
from fedtopics.reading import READINGS, SHOWN, USUAL, Reading, choose
from fedtopics.topics import TopicModel
from fedtopics.vocabulary import (
    TextRules,
    Vocabulary,
    VocabularyLimits,
    agree,
    count_words,
    fingerprint,
)

NAMED: Template = {
    "words": ["words"],
    "document_frequency": ("words",),
    "occurrences": ("words",),
    "documents": (),
}
ADOPTED: Template = {"documents": (), "training": (), "without_known_word": ()}


class GFedNTM:
    """The server's half.

    Parameters
    ----------
    settings : GFedNTMSettings
    text : TextRules
    limits : VocabularyLimits
    seed : int
    """

    def __init__(
        self, settings: GFedNTMSettings, text: TextRules, limits: VocabularyLimits, seed: int
    ) -> None:
        self.settings = settings
        self.text = text
        self.limits = limits
        self.seed = seed

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Execute Algorithm 1: agree on the words, then round after round on the weights."""
        vocabulary = self._agreement(clients, run)
        network = self.settings.build(len(vocabulary))
        state = self._first_state(network)
        saved = run.restore()
        if saved is not None:
            state.restore(saved)
        asked = _Asked(clients, network, vocabulary.fingerprint)
        exchange = self._exchange(network, len(clients.names))
        if self.settings.norm == "server" and not state.averages:
            self._first_average(asked, state)
        for number in run.rounds(state.round, self.settings.max_rounds):
            state.round = number
            update, report = clients.round(number, partial(exchange, asked, state))
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
            if run.due(state.round) or stop:
                run.checkpoint(state.checkpoint())
            if stop:
                run.event("stopped", round=state.round, reason=stop)
                break
        if state.best:
            state.adopt(state.best)
        # One round more, so that all that the model says is of the same clients.
        read = partial(self._model, asked, state, vocabulary)
        return clients.round(state.round + 1, read)[0]

    def _agreement(self, clients: Clients, run: Run) -> Vocabulary:
        """Agree on the words with all clients, or take up what a resumed run agreed on."""
        kept = run.recall("agreement")
        if kept is not None:
            _adopt(clients, kept)
        agreed = kept or clients.round(0, partial(self._agree, clients))[0]
        run.keep("agreement", agreed)
        vocabulary = Vocabulary.of(agreed)
        counts = agreed["counts"]
        run.event("vocabulary", words=len(vocabulary), fingerprint=vocabulary.fingerprint, **counts)
        return vocabulary

    def _agree(self, clients: Clients) -> dict[str, Any]:
        named = clients.call("vocabulary", NAMED)
        vocabulary = agree(named, self.limits)
        self._check_size(vocabulary)
        total = sum(reply["documents"] for reply in named.values())
        length = float(vocabulary.occurrences.sum() / total)
        agreed = vocabulary.plain() | {"total": total, "length": length}
        return agreed | {"counts": _adopt(clients, agreed)}

    def _check_size(self, vocabulary: Vocabulary) -> None:
        if len(vocabulary) < self.settings.n_components:
            raise StudyError(
                f"The agreed vocabulary has {len(vocabulary)} words, fewer than "
                f"n_components = {self.settings.n_components}; ask for fewer topics, give more "
                "documents, or lower min_document_frequency."
            )

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
        reply = clients.sum("forward", template, round=1, stage=0, shared={}, weights=weights)
        state.average({stage: reply["sums"]}, reply["documents"])

    def _step(self, state: State, update: Update) -> float:
        """Move the weights; return the change relative to their norm."""
        measured = self.settings.tolerance > 0
        before = {n: w.clone() for n, w in state.weights.items()} if measured else {}
        state.optimizer.step(update.gradients, update.documents)
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

    def _model(self, clients: _Asked, state: State, vocabulary: Vocabulary) -> TopicModel:
        network = clients.network
        evaluation = _evaluation(network, state)
        template: Template = {"theta": (self.settings.n_components,)}
        words: Template = {"sums": (self.settings.n_components, len(vocabulary))}
        replies = clients.call("shares", template, **evaluation)
        model = TopicModel(
            network=network,
            weights=state.weights,
            shared=finish_all(network, state.weights, state.averages),
            vocabulary=vocabulary,
            text=self.text,
            shares={name: reply["theta"] / reply["documents"] for name, reply in replies.items()},
            documents={name: reply["documents"] for name, reply in replies.items()},
            word_sums=clients.sum("word_sums", words, **evaluation)["sums"],
            info={"method": "gfedntm", "rounds": state.round, "seed": self.seed},
        )
        return self._with_reading(clients, model)

    def _with_reading(self, clients: _Asked, model: TopicModel) -> TopicModel:
        """Score the topics' coherence, and choose how they are read if the study does not say."""
        settings = self.settings
        readings = READINGS if settings.relevance is None else [Reading(settings.relevance)]
        if settings.coherence == "nothing":
            return replace(model, reading=readings[0] if len(readings) == 1 else USUAL)
        topics = [model.read(reading, SHOWN) for reading in readings]
        ask = partial(clients.sum, "pairs")
        coherence = federated_coherence(ask, topics, settings.coherence)
        chosen = choose(topics, coherence)
        return replace(model, reading=readings[chosen], coherence=coherence[chosen])


class _Asked:
    """The clients, asked about one network: what their replies look like follows from it."""

    def __init__(self, clients: Clients, network: NeuralTopicModel, vocabulary: str) -> None:
        self.network = network
        self.shapes = shapes_of(network)
        self._clients = clients
        self._vocabulary = vocabulary

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        template = {**template, "documents": ()}
        return self._clients.sum(function, template, vocabulary=self._vocabulary, **payload)

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        template = {**template, "documents": ()}
        return self._clients.call(function, template, vocabulary=self._vocabulary, **payload)

    def one_pass(self, fields: Template) -> Template:
        """Say that a reply also has what every pass over a minibatch gives."""
        return {**fields, "sums": self.shapes.sums, "loss": ()}


class GFedNTMClient:
    """The client's half.

    The minibatch, the dropout and the sampling noise of a round are functions of (seed, name,
    round) alone: a repeated call gives the same reply, and a client that was restarted goes on.

    Parameters
    ----------
    name : str
    corpus : Corpus
    settings, text, limits, seed
        As of the server's half: the study.
    min_documents, min_document_frequency : int
        The client's own policy, which the half keeps to by itself.
    """

    method = "gfedntm"
    version = 2  # of what its functions take, give and compute
    published = (
        "vocabulary", "adopt", "forward", "loss", "backward", "gradients", "steps", "validate",
        "shares", "word_sums", "pairs",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        settings: GFedNTMSettings,
        text: TextRules,
        limits: VocabularyLimits,
        seed: int,
        min_documents: int = 1,
        min_document_frequency: int = 1,
    ) -> None:
        self.name = name
        self.settings = settings
        self.min_documents = min_documents
        self._rarest = max(limits.min_document_frequency, min_document_frequency)
        self._seed = (seed, int.from_bytes(name.encode()))
        self._corpus = corpus
        self._text = text
        self._counts = count_words(corpus, text)
        self._embeddings = corpus.embeddings if settings.sees_embedding else None
        if settings.sees_embedding and self._embeddings is None:
            raise DataError(
                f"The documents of client {name!r} have no embeddings, which the network "
                f"{settings.network!r} sees; compute them first with Study.embedded."
            )
        self._fingerprint = ""
        self._pairs = ""  # that were asked for

    @staticmethod
    def schedule(settings: GFedNTMSettings) -> dict[str, str]:
        """Say how often a study with these settings calls which function."""
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
        end = dict.fromkeys(("shares", "word_sums", "pairs"), "once, at the end")
        if settings.coherence == "nothing":
            del end["pairs"]
        return {"vocabulary": "once", "adopt": "once"} | round_ | end

    def vocabulary(self) -> dict[str, Any]:
        """Name the words that enough of the documents have (Algorithm 1, GetClientVocab).

        Leaves the client
            Words with their document frequencies and occurrences; the number of documents.
        """
        return self._counts.named(self._rarest)

    def adopt(self, words: list[str], total: int, length: float) -> dict[str, Any]:
        """Take up the agreed vocabulary; split off the documents for validation.

        Parameters
        ----------
        words : list of str
        total : int
            Documents of all clients, for this one's part of a proportional minibatch.
        length : float
            Words of an average document of all clients.

        Leaves the client
            Numbers of documents: all, those to train with, those without a known word.
        """
        self._fingerprint = fingerprint(words)
        self._words = frozenset(words)
        bag = self._counts.columns({word: i for i, word in enumerate(words)}).astype(np.float32)
        self._network = self.settings.build(len(words), length)
        self._documents = Minibatches(
            bag,
            self._embeddings,
            self._network,
            self._seed,
            self.settings.validation_share,
            self.min_documents,
        )
        documents = bag.shape[0]
        proportional = self.settings.batch_split == "proportional"
        part = documents / total if proportional else 1
        self._size = self._documents.size(self.settings.batch_size * part)
        return {
            "documents": documents,
            "training": len(self._documents.training),
            "without_known_word": documents - len(self._documents.known),
        }

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
        self._check(vocabulary)
        rows = self._documents.held
        total = 0.0
        for batch, given, used in self._evaluate(rows, weights, shared):
            total += float(run_through(self._network, used, batch, given)[0])
        return {"loss": total, "documents": len(rows)}

    def shares(
        self, vocabulary: str, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Sum theta over all documents with a known word.

        Leaves the client
            n_topics numbers and the number of documents.
        """
        self._check(vocabulary)
        rows = self._documents.known
        total = np.zeros(self.settings.n_components)
        for batch, given, used in self._evaluate(rows, weights, shared):
            total += self._network.theta(used, given, batch).double().sum(0).numpy()
        return {"theta": total, "documents": len(rows)}

    def word_sums(
        self, vocabulary: str, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Sum the words of all documents, weighted by theta, to read the topics by.

        Leaves the client
            n_topics numbers for each word that enough of the documents have, zeros for the rest;
            the number of documents.
        """
        # Apart from `shares`, which the server sees one by one: of these it needs the sum alone.
        self._check(vocabulary)
        rows = self._documents.known
        total = np.zeros((self.settings.n_components, self._network.n_words))
        frequency = np.zeros(self._network.n_words, np.int64)
        for batch, given, used in self._evaluate(rows, weights, shared):
            theta = self._network.theta(used, given, batch).double().numpy()
            total += theta.T @ batch.counts
            frequency += np.bincount(batch.bag.indices, minlength=self._network.n_words)
        total[:, frequency < self._rarest] = 0
        return {"sums": total, "documents": len(rows)}

    def pairs(
        self, vocabulary: str, words: list[str], topics: NDArray[np.int64], windows: list[int]
    ) -> dict[str, Any]:
        """Count how often the topics' words occur together, to score their coherence.

        Leaves the client
            For each pair of words of a topic, the number of windows or documents that hold both;
            the numbers of windows and documents.
        """
        self._check(vocabulary)
        asked = fingerprint([*words, *map(str, topics.ravel().tolist())])
        if (
            not is_usual(words, topics, windows, self.settings.coherence)
            or len(topics) > self.settings.n_components * len(READINGS)
            or not self._words.issuperset(words)
            or self._pairs not in ("", asked)  # again after a break: the same, and no others
        ):
            raise StudyError(
                f"Client {self.name!r} was asked for pairs of words that its study does not ask "
                "for; find out what the server runs."
            )
        self._pairs = asked
        counts = count_pairs(self._corpus, self._text, words, topics, windows)
        return counts | {"documents": len(self._corpus)}

    def _minibatch(self, vocabulary: str, number: int) -> Batch:
        self._check(vocabulary)
        return self._documents.draw(number, self._size)

    @torch.no_grad()
    def _evaluate(
        self, rows: NDArray[np.int64], weights: Payload, shared: Mapping[str, Payload]
    ) -> Iterator[tuple[Batch, dict[str, Tensors], Tensors]]:
        tensors = self._tensors(weights)
        given = {stage: self._tensors(values) for stage, values in shared.items()}
        for batch in self._documents.in_order(rows):
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

    def _check(self, vocabulary: str) -> None:
        if vocabulary != self._fingerprint:
            raise StudyError(
                f"Client {self.name!r} was called for the vocabulary {vocabulary}, but agreed on "
                f"{self._fingerprint or 'none'}; begin the study anew."
            )


def _adopt(clients: Clients, agreed: Mapping[str, Any]) -> dict[str, Any]:
    told = {field: agreed[field] for field in ("words", "total", "length")}
    return clients.prepare("adopt", ADOPTED, **told)


def _client_weights(network: NeuralTopicModel, weights: Tensors) -> dict[str, NDArray[Any]]:
    return to_arrays({n: t for n, t in weights.items() if n not in network.finish_weights})


def _evaluation(network: NeuralTopicModel, state: State) -> dict[str, Any]:
    shared = finish_all(network, state.weights, state.averages)
    return {
        "weights": _client_weights(network, state.weights),
        "shared": {stage: to_arrays(values) for stage, values in shared.items()},
    }
