"""The client side of gFedNTM: gradients of minibatches of the client's own documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.contract.payload import Payload, SparseRows
from fedtopics.contract.replies import NATS
from fedtopics.errors import DataError
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import calls_for_weights
from fedtopics.methods.lda.first_topics import Projections, calls_of_first_topics
from fedtopics.methods.mixture.client import MixtureSums
from fedtopics.methods.nmf.client import FactorSums
from fedtopics.networks.base import Batch, Tensors, rows_of, to_arrays, to_tensor, to_tensors
from fedtopics.networks.neural import batch_weights
from fedtopics.networks.passes import (
    ClientPass,
    autograd_leaves,
    finish_all,
    gradients,
    run_through,
)
from fedtopics.text.embeddings import Vectors


class Passes(SharedFunctions):
    """Passes over the minibatch of one client, or of several clients in one process."""

    functions = frozenset({"forward", "loss", "backward", "gradients"})
    client: GFedNTMClient
    _pass: ClientPass

    def __init__(self, *clients: GFedNTMClient) -> None:
        super().__init__(clients[0])
        self._clients = clients
        self.documents: list[int] = []  # number of each client's documents in the last minibatch

    @published(
        "Sums over the minibatch: of the posterior's parameters and their squares (4 n_topics "
        "numbers), or of theta and products of its numbers (n_topics + n_topics**2).",
        noise=True,
    )
    def forward(
        self, vocabulary: str, round: int, stage: int, shared: Payload, weights: Payload
    ) -> dict[str, Any]:
        """Run one stage of the pass over this round's minibatch; stage 0 starts a pass."""
        if stage == 0:
            batch = self.minibatch(vocabulary, round)
            self._pass = ClientPass(self.client.network, self.client.tensors(weights), batch)
        sums = self._pass.forward(stage, self.client.tensors(shared))
        return {"sums": sums.numpy(), "documents": len(self._pass.batch)}

    @published(
        "The minibatch's summed loss, and summed gradients: of the normalised topics (n_topics, "
        "n_words) and of the mean of theta (n_topics,).",
        noise=True,
    )
    def loss(self, vocabulary: str, round: int, shared: Payload) -> dict[str, Any]:
        """Compute the loss and its gradient with respect to values that all documents share."""
        loss, gradient = self._pass.loss(self.client.tensors(shared))
        return {"loss": loss, "shared": to_arrays(gradient), "documents": len(self._pass.batch)}

    @published(
        "Summed gradients: of the statistics from the previous stage (four numbers per topic) or, "
        "at the first stage, of the weights (for the first layer: rows of the minibatch's words).",
        noise=True,
    )
    def backward(
        self, vocabulary: str, round: int, stage: int, gradient: NDArray[Any]
    ) -> dict[str, Any]:
        upstream = self._pass.backward(stage, to_tensor(gradient, torch.float64))
        reply: dict[str, Any] = {"documents": len(self._pass.batch)}
        if stage > 0:
            return reply | {"shared": to_arrays(upstream)}
        weights = self._packed(self._pass.batch, self._pass.weights, self._pass.weight_gradients)
        return reply | {"weights": weights}

    @published(
        "The minibatch's summed loss, the sums of `forward`, and the summed gradients of the "
        "weights and, with the server's statistics, of the values computed from them.",
        noise=True,
    )
    def gradients(
        self, vocabulary: str, round: int, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Compute the gradients of this round's minibatch at once (Algorithm 1, GetClientGrad)."""
        batch = self.minibatch(vocabulary, round)
        network = self.client.network
        used = autograd_leaves(batch_weights(network, self.client.tensors(weights), batch))
        fixed = {
            stage: autograd_leaves(self.client.tensors(values)) for stage, values in shared.items()
        }
        loss, sums = run_through(network, used, batch, fixed or None)
        weight_gradients, *shared_gradients = gradients([loss], None, [used, *fixed.values()])
        return {
            "weights": self._packed(batch, used, weight_gradients),
            "shared": dict(zip(fixed, map(to_arrays, shared_gradients), strict=True)),
            "sums": to_arrays(sums),
            "loss": float(loss.detach()),
            "documents": len(batch),
        }

    def minibatch(self, vocabulary: str, number: int) -> Batch:
        drawn = [(client, client.rows(vocabulary, number)) for client in self._clients]
        self.documents = [len(rows) for _, rows in drawn]
        bag = rows_of([(client.bag, rows) for client, rows in drawn])
        noise = self.client.network.draw(
            *(
                (client.secret.rng("noise", number, client.attempt), len(rows))
                for client, rows in drawn
            )
        )
        embedded = [client.embedded(rows) for client, rows in drawn]
        vectors = [part for part in embedded if part is not None]
        return self.client.network.batch(bag, noise, np.concatenate(vectors) if vectors else None)

    def _packed(self, batch: Batch, weights: Tensors, gradients: Tensors) -> dict[str, Any]:
        """Return a gradient for each weight, zero for those that the loss does not use."""
        tensors = {
            name: gradients[name] if name in gradients else torch.zeros_like(weight)
            for name, weight in weights.items()
        }
        packed: dict[str, Any] = to_arrays(tensors)
        for name in self.client.network.row_weights:
            rows = batch.spread(tensors[name]).numpy()
            packed[name] = SparseRows(batch.words, rows, self.client.network.n_words)
        return packed


class GFedNTMClient(TopicClient[GFedNTMSettings]):
    exchanges = (Passes, FactorSums, Projections, MixtureSums)
    continues = True

    @staticmethod
    def rounds(settings: GFedNTMSettings) -> dict[str, str]:
        cuts = len(settings.build(1).stages)
        if settings.local_steps > 1:
            round_ = {"steps": f"each round, over {settings.local_steps} minibatches"}
        elif settings.norm == "sync" and cuts > 0:
            often = "each round" if cuts == 1 else "twice per round"
            round_ = {"forward": often, "loss": "each round", "backward": often}
            round_["gradients"] = "each round instead, in a study with a single client"
        else:
            round_ = {"gradients": "each round"}
        if settings.norm == "server" and cuts > 0:
            round_ = {"forward": "once"} | round_
        if settings.validation_share:
            round_["validate"] = f"every {settings.validate_every} rounds"
        return calls_of_first_topics(settings.initialisation) | calls_for_weights(settings) | round_

    def __init__(self, plan: Plan[GFedNTMSettings], site: ClientContext) -> None:
        super().__init__(plan, site)
        needed = self.settings.needed_embedding is not None
        self._embeddings = site.corpus.embeddings if needed else None
        if needed and self._embeddings is None:
            raise DataError(
                f"The documents of client {site.name!r} have no embeddings, which the network "
                f"{self.settings.network!r} needs; compute embeddings first with Study.embedded."
            )

    @staticmethod
    def together(clients: Sequence[Any]) -> Passes | None:
        settings = clients[0].settings
        separate_norms = settings.norm == "local" and settings.build(1).stages
        return None if separate_norms or settings.local_steps > 1 else Passes(*clients)

    def split(self, documents: int, total: int) -> int:
        share = self.settings.validation_share
        self.minibatches = Minibatches.of(self, documents / total, share)
        return len(self.minibatches.training)

    def adopt(self, words: list[str], total: int, length: float) -> None:
        super().adopt(words, total, length)
        self.network = self.settings.build(self.bag.shape[1], length)

    def thetas(self, **model: Any) -> Thetas:
        for part, batch, shared, used in self._evaluate(self.usable, **model):
            yield part, self.network.theta(used, shared, batch).double().numpy()

    @published(
        "The change of the weights by training, times the number of documents; the summed loss and "
        "the sums of `forward` over the minibatches.",
        noise=True,
    )
    def steps(
        self, vocabulary: str, round: int, weights: Payload, averages: Payload
    ) -> dict[str, Any]:
        """Take several local steps with a new Adam optimiser (FedAvg's client update)."""
        start = self.tensors(weights)
        local = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        optimizer = torch.optim.Adam(
            local.values(), lr=self.settings.local_learning_rate, fused=True
        )
        running = to_tensors(averages, torch.float64)
        first = (round - 1) * self.settings.local_steps + 1
        totals: Tensors = {}
        loss_sum = 0.0
        documents = 0
        for number in range(first, first + self.settings.local_steps):
            batch = self.part(Passes).minibatch(vocabulary, number)
            shared = finish_all(self.network, local, running) if running else None
            used = batch_weights(self.network, local, batch)
            loss, sums = run_through(self.network, used, batch, shared)
            optimizer.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            totals = {stage: totals.get(stage, 0) + total for stage, total in sums.items()}
            loss_sum += float(loss.detach())
            documents += len(batch)
        # Times the number of documents, so that the server's division gives a weighted mean.
        descent = {name: (start[name] - local[name].detach()) * documents for name in start}
        return {
            "descent": to_arrays(descent),
            "sums": to_arrays(totals),
            "loss": loss_sum,
            "documents": documents,
        }

    @published("The summed loss of the held-out documents and their number.")
    def validate(
        self, vocabulary: str, round: int, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Compute the loss of the held-out documents, without noise."""
        self.check(vocabulary)
        rows = self.minibatches.held
        total = 0.0
        for _, batch, tensors, used in self._evaluate(rows, weights, shared):
            total += float(run_through(self.network, used, batch, tensors)[0])
        # Running statistics of few rounds can give any loss; a capped loss is never a gain.
        most = NATS * float(self.bag[rows].sum())
        return {"loss": min(total, most), "documents": len(rows)}

    def rows(self, vocabulary: str, number: int) -> Documents:
        self.check(vocabulary)
        return self.minibatches.draw(number, self.attempt)

    def tensors(self, arrays: Payload) -> Tensors:
        return to_tensors(arrays, self.network.dtype)

    def embedded(self, rows: Documents) -> Vectors | None:
        return None if self._embeddings is None else self._embeddings[rows]

    def _evaluate(
        self, rows: NDArray[np.int64], weights: Payload, shared: Mapping[str, Payload]
    ) -> Iterator[tuple[Documents, Batch, dict[str, Tensors], Tensors]]:
        tensors = self.tensors(weights)
        by_stage = {stage: self.tensors(values) for stage, values in shared.items()}
        for part in batches(rows):
            batch = self.network.batch(self.bag[part], None, self.embedded(part))
            yield part, batch, by_stage, batch_weights(self.network, tensors, batch)
