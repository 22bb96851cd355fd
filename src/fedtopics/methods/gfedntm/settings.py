"""The settings of gFedNTM, and the authors' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field, model_validator

from fedtopics.errors import refuse
from fedtopics.methods.core.settings import (
    FIRST_TOPICS,
    MinibatchSettings,
    NetworkBeginning,
    TopicSettings,
    filled,
)
from fedtopics.methods.gfedntm.optimizer import OptimizerName
from fedtopics.methods.mixture.method import MixtureSettings
from fedtopics.networks import find_network
from fedtopics.networks.base import NetworkSettings
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.text.embeddings import EmbeddingSettings

# As in PyTorch implementations of Srivastava and Sutton's network (AVITM).
_AVITM = {
    "hidden": (100, 100),
    "dropout": 0.2,
    "dropout_theta": 0.2,
    "learn_prior": True,
    "word_bias": False,
    "relevance": 1.0,
    "learning_rate": 0.002,
    "batch_size": 64,
    "encoder_input": "counts",
    "embedding_weight": 0.0,
    "max_rounds": 5000,
}
# Algorithm 1 with that network: each client normalises and takes minibatches by itself, and the
# server takes plain gradient steps. The paper gives no step size; of .002 to 2, this was the best.
# Nor a tolerance. Gradients are added up unchanged, and all words are kept.
_PAPER = {"norm": "local", "optimizer": "sgd", "learning_rate": 0.02, "batch_split": "fixed"}
_PLAIN = {
    "aggregation": "plain",
    "federation": {"outliers": "none"},
    "vocabulary": {
        "min_persons_per_word": 1,
        "min_clients_per_word": 1,
        "max_document_share": 1.0,
        "max_words": 1 << 30,
    },
}


class GFedNTMSettings(MinibatchSettings, NetworkSettings):
    PRESETS: ClassVar = {
        "avitm": _AVITM,
        "paper": {**_AVITM, **_PAPER, "tolerance": 0.001},
        # For documents that mix topics, as LDA assumes: docs/how-to/choose-a-model.md.
        "mixtures": {
            "alpha": 0.1,
            "dropout": 0.0,
            "initialisation": "anchors",
            "learning_rate_decay": "linear",
            "normalise_topics": False,
            "posterior_gain": 1.5,
            "max_rounds": 2500,
        },
    }
    TABLES: ClassVar = {"paper": _PLAIN}

    name: Literal["gfedntm"] = Field("gfedntm", description="the method")
    network: Annotated[str, AfterValidator(lambda name: find_network(name).name)] = Field(
        "prodlda",
        description='the neural topic model: "prodlda", "neurallda", "combinedtm" or "zeroshottm"',
    )
    preset: Literal["default", "paper", "avitm", "mixtures"] = Field(
        "default",
        description='preset for other settings: "avitm" has the usual settings of the original '
        'ProdLDA, "paper" is Algorithm 1 with these settings, plain sums and all words, "mixtures" '
        "is for documents that mix topics which have words of their own",
    )
    initialisation: NetworkBeginning = Field(
        "random",
        description=f"{FIRST_TOPICS}; networks with embeddings can also begin with a mixture of "
        'embeddings and words ("mixture"; several dozen more exchanges of sums)',
    )
    norm: Literal["sync", "server", "local"] = Field(
        "sync",
        description='batch normalisation: over all clients ("sync"), by the server\'s running '
        'statistics ("server"), or at each client separately ("local", as in the paper)',
    )
    optimizer: OptimizerName = Field(
        "adam", description="the server's optimiser; fedavg and fedadam require local_steps > 1"
    )
    learning_rate: float = Field(0.005, gt=0, description="step size of the server's optimiser")
    learning_rate_decay: Literal["none", "linear"] = Field(
        "none", description='"linear": the learning rate falls to a hundredth at max_rounds'
    )
    beta1: float = Field(
        0.99, ge=0, lt=1, description='decay of Adam\'s first moment; with norm "server" 0.9'
    )
    local_steps: int = Field(1, ge=1, description="number of minibatches of a client per round")
    local_learning_rate: float = Field(0.002, gt=0, description="size of clients' local Adam steps")
    validation_share: float = Field(
        0.0, ge=0, le=0.5, description="held-out share of a client's documents; 0.25 in the paper"
    )
    validate_every: int = Field(50, ge=1, description="number of rounds between two validations")
    patience: int = Field(5, ge=1, description="stop after this many validations without a gain")
    precision: Literal["float32", "float64"] = Field("float32", description="for all computations")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_norm(cls, settings: Any) -> Any:
        # As statistics lag behind, a long momentum overshoots until all documents share a topic.
        return (
            filled(settings, {"layer_norm": True, "beta1": 0.9})
            if isinstance(settings, dict) and settings.get("norm") == "server"
            else settings
        )

    @model_validator(mode="after")
    def _fits(self) -> GFedNTMSettings:
        averaging = self.optimizer in ("fedavg", "fedadam")
        refuse(
            {
                f"optimizer {self.optimizer!r} cannot be combined with local_steps "
                f"{self.local_steps}: fedavg and fedadam need more than 1, sgd and adam "
                "exactly 1": averaging != (self.local_steps > 1),
                f'initialisation "mixture" needs embeddings, which the network {self.network!r} '
                'does not use; use "anchors", or another network': (
                    self.initialisation == "mixture" and self.needed_embedding is None
                ),
                'norm "sync" needs an exchange per step; set norm = "server"': (
                    averaging and self.norm == "sync"
                ),
                'norm "server" needs layer_norm = true': (
                    self.norm == "server" and not self.layer_norm
                ),
            }
        )
        return self

    def build(self, n_words: int, document_length: float = 1.0) -> NeuralTopicModel:
        """Build the network for a vocabulary; training also needs the mean length of documents."""
        return find_network(self.network)(
            n_words, self, getattr(torch, self.precision), document_length
        )

    @property
    def stages(self) -> Sequence[TopicSettings]:
        return (self.mixture,) if self.initialisation == "mixture" else ()

    @property
    def mixture(self) -> MixtureSettings:
        """The settings of the mixture that networks can begin with."""
        return MixtureSettings(n_components=self.n_components, embedding=self.embedding)

    @property
    def stops(self) -> dict[str, float]:
        patience = {"patience": self.patience} if self.validation_share else {}
        return {**super().stops, **patience}

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        return self.embedding if find_network(self.network).sees_embedding else None
