"""The client's half of federated LDA: expected counts of words and topics in its own documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Rows
from fedtopics.methods.client import Documents, batches, leaves
from fedtopics.methods.lda.settings import LDASettings
from fedtopics.methods.minibatches import MinibatchClient

if TYPE_CHECKING:
    from fedtopics.inference.variational import Posterior


class LDAClient(MinibatchClient[LDASettings]):
    """The client's half: expected counts of minibatches, or of all documents."""

    @staticmethod
    def rounds(settings: LDASettings) -> dict[str, str]:
        if settings.learning == "batch":
            return {"all_expected_counts": "each round"}
        instead = "once instead of expected_counts, if a model is trained further on new documents"
        return {"expected_counts": "each round", "all_expected_counts": instead}

    @leaves(
        "For each word that enough of the client's documents have and that occurs in the "
        "minibatch, the expected number of occurrences of each topic: together, how often it "
        "occurs there; the evidence bound (nats) and the number of documents."
    )
    def expected_counts(
        self, vocabulary: str, round: int, topics: NDArray[np.float64]
    ) -> dict[str, Any]:
        """Estimate how many occurrences of words are of each topic, in a minibatch (the E-step).

        `topics` is exp(E[log beta]), float64 of shape (n_words, n_topics).
        """
        return self._counted(self.minibatch(vocabulary, round), topics)

    @leaves(
        "For each word that enough of the client's documents have, the expected number of "
        "occurrences of each topic; the evidence bound (nats) and the number of documents."
    )
    def all_expected_counts(
        self, vocabulary: str, round: int, topics: NDArray[np.float64]
    ) -> dict[str, Any]:
        """As `expected_counts`, in all documents."""
        self.check(vocabulary)
        return self._counted(self.minibatches.training, topics)

    def _counted(self, rows: Documents, topics: NDArray[np.float64]) -> dict[str, Any]:
        total = np.zeros(topics.shape)
        present = np.zeros(len(topics), bool)
        bound = 0.0
        for batch, posterior in self._posteriors(np.sort(rows), topics):
            words, counts = posterior.word_counts(topics)
            total[words] += counts
            present[words] = True
            bound += posterior.bound(self.bag[batch], self.settings.theta_prior)
        words = np.flatnonzero(present)
        sums = Rows(words, total[words], len(topics))
        return {"counts": sums, "bound": bound, "documents": len(rows)}

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, NDArray[np.float64]]]:
        topics = model["topics"]
        for batch, posterior in self._posteriors(self.usable, topics):
            yield batch, posterior.read("mean")

    def _posteriors(
        self, rows: Documents, topics: NDArray[np.float64]
    ) -> Iterator[tuple[Documents, Posterior]]:
        from fedtopics.inference.variational import infer  # a server need not compile it

        prior, steps = self.settings.theta_prior, self.settings.inner_steps
        for batch in batches(rows):
            yield batch, infer(self.bag[batch], topics, prior, steps)
