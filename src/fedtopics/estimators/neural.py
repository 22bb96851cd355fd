"""The neural topic models."""

from __future__ import annotations

from typing import Any, Literal

from fedtopics.estimators.base import TopicEstimator, known
from fedtopics.methods.aggregation import OptimizerName


class ProdLDA(TopicEstimator):
    """Product-of-experts LDA, alone, centralised or federated; the other networks derive from it.

    Parameters
    ----------
    n_components : int, default 20
        Number of topics.
    preset : {"default", "paper", "mixtures"}
        Values of the parameters that are None. "paper" drops a part of theta, takes minibatches of
        64, more and smaller steps, has no bias per word, learns its prior, sees counts as they
        are, does not reconstruct embeddings, and reads topics by probability. "mixtures" begins
        with anchors, for documents that mix topics with words of their own.
    hidden : (int, int), optional
        Units of the two hidden layers; default (100, 100).
    dropout, dropout_theta : float, optional
        Dropped share of hidden units, default 0.2, and of theta, default 0.
    alpha : float, optional
        Dirichlet prior of theta; default 1.
    learn_prior, word_bias : bool, optional
        Train the prior's mean and variance, default False; a bias a word in the decoder, default
        True.
    encoder_input : {"log", "counts", "shares"}, optional
        What the encoder sees of a word: log(1 + count), which is the default, its count, or its
        share of the document.
    posterior_gain : float, optional
        Learn how far the posterior's normalised means spread, from this factor on; by default they
        keep a deviation of 1.
    normalise_topics : bool, optional
        NeuralLDA normalises the logits of each word over the topics; default True.
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
    learning_rate_decay : {"none", "linear"}
        "linear" lets it fall to a hundredth at the last round.
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
    initialisation : {"random", "anchors"}
        First topics: random, or the words beside those that stand for one topic alone.
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
    ``tests/estimators/test_estimators.py``.

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
        preset: Literal["default", "paper", "mixtures"] = "default",
        hidden: tuple[int, int] | None = None,
        dropout: float | None = None,
        dropout_theta: float | None = None,
        alpha: float | None = None,
        learn_prior: bool | None = None,
        word_bias: bool | None = None,
        encoder_input: Literal["log", "counts", "shares"] | None = None,
        posterior_gain: float | None = None,
        normalise_topics: bool | None = None,
        embedding_weight: float | None = None,
        norm: Literal["sync", "server", "local"] = "sync",
        optimizer: OptimizerName = "adam",
        learning_rate: float | None = None,
        learning_rate_decay: Literal["none", "linear"] = "none",
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
        initialisation: Literal["random", "anchors"] = "random",
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
        self.encoder_input = encoder_input
        self.posterior_gain = posterior_gain
        self.normalise_topics = normalise_topics
        self.embedding_weight = embedding_weight
        self.norm = norm
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.learning_rate_decay = learning_rate_decay
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
        self.initialisation = initialisation
        self.relevance = relevance
        self.coherence = coherence
        self.embedding_model = embedding_model
        self.embedding_dimension = embedding_dimension
        self.random_state = random_state

    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        embedding = {key: given.pop(f"embedding_{key}", None) for key in ("model", "dimension")}
        return given | {"network": self._network, "embedding": known(embedding)}


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
