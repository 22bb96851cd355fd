"""The common parts of all networks: settings, minibatches, noise, stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field, PositiveInt
from scipy import sparse
from torch import Tensor

from fedtopics.networks import compiled_loops
from fedtopics.text.embeddings import EmbeddingSettings

Tensors = dict[str, Tensor]
Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Shared = Mapping[str, Tensors]  # by stage: values that documents share (running statistics)
EncoderInput = Literal["counts", "log", "shares"]
USUAL_LENGTH = 50  # words in a document; shares are scaled to counts in such a document


class NetworkSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    n_components: int = Field(20, ge=2, description="number of topics")
    hidden: tuple[PositiveInt, PositiveInt] = Field(
        (100, 100), description="units of the two hidden layers"
    )
    dropout: float = Field(
        0.2, ge=0, lt=1, description="share of hidden units that dropout removes"
    )
    dropout_theta: float = Field(0.0, ge=0, lt=1, description="share of theta that dropout removes")
    alpha: float = Field(1.0, gt=0, description="Dirichlet prior of theta")
    learn_prior: bool = Field(False, description="train the prior's mean and variance")
    word_bias: bool = Field(True, description="a bias per word in the decoder")
    encoder_input: EncoderInput = Field(
        "log",
        description='the encoder\'s input for a word: its count ("counts"), log(1 + count) '
        '("log"), or its share of the document ("shares")',
    )
    posterior_gain: float | None = Field(
        None,
        gt=0,
        description="learn the standard deviation of the posterior's normalised means, beginning "
        "with this value; by default it stays 1",
    )
    normalise_topics: bool = Field(
        True, description="neurallda normalises the logits of each word over the topics"
    )
    embedding_weight: float = Field(
        3.0,
        ge=0,
        description="weight of the embedding's direction in the loss, for networks with "
        "embeddings, in nats for each word of an average document",
    )
    layer_norm: bool = Field(False, description="normalise the posterior by document, not by batch")
    embedding: EmbeddingSettings = Field(
        EmbeddingSettings(), description="embedding of documents, for networks that use it"
    )

    @property
    def theta_prior(self) -> float:
        return self.alpha


@dataclass(frozen=True)
class NetworkNoise:
    normal: Tensor  # (n, n_topics)
    keep_hidden: Tensor  # (n, n_hidden): 1 / (1 - dropout), or 0
    keep_theta: Tensor  # (n, n_topics), likewise


def rows_of(parts: Sequence[tuple[sparse.csr_array, NDArray[np.int64]]]) -> sparse.csr_array:
    # np.asarray: a large bag is in files (`set_aside`), which compiled loops do not take.
    taken = [
        compiled_loops.take_rows(
            np.asarray(bag.indptr), np.asarray(bag.indices), np.asarray(bag.data), rows
        )
        for bag, rows in parts
    ]
    words, counts, lengths = map(np.concatenate, zip(*taken, strict=True))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return sparse.csr_array((counts, words, ends), (len(lengths), parts[0][0].shape[1]))


@dataclass(frozen=True)
class Batch:
    """A minibatch of n documents in which U different words occur.

    The bag is the encoder's input: the words' counts, or log(1 + counts). Without noise,
    computations use the posterior's mean and no dropout.
    """

    bag: sparse.csr_array  # (n, n_words)
    words: NDArray[np.int64]  # (U,), their columns in the vocabulary, ascending
    values: Tensor  # the non-zero counts
    lengths: Tensor  # (n,), words of each document
    noise: NetworkNoise | None = None
    embedding: Tensor | None = None  # (n, dimension), for networks with embeddings

    @classmethod
    def of(
        cls,
        bag: sparse.csr_array,
        noise: NetworkNoise | None = None,
        dtype: torch.dtype = torch.float32,
        embedding: NDArray[np.floating[Any]] | None = None,
        encoder_input: EncoderInput = "counts",
    ) -> Batch:
        """Make a batch of rows of a bag of words (n, n_words), and of embeddings (n, dimension)."""
        values = torch.from_numpy(bag.data).to(dtype)
        lengths = torch.from_numpy(bag.sum(1)).to(dtype)
        inputs = values
        match encoder_input:
            case "log":
                inputs = values.log1p()
            case "shares":
                n_distinct = torch.from_numpy(np.diff(bag.indptr))
                inputs = USUAL_LENGTH * values / lengths.repeat_interleave(n_distinct)
        present = np.zeros(bag.shape[1], bool)
        present[bag.indices] = True
        return cls(
            bag=sparse.csr_array((inputs.numpy(), bag.indices, bag.indptr), bag.shape),
            words=np.flatnonzero(present),
            values=values,
            lengths=lengths,
            noise=noise,
            embedding=None if embedding is None else torch.from_numpy(embedding).to(dtype),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def spread(self, gradient: Tensor) -> Tensor:
        """Turn the gradient of bag @ rows into that of rows of the batch's words, (U, width)."""
        column = np.empty(self.bag.shape[1], self.bag.indices.dtype)
        column[self.words] = np.arange(len(self.words))
        narrow = sparse.csr_array(
            (self.bag.data, column[self.bag.indices], self.bag.indptr), (len(self), len(self.words))
        )
        return torch.from_numpy(narrow.T @ gradient.numpy())


@dataclass(frozen=True)
class Stage:
    """One part of a network, up to a point where documents depend on each other.

    `local` takes weights, batch, carried, shared. It returns values of each document (carried) and
    a float64 vector that is a sum over documents. `finish` takes weights, the totals of the sums
    and n. It returns the values that all n documents share, and is differentiable.
    """

    name: str
    local: Callable[[Tensors, Batch, Tensors, Tensors], tuple[Tensors, Tensor]]
    finish: Callable[[Tensors, Tensor, float], Tensors]
    squares: bool = False  # whether the vector contains sums of terms and sums of their squares


ALIGNMENT = 64  # bytes, of torch's memory


def to_arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def to_tensor(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """View an array as a tensor of a dtype; copy it if its dtype or memory alignment differs."""
    tensor = torch.from_numpy(array).to(dtype)
    # The last bit of a matrix product depends on how its factors are aligned.
    return tensor.clone() if tensor.data_ptr() % ALIGNMENT else tensor


def to_tensors(arrays: Mapping[str, NDArray[Any]], dtype: torch.dtype) -> Tensors:
    return {name: to_tensor(array, dtype) for name, array in arrays.items()}


def tensor_shapes(tensors: Mapping[str, Any]) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
