"""Ordinary and guided LDA of one client's documents, by Gibbs sampling with tomotopy.

Guiding words get pseudo-counts in their topic, as in Jagarlamudi, Daumé and Udupa, Incorporating
Lexical Priors into Topic Models, EACL 2012.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse

from fedtopics.extras import require
from fedtopics.metrics.similarity import Topic, heaviest


class GibbsSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Priors of a client's own LDA, and the length of sampling."""

    alpha: float = Field(0.1, gt=0, description="Dirichlet prior of theta, fitted while sampling")
    eta: float = Field(0.01, gt=0, description="Dirichlet prior of the topics")
    iterations: int = Field(300, ge=1, description="sweeps of the sampler")
    strength: float = Field(
        0.03,
        ge=0,
        description="how strongly words guide their topic, in pseudo-counts per document",
    )


@dataclass(frozen=True)
class Sampled:
    """Topics of one client's documents: beta (n_topics, n_words), rows sum to 1."""

    words: list[str]
    beta: NDArray[np.float64]
    main: NDArray[np.int64]  # the largest topic of each document that has words
    occurrences: NDArray[np.float64]
    """Number of words from each topic, shape (n_topics,)."""

    def topic(self, number: int, n_words: int) -> dict[str, float]:
        """Return a topic's first words and their weights, without words of the minimum weight."""
        return heaviest(self.beta[number], self.words, n_words, above=self.beta[number].min())


def sample_topics(
    counts: sparse.csr_array,
    words: Sequence[str],
    n_topics: int,
    settings: GibbsSettings,
    seeds: Sequence[Topic] = (),
    seed: int = 0,
) -> Sampled:
    """Find topics of documents, CSR (n_documents, n_words); the first ones start from `seeds`."""
    model = load_tomotopy().LDAModel(k=n_topics, alpha=settings.alpha, eta=settings.eta, seed=seed)
    for row in range(counts.shape[0]):
        place = slice(counts.indptr[row], counts.indptr[row + 1])
        repeated = np.repeat(counts.indices[place], counts.data[place])
        if len(repeated):
            model.add_doc([words[column] for column in repeated])
    present = {words[column] for column in np.unique(counts.indices)}
    for word in sorted(present.intersection(set().union(*seeds))):
        model.set_word_prior(
            word,
            {
                topic: settings.eta + settings.strength * counts.shape[0] * weights[word]
                for topic, weights in enumerate(seeds)
                if word in weights
            },
        )
    model.train(settings.iterations, workers=1)
    theta = np.array([document.get_topic_dist() for document in model.docs], np.float64)
    return Sampled(
        words=list(model.used_vocabs),
        beta=np.array([model.get_topic_word_dist(topic) for topic in range(n_topics)], np.float64),
        main=theta.argmax(1),
        occurrences=theta.T @ np.array([len(document.words) for document in model.docs]),
    )


def load_tomotopy() -> Any:
    require("F-LDA and guided LDA need", "'fedtopics[flda]'", ("tomotopy", "tomotopy"))
    import tomotopy

    return tomotopy
