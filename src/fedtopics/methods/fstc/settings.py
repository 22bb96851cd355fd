"""The settings of FSTC, and the authors' values."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from fedtopics.inference.trained_clusters import Adapted, FineTuned
from fedtopics.methods.clusters import settings as clusters
from fedtopics.methods.core.settings import ChoosesNumber

START_ROUNDS = 100  # maximum number of rounds of discriminative clustering before the first round
_PAPER: dict[str, Any] = {
    "first_labels": "kmeans",
    "max_rounds": 40,
    "transports": 30,
    "network": {"local_steps": 100},
    "warm_up": 0.1,
    "alignment": 0.0,
}
_FROZEN = {**_PAPER, "mixture_from": 0.0, "alignment": 1.0}  # lambda 0.01 on StackOverflow


class FSTCSettings(ChoosesNumber, clusters.ClusterSettings):
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        "paper": {
            **_FROZEN,
            "fine_tune": True,
            "network": {"local_steps": 100, "deletion": 0.2},
            "warm_up": 0.0,
        },
        "frozen": _FROZEN,
        # The paper's ablation, Table 2: without alignment ("rstc"), and also without the mixture.
        "rstc": {**_PAPER, "mixture_from": 0.0},
        "stc": _PAPER,
    }

    name: Literal["fstc"] = Field("fstc", description="the method")
    preset: Literal["default", "paper", "frozen", "rstc", "stc"] = Field(
        "default",
        description='preset for other settings: "paper" also trains the encoder, "frozen" does '
        'not, "rstc" is "frozen" without alignment, "stc" is "rstc" without the mixture',
    )
    max_rounds: int = Field(10, ge=1, description="number of rounds; 40 in the paper")
    network: clusters.NetworkTraining = Field(
        clusters.NetworkTraining(local_steps=40),
        description="how clients train their networks; the paper takes 100 local steps",
    )
    separation: clusters.SeparationSettings = Field(
        clusters.SeparationSettings(),
        description="how the clusters of the first labels are separated",
    )
    first_labels: Literal["discriminative", "kmeans"] = Field(
        "discriminative", description="the method for the first labels; k-means in the paper"
    )
    epsilon: float = Field(
        0.1,
        gt=0,
        description="regularisation of the transport: with smaller values, "
        "a document is assigned more to a single cluster",
    )
    transports: int = Field(
        10, ge=0, description="how often pseudo-labels are recomputed, mostly at first"
    )
    warm_up: float = Field(
        0.3, ge=0, lt=1, description="share of all steps, at the start, that use the first labels"
    )
    masses: Literal["even", "global", "own"] = Field(
        "even",
        description='sizes of clusters at a client, for the transport: "even" as in the paper, '
        '"global" as over all clients, or "own" as in the client\'s first labels',
    )
    mixture_from: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of all steps after which the mixture weights documents; by default it "
        "never does",
    )
    loss: Literal["squared", "cross_entropy"] = Field(
        "squared",
        description='loss between scores and pseudo-labels: "squared" error, as in the paper, or '
        '"cross_entropy"',
    )
    alignment: float = Field(
        0.01, ge=0, description="weight of the distance from the global centres (lambda)"
    )
    average_every: int = Field(
        0,
        ge=0,
        description="networks are averaged every so many rounds; 0 averages only at the end",
    )
    fine_tune: bool = Field(False, description="also train the encoder; meant for a GPU")
    encoder_learning_rate: float = Field(5e-6, gt=0, description="learning rate of the encoder")
    max_length: int = Field(
        32, ge=1, description="maximum number of tokens of a text on which the encoder is trained"
    )

    @property
    def inference(self) -> type[Adapted]:
        return FineTuned if self.fine_tune else Adapted

    def shape(self, kind: type[BaseModel], **more: Any) -> Any:
        return super().shape(kind, **{"temperature": self.epsilon, **more})

    @property
    def first_clusters(self) -> clusters.DiscriminativeSettings:
        return clusters.DiscriminativeSettings(
            preset="single",
            **self.model_dump(
                include={"n_components", "candidates", "embedding", "start", "separation"}
            ),
            max_rounds=START_ROUNDS,
        )

    @property
    def stages(self) -> Sequence[Any]:
        first = self.first_clusters
        return (first,) if self.first_labels == "discriminative" else first.stages
