"""The networks: ProdLDA, NeuralLDA, and two that use embeddings."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedtopics.networks.base import Batch, Shared, Stage, Tensors
from fedtopics.networks.compiled_loops import reconstruct
from fedtopics.networks.neural import EPSILON, NeuralTopicModel

ADDED_PROBABILITY = 1e-10  # as in the authors' code, because dropout may remove all of a theta


class ProdLDA(NeuralTopicModel):
    """Product-of-experts LDA: softmax(batchnorm(theta @ beta_logits) + bias).

    The decoder's logits are linear in theta, so their mean and variance over documents follow from
    the moments of theta: mean(theta) @ beta_logits and diag(beta_logits' Cov(theta) beta_logits).
    """

    name = "prodlda"
    first_topics_alike = 0.6  # the product of two sharp topics would have no probable word
    finish_weights = frozenset({"beta_logits"})
    _logits: Tensor | None = None  # memory of logits, reused in each call

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        return (*self.encoder_stages, Stage("decoder", self._moments, self._decoder))

    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        centred = carried["theta"] - shared["theta_mean"]
        bias = weights.get("word_bias", shared["topics"].new_zeros(self.n_words))
        if self._logits is None or len(self._logits) < len(batch):
            self._logits = torch.empty(len(batch), self.n_words, dtype=self.dtype)
        reconstruction: Tensor = Reconstruction.apply(  # type: ignore[no-untyped-call]
            centred, shared["topics"], bias, batch, self._logits[: len(batch)]
        )
        return (
            reconstruction
            + self.embedding_loss(weights, batch, carried["theta"])
            + self.divergence(weights, carried["mu"], carried["log_variance"])
        )

    def beta(self, weights: Tensors, shared: Shared) -> Tensor:
        """Return softmax(batchnorm(beta_logits) + bias): the words of a document of one topic."""
        topics = shared["decoder"]["topics"]
        logits = topics - shared["decoder"]["theta_mean"] @ topics
        if "word_bias" in weights:
            logits = logits + weights["word_bias"]
        return torch.softmax(logits.double(), 1)

    def _moments(
        self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors
    ) -> tuple[Tensors, Tensor]:
        sampled = self.sample(weights, batch, carried, shared)
        wide = sampled["theta"].double()
        return sampled, torch.cat([wide.sum(0), (wide.T @ wide).reshape(-1)])

    def _decoder(self, weights: Tensors, totals: Tensor, n: float) -> Tensors:
        k = self.settings.n_components
        mean, products = torch.split(totals / n, [k, k * k])
        topics = Normalised.apply(  # type: ignore[no-untyped-call]
            (products.reshape(k, k) - torch.outer(mean, mean)).to(self.dtype),
            weights["beta_logits"],
        )
        return {"topics": topics, "theta_mean": mean.to(self.dtype)}


class CombinedTM(ProdLDA):
    """ProdLDA whose encoder uses the bag of words and an embedding of the document.

    Our loss differs: topics also predict where embeddings point, as otherwise only the few words of
    short texts would count. ``embedding_weight = 0`` is the authors' loss. See Bianchi, Terragni
    and Hovy, Pre-training is a Hot Topic: Contextualized Document Embeddings Improve Topic
    Coherence, ACL 2021.
    """

    name = "combinedtm"
    sees_embedding = True


class ZeroShotTM(ProdLDA):
    """ProdLDA whose encoder uses only an embedding of the document, in any supported language."""

    name = "zeroshottm"
    sees_words = False
    sees_embedding = True


class NeuralLDA(NeuralTopicModel):
    """LDA with an encoder: a document's words come from theta @ softmax(rows).

    Each word's logits are normalised over the topics, which limits how strongly a word can indicate
    a single topic; ``normalise_topics = False`` turns this off. A subclass with other rows
    overrides `draw_decoder` and `rows`.
    """

    name = "neurallda"

    def rows(self, weights: Tensors) -> Tensor:
        logits = weights["beta_logits"]
        if not self.settings.normalise_topics:
            return logits
        centred = logits - logits.mean(0)
        return centred * (centred.square().mean(0) + EPSILON).rsqrt()

    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        sampled = self.sample(weights, batch, carried, shared)
        topics = torch.softmax(self._biased(weights), 1)
        document = torch.from_numpy(np.repeat(np.arange(len(batch)), np.diff(batch.bag.indptr)))
        word = torch.from_numpy(batch.bag.indices.astype(np.int64))
        # Only for the words that occur: most of theta @ topics is not needed.
        theta = sampled["theta"].index_select(0, document)
        probability = (theta * functional.embedding(word, topics.T)).sum(1)
        return (
            -(batch.values @ (probability + ADDED_PROBABILITY).log())
            + self.embedding_loss(weights, batch, sampled["theta"])
            + self.divergence(weights, sampled["mu"], sampled["log_variance"])
        )

    def beta(self, weights: Tensors, shared: Shared) -> Tensor:
        return torch.softmax(self._biased(weights).double(), 1)

    def _biased(self, weights: Tensors) -> Tensor:
        rows = self.rows(weights)
        return rows + weights["word_bias"] if "word_bias" in weights else rows


# Two functions whose derivatives are written out: autograd's would be too slow.


class Reconstruction(torch.autograd.Function):
    """Sum over documents of -x' log softmax(theta @ topics + bias), in reused memory."""

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, topics: Tensor, bias: Tensor, batch: Batch, memory: Tensor
    ) -> Tensor:
        logits = torch.addmm(bias, theta, topics, out=memory)
        loss = reconstruct(
            logits=logits.numpy(),
            largest=logits.amax(1).numpy(),
            ends=batch.bag.indptr,
            words=batch.bag.indices,
            counts=batch.values.numpy(),
            lengths=batch.lengths.numpy(),
        )
        ctx.save_for_backward(theta, topics)
        ctx.gradient = logits  # `reconstruct` wrote the gradient over the logits
        return logits.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        theta, topics = ctx.saved_tensors
        by_theta = (topics @ ctx.gradient.T).T * outer  # a third faster than with topics.T
        return by_theta, (theta * outer).T @ ctx.gradient, ctx.gradient.sum(0) * outer, None, None


class Normalised(torch.autograd.Function):
    """beta / sqrt(diag(beta' covariance beta) + EPSILON); backward takes one product, not two."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, beta: Tensor) -> Tensor:
        product = covariance @ beta
        scale = (beta * product).sum(0).clamp_(min=0).add_(EPSILON).rsqrt_()
        ctx.save_for_backward(beta, product, scale)
        return beta * scale

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, Tensor]:
        beta, product, scale = ctx.saved_tensors
        work = outer * beta
        by_variance = -0.5 * scale**3 * work.sum(0)
        by_covariance = torch.mul(beta, by_variance, out=work) @ beta.T
        by_beta = torch.mul(outer, scale, out=work).addcmul_(product, by_variance, value=2)
        return by_covariance, by_beta
