"""Latent Dirichlet allocation."""

from __future__ import annotations

from typing import ClassVar

from fedtopics.estimators.growing import GrowingEstimator


class LDA(GrowingEstimator):
    """Latent Dirichlet allocation by variational Bayes, alone, centralised or federated.

    A federation trains exactly the model of the pooled documents (but for words that are rarer at a
    client than its policy allows).

    Parameters and attributes are those of `TopicEstimator`; beta is the expected one. Among the
    settings are ``alpha``, ``eta``, ``learning``, ``initialisation``, ``inner_steps``.

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

    _fixed: ClassVar = {"method": "lda"}
