"""The client's half of FSCCL: a round's training on its own documents."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.inference.points import Numbers
from fedtopics.inference.trained_clusters import Contrastive
from fedtopics.methods.client import leaves
from fedtopics.methods.cluster_client import ClusterClient
from fedtopics.methods.events import Embedding
from fedtopics.methods.fsccl.settings import FSCCLSettings
from fedtopics.methods.fsccl.training import Texts, shorten, train
from fedtopics.methods.kmeans.lloyd import calls_of_start
from fedtopics.methods.plan import Plan, Site
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import document_embeddings, require_texts

Arrays = dict[str, NDArray[Any]]


class FSCCLClient(ClusterClient[FSCCLSettings]):
    """The client's half."""

    inference = Contrastive

    def __init__(self, plan: Plan[FSCCLSettings], site: Site) -> None:
        super().__init__(plan, site)
        # Here, as it takes minutes and may fail: both should come before the first round.
        deletes = self.settings.deletion > 0
        self._views = [self._shortened(view) for view in (0, 1)] if deletes else None

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
        views = [points, points]
        if self._views is not None:
            inference = self._inference()
            views = [inference.points(origin, None, view[self.usable]) for view in self._views]
        return Texts(*map(torch.from_numpy, (points, *views)))

    def _shortened(self, view: int) -> NDArray[np.float32]:
        """Return the embeddings of all texts without some of their words."""

        def on_progress(done: int, documents: int) -> None:
            self.site.notify(Embedding(done, documents, self.name))

        texts = chain.from_iterable(self._corpus.texts())
        try:
            require_texts(self._corpus, "that views of them are made of")
            return document_embeddings(
                Corpus.of(list(shorten(texts, self.settings.deletion, view))),
                self.settings.embedding,
                embedding_model=self.site.embedding_model,
                on_progress=on_progress,
            )
        except FedTopicsError as error:
            raise StudyError(
                f"Client {self.name!r} cannot embed texts without some of their words: {error} "
                "Or set deletion = 0 in the study, for dropout alone."
            ) from None
