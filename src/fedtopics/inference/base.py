"""What every trained model has: something that finds the topics, or the cluster, of documents."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

import torch
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy import sparse
from torch import Tensor

from fedtopics.extras import Registry
from fedtopics.networks import Shared, Tensors, find_network
from fedtopics.text.encoders import Encoder, Vectors

Readout = Literal["mean", "root"]
READOUTS: tuple[Readout, ...] = ("mean", "root")


class Inference(Protocol):
    """What turns the words and embeddings of documents into theta, and weights into topics.

    Every network is one; others are registered. It is made of the number of words and its settings.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[BaseModel]]
    """Shape and prior, with at least n_components; what a model's folder keeps of the settings."""
    shows: ClassVar[Literal["topics", "clusters"]]
    readouts: ClassVar[tuple[Readout, ...]]
    """How `infer` can read a theta out of a document's posterior; none for an encoder."""

    def __init__(self, n_words: int, settings: Any) -> None: ...

    @property
    def settings(self) -> Any:
        """An instance of `settings_type`, or of a subclass."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""

    @property
    def sees_words(self) -> bool:
        """Whether theta depends on the bag of words."""

    @property
    def sees_embedding(self) -> bool:
        """Whether theta depends on an embedding."""

    def initial_weights(self, seed: int) -> Tensors:
        """Return weights of the shapes and dtypes that those of a model have."""

    def beta(self, weights: Tensors, shared: Shared) -> Tensor:
        """Return the topics, float64 of shape (n_topics, n_words), rows sum to 1."""

    def infer(
        self, weights: Tensors, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[Any]:
        """Return theta of documents, shape (n, n_topics); with `readouts`, takes a `readout`."""

    def trained_encoder(self, weights: Tensors, model: str) -> Encoder | None:
        """Return the encoder that was trained with the rest, from this model on, if one was."""


INFERENCES: Registry[type[Inference]] = Registry(
    "inference",
    "fedtopics.inferences",
    {
        "lda": "fedtopics.inference.lda:VariationalLDA",
        "nmf": "fedtopics.inference.nmf:Factors",
        "mixture": "fedtopics.inference.mixture:Mixture",
        "centres": "fedtopics.inference.clusters:Centres",
        "discriminants": "fedtopics.inference.clusters:Discriminants",
        "adapted": "fedtopics.inference.clusters:Adapted",
        "fine-tuned": "fedtopics.inference.clusters:FineTuned",
        "contrastive": "fedtopics.inference.clusters:Contrastive",
    },
)  # all but the networks, which are in `NETWORKS`


def register(inference: type[Inference]) -> type[Inference]:
    """Make an inference known under its name, as `Registry.register`; a class decorator."""
    return INFERENCES.register(inference.name, inference)


def find(name: str) -> type[Inference]:
    """Return the inference or the network of a name; refuse one that is not there."""
    if name in INFERENCES.names:
        return INFERENCES.find(name)
    return find_network(name)
