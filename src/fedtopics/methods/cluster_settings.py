"""The parameters of the methods that find clusters of documents, and the authors' values."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from fedtopics.inference.clusters import ClusterShape
from fedtopics.methods.settings import TopicSettings, fill_from
from fedtopics.model.shown_words import CLASS_BASED, Reading
from fedtopics.text.embeddings import EmbeddingSettings


class ClusterSettings(TopicSettings, ClusterShape):
    """What all methods need that find clusters of documents."""

    title: ClassVar[str]  # the method, which each names
    n_components: int = Field(20, ge=2, description="number of clusters")
    starts: int = Field(8, ge=1, description="k-means starts, of which the best goes on")
    start_rounds: int = Field(60, ge=1, description="most rounds of k-means before what follows")

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        """Of which kind the embeddings are that documents need, if they do."""
        return self.embedding if self.representation == "embedding" else None

    @property
    def readings(self) -> list[Reading]:
        """How clusters are described: by words that are common here and rare elsewhere."""
        return [CLASS_BASED] if self.relevance is None else [Reading(self.relevance)]


KMEANS_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The baselines of the FSTC paper, Table 2.
    "fbow": {"algorithm": "k-fed", "representation": "bow"},
    "ftfidf": {"algorithm": "k-fed", "representation": "tfidf"},
    "fsbert": {"algorithm": "lloyd", "representation": "embedding"},
}


class KMeansChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["kmeans"] = Field("kmeans", description="the method")
    preset: Literal["default", "fbow", "ftfidf", "fsbert"] = Field(
        "default", description="for what is not given: the FSTC paper's baseline of that name"
    )


class KMeansSettings(ClusterSettings, KMeansChoice):
    """All parameters of federated k-means, as a study names them."""

    algorithm: Literal["lloyd", "k-fed"] = Field(
        "lloyd",
        description='"lloyd": sums at the clients, centres at the server, round after round, as if '
        'texts were pooled; "k-fed": each client its own k-means, once',
    )
    max_rounds: int = Field(100, ge=1, description="most rounds")
    title: ClassVar[str] = "kmeans"

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        return fill_from(KMEANS_PRESETS, given)


class EmbeddedSettings(ClusterSettings):
    """What the methods need that find clusters by embeddings alone."""

    @model_validator(mode="after")
    def _sees_embeddings(self) -> Any:
        if self.representation != "embedding":
            raise ValueError(
                f"representation {self.representation!r} is for the method kmeans; leave it out"
            )
        return self


class DiscriminativeFields(EmbeddedSettings):
    """What discriminative clustering needs, be it alone or the start of FSTC."""

    candidates: tuple[int, ...] = Field(
        (),
        description="numbers of clusters to choose from, by how well the clusters of two halves of "
        "the documents agree; by default n_components it is",
    )
    shrinkage: float = Field(
        0.3, gt=0, description="of the scatter within clusters towards a ball, in its mean variance"
    )
    sizes: Literal["even", "free"] = Field(
        "even",
        description='whether all clusters together are brought to one size ("even") or are as '
        'large as they come ("free")',
    )
    tolerance: float = Field(
        1e-3, ge=0, description="stop when the clusters' sums change by less, relative to them"
    )
    finalists: int = Field(
        4, ge=1, description="starts that are gone on with, until one of them is the best"
    )

    @property
    def most_components(self) -> int:
        """How many clusters there may be in the end."""
        return max(self.candidates, default=self.n_components)

    @field_validator("candidates")
    @classmethod
    def _several(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(number < 2 for number in value) or list(value) != sorted(set(value)):
            raise ValueError("give each number of clusters once, from 2 on, in order")
        return value


class DiscriminativeChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["discriminative"] = Field("discriminative", description="the method")


class DiscriminativeSettings(DiscriminativeFields, DiscriminativeChoice):
    """All parameters of discriminative clustering, as a study names them."""

    max_rounds: int = Field(100, ge=1, description="most rounds")
    title: ClassVar[str] = "discriminative"


_PAPER = {
    "start": "kmeans",
    "max_rounds": 40,
    "local_steps": 100,
    "transports": 30,
    "warm_up": 0.1,
}
FSTC_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # As the paper has it; its lambda is 0.01 on StackOverflow and 1 on the other two sets.
    "paper": {**_PAPER, "mixture_from": 0.0, "alignment": 1.0},
    # Its ablation, Table 2: without alignment, and without the mixture as well.
    "rstc": {**_PAPER, "mixture_from": 0.0, "alignment": 0.0},
    "stc": {**_PAPER, "alignment": 0.0},
}


class FSTCChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["fstc"] = Field("fstc", description="the method")
    preset: Literal["default", "paper", "rstc", "stc"] = Field(
        "default",
        description='for what is not given: "paper" is FSTC from k-means, "rstc" that without '
        'alignment, "stc" that without the mixture as well',
    )


class NetworkTraining(BaseModel):
    """How clients train their networks of short texts."""

    hidden: int = Field(128, ge=1, description="units of the adapter of embeddings")
    local_steps: int = Field(100, ge=1, description="minibatches a client takes in one round")
    batch_size: int = Field(200, ge=1, description="documents of a minibatch")
    learning_rate: float = Field(5e-4, gt=0, description="of adapter and head")


class FSTCSettings(DiscriminativeFields, NetworkTraining, FSTCChoice):
    """All parameters of FSTC, as a study names them."""

    max_rounds: int = Field(10, ge=1, description="rounds; 40 in the paper")
    local_steps: int = Field(
        40, ge=1, description="minibatches a client takes in one round; 100 in the paper"
    )
    start: Literal["discriminative", "kmeans"] = Field(
        "discriminative", description="what gives the first labels; k-means in the paper"
    )
    epsilon: float = Field(0.1, gt=0, description="of the transport: the smaller, the surer")
    transports: int = Field(
        10, ge=0, description="how often pseudo-labels are found anew, mostly at first"
    )
    warm_up: float = Field(
        0.3, ge=0, lt=1, description="share of all steps on the first labels, before any transport"
    )
    masses: Literal["even", "global", "own"] = Field(
        "even",
        description='sizes of clusters at a client, for the transport: "even" as in the paper, as '
        'over all clients ("global"), or as the first labels have it there ("own")',
    )
    mixture_from: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of all steps after which the mixture weighs documents; by default never",
    )
    mixture_steps: int = Field(1, ge=1, description="steps of the mixture for each minibatch")
    alignment: float = Field(
        0.01, ge=0, description="weight of the distance from the global centres: lambda"
    )
    average_every: int = Field(
        0, ge=0, description="rounds between two averages of the networks; 0 is at the end alone"
    )
    fine_tune: bool = Field(False, description="train the encoder as well; meant for a GPU")
    encoder_learning_rate: float = Field(5e-6, gt=0, description="of the encoder")
    max_length: int = Field(32, ge=1, description="tokens of a text that the encoder is trained on")
    title: ClassVar[str] = "fstc"

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        return fill_from(FSTC_PRESETS, given)

    @property
    def total_steps(self) -> int:
        """Minibatches of a client in all rounds."""
        return self.max_rounds * self.local_steps


class FSCCLChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["fsccl"] = Field("fsccl", description="the method")


class FSCCLSettings(EmbeddedSettings, NetworkTraining, FSCCLChoice):
    """All parameters of FSCCL, as a study names them."""

    max_rounds: int = Field(40, ge=1, description="rounds")
    deletion: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="share of a text's words that a view of it does without; it needs the model of "
        "the embeddings, with 0 there is dropout alone",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="share of an embedding's numbers that a view does without"
    )
    contrast_temperature: float = Field(
        0.5, gt=0, description="of the likeness of views: the lower, the more the nearest count"
    )
    contrastive_weight: float = Field(
        10.0, ge=0, description="of the contrastive loss, beside that of clustering: eta"
    )
    title: ClassVar[str] = "fsccl"
