"""Inference of LDA topics, by variational steps."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse
from scipy.special import digamma

from fedtopics.inference import READOUTS, Inference, Layout, Readout, Shared, Weights

LEAST_WEIGHT = np.exp(-40.0)  # least weight of a word in a topic, so that none is impossible
REFINEMENT = 20  # steps of `refine`


class LDAPrior(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Shape and priors of latent Dirichlet allocation."""

    n_components: int = Field(20, ge=1, description="number of topics")
    alpha: float | None = Field(
        None, gt=0, description="Dirichlet prior of theta; by default 1 / n_components"
    )
    eta: float | None = Field(
        None, gt=0, description="Dirichlet prior of the topics; by default 1 / n_components"
    )
    inner_steps: int = Field(
        20, ge=1, le=10_000, description="steps to find the topics of a document"
    )

    @property
    def theta_prior(self) -> float:
        return 1 / self.n_components if self.alpha is None else self.alpha

    @property
    def topic_prior(self) -> float:
        return 1 / self.n_components if self.eta is None else self.eta


class VariationalLDA(Inference):
    """LDA by variational Bayes; the weights are Hoffman, Blei and Bach's lambda (NIPS 2010)."""

    name: ClassVar[str] = "lda"
    settings_type: ClassVar[type[BaseModel]] = LDAPrior
    readouts: ClassVar[tuple[Readout, ...]] = READOUTS

    def layout(self) -> Layout:
        return {"pseudo_counts": ((self.n_words, self.settings.n_components), self.precision)}

    def beta(self, weights: Weights, shared: Shared) -> NDArray[np.float64]:
        counts = weights["pseudo_counts"]
        return np.asarray((counts / counts.sum(0)).T)

    def infer(
        self,
        weights: Weights,
        shared: Shared,
        counts: sparse.csr_array,
        embeddings: NDArray[Any] | None,
        readout: Readout = "mean",
    ) -> NDArray[np.float64]:
        from fedtopics.inference.variational import infer

        return infer(
            counts,
            topic_weights(weights["pseudo_counts"]),
            self.settings.theta_prior,
            steps=self.settings.inner_steps,
        ).read(readout)


def topic_weights(
    pseudo_counts: NDArray[np.float64], words: NDArray[np.int64] | slice = slice(None)
) -> NDArray[np.float64]:
    """Return exp(E[log beta]) of Dirichlet distributed topics, (n_words, n_topics)."""
    expected = digamma(pseudo_counts[words]) - digamma(pseudo_counts.sum(0))
    return np.asarray(np.maximum(np.exp(expected), LEAST_WEIGHT))


def refine(
    counts: sparse.csr_array,
    beta: NDArray[np.float64],
    alpha: float,
    theta: NDArray[np.floating[Any]],
    readout: Readout,
) -> NDArray[np.float64]:
    """Move theta (n, n_topics) towards the documents' words, by variational steps of LDA."""
    from fedtopics.inference.variational import infer

    return infer(
        counts, np.maximum(beta.T, LEAST_WEIGHT), alpha, steps=REFINEMENT, start=theta
    ).read(readout)
