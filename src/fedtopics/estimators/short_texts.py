"""Clusters of short texts."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin

from fedtopics.contract.events import OnEvent
from fedtopics.errors import StudyError
from fedtopics.estimators.base import SINGLE, Splitter, StopWords, TopicEstimator, Words
from fedtopics.estimators.inputs import Inputs
from fedtopics.inference.merged import Merged

FEW_TEXTS = 400  # better than k-means with these, not with 200: make bench NAME=consensus


class ShortTextClustering(ClusterMixin, TopicEstimator):  # type: ignore[misc]
    """Clusters of short texts, each text in one cluster, of one corpus or a federation.

    Short texts have too few words to separate clusters. Embeddings of a language model separate
    clusters, and never leave a client.

    Parameters
    ----------
    n_clusters : int, sequence of int or "auto", optional
        Number of clusters, or several numbers from which the method chooses; "auto" takes some
        from 2 to 60.
    method : {"discriminative", "fstc", "kmeans", "fsccl"}
        "discriminative" (default) is exact, takes seconds and has the best scores. "fstc" starts
        from its clusters and trains a network per client. Use "kmeans" and "fsccl" to compare.
    preset : str, optional
        Values of the settings that you do not give: for fstc "paper", "frozen", "rstc" or
        "stc", for kmeans "fbow", "ftfidf" or "fsbert".
    embedding_model : str, optional
        sentence-transformers model, by name or path. Documents that have embeddings keep them.
    tokenizer, analyzer, verbose, callback
        As in `TopicEstimator`.
    max_rounds, min_persons_per_word, max_words, stop_words, random_state, settings
        As in `TopicEstimator`. Words describe clusters. Settings include
        ``embedding_dimension``, ``relevance`` and tables such as ``separation={"sizes": "free"}``.

    Attributes
    ----------
    model_ : TopicModel
    labels_ : int array of shape (n_documents,), or a map of client name to such arrays
        Cluster of each document, or -1 if it contains nothing that the model knows. After
        `fit_clients`, a map by client.
    n_clusters_ : int
    topics_ : list of list of str
        Ten words that describe each cluster.
    beta_ : float array of shape (n_clusters, n_words)
        Shares of words in each cluster's documents; rows sum to 1.
    sizes_ : mapping of client name to int array of shape (n_clusters,)
        Number of documents that belong to each cluster with a probability of at least one half; 0
        if the client's policy does not allow so small a number to be shown.
    unclear_ : mapping of client name to float
        Share of a client's documents that belong to no cluster with a probability of one half; 0
        if the client's policy does not allow so small a number to be shown.
    vocabulary_ : tuple of str

    Examples
    --------
    >>> from fedtopics import Corpus
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> noise = np.random.default_rng(0).normal(0, 0.1, (80, 2))
    >>> vectors = noise + [[1, 0], [1, 0], [0, 1], [0, 1]] * 20  # instead of an encoder's
    >>> corpus = Corpus.of(texts).with_embeddings(vectors)
    >>> clusters = ShortTextClustering(2, embedding_dimension=2).fit(corpus)
    >>> clusters.labels_[:2].tolist() == clusters.labels_[4:6].tolist()
    True
    """

    _clusters: Any  # clusters of the training documents, by client or of the only corpus

    def __init__(
        self,
        n_clusters: int | Sequence[int] | Literal["auto"] | None = None,
        *,
        method: Literal["discriminative", "fstc", "kmeans", "fsccl"] = "discriminative",
        preset: str | None = None,
        max_rounds: int | None = None,
        min_persons_per_word: int | None = None,
        max_words: int | None = None,
        stop_words: StopWords = "english",
        tokenizer: Splitter | None = None,
        analyzer: Splitter | None = None,
        text: str | None = None,
        embedding_model: str | None = None,
        random_state: Any = 0,
        verbose: bool = False,
        callback: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def fit(
        self,
        documents: Any,
        y: Any = None,
        *,
        words: Words = None,
        text: str | None = None,
        engine: Any = None,
    ) -> Self:
        """Find clusters of one corpus, as in `TopicEstimator.fit`."""
        super().fit(documents, words=words, text=text, engine=engine)
        self._clusters = self._clusters[SINGLE]
        return self

    def predict(
        self, documents: Any, *, words: Sequence[str] | None = None, text: str | None = None
    ) -> NDArray[np.int64]:
        """Return the cluster of each document, -1 if it contains nothing the model knows."""
        return self._fitted().main_topics(self._corpus(documents, words, text))

    @property
    def labels_(self) -> Any:
        """Cluster of each training document; after `fit_clients` by the clients' keys."""
        clusters = self._clusters
        inference = self.model_.inference
        follow = inference.merged if isinstance(inference, Merged) else np.asarray
        return (
            self._by_key({name: follow(labels) for name, labels in clusters.items()})
            if isinstance(clusters, Mapping)
            else follow(clusters)
        )

    n_clusters_ = TopicEstimator.n_components_

    @property
    def sizes_(self) -> dict[Any, NDArray[np.int64]]:
        """Number of documents in each cluster, by the clients' keys."""
        return self._by_key(
            {name: np.array(counts) for name, counts in self.model_.info["sizes"].items()}
        )

    @property
    def unclear_(self) -> dict[Any, float]:
        """Share of documents that belong clearly to no cluster, by the clients' keys."""
        return self._by_key(
            {
                name: number / max(self.model_.documents[name], 1)
                for name, number in self.model_.info["unclear"].items()
            }
        )

    def _fit(self, data: Inputs, start: Any = None, engine: Any = None) -> Self:
        if self.method == "discriminative" and sum(map(len, data.corpora.values())) < FEW_TEXTS:
            warnings.warn(
                f"With fewer than {FEW_TEXTS} texts, no advantage over k-means was found; try "
                'method="kmeans" as well.',
                stacklevel=3,
            )
        super()._fit(data, start, engine)
        if same := self.model_.info.get("same", 0):
            warnings.warn(
                f"{same} of {self.model_.n_topics} clusters equal another one: the documents have "
                "fewer groups; set a smaller n_clusters.",
                stacklevel=3,
            )
        self._clusters = {name: self.predict(corpus) for name, corpus in data.corpora.items()}
        return self

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        number = named.pop("n_clusters", None)
        if isinstance(number, (Sequence, np.ndarray)) and not isinstance(number, str):
            if self.method in ("kmeans", "fsccl"):
                raise StudyError(
                    f"The method {self.method!r} takes one n_clusters; to choose among "
                    'several, set method = "discriminative".'
                )
            return {"candidates": [int(candidate) for candidate in number]} | named
        return named if number is None else {"n_components": number} | named
