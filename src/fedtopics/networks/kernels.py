"""Three functions whose derivatives are written out: autograd's would cost too much."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedtopics.networks.base import Batch
from fedtopics.networks.loops import reconstruct

EPSILON = 1e-5  # added to variances, as torch's batch normalisation does


class Projection(torch.autograd.Function):
    """Bag of words times a dense matrix: only the words that occur cost anything."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, batch: Batch) -> Tensor:
        ctx.batch, ctx.shape = batch, rows.shape
        return torch.from_numpy(batch.bag @ rows.numpy())

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None]:
        gradient = outer.new_zeros(ctx.shape)
        gradient[torch.from_numpy(ctx.batch.words)] = ctx.batch.spread(outer)
        return gradient, None


class Reconstruction(torch.autograd.Function):
    """Sum over documents of -x' log softmax(theta @ topics + bias).

    The gradient of the logits is computed where they were, in memory that is used again: fresh
    pages for n times n_words numbers would cost more than the arithmetic.
    """

    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, topics: Tensor, bias: Tensor, batch: Batch, memory: Tensor
    ) -> Tensor:
        logits = torch.addmm(bias, theta, topics, out=memory)
        largest = logits.amax(1).numpy()
        ends, words, counts = batch.bag.indptr, batch.bag.indices, batch.values.numpy()
        loss = reconstruct(logits.numpy(), largest, ends, words, counts, batch.lengths.numpy())
        ctx.save_for_backward(theta, topics)
        ctx.gradient = logits
        return logits.new_tensor(loss)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        theta, topics = ctx.saved_tensors
        by_theta = (topics @ ctx.gradient.T).T * outer  # a third faster than with topics.T
        return by_theta, (theta * outer).T @ ctx.gradient, ctx.gradient.sum(0) * outer, None, None


class Normalised(torch.autograd.Function):
    """beta / sqrt(diag(beta' covariance beta) + EPSILON), backwards by one product, not two."""

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, beta: Tensor) -> Tensor:
        product = covariance @ beta
        variance = (beta * product).sum(0).clamp_(min=0)
        scale = variance.add_(EPSILON).rsqrt_()
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
