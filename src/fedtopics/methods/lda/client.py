"""The client's half of federated LDA: expected counts of words and topics in its own documents.

A round's minibatch is a function of the client's secret, the round and the attempt at it alone: a
repeated call gives the same reply, also after a restart of the client. An attempt after the first
has documents of its own: two sums that differ by a client are not over the same ones.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from fedtopics.errors import DataError
from fedtopics.inference.lda import LDAPrior, topic_weights
from fedtopics.methods.bounded.settings import Bounded, Shares
from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.client import Documents, batches, leaves
from fedtopics.methods.core.groups import Thetas
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.settings import FIRST_TOPICS, Beginning, MethodName, MinibatchSettings
from fedtopics.methods.lda.first_topics import project
from fedtopics.methods.nmf.client import CALLS_BEFORE, Factoring

Settings = TypeVar("Settings", bound=MinibatchSettings)


class Minibatches:
    """Rows of a client's usable documents, for `training` or `held` back for validation.

    With too few documents both are the same; DataError if there are none. A minibatch, or a
    validation, has at least the `smallest` number of documents.
    """

    def __init__(
        self, usable: Documents, secret: Secret, validation_share: float, smallest: int
    ) -> None:
        self._secret = secret
        self._smallest = smallest
        self._epoch = (-1, np.zeros(0, np.int64))
        if len(usable) == 0:
            raise DataError(
                "no document has a word of the agreed vocabulary that enough of them have; raise "
                "max_words, lower min_clients_per_word or min_document_frequency, or give more "
                "documents."
            )
        shuffled = secret.rng("validation").permutation(usable)
        held = max(round(validation_share * len(usable)), smallest) if validation_share else 0
        if held > 0 and len(usable) - held < smallest:
            self.training = self.held = shuffled
        else:
            self.training, self.held = shuffled[held:], shuffled[:held]

    def size(self, wanted: float) -> int:
        """Return the number of documents of a minibatch, as near to the wanted one as possible."""
        return min(len(self.training), max(round(wanted), self._smallest))

    def draw(self, number: int, size: int, attempt: int = 1) -> Documents:
        """Return minibatch 1, 2, ...; each epoch is a new permutation of the documents.

        Of a later attempt it is a sample by itself.
        """
        if attempt > 1:
            rng = self._secret.rng("minibatch", number, attempt)
            return rng.choice(self.training, size, replace=False)
        epoch, place = divmod(number - 1, max(1, len(self.training) // size))
        if self._epoch[0] != epoch:
            rng = self._secret.rng("epoch", epoch)
            self._epoch = (epoch, rng.permutation(self.training))
        return self._epoch[1][place * size : (place + 1) * size]


class MinibatchClient(Factoring[Settings]):
    """A client that trains on minibatches of its documents."""

    held_back = 0.0  # share of the documents that training does not see

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls which function."""
        calls = super().schedule(settings)
        if settings.initialisation == "anchors":
            calls["projections"] = "once, before the first round"
        return calls | (CALLS_BEFORE if settings.initialisation == "nmf" else {})

    def split(self, documents: int, total: int) -> int:
        """Hold documents back for validation; set the size of minibatches."""
        self.minibatches = Minibatches(self.usable, self.secret, self.held_back, self.min_documents)
        proportional = self.settings.batch_split == "proportional"
        part = documents / total if proportional else 1
        self._size = self.minibatches.size(self.settings.batch_size * part)
        return len(self.minibatches.training)

    @leaves(
        "For each word that enough of the documents have: 300 random mixtures of how often other "
        "words stand in a document with it, the number of documents, and its summed share of "
        "their words; zeros for other words. Where texts are short or words few, that is as good "
        "as counts of pairs of words, down to one document."
    )
    def projections(self, vocabulary: str) -> dict[str, Any]:
        """Sum what stands beside each word in a document, in a random projection."""
        self.check(vocabulary)
        sums = project(self.bag, self._public_seed)
        return sums | {"documents": self.bag.shape[0]}

    def minibatch(self, vocabulary: str, number: int) -> Documents:
        """Return the documents of a round."""
        self.check(vocabulary)
        return self.minibatches.draw(number, self._size, self.attempt)


