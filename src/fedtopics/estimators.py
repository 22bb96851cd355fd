"""Topic models in the manner of scikit-learn: `fit` is one corpus, `fit_clients` a federation."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedtopics.aggregation import OptimizerName
from fedtopics.corpus import Corpus
from fedtopics.privacy import OPEN_POLICY, Policy
from fedtopics.simulation import train
from fedtopics.study import Study
from fedtopics.topics import TopicModel

ALONE = "all"  # the one client of `fit`


class ProdLDA(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Product-of-experts LDA, alone, centralised or federated; the other networks derive from it.

    Parameters
    ----------
    n_components : int, default 20
        Number of topics.
    preset : {"default", "paper"}
        Values of the parameters that are None. "paper" drops a part of theta, takes minibatches of
        64, more and smaller steps, has no bias per word, learns its prior, sees counts as they
        are, does not reconstruct embeddings, and reads topics by probability.
    hidden : (int, int), optional
        Units of the two hidden layers; default (100, 100).
    dropout, dropout_theta : float, optional
        Dropped share of hidden units, default 0.2, and of theta, default 0.
    alpha : float, optional
        Dirichlet prior of theta; default 1.
    learn_prior, word_bias : bool, optional
        Train the prior's mean and variance, default False; a bias a word in the decoder, default
        True.
    log_counts : bool, optional
        The encoder sees log(1 + count); default True.
    embedding_weight : float, optional
        Of an embedding's direction in the loss, in nats for each word of an average document;
        default 3, and 0 in the paper's networks.
    norm : {"sync", "server", "local"}
        Batch normalisation over all clients, by the server's running statistics, or by each
        client alone.
    optimizer : {"adam", "sgd", "fedavg", "fedadam"}
        The server's.
    learning_rate : float, optional
        By default 0.005.
    batch_size : int, optional
        Documents of a round, over all clients; by default 256.
    batch_split : {"proportional", "fixed"}
        "fixed" gives each client `batch_size` documents a round.
    local_steps : int, default 1
        Minibatches a client takes in one round (FedAvg, FedAdam).
    max_rounds : int, optional
        By default 2000.
    tolerance : float, default 0
        Stop when the weights change by less, relative to their norm.
    validation_share : float, default 0
        Share of each client's documents held back; the best weights on them are kept.
    min_document_frequency : int, default 5
        A client names a word only if this many of its documents have it.
    max_words : int, default 5000
    max_document_share : float, default 0.5
    stop_words : str, default "english"
        A language, or "none".
    relevance : float, optional
        How topics are read: 1 by probability, 0 by lift. By default the most coherent way in which
        nine of ten words differ between topics.
    coherence : {"windows", "documents", "nothing"}
        Where the topics' words count as occurring together.
    embedding_model : str, optional
        sentence-transformers model, by name or path, of networks that see embeddings; by default
        all-MiniLM-L6-v2. Documents with embeddings of their own keep them.
    embedding_dimension : int, optional
        Length of an embedding; by default 384.
    random_state : int, RandomState or None, default 0
        An int makes the result repeatable to the bit on the same machine.

    Attributes
    ----------
    model_ : TopicModel
    topics_ : list of list of str
        Ten words of each topic.
    beta_ : float array of shape (n_topics, n_words)
        Topics as the decoder uses them; rows sum to 1.
    vocabulary_ : tuple of str

    Notes
    -----
    scikit-learn's ``check_estimator`` passes. Most of its checks skip estimators of text; run on
    token lists made of their numbers, more than thirty pass, and those that do not apply (they
    feed sparse, complex or one-column tables, or count columns) are listed with a reason in
    ``tests/test_estimators.py``.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> model = ProdLDA(n_components=2, max_rounds=50).fit_clients({"a": trees, "b": boats})
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _network = "prodlda"

    def __init__(
        self,
        n_components: int = 20,
        *,
        preset: Literal["default", "paper"] = "default",
        hidden: tuple[int, int] | None = None,
        dropout: float | None = None,
        dropout_theta: float | None = None,
        alpha: float | None = None,
        learn_prior: bool | None = None,
        word_bias: bool | None = None,
        log_counts: bool | None = None,
        embedding_weight: float | None = None,
        norm: Literal["sync", "server", "local"] = "sync",
        optimizer: OptimizerName = "adam",
        learning_rate: float | None = None,
        batch_size: int | None = None,
        batch_split: Literal["proportional", "fixed"] = "proportional",
        local_steps: int = 1,
        max_rounds: int | None = None,
        tolerance: float = 0.0,
        validation_share: float = 0.0,
        min_document_frequency: int = 5,
        max_words: int = 5000,
        max_document_share: float = 0.5,
        stop_words: str = "english",
        relevance: float | None = None,
        coherence: Literal["windows", "documents", "nothing"] = "windows",
        embedding_model: str | None = None,
        embedding_dimension: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.preset = preset
        self.hidden = hidden
        self.dropout = dropout
        self.dropout_theta = dropout_theta
        self.alpha = alpha
        self.learn_prior = learn_prior
        self.word_bias = word_bias
        self.log_counts = log_counts
        self.embedding_weight = embedding_weight
        self.norm = norm
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.batch_split = batch_split
        self.local_steps = local_steps
        self.max_rounds = max_rounds
        self.tolerance = tolerance
        self.validation_share = validation_share
        self.min_document_frequency = min_document_frequency
        self.max_words = max_words
        self.max_document_share = max_document_share
        self.stop_words = stop_words
        self.relevance = relevance
        self.coherence = coherence
        self.embedding_model = embedding_model
        self.embedding_dimension = embedding_dimension
        self.random_state = random_state

    def fit(self, documents: Any, y: Any = None) -> ProdLDA:
        """Train on one corpus, where it is: the scenarios "alone" and "centralised".

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, or path
        y : ignored
        """
        return self._fit({ALONE: documents}, {ALONE: OPEN_POLICY}, None)

    def fit_clients(
        self,
        clients: Mapping[str, Any],
        *,
        policies: Mapping[str, Policy] | None = None,
        out: str | Path | None = None,
    ) -> ProdLDA:
        """Train on the documents of several clients without pooling them.

        Parameters
        ----------
        clients : mapping of client name to documents
        policies : mapping of client name to Policy, optional
            By default each client asks for 10 documents a reply and 5 documents a word.
        out : path, optional
            The run's folder, with each client's ledger.
        """
        return self._fit(clients, policies or {}, out)

    def transform(self, documents: Any) -> NDArray[np.float32]:
        """Find the topics of documents: theta, shape (n_documents, n_topics), rows sum to 1."""
        check_is_fitted(self)
        theta: NDArray[np.float32] = self.model_.transform(documents)
        return theta

    def _fit(
        self, clients: Mapping[str, Any], policies: Mapping[str, Policy], out: str | Path | None
    ) -> ProdLDA:
        corpora = {name: Corpus.of(documents) for name, documents in clients.items()}
        self.model_: TopicModel = train(self._study(), corpora, policies=policies, out=out)
        self.topics_ = self.model_.topics()
        self.beta_ = self.model_.beta
        self.vocabulary_ = self.model_.vocabulary.words
        return self

    def _study(self) -> Study:
        given = self.get_params()
        seed = given.pop("random_state")
        text = {"stop_words": given.pop("stop_words")}
        limits = ("min_document_frequency", "max_words", "max_document_share")
        vocabulary = {key: given.pop(key) for key in limits}
        embedding = {key: given.pop(f"embedding_{key}") for key in ("model", "dimension")}
        method = _known(given) | {"network": self._network, "embedding": _known(embedding)}
        return Study.make(seed=_seed(seed), method=method, text=text, vocabulary=vocabulary)

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_topics

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class NeuralLDA(ProdLDA):
    """LDA with an encoder: each document is a mixture of topics, not a product.

    Parameters and attributes are those of `ProdLDA`.
    """

    _network = "neurallda"


class CombinedTM(ProdLDA):
    """ProdLDA whose encoder sees the words and an embedding of each document.

    Parameters and attributes are those of `ProdLDA`. Embeddings are computed where the documents
    are, once, and never leave.

    References
    ----------
    Bianchi, Terragni and Hovy, Pre-training is a Hot Topic, ACL 2021.
    """

    _network = "combinedtm"


class ZeroShotTM(ProdLDA):
    """ProdLDA whose encoder sees an embedding of each document alone.

    Parameters and attributes are those of `ProdLDA`. With a multilingual model it finds the topics
    of documents in languages it was not trained on.

    References
    ----------
    Bianchi et al., Cross-lingual Contextualized Topic Models with Zero-shot Learning, EACL 2021.
    """

    _network = "zeroshottm"


def _known(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def _seed(random_state: Any) -> int:
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
