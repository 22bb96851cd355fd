"""Clusters of short texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from fedtopics.errors import StudyError
from fedtopics.estimators.base import TopicEstimator, known
from fedtopics.federation.policy import Policy
from fedtopics.text.corpus import Corpus


class ShortTextClustering(ClusterMixin, TopicEstimator):  # type: ignore[misc]
    """Clusters of short texts, each in one of them: alone, centralised or federated.

    Short texts have too few words to tell clusters by; embeddings of a language model do, which
    never leave a client.

    Parameters
    ----------
    n_clusters : int or sequence of int, default 20
        Number of clusters, or numbers to choose from.
    method : {"discriminative", "fstc", "kmeans", "fsccl"}
        "discriminative" is the default: exact, a few seconds, and what measures best. "fstc" goes
        on from it with a network a client; "kmeans" and "fsccl" are what they are compared with.
    preset : str, optional
        Values of what is not given: for fstc "paper", "rstc" or "stc", for kmeans "fbow", "ftfidf"
        or "fsbert".
    sizes : {"even", "free"}, optional
        Whether clusters are brought to one size; "even" by default. For discriminative and fstc.
    max_rounds : int, optional
    settings : mapping, optional
        Further parameters of the method by name, as a study has them: {"alignment": 0.1}.
    min_document_frequency : int, default 5
        A client names a word, to describe clusters by, only if this many of its documents have it.
    max_words : int, default 5000
    max_document_share : float, default 0.5
    stop_words : str, default "english"
        A language, or "none".
    relevance : float, optional
        How clusters are described: 1 by probability, 0 by lift; by default by class-based TF-IDF.
    coherence : {"windows", "documents", "nothing"}
        Where the clusters' words count as occurring together.
    embedding_model : str, optional
        sentence-transformers model, by name or path; by default all-MiniLM-L6-v2. Documents with
        embeddings of their own keep them.
    embedding_dimension : int, optional
        Length of an embedding; by default 384.
    random_state : int, RandomState or None, default 0
        An int makes the result repeatable.

    Attributes
    ----------
    model_ : TopicModel
    labels_ : int array of shape (n_documents,), or a map of client name to such arrays
        Cluster of each document; -1 where nothing is known of it. A map after `fit_clients`.
    n_clusters_ : int
    topics_ : list of list of str
        Ten words that describe each cluster.
    beta_ : float array of shape (n_clusters, n_words)
        The words of each cluster's documents; rows sum to 1.
    sizes_ : mapping of client name to int array of shape (n_clusters,)
        Documents that are of each cluster with at least half a probability; 0 where they are
        fewer than the client's policy tells.
    unclear_ : mapping of client name to float
        Share of a client's documents of which no cluster has at least half a probability; 0
        where they are fewer than its policy tells.
    vocabulary_ : tuple of str

    Examples
    --------
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> noise = np.random.default_rng(0).normal(0, 0.1, (80, 2))
    >>> vectors = noise + [[1, 0], [1, 0], [0, 1], [0, 1]] * 20  # where an encoder's would be
    >>> corpus = Corpus.of(texts).with_embeddings(vectors)
    >>> found = ShortTextClustering(2, embedding_dimension=2).fit(corpus)
    >>> found.labels_[:2].tolist() == found.labels_[4:6].tolist()
    True
    """

    def __init__(
        self,
        n_clusters: int | Sequence[int] = 20,
        *,
        method: Literal["discriminative", "fstc", "kmeans", "fsccl"] = "discriminative",
        preset: str | None = None,
        sizes: Literal["even", "free"] | None = None,
        max_rounds: int | None = None,
        settings: Mapping[str, Any] | None = None,
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
        self.n_clusters = n_clusters
        self.method = method
        self.preset = preset
        self.sizes = sizes
        self.max_rounds = max_rounds
        self.settings = settings
        self.min_document_frequency = min_document_frequency
        self.max_words = max_words
        self.max_document_share = max_document_share
        self.stop_words = stop_words
        self.relevance = relevance
        self.coherence = coherence
        self.embedding_model = embedding_model
        self.embedding_dimension = embedding_dimension
        self.random_state = random_state

    def fit(self, documents: Any, y: Any = None) -> Self:
        """Find clusters of one corpus, where it is.

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, or path
        y : ignored
        """
        corpus = Corpus.of(documents)
        super().fit(corpus)
        self.labels_: Any = self.predict(corpus)
        return self

    def fit_clients(
        self,
        clients: Mapping[str, Any],
        *,
        policies: Mapping[str, Policy] | None = None,
        out: str | Path | None = None,
    ) -> Self:
        """Find clusters of the documents of several clients without pooling them.

        Parameters are those of `TopicEstimator.fit_clients`.
        """
        corpora = {name: Corpus.of(documents) for name, documents in clients.items()}
        super().fit_clients(corpora, policies=policies, out=out)
        self.labels_ = {name: self.predict(corpus) for name, corpus in corpora.items()}
        return self

    def predict(self, documents: Any) -> NDArray[np.int64]:
        """Return the cluster of each document, -1 where nothing is known of it.

        Parameters
        ----------
        documents : as for `fit`
        """
        check_is_fitted(self)
        labels: NDArray[np.int64] = self.model_.main_topics(documents)
        return labels

    def _fit(self, *args: Any, **options: Any) -> Self:
        super()._fit(*args, **options)
        info = self.model_.info
        self.n_clusters_ = self.model_.n_topics
        self.sizes_ = {name: np.array(sizes) for name, sizes in info["sizes"].items()}
        documents = self.model_.documents
        self.unclear_ = {name: n / max(documents[name], 1) for name, n in info["unclear"].items()}
        return self

    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        embedding = {key: given.pop(f"embedding_{key}", None) for key in ("model", "dimension")}
        number = given.pop("n_clusters")
        if isinstance(number, (int, np.integer)):
            given["n_components"] = int(number)
        elif not isinstance(number, (Sequence, np.ndarray)) or isinstance(number, str):
            raise StudyError(
                f"n_clusters={number!r} cannot be used; give a whole number, or several."
            )
        elif self.method in ("kmeans", "fsccl"):
            raise StudyError(
                f"The method {self.method!r} takes one n_clusters; choose among several with "
                "discriminative."
            )
        else:
            given["candidates"] = [int(each) for each in number]
        further = given.pop("settings", {})
        name = given.pop("method")
        return {"name": name, "embedding": known(embedding)} | given | dict(further)
