"""Compiled loops do what torch's operations do, and their derivatives what autograd finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from fedtopics.networks.base import Batch, NetworkSettings, rows_of
from fedtopics.networks.topic_networks import ProdLDA, Reconstruction

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
DOCUMENTS, WORDS, TOPICS = 7, 101, 3  # no multiple of what a processor takes at once


def inputs(dtype: torch.dtype, spread: float) -> tuple[list[Tensor], Batch]:
    generator = torch.Generator().manual_seed(0)
    shapes = (DOCUMENTS, TOPICS), (TOPICS, WORDS), (WORDS,)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    counts = np.random.default_rng(0).poisson(0.3, (DOCUMENTS, WORDS)).astype(np.float32)
    return [(spread * tensor).to(dtype) for tensor in drawn], Batch.of(
        sparse.csr_array(counts), None, dtype
    )


def both(tensors: list[Tensor], batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """Return the loss and its gradients, of ours and of torch."""
    results = []
    for compiled in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        theta, topics, bias = leaves
        if compiled:
            memory = torch.empty(DOCUMENTS, WORDS, dtype=theta.dtype)
            loss = Reconstruction.apply(theta, topics, bias, batch, memory)
        else:
            counts = torch.from_numpy(batch.counts.toarray())
            loss = -(counts * torch.log_softmax(theta @ topics + bias, 1)).sum()
        results.append([loss.detach(), *torch.autograd.grad(3 * loss, leaves)])
    return results[0], results[1]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("spread", [1.0, 12.0])  # with 12, exp of most logits is 0 in float32
def test_reconstruction_is_that_of_autograd(dtype: torch.dtype, spread: float) -> None:
    ours, theirs = both(*inputs(dtype, spread))
    for mine, other in zip(ours, theirs, strict=True):
        largest = float(other.abs().max())
        torch.testing.assert_close(mine, other, rtol=0, atol=TOLERANCE[dtype] * largest)


def test_rows_of_several_bags_are_those_below_each_other() -> None:
    rng = np.random.default_rng(0)
    bags = [sparse.csr_array(rng.poisson(0.4, (n, WORDS)).astype(np.float32)) for n in (5, 9)]
    rows = [np.array([4, 0, 4]), np.array([8, 2])]
    found = rows_of(list(zip(bags, rows, strict=True)))
    expected = np.vstack([bag.toarray()[own] for bag, own in zip(bags, rows, strict=True)])
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.dtype == np.float32


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_noise_of_several_is_what_each_draws(dropout: float) -> None:
    settings = NetworkSettings(n_components=TOPICS, dropout=dropout, dropout_theta=0.1)
    network = ProdLDA(WORDS, settings)
    both = network.draw((np.random.default_rng(1), 2), (np.random.default_rng(2), 3))
    alone = [network.draw((np.random.default_rng(seed), n)) for seed, n in ((1, 2), (2, 3))]
    for name, drawn in vars(both).items():
        assert torch.equal(drawn, torch.cat([getattr(each, name) for each in alone]))
    kept = both.keep_hidden.unique().tolist()
    assert kept == pytest.approx([1.0] if dropout == 0 else [0.0, 1 / 0.7])
