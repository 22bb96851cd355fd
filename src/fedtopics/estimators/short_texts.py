"""Clusters of short texts."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from fedtopics.errors import StudyError
from fedtopics.estimators.base import ALONE, TopicEstimator
from fedtopics.text.corpus import Corpus


class ShortTextClustering(ClusterMixin, TopicEstimator):  # type: ignore[misc]
    """Clusters of short texts, each in one of them: alone, centralised or federated.

    Short texts have too few words to tell clusters by; embeddings of a language model do, which
    never leave a client.

    Parameters
    ----------
    n_clusters : int or sequence of int, optional
        Number of clusters, or numbers to choose from.
    method : {"discriminative", "fstc", "kmeans", "fsccl"}
        "discriminative" is the default: exact, a few seconds, and what measures best. "fstc" goes
        on from it with a network a client; "kmeans" and "fsccl" are what they are compared with.
    preset : str, optional
        Values of the settings that are not given: for fstc "paper", "rstc" or "stc", for kmeans
        "fbow", "ftfidf" or "fsbert".
    embedding_model : str, optional
        sentence-transformers model, by name or path. Documents with embeddings of their own keep
        them.
    max_rounds, min_document_frequency, max_words, stop_words, random_state, settings
        As of `TopicEstimator`; words describe clusters. Among the settings are ``sizes``,
        ``embedding_dimension``, ``relevance``.

    Attributes
    ----------
    model_ : TopicModel
    labels_ : int array of shape (n_documents,), or a map of client name to such arrays
        Cluster of each document; -1 where the model sees nothing of it. A map after `fit_clients`.
    n_clusters_ : int
    topics_ : list of list of str
        Ten words that describe each cluster.
    beta_ : float array of shape (n_clusters, n_words)
        The words of each cluster's documents; rows sum to 1.
    sizes_ : mapping of client name to int array of shape (n_clusters,)
        Documents that are of each cluster with at least half a probability; 0 where they are
        fewer than the client's policy allows to say.
    unclear_ : mapping of client name to float
        Share of a client's documents of which no cluster has at least half a probability; 0
        where they are fewer than its policy allows to say.
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

    labels_: Any

    def __init__(
        self,
        n_clusters: int | Sequence[int] | None = None,
        *,
        method: Literal["discriminative", "fstc", "kmeans", "fsccl"] = "discriminative",
        preset: str | None = None,
        max_rounds: int | None = None,
        min_document_frequency: int | None = None,
        max_words: int | None = None,
        stop_words: str | None = None,
        embedding_model: str | None = None,
        random_state: Any = 0,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def fit(self, documents: Any, y: Any = None) -> Self:
        """Find clusters of one corpus, where it is, as `TopicEstimator.fit` does."""
        super().fit(documents)
        self.labels_ = self.labels_[ALONE]
        return self

    def predict(self, documents: Any) -> NDArray[np.int64]:
        """Return the cluster of each document, -1 where the model sees nothing of it."""
        check_is_fitted(self)
        labels: NDArray[np.int64] = self.model_.main_topics(documents)
        return labels

    def _fit(self, corpora: Mapping[str, Corpus], *args: Any, **options: Any) -> Self:
        super()._fit(corpora, *args, **options)
        info = self.model_.info
        self.n_clusters_ = self.model_.n_topics
        self.labels_ = {name: self.predict(corpus) for name, corpus in corpora.items()}
        self.sizes_ = {name: np.array(sizes) for name, sizes in info["sizes"].items()}
        documents = self.model_.documents
        self.unclear_ = {name: n / max(documents[name], 1) for name, n in info["unclear"].items()}
        return self

    def _named_settings(self) -> dict[str, Any]:
        named = super()._named_settings()
        number = named.pop("n_clusters", None)
        if isinstance(number, (Sequence, np.ndarray)) and not isinstance(number, str):
            if self.method in ("kmeans", "fsccl"):
                raise StudyError(
                    f"The method {self.method!r} takes one n_clusters; choose among several with "
                    "discriminative."
                )
            return {"candidates": [int(each) for each in number]} | named
        return named if number is None else {"n_components": number} | named
