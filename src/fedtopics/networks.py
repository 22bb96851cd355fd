"""The torch side of neural topic models: networks and their losses, nothing about federation.

A network is a chain of *stages*. A stage computes, document by document, what it can; where the
documents of a minibatch need each other (batch normalisation), it gives sums over documents and
what all documents share is computed from the totals by ``finish``. Whoever holds all documents
adds nothing to that; a federation sums over its clients first. The weights are plain dictionaries
of tensors, so that they can travel and be stored.

References
----------
Srivastava and Sutton, Autoencoding Variational Inference for Topic Models, ICLR 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from fedtopics.kernels import EPSILON, Normalised, Projection, Reconstruction

Tensors = dict[str, Tensor]


class NetworkSettings(BaseModel):
    """Shape and prior of a neural topic model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    n_components: int = Field(20, ge=2, description="number of topics")
    hidden: tuple[PositiveInt, PositiveInt] = Field(
        (100, 100), description="units of the two hidden layers"
    )
    dropout: float = Field(0.2, ge=0, lt=1, description="dropped share of hidden units and theta")
    alpha: float = Field(1.0, gt=0, description="Dirichlet prior of theta")
    learn_prior: bool = Field(False, description="train the prior's mean and variance")
    word_bias: bool = Field(True, description="a bias per word in the decoder")
    layer_norm: bool = Field(False, description="normalise the posterior by document, not by batch")


@dataclass(frozen=True)
class Noise:
    """All that is random in one pass.

    Parameters
    ----------
    normal : tensor of shape (n, n_topics)
    keep_hidden, keep_theta : tensors of shape (n, n_hidden), (n, n_topics)
        Zero where dropout drops, otherwise 1 / (1 - dropout).
    """

    normal: Tensor
    keep_hidden: Tensor
    keep_theta: Tensor


@dataclass(frozen=True)
class Batch:
    """A minibatch of n documents in which U different words occur.

    Parameters
    ----------
    bag : CSR array of shape (n, n_words)
    words : int64 array of shape (U,)
        The words' columns in the vocabulary, ascending.
    places : int64 tensor, row * n_words + column of each non-zero count
    values : tensor, the non-zero counts
    lengths : tensor of shape (n,)
        Words of each document.
    noise : Noise or None
        None computes with the posterior's mean and without dropout.
    """

    bag: sparse.csr_array
    words: NDArray[np.int64]
    places: Tensor
    values: Tensor
    lengths: Tensor
    noise: Noise | None = None

    @classmethod
    def of(
        cls, bag: sparse.csr_array, noise: Noise | None = None, dtype: torch.dtype = torch.float32
    ) -> Batch:
        """Make a batch of the rows of a bag of words, shape (n, n_words)."""
        n, n_words = bag.shape
        values = torch.from_numpy(bag.data).to(dtype)
        bag = sparse.csr_array((values.numpy(), bag.indices, bag.indptr), bag.shape)
        present = np.zeros(n_words, bool)
        present[bag.indices] = True
        row = np.repeat(np.arange(n), np.diff(bag.indptr))
        places = torch.from_numpy(row * n_words + bag.indices)
        lengths = torch.from_numpy(bag.sum(1))
        return cls(bag, np.flatnonzero(present), places, values, lengths, noise)

    def __len__(self) -> int:
        return len(self.lengths)

    def project(self, rows: Tensor) -> Tensor:
        """Multiply the bag of words by a matrix with a row per word, shape (n_words, width)."""
        product: Tensor = Projection.apply(rows, self)  # type: ignore[no-untyped-call]
        return product

    def spread(self, gradient: Tensor) -> Tensor:
        """Turn a gradient of `project` into that of the rows of the batch's words, (U, width)."""
        column = np.empty(self.bag.shape[1], self.bag.indices.dtype)
        column[self.words] = np.arange(len(self.words))
        narrow = sparse.csr_array(
            (self.bag.data, column[self.bag.indices], self.bag.indptr),
            (len(self), len(self.words)),
        )
        return torch.from_numpy(narrow.T @ gradient.numpy())


@dataclass(frozen=True)
class Stage:
    """One stretch of a network, up to where documents need each other.

    Parameters
    ----------
    name : str
    local : function (weights, batch, carried, shared) -> (carried, sums)
        `carried` stays with the documents; `sums` is a float64 vector, a sum over documents.
    finish : function (weights, totals, n) -> shared
        What all n documents share, from the totals of the sums. Differentiable.
    """

    name: str
    local: Callable[[Tensors, Batch, Tensors, Tensors], tuple[Tensors, Tensor]]
    finish: Callable[[Tensors, Tensor, float], Tensors]


