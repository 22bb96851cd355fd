"""Settings shared by several methods that find clusters of documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from fedtopics.inference.clusters import (
    Centres,
    ClusterInference,
    ClusterShape,
    Consensus,
    Discriminants,
)
from fedtopics.methods.core.settings import ChoosesNumber, TopicSettings
from fedtopics.model.shown_words import CLASS_BASED, WordRanking
from fedtopics.text.embeddings import EmbeddingSettings

N_VIEWS = 2  # number of views of a text
PARTS = (1, 2, 4, 8)  # each divides the next, so that sums of parts differ by whole parts
Part = tuple[int, int]
"""The number of a part of the documents, drawn at random, and how many parts there are."""
WHOLE: Part = (0, 1)


class StartSettings(BaseModel, extra="forbid", frozen=True):
    tries: int = Field(
        8, ge=1, le=20, description="number of starts of k-means, of which the best is kept"
    )
    rounds: int = Field(
        60, ge=1, description="maximum number of rounds of k-means before the next stage"
    )


@dataclass(frozen=True)
class Clusterings:
    """Clusterings before the first round: the starts of k-means, or those that choose a number.

    Parameters
    ----------
    settings : those of the method.
    start : settings of k-means.
    pairs : pairs of clusterings that are compared to choose the number of clusters; 0 for none.
    """

    settings: Any
    start: StartSettings
    pairs: int = 0
    stages: Sequence[Any] = ()

    @property
    def max_rounds(self) -> int:
        return max(2 * self.pairs, 1) * self.start.rounds


SKETCHED = 40  # topics, for whose sketch there are enough directions of words (120)
MOST_PAIRS = 4  # pairs of parts that are clustered to choose a number of clusters
MOST_ROUNDS = 12  # of a clustering that only serves to choose the number of clusters
START_OF_CHOICE = StartSettings(tries=2, rounds=20)  # more starts choose no better numbers


class ClusterSettings(TopicSettings, ClusterShape):
    n_components: int = Field(20, ge=2, description="number of clusters")
    start: StartSettings = Field(StartSettings(), description="settings of k-means at the start")

    @model_validator(mode="after")
    def _sees_embeddings(self) -> Any:
        if self.representation != "embedding" and self.name != "kmeans":
            raise ValueError(
                f"representation {self.representation!r} is for the method kmeans; leave it out"
            )
        return self

    @property
    def inference(self) -> type[ClusterInference]:
        """The inference of clusters: by centres, unless a method has its own."""
        return Centres

    def build(self, n_words: int, **more: Any) -> ClusterInference:
        """Return the inference with these settings and `more` settings of its own."""
        return self.inference(n_words, self.shape(self.inference.settings_type, **more))

    @property
    def stages(self) -> Sequence[Any]:
        return (Clusterings(self, self.start),)

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        return self.embedding if self.representation == "embedding" else None

    @property
    def readings(self) -> list[WordRanking]:
        """Clusters are described by words that are common in them and rare elsewhere."""
        return [CLASS_BASED] if self.relevance is None else [WordRanking(self.relevance)]


class KMeansSettings(ClusterSettings):
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        # The baselines of the FSTC paper, Table 2.
        "fbow": {"algorithm": "k-fed", "representation": "bow"},
        "ftfidf": {"algorithm": "k-fed", "representation": "tfidf"},
        "fsbert": {"algorithm": "lloyd", "representation": "embedding"},
    }

    name: Literal["kmeans"] = Field("kmeans", description="the method")
    preset: Literal["default", "fbow", "ftfidf", "fsbert"] = Field(
        "default", description="preset for other settings: the FSTC paper's baseline of that name"
    )
    algorithm: Literal["lloyd", "k-fed"] = Field(
        "lloyd",
        description='"lloyd": in each round, clients compute sums and the server centres, as if '
        'texts were pooled; "k-fed": each client runs its own k-means, only once',
    )
    max_rounds: int = Field(100, ge=1, description="maximum number of rounds")

    @property
    def adds_up(self) -> bool:
        """False for k-FED, which merges the clients' centres."""
        return self.algorithm == "lloyd"

    @property
    def can_hide(self) -> bool:
        """False also for words, whose clusters begin with each client's own centres."""
        return self.adds_up and self.needed_embedding is not None

    @property
    def stages(self) -> Sequence[Any]:
        return ()


