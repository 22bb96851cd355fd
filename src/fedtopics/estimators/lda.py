"""Latent Dirichlet allocation."""

from __future__ import annotations

from typing import Any, Literal

from fedtopics.estimators.base import GrowingEstimator


class LDA(GrowingEstimator):
    """Latent Dirichlet allocation by variational Bayes, alone, centralised or federated.

    A federation trains exactly the model of the pooled documents (but for words that are rarer at a
    client than its policy allows).

    Parameters
    ----------
    n_components : int, default 20
        Number of topics.
    alpha, eta : float, optional
        Dirichlet priors of theta and of the topics; by default 1 / n_components.
    learning : {"stochastic", "batch"}
        A round is a minibatch, or all documents.
    learning_offset, learning_decay : float
        A stochastic round has the weight (learning_offset + round) ** -learning_decay.
    initialisation : {"random", "anchors"}
        First topics: random, or the words beside those that stand for one topic alone.
    start : TopicModel or (beta, words), optional
        Topics to begin with instead: those of a model of any method, or beta of shape
        (n_topics, n_words) and its words. They are carried over word by word.
    inner_steps : int
        By which the topics of a document are found.
    batch_size : int
        Documents of a stochastic round, over all clients.
    batch_split : {"proportional", "fixed"}
        "fixed" gives each client `batch_size` documents a round.
    max_rounds : int
    tolerance : float, default 0
        Stop when the topics change by less, relative to their norm.
    min_document_frequency, max_words, max_document_share, stop_words, relevance, coherence, \
random_state
        As of `ProdLDA`.

    Attributes
    ----------
    model_, topics_, beta_, vocabulary_
        As of `ProdLDA`; beta is the expected one.

    References
    ----------
    Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation, NIPS 2010.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> model = LDA(n_components=2, max_rounds=20).fit_clients({"a": trees, "b": boats})
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int = 20,
        *,
        alpha: float | None = None,
        eta: float | None = None,
        learning: Literal["stochastic", "batch"] = "stochastic",
        learning_offset: float = 10.0,
        learning_decay: float = 0.6,
        initialisation: Literal["random", "anchors"] = "anchors",
        start: Any = None,
        inner_steps: int = 20,
        batch_size: int = 1024,
        batch_split: Literal["proportional", "fixed"] = "proportional",
        max_rounds: int = 200,
        tolerance: float = 0.0,
        min_document_frequency: int = 5,
        max_words: int = 5000,
        max_document_share: float = 0.5,
        stop_words: str = "english",
        relevance: float | None = None,
        coherence: Literal["windows", "documents", "nothing"] = "windows",
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.eta = eta
        self.learning = learning
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.initialisation = initialisation
        self.start = start
        self.inner_steps = inner_steps
        self.batch_size = batch_size
        self.batch_split = batch_split
        self.max_rounds = max_rounds
        self.tolerance = tolerance
        self.min_document_frequency = min_document_frequency
        self.max_words = max_words
        self.max_document_share = max_document_share
        self.stop_words = stop_words
        self.relevance = relevance
        self.coherence = coherence
        self.random_state = random_state

    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"name": "lda"}
