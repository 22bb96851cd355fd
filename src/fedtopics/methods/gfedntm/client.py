"""The client's half of gFedNTM: gradients of minibatches of its own documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.errors import DataError
from fedtopics.methods.core.aggregation import Payload
from fedtopics.methods.core.client import Documents, batches, drawn_anew, leaves
from fedtopics.methods.core.plan import Plan, Site
from fedtopics.methods.gfedntm.minibatch_passes import Drawn, Passes, Together
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.start import calls_before
from fedtopics.methods.lda.minibatches import MinibatchClient
from fedtopics.methods.mixture.client import MixtureSums
from fedtopics.networks.base import Batch, Tensors, to_arrays, to_tensors
from fedtopics.networks.neural import batch_weights
from fedtopics.networks.passes import finish_all, run_through
from fedtopics.text.embeddings import Vectors


class GFedNTMClient(Passes, MixtureSums[GFedNTMSettings], MinibatchClient[GFedNTMSettings]):
    """The client's half: gradients of minibatches, whose noise is drawn from its secret.

    DataError if the network sees embeddings and the documents have none.
    """

    @staticmethod
    def rounds(settings: GFedNTMSettings) -> dict[str, str]:
        cuts = len(settings.build(1).stages)
        if settings.local_steps > 1:
            round_ = {"steps": f"each round, over {settings.local_steps} minibatches"}
        elif settings.norm == "sync" and cuts > 0:
            often = "each round" if cuts == 1 else "twice a round"
            round_ = {"forward": often, "loss": "each round", "backward": often}
            round_["gradients"] = "each round instead, in a study with a single client"
        else:
            round_ = {"gradients": "each round"}
        if settings.norm == "server" and cuts > 0:
            round_ = {"forward": "once"} | round_
        if settings.validation_share:
            round_["validate"] = f"every {settings.validate_every} rounds"
        return calls_before(settings) | round_

    def __init__(self, plan: Plan[GFedNTMSettings], site: Site) -> None:
        super().__init__(plan, site)
        needed = self.settings.needed_embedding is not None
        self._embeddings = site.corpus.embeddings if needed else None
        if needed and self._embeddings is None:
            raise DataError(
                f"The documents of client {site.name!r} have no embeddings, which the network "
                f"{self.settings.network!r} sees; compute them first with Study.embedded."
            )

    @property
    def held_back(self) -> float:
        return self.settings.validation_share

    @staticmethod
    def together(halves: Sequence[Any]) -> Together | None:
        """Return what computes sums of these clients at once, where passes are additive."""
        settings = halves[0].settings
        own_norms = settings.norm == "local" and settings.build(1).stages
        return None if own_norms or settings.local_steps > 1 else Together(halves)

    def prepare(self, length: float) -> None:
        self.network = self.settings.build(self.bag.shape[1], length)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        rows = self.usable
        evaluated = self._evaluate(rows, **model)
        for part, (batch, shared, used) in zip(batches(rows), evaluated, strict=True):
            yield part, self.network.theta(used, shared, batch).double().numpy()

    @drawn_anew(noise=True)
    @leaves(
        "How far the weights went down, times the number of documents; the summed loss and "
        "the sums of `forward` over the minibatches."
    )
    def steps(
        self, vocabulary: str, round: int, weights: Payload, averages: Payload
    ) -> dict[str, Any]:
        """Take several local Adam steps, from fresh moments (FedAvg's client update)."""
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
            shared = finish_all(self.network, local, running) if running else None
            used = batch_weights(self.network, local, batch)
            loss, sums = run_through(self.network, used, batch, shared)
            optimizer.zero_grad()
            (loss / len(batch)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            totals = {stage: totals.get(stage, 0) + total for stage, total in sums.items()}
            loss_sum, documents = loss_sum + float(loss.detach()), documents + len(batch)
        descent = {n: (start[n] - local[n].detach()) * documents for n in start}
        update = {"descent": to_arrays(descent), "sums": to_arrays(totals)}
        return update | {"loss": loss_sum, "documents": documents}

    @leaves("The summed loss and the number of documents.")
    def validate(
        self, vocabulary: str, round: int, weights: Payload, shared: Mapping[str, Payload]
    ) -> dict[str, Any]:
        """Compute the loss of the documents held back, without noise."""
        self.check(vocabulary)
        rows = self.minibatches.held
        total = 0.0
        for batch, tensors, used in self._evaluate(rows, weights, shared):
            total += float(run_through(self.network, used, batch, tensors)[0])
        return {"loss": total, "documents": len(rows)}

    def drawn(self, vocabulary: str, round: int) -> list[Drawn]:
        rows = self.minibatch(vocabulary, round)
        rng = self.secret.rng("noise", round, self.attempt)
        return [Drawn(self.bag, rows, rng, self._embedded(rows))]

    def _embedded(self, rows: Documents) -> Vectors | None:
        return None if self._embeddings is None else self._embeddings[rows]

    def _evaluate(
        self, rows: NDArray[np.int64], weights: Payload, shared: Mapping[str, Payload]
    ) -> Iterator[tuple[Batch, dict[str, Tensors], Tensors]]:
        tensors = self._tensors(weights)
        by_stage = {stage: self._tensors(values) for stage, values in shared.items()}
        for part in batches(rows):
            batch = self.network.batch(self.bag[part], None, self._embedded(part))
            yield batch, by_stage, batch_weights(self.network, tensors, batch)