class NetworkTraining(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    hidden: int = Field(128, ge=1, description="units in the adapter of embeddings")
    local_steps: int = Field(100, ge=1, description="number of minibatches of a client per round")
    batch_size: int = Field(200, ge=1, description="number of documents in a minibatch")
    learning_rate: float = Field(5e-4, gt=0, description="learning rate of adapter and head")
    deletion: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of words that a view (a shortened copy of a text) omits; views need the "
        "embedding model",
    )

    @property
    def n_views(self) -> int:
        """Number of views of a text; 0 if they would not differ from it."""
        return N_VIEWS if self.deletion else 0


class SeparationSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """How discriminative clustering separates clusters, as a method or as the start of FSTC."""

    shrinkage: float = Field(
        0.3,
        gt=0,
        description="multiple of the variance of all points that is added to the "
        "variance within clusters",
    )
    sizes: Literal["even", "free", "both"] = Field(
        "even",
        description='whether all clusters are brought to the same size ("even") or keep their '
        'natural sizes ("free"); with "both", each of the best starts continues once in each way, '
        "until the consensus",
    )
    tolerance: float = Field(
        1e-3,
        ge=0,
        description="stop when the clusters' sums change by less than this, relative to their norm",
    )
    finalists: int = Field(
        4, ge=1, description="number of the best starts that continue until one of them is chosen"
    )


class DiscriminativeSettings(ChoosesNumber, ClusterSettings):
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        "single": {
            "word_weight": 0.0,
            "temperature": 0.15,
            "max_rounds": 100,
            "start": {"rounds": 60},
            "separation": {"sizes": "even", "shrinkage": 0.3},
        }
    }

    name: Literal["discriminative"] = Field("discriminative", description="the method")
    preset: Literal["default", "single"] = Field(
        "default",
        description='preset for other settings: "single" finds one clustering from embeddings, '
        "without words and consensus",
    )
    max_rounds: int = Field(14, ge=1, description="most rounds before the consensus")
    start: StartSettings = Field(
        StartSettings(tries=20, rounds=7),
        description="k-means at the start; from 1,000 documents on, it begins with clusters of "
        "words instead of tries",
    )
    temperature: float = Field(0.1, gt=0, description="lower values give clearer memberships")
    word_weight: float = Field(
        0.5, ge=0, lt=1, description="how far words move a document's embedding; 0 is not at all"
    )
    separation: SeparationSettings = Field(
        SeparationSettings(sizes="both", shrinkage=1.0), description="how clusters are moved apart"
    )

    @property
    def sketched(self) -> int:
        return SKETCHED

    @property
    def stages(self) -> Sequence[Any]:
        choice = Clusterings(self, START_OF_CHOICE, MOST_PAIRS * len(self.candidates))
        return (*super().stages, choice) if choice.pairs else super().stages

    @property
    def inference(self) -> type[Consensus] | type[Discriminants]:
        """The inference of clusters: of one clustering of embeddings, or of a consensus."""
        one = self.separation.sizes != "both" and not self.word_weight
        return Discriminants if one else Consensus

    def shape(self, kind: type[BaseModel], **more: Any) -> Any:
        n_clusterings = (
            2 * min(self.separation.finalists, self.start.tries)
            if self.separation.sizes == "both"
            else 1
        )
        return super().shape(kind, **{"n_clusterings": n_clusterings, **more})

    @property
    def stops(self) -> dict[str, float]:
        return {"tolerance": self.separation.tolerance}
