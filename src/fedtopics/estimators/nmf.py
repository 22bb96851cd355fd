"""Non-negative matrix factorisation."""

from __future__ import annotations

from typing import ClassVar

from fedtopics.estimators.seeded import SeededEstimator


class NMF(SeededEstimator):
    """Non-negative matrix factorisation of weighted words, alone, centralised or federated.

    For texts from a paragraph on: topics that are coherent and differ, in seconds. A federation
    trains exactly the model of the pooled documents (but for words that are rarer at a client than
    its policy allows).

    Parameters and attributes are those of `TopicEstimator`; beta are the topics' weighted words,
    rows sum to 1. Among the settings are ``seed_topics``, as `GuidedLDA` takes them, to which the
    first topics are held with their ``strength``; ``term_weight`` and ``rarity``.

    References
    ----------
    Lee and Seung, Learning the parts of objects by non-negative matrix factorization, Nature 1999.
    Cichocki and Phan, Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
    Factorizations, IEICE Transactions 2009.

    Examples
    --------
    >>> trees = ["oak and beech and fir grow here", "fir and beech and oak"] * 20
    >>> boats = ["ketch and sloop and yawl sail", "a yawl and a sloop and a ketch"] * 20
    >>> model = NMF(n_components=2).fit_clients({"a": trees, "b": boats})
    >>> model.transform(["the fir and the oak", ""]).round(2).tolist()[1]
    [0.5, 0.5]
    """

    _fixed: ClassVar = {"method": "nmf"}
