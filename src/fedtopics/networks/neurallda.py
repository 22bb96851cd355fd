"""Mixtures of topics: NeuralLDA."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedtopics.networks.base import Batch, Shared, Tensors
from fedtopics.networks.kernels import EPSILON
from fedtopics.networks.neural import NeuralTopicModel

SMALLEST = 1e-10  # added to probabilities, as the authors do: dropout may take all of a theta


class NeuralLDA(NeuralTopicModel):
    """LDA with an encoder: a document's words come from theta @ softmax(rows).

    Each word's logits are normalised over the topics, one cut less than ProdLDA's; that keeps a
    word of one topic of many from saying so (``normalise_topics = False``). A subclass with other
    rows overrides `draw_decoder` and `rows`.
    """

    name = "neurallda"

    def rows(self, weights: Tensors) -> Tensor:
        """Return the logits of the topics' words, shape (n_topics, n_words)."""
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
        # Of the words that occur alone: most of theta @ topics is never looked at.
        theta = sampled["theta"].index_select(0, document)
        chosen = functional.embedding(word, topics.T)
        observed = (theta * chosen).sum(1)
        reconstruction = -(batch.values @ (observed + SMALLEST).log())
        seen = self.embedding_loss(weights, batch, sampled["theta"])
        divergence = self.divergence(weights, sampled["mu"], sampled["log_variance"])
        return reconstruction + seen + divergence

    def beta(self, weights: Tensors, shared: Shared) -> Tensor:
        return torch.softmax(self._biased(weights).double(), 1)

    def _biased(self, weights: Tensors) -> Tensor:
        rows = self.rows(weights)
        return rows + weights["word_bias"] if "word_bias" in weights else rows
