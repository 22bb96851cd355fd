"""The client side of gFedNTM: gradients of minibatches of the client's own documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.payload import Payload, SparseRows
from fedtopics.contract.published import (
    EACH_ROUND,
    FIRST,
    NEVER,
    Often,
    Reply,
    of_method,
    published,
)
from fedtopics.contract.replies import NATS, Announced, Template
from fedtopics.errors import DataError
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.minibatches import HELD_OUT, MINIBATCH, MINIBATCHES, Minibatches
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.sizes import PROBES, Sizes
from fedtopics.methods.lda.first_topics import Projections
from fedtopics.methods.mixture.method import MixtureSums
from fedtopics.methods.nmf.client import FactorSums
from fedtopics.networks.base import (
    Batch,
    Tensors,
    rows_of,
    to_arrays,
    to_tensor,
    to_tensors,
)
from fedtopics.networks.neural import batch_weights
from fedtopics.networks.passes import (
    ClientPass,
    autograd_leaves,
    finish_all,
    gradients,
    run_through,
)
from fedtopics.text.embeddings import Vectors


def same_documents(agreement: Agreement) -> Template:
    """Return the bounds of a number of documents that stays the same within a round."""
    return {"documents": Announced(agreement.sizes, constant_in_round=True)}


def forward_bounds(agreement: Agreement, settings: GFedNTMSettings, stage: int) -> Template:
    sizes = Sizes.of(settings, len(agreement.vocabulary))
    # Only passes with several steps compare their numbers of documents.
    return {
        "sums": sizes.of_sums[sizes.network.stages[stage].name],
        **(same_documents(agreement) if settings.norm == "sync" else {}),
    }


def loss_bounds(agreement: Agreement, settings: GFedNTMSettings) -> Template:
    sizes = Sizes.of(settings, len(agreement.vocabulary))
    return {
        "loss": agreement.loss(),
        "shared": sizes.bounds(sizes.shared[sizes.network.stages[-1].name]),
        **same_documents(agreement),
    }


def backward_bounds(agreement: Agreement, settings: GFedNTMSettings, stage: int) -> Template:
    sizes = Sizes.of(settings, len(agreement.vocabulary))
    sent = {  # clients do not get `finish_weights`
        name: shape
        for name, shape in sizes.weights.items()
        if name not in sizes.network.finish_weights
    }
    gradients = (
        {"weights": sizes.bounds(sent, rows=True)}
        if stage == 0
        else {"shared": sizes.bounds(sizes.shared[sizes.network.stages[stage - 1].name])}
    )
    return {**gradients, **same_documents(agreement)}


def gradient_bounds(
    agreement: Agreement, settings: GFedNTMSettings, weights: Payload, shared: Payload
) -> Template:
    sizes = Sizes.of(settings, len(agreement.vocabulary))
    return {
        "weights": sizes.bounds({n: sizes.weights[n] for n in weights}, rows=True),
        "shared": {stage: sizes.bounds(sizes.shared[stage]) for stage in shared},
        "sums": sizes.of_sums,
        "loss": agreement.loss(),
    }


def step_bounds(agreement: Agreement, settings: GFedNTMSettings) -> Template:
    sizes = Sizes.of(settings, len(agreement.vocabulary))
    return {
        "descent": sizes.bounds(sizes.weights),
        "documents": Announced(
            {name: n * settings.local_steps for name, n in agreement.sizes.items()}
        ),
        "sums": sizes.of_sums,
        "loss": agreement.loss(settings.local_steps),
    }


def _cuts(settings: GFedNTMSettings) -> int:
    return len(Sizes.of(settings, PROBES[0]).network.stages)


def _synchronises(settings: GFedNTMSettings) -> bool:
    """Whether a round sums statistics at each cut of the pass."""
    return settings.local_steps == 1 and settings.norm == "sync" and _cuts(settings) > 0


class Passes(SharedFunctions):
    """Passes over the minibatch of one client, or of several clients in one process."""

    functions = frozenset({"batch_sums", "topic_gradients", "weight_gradients", "gradients"})
    client: GFedNTMClient
    _pass: ClientPass

    def __init__(self, *clients: GFedNTMClient) -> None:
        super().__init__(clients[0])
        self._clients = clients
        self._drawn: list[tuple[GFedNTMClient, Documents]] = []  # the last minibatch

    @published(
        "Sums over the minibatch: of the posterior's parameters and their squares (4 n_topics "
        "numbers), or of theta and products of its numbers (n_topics + n_topics**2).",
        "sums for batch normalisation",
        often=of_method(
            GFedNTMSettings,
            lambda s: (
                Often(per_round=_cuts(s))
                if _synchronises(s)
                else FIRST
                if s.norm == "server" and _cuts(s)
                else NEVER
            ),
        ),
        reply=forward_bounds,
        largest=lambda settings, n_words: {"stage": _cuts(settings) - 1},
        over=MINIBATCH,
        noise=True,
    )
    def batch_sums(self, round: int, stage: int, shared: Payload, weights: Payload) -> Reply:
        """Run one stage of the pass over this round's minibatch; stage 0 starts a pass."""
        if stage == 0:
            self._pass = ClientPass(
                self.client.network, self.client.tensors(weights), self.minibatch(round)
            )
        return {
            "sums": self._pass.forward(stage, self.client.tensors(shared)).numpy(),
            "documents": self._over(),
        }

    @published(
        "The minibatch's summed loss, and summed gradients: of the normalised topics (n_topics, "
        "n_words) and of the mean of theta (n_topics,).",
        "gradients of topics",
        often=of_method(GFedNTMSettings, lambda s: EACH_ROUND if _synchronises(s) else NEVER),
        reply=loss_bounds,
        over=MINIBATCH,
        noise=True,
    )
    def topic_gradients(self, round: int, shared: Payload) -> Reply:
        """Compute the loss and its gradient with respect to values that all documents share."""
        loss, gradient = self._pass.loss(self.client.tensors(shared))
        return {"loss": loss, "shared": to_arrays(gradient), "documents": self._over()}

    @published(
        "Summed gradients: of the statistics from the previous stage (four numbers per topic) or, "
        "at the first stage, of the weights (for the first layer: rows of the minibatch's words).",
        "gradients of weights",
        often=of_method(
            GFedNTMSettings,
            lambda s: Often(per_round=_cuts(s)) if _synchronises(s) else NEVER,
        ),
        reply=backward_bounds,
        largest=lambda settings, n_words: {"stage": 0},
        over=MINIBATCH,
        noise=True,
    )
    def weight_gradients(self, round: int, stage: int, gradient: NDArray[Any]) -> Reply:
        upstream = self._pass.backward(stage, to_tensor(gradient, torch.float64))
        gradients: Reply = (
            {"shared": to_arrays(upstream)}
            if stage > 0
            else {
                "weights": self._packed(
                    self._pass.batch, self._pass.weights, self._pass.weight_gradients
                )
            }
        )
        return {"documents": self._over(), **gradients}

    @published(
        "The minibatch's summed loss, the sums of `batch_sums`, and the summed gradients of the "
        "weights and, with the server's statistics, of the values computed from them.",
        "gradients of weights",
        often=of_method(
            GFedNTMSettings,
            lambda s: (
                Often(per_round=1, instead="instead, in a study with a single client")
                if _synchronises(s)
                else EACH_ROUND
                if s.local_steps == 1
                else NEVER
            ),
        ),
        reply=gradient_bounds,
        largest=lambda s, n_words: {
            "weights": Sizes.of(s, n_words).weights,
            "shared": Sizes.of(s, n_words).shared if s.norm == "server" else {},
        },
        over=MINIBATCH,
        noise=True,
    )
    def gradients(self, round: int, weights: Payload, shared: Mapping[str, Payload]) -> Reply:
        """Compute the gradients of this round's minibatch at once (Algorithm 1, GetClientGrad)."""
        batch = self.minibatch(round)
        used = autograd_leaves(
            batch_weights(self.client.network, self.client.tensors(weights), batch)
        )
        fixed = {
            stage: autograd_leaves(self.client.tensors(values)) for stage, values in shared.items()
        }
        loss, sums = run_through(self.client.network, used, batch, fixed or None)
        weight_gradients, *shared_gradients = gradients([loss], None, [used, *fixed.values()])
        return {
            "weights": self._packed(batch, used, weight_gradients),
            "shared": dict(zip(fixed, map(to_arrays, shared_gradients), strict=True)),
            "sums": to_arrays(sums),
            "loss": float(loss.detach()),
            "documents": self._over(),
        }

    @property
    def documents(self) -> list[int]:
        """The number of each client's documents in the last minibatch."""
        return [len(rows) for _, rows in self._drawn]

    @property
    def drawn(self) -> Documents:
        """The rows of this client's documents in the last minibatch."""
        return self._drawn[0][1]

    def _over(self) -> int:
        return sum(client.over(rows) for client, rows in self._drawn)

    def minibatch(self, number: int) -> Batch:
        drawn = self._drawn = [
            (client, client.minibatches.draw(number, client.attempt)) for client in self._clients
        ]
        bag = rows_of([(client.bag, rows) for client, rows in drawn])
        noise = self.client.network.draw(
            *(
                (client.secret.rng("noise", number, client.attempt), len(rows))
                for client, rows in drawn
            )
        )
        vectors = [part for client, rows in drawn if (part := client.embedded(rows)) is not None]
        return self.client.network.batch(bag, noise, np.concatenate(vectors) if vectors else None)

    def _packed(self, batch: Batch, weights: Tensors, gradients: Tensors) -> Reply:
        """Return a gradient for each weight, zero for those that the loss does not use."""
        tensors = {
            name: gradients[name] if name in gradients else torch.zeros_like(weight)
            for name, weight in weights.items()
        }
        network = self.client.network
        return to_arrays(tensors) | {
            name: SparseRows(batch.words, batch.spread(tensors[name]).numpy(), network.n_words)
            for name in network.row_weights
        }


