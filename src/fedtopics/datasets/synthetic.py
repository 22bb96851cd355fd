"""Documents of known topics from the generative model of LDA; clients share some topics.

References
----------
Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, section 4.1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.text.corpus import Corpus

FOREIGN = 1e-5  # alpha of other clients' own topics, as in the authors' configuration


@dataclass(frozen=True)
class SyntheticDocuments:
    """Documents and the topics from which they were drawn."""

    counts: sparse.csr_array  # int32 (n_documents, n_words)
    theta: NDArray[np.float64]  # (n_documents, n_topics)
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.theta)

    def corpus(self) -> Corpus:
        """Return the documents as lists of words, in no particular order."""
        return Corpus.of_counts(self.counts, self.words)


@dataclass(frozen=True)
class SyntheticClients:
    """The result of `synthetic_lda`; in beta, shared topics come before each client's own."""

    words: tuple[str, ...]
    beta: NDArray[np.float64]  # (n_topics, n_words)
    training: dict[str, SyntheticDocuments]
    validation: dict[str, SyntheticDocuments]
    topics: dict[str, NDArray[np.int64]]  # rows of beta that a client's documents use


def synthetic_lda(
    n_clients: int = 5,
    n_words: int = 5000,
    n_topics: int = 50,
    shared_topics: int = 10,
    eta: float = 0.01,
    alpha: float = 0.1,
    n_documents: int = 10_000,
    n_validation: int = 1_000,
    lengths: tuple[int, int] = (150, 250),
    seed: int = 0,
) -> SyntheticClients:
    """Draw documents of several clients by LDA; some topics are shared, the others split.

    Parameters
    ----------
    n_clients, n_words, n_topics, shared_topics : int
        The paper's K' is `shared_topics`. The other topics must be a multiple of n_clients.
    eta, alpha : float
        Dirichlet priors of the topics (eta), and of theta for the topics of a document's client
        (alpha): 0.1 in the authors' configuration, 50 / n_topics in their paper. See `FOREIGN`.
    n_documents, n_validation : int, of each client
    lengths : (int, int)
        Fewest and most words of a document.
    seed : int

    Raises
    ------
    StudyError
        If the numbers do not fit together.

    Examples
    --------
    >>> drawn = synthetic_lda(n_clients=2, n_words=30, n_topics=4, shared_topics=2, n_documents=5)
    >>> drawn.beta.shape, drawn.topics["client1"].tolist()
    ((4, 30), [0, 1, 3])
    """
    private, rest = divmod(n_topics - shared_topics, n_clients)  # topics of only one client
    if rest or not 0 <= shared_topics <= n_topics:
        raise StudyError(
            f"Of {n_topics} topics, {shared_topics} are shared; the other "
            f"{n_topics - shared_topics} cannot be split equally over {n_clients} clients; change "
            "shared_topics."
        )
    rng = np.random.default_rng(seed)
    words = tuple(f"term{number}" for number in range(n_words))
    beta = rng.dirichlet(np.full(n_words, eta), n_topics)
    training = {}
    validation = {}
    topics = {}
    for number in range(n_clients):
        name = f"client{number}"
        first = shared_topics + number * private
        topics[name] = np.concatenate([np.arange(shared_topics), np.arange(first, first + private)])
        prior = np.full(n_topics, FOREIGN)
        prior[topics[name]] = alpha
        training[name] = _draw(rng, beta, prior, n_documents, lengths, words)
        validation[name] = _draw(rng, beta, prior, n_validation, lengths, words)
    return SyntheticClients(
        words=words, beta=beta, training=training, validation=validation, topics=topics
    )


def _draw(
    rng: np.random.Generator,
    beta: NDArray[np.float64],
    prior: NDArray[np.float64],
    n_documents: int,
    lengths: tuple[int, int],
    words: tuple[str, ...],
) -> SyntheticDocuments:
    """Draw theta, then each document's number of words per topic, then all words of a topic."""
    theta = rng.dirichlet(prior, n_documents)
    topic_lengths = rng.multinomial(rng.integers(lengths[0], lengths[1] + 1, n_documents), theta)
    counts = sparse.csr_array((n_documents, len(words)), dtype=np.int32)
    for topic, row in enumerate(beta):
        document = np.repeat(np.arange(n_documents), topic_lengths[:, topic])
        edges = np.cumsum(row)
        word = np.searchsorted(edges, rng.random(len(document)) * edges[-1], side="right")
        counts += sparse.csr_array(
            (np.ones(len(document), np.int32), (document, word)), counts.shape
        )
    counts.sort_indices()
    return SyntheticDocuments(counts, theta, words)
