"""How a trained model finds a document's topics or its cluster; LDA of a client's documents.

Every trained model has an `Inference`, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

from numpy.typing import NDArray
from pydantic import BaseModel
from scipy import sparse

from fedtopics.extras import Registry
from fedtopics.networks import find_network
from fedtopics.text.embeddings import Encoder, Vectors

Readout = Literal["mean", "root"]
Weights = dict[str, Any]
"""Arrays by name; of a network, tensors."""
Shared = Mapping[str, Weights]
"""By stage of a network: what documents share (running statistics). Others have none."""
Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shapes and dtypes of weights, by name."""
READOUTS: tuple[Readout, ...] = ("mean", "root")


class Inference(Protocol):
    """What turns the words and embeddings of documents into theta, and weights into topics.

    Every network is one; others are registered, and derive from this class. It is made of the
    number of words and its settings.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[BaseModel]]
    """Shape and prior, with at least n_components; what a model's folder keeps of the settings."""
    shows: ClassVar[Literal["topics", "clusters"]] = "topics"
    readouts: ClassVar[tuple[Readout, ...]] = ()
    """How `infer` can read a theta out of a document's posterior; none for an encoder."""
    n_words: int
    settings: Any
    """An instance of `settings_type`, or of a subclass."""

    def __init__(self, n_words: int, settings: Any) -> None:
        self.n_words = n_words
        self.settings = settings

    @property
    def precision(self) -> str:
        """In which it computes: "float32" or "float64"."""
        return "float64"

    @property
    def sees_words(self) -> bool:
        """Whether theta depends on the bag of words."""
        return True

    @property
    def sees_embedding(self) -> bool:
        """Whether theta depends on an embedding."""
        return False

    def layout(self) -> Layout:
        """Return the shapes and dtypes that weights of a model have; no memory is taken."""

    def beta(self, weights: Weights, shared: Shared) -> Any:
        """Return the topics, float64 of shape (n_topics, n_words), rows sum to 1."""

    def infer(
        self, weights: Weights, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[Any]:
        """Return theta of documents, shape (n, n_topics); with `readouts`, takes a `readout`."""

    def trained_encoder(self, weights: Weights, model: str) -> Encoder | None:
        """Return the encoder that was trained with the rest, from this model on, if one was."""
        return None


INFERENCES: Registry[type[Inference]] = Registry(
    "inference",
    "fedtopics.inferences",
    {
        "lda": "fedtopics.inference.lda:VariationalLDA",
        "nmf": "fedtopics.inference.nmf:Factors",
        "merged": "fedtopics.inference.merged:Merged",
        "mixture": "fedtopics.inference.mixture:Mixture",
        "centres": "fedtopics.inference.clusters:Centres",
        "discriminants": "fedtopics.inference.clusters:Discriminants",
        "adapted": "fedtopics.inference.trained_clusters:Adapted",
        "fine-tuned": "fedtopics.inference.trained_clusters:FineTuned",
        "contrastive": "fedtopics.inference.trained_clusters:Contrastive",
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
