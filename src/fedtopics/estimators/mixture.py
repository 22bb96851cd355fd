"""A mixture of topics by embeddings and words."""

from __future__ import annotations

from typing import ClassVar

from fedtopics.estimators.growing import GrowingEstimator


class MixtureTM(GrowingEstimator):
    """A mixture of topics by embeddings and words, alone, centralised or federated.

    For titles, questions and other short texts: each document is of one topic, by its embedding and
    its words together. A federation trains the model of the pooled documents.

    Parameters and attributes are those of `TopicEstimator`. Among the settings are ``kappa``,
    ``word_weight``, ``smoothing``, ``starts``.

    Examples
    --------
    >>> import numpy as np
    >>> from fedtopics import Corpus
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> vectors = np.array([[1, 0.1], [1, -0.1], [0.1, 1], [-0.1, 1]] * 20)  # an encoder's
    >>> corpus = Corpus.of(texts).with_embeddings(vectors)
    >>> model = MixtureTM(2, embedding_dimension=2).fit(corpus)
    >>> model.transform(corpus).argmax(1)[:4].tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """

    _fixed: ClassVar = {"method": "mixture"}