class GFedNTMClient(TopicClient[GFedNTMSettings]):
    exchanges = (Passes, FactorSums, Projections, MixtureSums)
    continues = True

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
        self.minibatches = Minibatches.of(self, documents / total, self.settings.validation_share)
        return len(self.minibatches.training)

    def adopt(
        self, words: list[str], total: int, length: float, few_have: Sequence[bool] = ()
    ) -> None:
        super().adopt(words, total, length, few_have)
        self.network = self.settings.build(self.bag.shape[1], length)

    def thetas(self, **model: Any) -> Thetas:
        for part, batch, shared, used in self._evaluate(self.usable, **model):
            yield part, self.network.theta(used, shared, batch).double().numpy()

    @published(
        "The change of the weights by training, times the number of documents; the summed loss and "
        "the sums of `batch_sums` over the minibatches.",
        "change of the weights",
        often=of_method(GFedNTMSettings, lambda s: EACH_ROUND if s.local_steps > 1 else NEVER),
        reply=step_bounds,
        over=MINIBATCHES,
        noise=True,
    )
    def weight_changes(self, round: int, weights: Payload, averages: Payload) -> Reply:
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
        drawn: list[Documents] = []
        for number in range(first, first + self.settings.local_steps):
            batch = self.part(Passes).minibatch(number)
            shared = finish_all(self.network, local, running) if running else None
            used = batch_weights(self.network, local, batch)
            loss, sums = run_through(self.network, used, batch, shared)
            optimizer.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            totals = {stage: totals.get(stage, 0) + total for stage, total in sums.items()}
            loss_sum += float(loss.detach())
            drawn.append(self.part(Passes).drawn)
        documents = self.over(np.concatenate(drawn))
        # Times the number of documents, so that the server's division gives a weighted mean.
        return {
            "descent": to_arrays(
                {name: (start[name] - local[name].detach()) * documents for name in start}
            ),
            "sums": to_arrays(totals),
            "loss": loss_sum,
            "documents": documents,
        }

    @published(
        "The summed loss of the held-out documents and their number.",
        "loss of held-out documents",
        often=of_method(
            GFedNTMSettings,
            lambda s: Often(per_round=1 / s.validate_every) if s.validation_share else NEVER,
        ),
        reply=lambda agreement: {"loss": agreement.loss()},
        over=HELD_OUT,
    )
    def validation_loss(self, round: int, weights: Payload, shared: Mapping[str, Payload]) -> Reply:
        """Compute the loss of the held-out documents, without noise."""
        rows = self.minibatches.held
        total = 0.0
        for _, batch, tensors, used in self._evaluate(rows, weights, shared):
            total += float(run_through(self.network, used, batch, tensors)[0])
        # Running statistics of few rounds can give any loss; a capped loss is never a gain.
        return {
            "loss": min(total, NATS * float(self.bag[rows].sum())),
            "documents": self.over(rows),
        }

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
