"""The client's half of FSCCL: a round's training on its own documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.inference.points import Numbers
from fedtopics.inference.trained_clusters import Contrastive
from fedtopics.methods.clusters.client import ClusterClient
from fedtopics.methods.clusters.views import embedded_views
from fedtopics.methods.core.client import leaves
from fedtopics.methods.core.plan import Plan, Site
from fedtopics.methods.fsccl.settings import FSCCLSettings
from fedtopics.methods.fsccl.training import Texts, train
from fedtopics.methods.kmeans.lloyd import calls_of_start

Arrays = dict[str, NDArray[Any]]


class FSCCLClient(ClusterClient[FSCCLSettings]):
    """The client's half."""

    inference = Contrastive

    def __init__(self, plan: Plan[FSCCLSettings], site: Site) -> None:
        super().__init__(plan, site)
        embedding = self.settings.embedding
        self._views = embedded_views(self._corpus, self.settings, embedding, site)

    @staticmethod
    def rounds(settings: FSCCLSettings) -> dict[str, str]:
        return calls_of_start(settings) | {"train_locally": "each round"}

    @leaves(
        "How training on the documents changed the weights of the network and its centres, times "
        "their number; the loss, summed over documents; their number."
    )
    def train_locally(self, vocabulary: str, round: int, weights: Arrays) -> dict[str, Any]:
        """Train the network on the client's documents for a round.

        `weights` are the network's, its centres, and the mean embedding: see `Trained.shapes`.
        """
        self.check(vocabulary)
        arrays, n = dict(weights), len(self.usable)
        texts = self._texts(arrays.pop("origin"))
        trained = {name: torch.tensor(array, dtype=torch.float32) for name, array in arrays.items()}
        work = round, self.attempt
        loss = train(trained, texts, self.settings, self.secret, *work) if n else 0.0
        # What changed, as a bound of its length is one of how far the client moves the network.
        sums = {
            name: (weight.detach().numpy() - arrays[name]) * np.float64(n)
            for name, weight in trained.items()
        }
        return {"changes": sums, "loss": loss * n, "documents": n}

    def _texts(self, origin: Numbers) -> Texts:
        points = self.points(origin)
        views = self.points_of(origin, self._views) or [points, points]
        return Texts(*map(torch.from_numpy, (points, *views)))
