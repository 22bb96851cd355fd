"""Inference: how a trained model of any kind finds a document's topics or cluster."""

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
"""Arrays by name; tensors for networks."""
Shared = Mapping[str, Weights]
"""Values common to all documents (running statistics), by stage of a network."""
Layout = dict[str, tuple[tuple[int, ...], str]]
"""Shapes and dtypes of weights, by name."""
READOUTS: tuple[Readout, ...] = ("mean", "root")


class Inference(Protocol):
    """Finds theta from words and embeddings of documents, and topics from weights.

    Every network is an inference. Others derive from this class, are registered, and are
    constructed with the number of words and their settings.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[BaseModel]]
    """The settings that a model's folder keeps: shape and prior, with at least n_components."""
    shows: ClassVar[Literal["topics", "clusters"]] = "topics"
    readouts: ClassVar[tuple[Readout, ...]] = ()
    """Ways to read theta from a document's posterior; empty for networks."""
    n_words: int
    settings: Any
    """An instance of `settings_type`, or of a subclass."""

    precision: str = "float64"
    """The precision of the weights: "float32" or "float64"."""
    sees_words: bool = True
    """Whether theta depends on word counts."""
    sees_embedding: bool = False
    """Whether theta depends on an embedding."""

    def __init__(self, n_words: int, settings: Any) -> None:
        self.n_words = n_words
        self.settings = settings

    def layout(self) -> Layout:
        """Return the shapes and dtypes of a model's weights, without allocating them."""

    def beta(self, weights: Weights, shared: Shared) -> Any:
        """Return the topics, float64 of shape (n_topics, n_words); rows sum to 1."""

    def infer(
        self, weights: Weights, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[Any]:
        """Return theta of documents, (n, n_topics); if there are `readouts`, takes a `readout`."""

    def trained_encoder(self, weights: Weights, model: str) -> Encoder | None:
        """Return the encoder that was trained from this model, if any."""
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
        "consensus": "fedtopics.inference.clusters:Consensus",
        "adapted": "fedtopics.inference.trained_clusters:Adapted",
        "fine-tuned": "fedtopics.inference.trained_clusters:FineTuned",
        "contrastive": "fedtopics.inference.trained_clusters:Contrastive",
    },
)  # all except networks, which are in `NETWORKS`


def find(name: str) -> type[Inference]:
    """Return the inference or network with a name; refuse unknown names."""
    return INFERENCES.find(name) if name in INFERENCES.names else find_network(name)
