"""The parameters of FSTC, as a study names them, and the authors' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedtopics.inference.trained_clusters import Adapted, FineTuned
from fedtopics.methods.clusters.settings import (
    ClusterSettings,
    DiscriminativeSettings,
    NetworkTraining,
    SeparationSettings,
)
from fedtopics.networks.trained_encoder import Shapes

_PAPER: dict[str, Any] = {"first_labels": "kmeans", "max_rounds": 40, "transports": 30}
_PAPER |= {"network": {"local_steps": 100}, "warm_up": 0.1}
FSTC_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The paper's start, steps and losses. It trains the encoder, which is frozen here, augments
    # texts, which are as they are, and has no tenth of the steps on the labels of the start.
    # Its lambda is 0.01 on StackOverflow and 1 on the other two sets.
    "paper": {**_PAPER, "mixture_from": 0.0, "alignment": 1.0},
    # Its ablation, Table 2: without alignment, and without the mixture as well.
    "rstc": {**_PAPER, "mixture_from": 0.0, "alignment": 0.0},
    "stc": {**_PAPER, "alignment": 0.0},
}


class FSTCSettings(ClusterSettings):
    """All parameters of FSTC, as a study names them."""

    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = FSTC_PRESETS

    name: Literal["fstc"] = Field("fstc", description="the method")
    preset: Literal["default", "paper", "rstc", "stc"] = Field(
        "default",
        description='for what is not given: "paper" is FSTC from k-means, "rstc" that without '
        'alignment, "stc" that without the mixture as well',
    )
    max_rounds: int = Field(10, ge=1, description="rounds; 40 in the paper")
    network: NetworkTraining = Field(
        NetworkTraining(local_steps=40),
        description="how clients train their networks; the paper takes 100 local steps",
    )
    separation: SeparationSettings = Field(
        SeparationSettings(), description="how the clusters of the first labels are moved apart"
    )
    first_labels: Literal["discriminative", "kmeans"] = Field(
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
        None, ge=0, le=1,
        description="share of all steps after which the mixture weighs documents; by default never",
    )  # fmt: skip
    loss: Literal["squared", "cross_entropy"] = Field(
        "squared",
        description='what is made small between scores and pseudo-labels: "squared" error, as in '
        'the paper, or "cross_entropy"',
    )
    alignment: float = Field(
        0.01, ge=0, description="weight of the distance from the global centres: lambda"
    )
    average_every: int = Field(
        0, ge=0, description="rounds between two averages of the networks; 0 is at the end alone"
    )
    fine_tune: bool = Field(False, description="train the encoder as well; meant for a GPU")
    encoder_learning_rate: float = Field(5e-6, gt=0, description="of the encoder")
    max_length: int = Field(32, ge=1, description="tokens of a text that the encoder is trained on")

    @property
    def inference(self) -> type[Adapted]:
        """What infers clusters by the networks that these settings train."""
        return FineTuned if self.fine_tune else Adapted

    def trained_shape(self, encoder: Shapes) -> Any:
        """Return the settings that a model keeps, with the shapes of a fine-tuned encoder."""
        kind = self.inference.settings_type
        return self.shape(kind, temperature=self.epsilon, encoder=encoder)

    @property
    def first_clusters(self) -> DiscriminativeSettings:
        """The settings of the clusters that give the first labels."""
        names = {"n_components", "embedding", "start", "separation"}
        return DiscriminativeSettings(**self.model_dump(include=names), word_weight=0)

    @property
    def total_steps(self) -> int:
        """Number of minibatches of a client in all rounds."""
        return self.max_rounds * self.network.local_steps
