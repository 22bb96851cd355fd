"""The parameters of the methods, as a study names them, and the authors' values."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedtopics.errors import StudyError
from fedtopics.inference.gibbs import GibbsSettings
from fedtopics.inference.theta import LDAPrior
from fedtopics.methods.aggregation import OptimizerName
from fedtopics.methods.base import Draw
from fedtopics.model.coherence import Within
from fedtopics.model.shown_words import READINGS, Reading
from fedtopics.networks import NetworkSettings, NeuralTopicModel, find_network
from fedtopics.text.arrivals import ArrivalSettings
from fedtopics.text.embeddings import EmbeddingSettings

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # As PyTorch implementations of Srivastava and Sutton's network, gFedNTM's among them.
    "paper": {
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
    },
    # For documents that mix topics with words of their own, as LDA draws them: docs/models.md.
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


FIRST_TOPICS = (
    'first topics: "random", or what is beside words that stand for one topic alone ("anchors"; '
    "an exchange of sums more)"
)


def fill_from(
    presets: dict[str, dict[str, Any]], given: Any, implied: dict[str, Any] | None = None
) -> Any:
    """Take from a preset what is not given; None is as good as that: a study cannot say it."""
    if not isinstance(given, dict):
        return given
    usual = presets.get(str(given.get("preset")), {}) | (implied or {})
    return given | {key: value for key, value in usual.items() if given.get(key) is None}


class TopicSettings(BaseModel):
    """What all methods need that find topics of words."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(2000, ge=1, description="most rounds")
    clients_per_round: int | None = Field(
        None,
        ge=1,
        description="how many clients train in a round, drawn anew for each; by default all",
    )
    relevance: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how topics are read: 1 by probability, 0 by lift; by default the most "
        "coherent way in which nine of ten words differ",
    )
    coherence: Within = Field(
        "windows",
        description='where the topics\' words count as occurring together: "windows" of text, '
        '"documents" (where the order of words is lost), or "nothing": no coherence, no counts',
    )

    def draw(self, seed: int) -> Draw:
        """Return who trains in a round of the study with this seed."""
        return Draw(self.clients_per_round, seed)

    @property
    def most_components(self) -> int:
        """How many topics there may be in the end."""
        return self.n_components

    @property
    def readings(self) -> list[Reading]:
        """Among which ways of reading topics the most coherent is chosen."""
        return READINGS if self.relevance is None else [Reading(self.relevance)]


class MinibatchSettings(TopicSettings):
    """What all methods need that train topics on an agreed vocabulary."""

    batch_size: int = Field(256, ge=1, description="documents of a round")
    batch_split: Literal["proportional", "fixed"] = Field(
        "proportional",
        description='"proportional": the clients share batch_size by their numbers of documents; '
        '"fixed": each client takes batch_size (as in the paper)',
    )
    tolerance: float = Field(
        0.0, ge=0, description="stop when the weights change by less, relative to their norm"
    )
    initialisation: Literal["random", "anchors"] = Field("random", description=FIRST_TOPICS)


class Choice(BaseModel):
    """Which method, which network, whose values: what a study's [method] begins with."""

    name: Literal["gfedntm"] = Field("gfedntm", description="the method")
    network: str = Field(
        "prodlda",
        description='the neural topic model: "prodlda", "neurallda", "combinedtm" or "zeroshottm"',
    )
    preset: Literal["default", "paper", "mixtures"] = Field(
        "default",
        description='for what is not given: "paper" takes the authors\' settings, "mixtures" such '
        "for documents that mix topics with words of their own",
    )

    @field_validator("network")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return find_network(value).name
        except StudyError as error:
            raise ValueError(str(error)) from None


class GFedNTMSettings(MinibatchSettings, NetworkSettings, Choice):
    # pydantic puts the fields of the last base first.
    """All of the method's parameters, as a study names them."""

    norm: Literal["sync", "server", "local"] = Field(
        "sync",
        description='batch normalisation: over all clients ("sync"), by the server\'s running '
        'statistics ("server"), or by each client alone ("local", as in the paper)',
    )
    optimizer: OptimizerName = Field(
        "adam", description="the server's; fedavg and fedadam go with local_steps > 1"
    )
    learning_rate: float = Field(0.005, gt=0, description="of the server's optimiser")
    learning_rate_decay: Literal["none", "linear"] = Field(
        "none", description='"linear": the learning rate falls to a hundredth at max_rounds'
    )
    beta1: float = Field(
        0.99, ge=0, lt=1, description='decay of Adam\'s first moment; with norm "server" 0.9'
    )
    local_steps: int = Field(1, ge=1, description="minibatches a client takes in one round")
    local_learning_rate: float = Field(0.002, gt=0, description="of the clients' local Adam steps")
    validation_share: float = Field(
        0.0, ge=0, le=0.5, description="share of each client's documents held back; paper: 0.25"
    )
    validate_every: int = Field(50, ge=1, description="rounds between two validations")
    patience: int = Field(5, ge=1, description="stop after this many validations without a gain")
    precision: Literal["float32", "float64"] = Field("float32", description="of all arithmetic")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        # Behind statistics that lag, a long momentum overshoots until all documents share a topic.
        lags = isinstance(given, dict) and given.get("norm") == "server"
        return fill_from(PRESETS, given, {"layer_norm": True, "beta1": 0.9} if lags else {})

    @model_validator(mode="after")
    def _fits(self) -> GFedNTMSettings:
        averaging = self.optimizer in ("fedavg", "fedadam")
        if averaging != (self.local_steps > 1):
            raise ValueError(
                f"optimizer {self.optimizer!r} does not go with local_steps {self.local_steps}: "
                "fedavg and fedadam need more than 1, sgd and adam exactly 1"
            )
        if averaging and self.norm == "sync":
            raise ValueError('norm "sync" needs an exchange a step; use norm "server" here')
        if self.norm == "server" and not self.layer_norm:
            raise ValueError('norm "server" needs layer_norm = true')
        return self

    def build(self, n_words: int, document_length: float = 1.0) -> NeuralTopicModel:
        """Build the network for a vocabulary; to train it, say how long documents are."""
        dtype = getattr(torch, self.precision)
        return find_network(self.network)(n_words, self, dtype, document_length)

    @property
    def title(self) -> str:
        """What is trained, in a few words."""
        return f"{self.name} with {self.network}"

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        """Of which kind the embeddings are that documents need, if they do."""
        return self.embedding if find_network(self.network).sees_embedding else None


class LDAChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["lda"] = Field("lda", description="the method")


class LDASettings(MinibatchSettings, LDAPrior, LDAChoice):
    """All parameters of federated LDA, as a study names them."""

    learning: Literal["stochastic", "batch"] = Field(
        "stochastic",
        description='"stochastic": a round is a minibatch; "batch": a round is all documents',
    )
    learning_offset: float = Field(
        10.0, ge=0, description="slows the first stochastic rounds: tau_0 of (tau_0 + round)^-kappa"
    )
    learning_decay: float = Field(
        0.6, gt=0.5, le=1, description="of the weight of a stochastic round: kappa, as above"
    )
    batch_size: int = Field(1024, ge=1, description="documents of a stochastic round")
    initialisation: Literal["random", "anchors"] = Field("anchors", description=FIRST_TOPICS)
    max_rounds: int = Field(200, ge=1, description="most rounds")
    title: ClassVar[str] = "lda"
    needed_embedding: ClassVar[None] = None


FLDA_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # Algorithms 1 to 3 as the paper has them.
    "paper": {
        "linkage": "single",
        "absent_words": "ignored",
        "keep_unmatched": False,
        "refill": False,
        "memory": 0.0,
        "n_words": 10,
        "spare_topics": 0,
        "relevance": 1.0,
        "stop": "coherence",
    },
}


class FLDAChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["flda"] = Field("flda", description="the method")
    preset: Literal["default", "paper"] = Field(
        "default", description='for what is not given: "paper" takes the algorithms word by word'
    )


class FLDASettings(TopicSettings, GibbsSettings, ArrivalSettings, FLDAChoice):
    """All parameters of F-LDA, as a study names them."""

    max_rounds: int = Field(3, ge=1, description="most rounds")
    spare_topics: int | None = Field(
        None,
        ge=0,
        description="topics of a client besides n_components, free for what is new or its own; by "
        "default as many again",
    )
    n_words: int = Field(30, ge=2, description="words of a topic that leave a client")
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="cosine from which two topics are the same; by default what one in a hundred "
        "pairs of topics of one client reaches",
    )
    linkage: Literal["average", "single"] = Field(
        "average",
        description="which topics are merged: the most alike first, at most one of a client "
        '("average"), or all that a chain of pairs over the threshold connects ("single")',
    )
    absent_words: Literal["zero", "ignored"] = Field(
        "zero",
        description="a word that a merged topic lacks counts as zero in the mean of its weights, "
        "or is ignored there",
    )
    weighting: Literal["topics", "documents"] = Field(
        "topics",
        description="whether each topic of a mean counts the same, or its client's documents do",
    )
    refill: bool = Field(
        True, description="whether a client that is guided has as many topics as one that is not"
    )
    keep_unmatched: bool = Field(True, description="whether topics of one client alone stay")
    memory: float = Field(
        0.7,
        ge=0,
        le=1,
        description="how much a topic of the round before counts beside one of this round",
    )
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (), description='words of topics to begin with, which keep them: [["fever", "cough"]]'
    )
    min_new_documents: int = Field(
        100, ge=1, description="a client with fewer new documents skips the round"
    )
    patience: int = Field(
        1, ge=1, description="end after so many rounds in a row without new documents"
    )
    stop: Literal["documents", "coherence"] = Field(
        "documents",
        description='"coherence" ends with the first round whose topics are less coherent than '
        "those of the round before, which stay",
    )
    title: ClassVar[str] = "flda"
    needed_embedding: ClassVar[None] = None

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        return fill_from(FLDA_PRESETS, given)

    @model_validator(mode="after")
    def _seeds_fit(self) -> FLDASettings:
        if len(self.seed_topics) > self.n_components:
            raise ValueError(
                f"there are {len(self.seed_topics)} seed_topics, more than n_components = "
                f"{self.n_components}"
            )
        if not all(self.seed_topics):
            raise ValueError("each of seed_topics needs at least one word")
        if self.stop == "coherence" and self.coherence == "nothing":
            raise ValueError('stop = "coherence" needs a coherence that is not "nothing"')
        return self

    @property
    def n_local(self) -> int:
        """Topics of a client that begins without seeds."""
        spare = self.n_components if self.spare_topics is None else self.spare_topics
        return self.n_components + spare
