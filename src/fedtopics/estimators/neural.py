"""The neural topic models."""

from __future__ import annotations

from typing import ClassVar

from fedtopics.estimators.base import TopicEstimator


class ProdLDA(TopicEstimator):
    """Product-of-experts LDA, alone, centralised or federated; the other networks derive from it.

    Parameters and attributes are those of `TopicEstimator`. The preset "avitm" drops a part of
    theta, takes minibatches of 64, more and smaller steps, has no bias per word, learns its prior,
    sees counts as they are, does not reconstruct embeddings, and reads topics by probability;
    "paper" is that with each client's own statistics and plain gradient steps (Algorithm 1).
    "mixtures" begins with anchors, for documents that mix topics with words of their own.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> model = ProdLDA(n_components=2, max_rounds=50).fit_clients({"a": trees, "b": boats})
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "prodlda"}


class NeuralLDA(ProdLDA):
    """LDA with an encoder: each document is a mixture of topics, not a product.

    Parameters and attributes are those of `TopicEstimator`.
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "neurallda"}


class CombinedTM(ProdLDA):
    """ProdLDA whose encoder sees the words and an embedding of each document.

    Parameters and attributes are those of `TopicEstimator`. Embeddings are computed where the
    documents are, once, and never leave.

    References
    ----------
    Bianchi, Terragni and Hovy, Pre-training is a Hot Topic, ACL 2021.
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "combinedtm"}


class ZeroShotTM(ProdLDA):
    """ProdLDA whose encoder sees an embedding of each document alone.

    Parameters and attributes are those of `TopicEstimator`. With a multilingual model it finds the
    topics of documents in languages it was not trained on.

    References
    ----------
    Bianchi et al., Cross-lingual Contextualized Topic Models with Zero-shot Learning, EACL 2021.
    """

    _fixed: ClassVar = {"method": "gfedntm", "network": "zeroshottm"}
