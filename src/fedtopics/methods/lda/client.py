"""The client side of LDA: expected counts of words by topic in the client's own documents."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from fedtopics.contract.interfaces import published
from fedtopics.contract.payload import SparseRows
from fedtopics.inference.lda import LDAPrior, topic_weights
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.settings import FIRST_TOPICS, Beginning, MinibatchSettings
from fedtopics.methods.lda.first_topics import Projections, calls_of_first_topics
from fedtopics.methods.nmf.client import FactorSums


class LDASettings(MinibatchSettings, LDAPrior):
    name: Literal["lda"] = Field("lda", description="the method")
    learning: Literal["stochastic", "batch"] = Field(
        "stochastic",
        description='"stochastic": each round uses a minibatch; "batch": each uses all documents',
    )
    learning_offset: float = Field(
        10.0, ge=0, description="tau_0 in a round's weight, (tau_0 + round)^-kappa; slows the start"
    )
    learning_decay: float = Field(
        0.6,
        gt=0.5,
        le=1,
        description="kappa in the weight of a stochastic round, (tau_0 + round)^-kappa",
    )
    batch_size: int = Field(1024, ge=1, description="number of documents in a stochastic round")
    initialisation: Beginning = Field("anchors", description=FIRST_TOPICS)
    max_rounds: int = Field(200, ge=1, description="maximum number of rounds")


LENGTH_CAP = 50  # longest documents, in mean lengths; longer ones count as if shortened to it


class LDAClient(TopicClient[LDASettings]):
    exchanges = (FactorSums, Projections)
    continues = True

    @staticmethod
    def rounds(settings: LDASettings) -> dict[str, str]:
        first = calls_of_first_topics(settings.initialisation)
        if settings.learning == "batch":
            return first | {"all_expected_counts": "each round"}
        instead = "once instead of expected_counts, if a model is trained further on new documents"
        return first | {"expected_counts": "each round", "all_expected_counts": instead}

    def split(self, documents: int, total: int) -> int:
        self.minibatches = Minibatches.of(self, documents / total)
        return len(self.minibatches.training)

    def adopt(self, words: list[str], total: int, length: float) -> None:
        super().adopt(words, total, length)
        lengths = self.bag.sum(1)
        median = float(np.median(lengths[lengths > 0]))
        # Others announce the mean; it cannot lower the cap below 50 times this client's median.
        self._bounded = shortened_documents(self.bag, LENGTH_CAP * max(length, median))

    @published(
        "For each word of the minibatch that enough of the client's documents contain, the "
        "expected number of its occurrences from each topic, which add up to its occurrences in "
        "the minibatch; the evidence bound (nats) and the number of documents.",
        noise=False,
    )
    def expected_counts(
        self, vocabulary: str, round: int, pseudo_counts: NDArray[np.float64]
    ) -> dict[str, Any]:
        """Estimate the occurrences of words in each topic, in a minibatch (the E-step)."""
        self.check(vocabulary)
        return self._counted(self.minibatches.draw(round, self.attempt), pseudo_counts)

    @published(
        "For each word that enough of the client's documents contain, the expected number of its "
        "occurrences from each topic; the evidence bound (nats) and the number of documents."
    )
    def all_expected_counts(
        self, vocabulary: str, round: int, pseudo_counts: NDArray[np.float64]
    ) -> dict[str, Any]:
        self.check(vocabulary)
        return self._counted(self.minibatches.training, pseudo_counts)

    def _counted(self, rows: Documents, pseudo_counts: NDArray[np.float64]) -> dict[str, Any]:
        from fedtopics.inference.variational import infer, occurring  # a server need not compile it

        topics = np.empty(pseudo_counts.shape)
        total = np.zeros(pseudo_counts.shape)
        present = np.zeros(len(topics), bool)
        settings = self.settings
        bound = 0.0
        for batch in batches(np.sort(rows)):
            counts = self._bounded[batch]
            words, _ = occurring(counts)
            new = words[~present[words]]
            topics[new] = topic_weights(pseudo_counts, new)
            present[new] = True
            posterior = infer(counts, topics, settings.theta_prior, settings.inner_steps)
            total[words] += posterior.word_counts(topics)
            bound += posterior.bound(counts, settings.theta_prior)
        words = np.flatnonzero(present)
        sums = SparseRows(words, total[words], len(topics))
        return {"counts": sums, "bound": bound, "documents": len(rows)}

    def thetas(self, **model: Any) -> Thetas:
        return posterior_means(self.bag, self.usable, model["topics"], self.settings)


def posterior_means(
    bag: sparse.csr_array, rows: Documents, topics: NDArray[np.float64], prior: LDAPrior
) -> Thetas:
    from fedtopics.inference.variational import infer  # a server need not compile it

    for batch in batches(rows):
        posterior = infer(bag[batch], topics, prior.theta_prior, prior.inner_steps)
        yield batch, posterior.read("mean")


def shortened_documents(bag: sparse.csr_array, most: float) -> sparse.csr_array:
    """Shorten long documents: one of millions of words would dominate the topics."""
    lengths = bag.sum(1, dtype=np.float64)
    if lengths.max(initial=0) <= most:
        return bag
    shorter = bag.copy()
    shorter.data *= np.repeat(np.minimum(1, most / np.maximum(lengths, 1)), np.diff(bag.indptr))
    return shorter