class ProdLDA:
    """Product-of-experts LDA with a logistic-normal posterior.

    The encoder sees a bag of words: two softplus layers, then mean and log variance of the
    posterior, batch-normalised. The decoder is softmax(batchnorm(theta @ beta_logits) + bias).

    Parameters
    ----------
    n_words : int
    settings : NetworkSettings
    dtype : torch dtype

    Notes
    -----
    The decoder's logits are linear in theta, so their mean and variance over documents follow
    from the moments of theta, n_topics + n_topics**2 numbers: mean(theta) @ beta_logits and
    diag(beta_logits' Cov(theta) beta_logits). The normalised decoder is then one matrix,
    ``topics``, that all documents share.
    """

    name = "prodlda"
    # A row per word. A stage finds them multiplied by its batch's bag of words.
    row_weights = frozenset({"encoder_words"})
    finish_weights = frozenset({"beta_logits"})  # used by `finish` alone

    def __init__(
        self, n_words: int, settings: NetworkSettings, dtype: torch.dtype = torch.float32
    ) -> None:
        self.n_words = n_words
        self.settings = settings
        self.dtype = dtype
        self._logits = torch.empty(0, n_words, dtype=dtype)
        self.prior_variance = (1 - 1 / settings.n_components) / settings.alpha

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stretches before the loss."""
        if self.settings.layer_norm:
            return (Stage("decoder", self._posterior_by_document, self._decoder),)
        return (
            Stage("posterior", self._hidden, self._posterior_norm),
            Stage("decoder", self._posterior, self._decoder),
        )

    def initial_weights(self, seed: int) -> Tensors:
        """Draw the first weights: uniform, bounded as in torch's linear layers and by Glorot."""
        generator = torch.Generator().manual_seed(seed)
        k, (h1, h2) = self.settings.n_components, self.settings.hidden

        def uniform(bound: float, *shape: int) -> Tensor:
            # Drawn in float64 for every dtype, so that they differ by rounding only.
            values = torch.rand(*shape, generator=generator, dtype=torch.float64)
            return ((2 * values - 1) * bound).to(self.dtype)

        weights = {
            "encoder_words": uniform(self.n_words**-0.5, self.n_words, h1),
            "encoder_bias": uniform(self.n_words**-0.5, h1),
            "hidden": uniform(h1**-0.5, h1, h2),
            "hidden_bias": uniform(h1**-0.5, h2),
            "posterior": uniform(h2**-0.5, h2, 2 * k),
            "beta_logits": uniform(math.sqrt(6 / (k + self.n_words)), k, self.n_words),
        }
        if self.settings.layer_norm:  # batch normalisation would take it away again
            weights["posterior_bias"] = uniform(h2**-0.5, 2 * k)
        if self.settings.word_bias:
            weights["word_bias"] = torch.zeros(self.n_words, dtype=self.dtype)
        if self.settings.learn_prior:
            weights["prior_mean"] = torch.zeros(k, dtype=self.dtype)
            weights["prior_log_variance"] = torch.full_like(
                weights["prior_mean"], math.log(self.prior_variance)
            )
        return weights

    def draw(self, rng: np.random.Generator, n: int) -> Noise:
        """Draw the noise of one pass over n documents."""
        k, keep = self.settings.n_components, 1 - self.settings.dropout

        def mask(width: int) -> Tensor:
            kept = rng.random((n, width), np.float32) < keep
            return torch.from_numpy(kept).to(self.dtype) / keep

        normal = torch.from_numpy(rng.standard_normal((n, k), np.float32)).to(self.dtype)
        return Noise(normal, mask(self.settings.hidden[1]), mask(k))

    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        """Return the negative ELBO, summed over the documents (nats)."""
        centred = carried["theta"] - shared["theta_mean"]
        bias = weights.get("word_bias")
        if bias is None:
            bias = shared["topics"].new_zeros(self.n_words)
        reconstruction: Tensor = Reconstruction.apply(  # type: ignore[no-untyped-call]
            centred, shared["topics"], bias, batch, self._memory(len(batch))
        )
        return reconstruction + self._divergence(weights, carried["mu"], carried["log_variance"])

    def theta(self, weights: Tensors, shared: Mapping[str, Tensors], batch: Batch) -> Tensor:
        """Return the documents' topics, the softmax of the posterior mean, shape (n, n_topics)."""
        if self.settings.layer_norm:
            carried, _ = self._posterior_by_document(weights, batch, {}, {})
        else:
            hidden, _ = self._hidden(weights, batch, {}, {})
            carried, _ = self._posterior(weights, batch, hidden, shared["posterior"])
        return carried["theta"]

    def beta(self, weights: Tensors, shared: Mapping[str, Tensors]) -> Tensor:
        """Return the topics as the decoder uses them, shape (n_topics, n_words), rows sum to 1.

        softmax(batchnorm(beta_logits) + bias): the words of a document that is all one topic.
        """
        topics, mean = shared["decoder"]["topics"], shared["decoder"]["theta_mean"]
        logits = topics - mean @ topics
        if "word_bias" in weights:
            logits = logits + weights["word_bias"]
        return torch.softmax(logits.double(), 1)

    def _memory(self, n: int) -> Tensor:
        """Return memory for n documents' logits, the same one at each call."""
        if len(self._logits) < n:
            self._logits = torch.empty(n, self.n_words, dtype=self.dtype)
        return self._logits[:n]

    def _hidden(
        self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors
    ) -> tuple[Tensors, Tensor]:
        first = functional.softplus(weights["encoder_words"] + weights["encoder_bias"])
        second = torch.addmm(weights["hidden_bias"], first, weights["hidden"])
        hidden = functional.softplus(second)
        if batch.noise is not None:
            hidden = hidden * batch.noise.keep_hidden
        posterior = hidden @ weights["posterior"]
        wide = posterior.double()
        return {"posterior": posterior}, torch.cat([wide.sum(0), wide.square().sum(0)])

    def _posterior_norm(self, weights: Tensors, totals: Tensor, n: float) -> Tensors:
        mean, square = (totals / n).chunk(2)
        variance = (square - mean.square()).clamp(min=0)
        return {
            "mean": mean.to(self.dtype),
            "scale": (variance + EPSILON).rsqrt().to(self.dtype),
        }

    def _posterior(
        self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors
    ) -> tuple[Tensors, Tensor]:
        normal = (carried["posterior"] - shared["mean"]) * shared["scale"]
        mu, log_variance = normal.chunk(2, 1)
        return self._sample(batch, mu, log_variance)

    def _posterior_by_document(
        self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors
    ) -> tuple[Tensors, Tensor]:
        hidden, _ = self._hidden(weights, batch, {}, {})
        shape = (self.settings.n_components,)
        mu, log_variance = (
            functional.layer_norm(part, shape, eps=EPSILON)
            for part in (hidden["posterior"] + weights["posterior_bias"]).chunk(2, 1)
        )
        return self._sample(batch, mu, log_variance)

    def _sample(self, batch: Batch, mu: Tensor, log_variance: Tensor) -> tuple[Tensors, Tensor]:
        if batch.noise is None:
            theta = torch.softmax(mu, 1)
        else:
            z = mu + batch.noise.normal * (0.5 * log_variance).exp()
            theta = torch.softmax(z, 1) * batch.noise.keep_theta
        wide = theta.double()
        moments = torch.cat([wide.sum(0), (wide.T @ wide).reshape(-1)])
        return {"theta": theta, "mu": mu, "log_variance": log_variance}, moments

    def _decoder(self, weights: Tensors, totals: Tensor, n: float) -> Tensors:
        k = self.settings.n_components
        mean = totals[:k] / n
        covariance = totals[k:].reshape(k, k) / n - torch.outer(mean, mean)
        beta_logits = weights["beta_logits"]
        topics = Normalised.apply(  # type: ignore[no-untyped-call]
            covariance.to(self.dtype), beta_logits
        )
        return {"topics": topics, "theta_mean": mean.to(self.dtype)}

    def _divergence(self, weights: Tensors, mu: Tensor, log_variance: Tensor) -> Tensor:
        """Kullback-Leibler divergence of the posterior from the Laplace-approximated Dirichlet."""
        if self.settings.learn_prior:
            distance = mu - weights["prior_mean"]
            log_prior = weights["prior_log_variance"]
        else:
            distance = mu
            log_prior = mu.new_tensor(math.log(self.prior_variance))
        ratio = (log_variance.exp() + distance.square()) / log_prior.exp()
        return 0.5 * (ratio - 1 + log_prior - log_variance).sum()


NETWORKS: dict[str, type[ProdLDA]] = {"prodlda": ProdLDA}

ALIGNMENT = 64  # bytes, of torch's memory


def to_arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    """View tensors as arrays, without a copy."""
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def to_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """View an array as a tensor of a dtype; copy it where that or its place in memory differs.

    The last bit of a matrix product depends on whether its factors lie as torch's own do.
    """
    tensor = torch.from_numpy(array).to(dtype)
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def to_tensors(arrays: Mapping[str, NDArray[Any]], dtype: torch.dtype) -> Tensors:
    """View arrays as tensors of a dtype, as `to_tensor`."""
    return {name: to_tensor(array, dtype) for name, array in arrays.items()}