class LDASettings(Bounded, MinibatchSettings, LDAPrior, MethodName):
    """All parameters of federated LDA, as a study names them."""

    ONCE: ClassVar[int] = 2
    SHARES: ClassVar[Shares] = Shares({"words": 0.05, "sketch": 0.7}, {"topics": 0.25})
    with_privacy: ClassVar[dict[str, Any]] = {
        "learning": "batch", "coherence": "nothing", "max_rounds": 4,
    }  # fmt: skip

    name: Literal["lda"] = Field("lda", description="the method")
    learning: Literal["stochastic", "batch"] = Field(
        "stochastic",
        description='"stochastic": a round is a minibatch; "batch": a round is all documents',
    )
    learning_offset: float = Field(
        10.0, ge=0, description="slows the first stochastic rounds: tau_0 of (tau_0 + round)^-kappa"
    )
    learning_decay: float = Field(
        0.6, gt=0.5, le=1, description="of the weight of a stochastic round: kappa, as above"
    )
    batch_size: int = Field(1024, ge=1, description="documents of a stochastic round")
    initialisation: Beginning = Field("anchors", description=FIRST_TOPICS)
    max_rounds: int = Field(200, ge=1, description="most rounds")

    @property
    def own_exchanges(self) -> str:
        if self.learning == "stochastic":
            return (
                "minibatches need hundreds of rounds, each with noise and none of most documents: "
                'set learning = "batch"'
            )
        if self.initialisation != "anchors":
            return 'first topics are of sums with noise: leave initialisation at "anchors"'
        return ""


LONGEST = 50  # times the mean length: a longer document counts as if it had so many words


class LDAClient(MinibatchClient[LDASettings]):
    """The client's half: expected counts of minibatches, or of all documents."""

    @staticmethod
    def rounds(settings: LDASettings) -> dict[str, str]:
        if settings.learning == "batch":
            return {"all_expected_counts": "each round"}
        instead = "once instead of expected_counts, if a model is trained further on new documents"
        return {"expected_counts": "each round", "all_expected_counts": instead}

    def adopt(self, words: list[str], total: int, length: float) -> None:
        super().adopt(words, total, length)
        lengths = self.bag.sum(1)
        own = float(np.median(lengths[lengths > 0])) if lengths.any() else 0.0
        # The mean that others announce cannot shorten a document that is as usual here.
        self._bounded = shortened(self.bag, LONGEST * max(length, own))

    @leaves(
        "For each word that enough of the client's documents have and that occurs in the "
        "minibatch, the expected number of occurrences of each topic: together, how often it "
        "occurs there; the evidence bound (nats) and the number of documents.",
        noise=False,
    )
    def expected_counts(
        self, vocabulary: str, round: int, pseudo_counts: NDArray[np.float64]
    ) -> dict[str, Any]:
        """Estimate how many occurrences of words are of each topic, in a minibatch (the E-step).

        `pseudo_counts` are the topics' Dirichlet parameters, float64 of shape (n_words, n_topics).
        """
        return self._counted(self.minibatch(vocabulary, round), pseudo_counts)

    @leaves(
        "For each word that enough of the client's documents have, the expected number of "
        "occurrences of each topic; the evidence bound (nats) and the number of documents."
    )
    def all_expected_counts(
        self, vocabulary: str, round: int, pseudo_counts: NDArray[np.float64]
    ) -> dict[str, Any]:
        """As `expected_counts`, in all documents."""
        self.check(vocabulary)
        return self._counted(self.minibatches.training, pseudo_counts)

    def _counted(self, rows: Documents, pseudo_counts: NDArray[np.float64]) -> dict[str, Any]:
        from fedtopics.inference.variational import infer, occurring  # a server need not compile it

        topics, total = np.empty(pseudo_counts.shape), np.zeros(pseudo_counts.shape)
        present = np.zeros(len(topics), bool)
        settings, bound = self.settings, 0.0
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
        sums = Rows(words, total[words], len(topics))
        return {"counts": sums, "bound": bound, "documents": len(rows)}

    def thetas(self, **model: Any) -> Thetas:
        return posterior_means(self.bag, self.usable, model["topics"], self.settings)


def posterior_means(
    bag: sparse.csr_array, rows: Documents, topics: NDArray[np.float64], prior: LDAPrior
) -> Thetas:
    """Yield theta of documents, in batches, by topics (n_words, n_topics)."""
    from fedtopics.inference.variational import infer  # a server need not compile it

    for batch in batches(rows):
        posterior = infer(bag[batch], topics, prior.theta_prior, prior.inner_steps)
        yield batch, posterior.read("mean")


def shortened(bag: sparse.csr_array, most: float) -> sparse.csr_array:
    """Return a bag of words whose documents have at most so many, without a copy if they have.

    One document of millions of words, a file read as one, would be most of what is learned.
    """
    lengths = bag.sum(1, dtype=np.float64)
    if lengths.max(initial=0) <= most:
        return bag
    shorter = bag.copy()
    shorter.data *= np.repeat(np.minimum(1, most / np.maximum(lengths, 1)), np.diff(bag.indptr))
    return shorter
