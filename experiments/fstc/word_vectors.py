"""An encoder that has seen no text but those it is given: static word vectors, made of them.

A word's vector is its row of the singular value decomposition of texts' weighted words (latent
semantic analysis), so that words are alike that stand in the same texts; a text is the weighted
mean of its words. No label and no language model is used. The decomposition here is of texts in one
place; over clients it could be had from sums.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.vectors import unit_rows

FEWEST = 3  # texts that a word has to be in


def embed(texts: Sequence[str], sources: Sequence[str], dimension: int) -> NDArray[np.float32]:
    """Return embeddings of texts by vectors of the words of source texts, (n_texts, dimension).

    They have unit length; of a text without a word of the sources, zeros.

    Examples
    --------
    >>> sources = ["oak beech", "beech oak", "oak beech fir", "ketch sloop", "sloop ketch"] * 3
    >>> oak, beech, ketch, none = embed(["the oak", "a beech", "ketch", "sea"], sources, 2)
    >>> float(oak @ beech) > 0.9, abs(float(oak @ ketch)) < 0.1, none.tolist()
    (True, True, [0.0, 0.0])
    """
    from scipy.sparse.linalg import svds
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, min_df=FEWEST, stop_words="english")
    weighted = words.fit_transform(sources)
    known_dimensions = min(dimension, min(weighted.shape) - 1)
    _, strength, directions = svds(weighted, k=known_dimensions, v0=np.ones(min(weighted.shape)))
    vectors = unit_rows(directions.T * strength)
    embedded = np.zeros((len(texts), dimension), np.float32)
    embedded[:, :known_dimensions] = unit_rows(words.transform(texts) @ vectors)
    return embedded
