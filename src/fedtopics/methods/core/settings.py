"""Settings that all methods have, and rules that end a training before its last round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedtopics.errors import StudyError, closest
from fedtopics.extras import Registry
from fedtopics.methods.core.groups import OverTime
from fedtopics.methods.core.interfaces import Draw
from fedtopics.model.coherence import Within
from fedtopics.model.shown_words import CANDIDATES, READINGS, WORDS_SHOWN, Reading
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.rules import TextRules


@dataclass(frozen=True)
class Progress:
    """The progress of a training after a round."""

    round: int
    loss: float = np.nan  # mean over the documents of this round; NaN where there is none
    change: float = np.inf  # of what is trained, relative to its norm; infinite if not measured
    validations_without_gain: int = 0
    best_loss: float = np.inf  # of a validation


GAIN = 1e-3  # of a validation loss: a client could say that it loses a little less each time
StopRule = Callable[[Progress, float], str]
"""Returns why the training ends, or nothing."""
STOP_RULES: Registry[StopRule] = Registry("stop rule", "fedtopics.stop_rules")


def improves(loss: float, best: float) -> bool:
    """Whether a validation is clearly better than the best one before it."""
    return best - loss > GAIN * abs(loss)


def why_stop(progress: Progress, limits: Mapping[str, float]) -> str:
    """Return why a training ends here, or nothing; limits have each rule's number by its name."""
    reasons = (STOP_RULES.find(name)(progress, limit) for name, limit in limits.items())
    return next(filter(None, reasons), "")


def _tolerance(progress: Progress, limit: float) -> str:
    """Stop where little changes; 0 never stops."""
    if progress.change < limit:
        return f"what is trained changed by {progress.change:.2e}, less than the tolerance"
    return ""


def _patience(progress: Progress, limit: float) -> str:
    """Stop after so many validations without a gain."""
    if progress.validations_without_gain < max(limit, 1):
        return ""
    return (
        f"no better validation loss than {progress.best_loss:.4f} in "
        f"{progress.validations_without_gain} validations"
    )


def _loss(progress: Progress, limit: float) -> str:
    """Stop at a loss that is low enough."""
    return f"the loss is {progress.loss:.4f}, at most {limit:g}" if progress.loss <= limit else ""


SETTINGS_OF_METHODS: dict[str, StopRule] = {"tolerance": _tolerance, "patience": _patience}
"""Rules that only methods name, which measure what these need."""
for _name, _rule in {**SETTINGS_OF_METHODS, "loss": _loss}.items():
    STOP_RULES.register(_name, _rule)


FIRST_TOPICS = (
    'first topics: "random", what is beside words that stand for one topic alone ("anchors"; an '
    'exchange of sums more), or those of a matrix factorisation ("nmf"; thirty exchanges of sums)'
)
Beginning = Literal["random", "anchors", "nmf"]
NetworkBeginning = Literal[Beginning, "mixture"]


def fill_from(
    presets: Mapping[str, dict[str, Any]], settings: Any, implied: dict[str, Any] | None = None
) -> Any:
    """Fill missing settings from a preset."""
    if not isinstance(settings, dict):
        return settings
    return filled(settings, presets.get(str(settings.get("preset")), {}) | (implied or {}))


def filled(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Fill missing settings, and those of groups; None is missing, as a study cannot say it."""
    found = {**settings, **{key: each for key, each in usual.items() if settings.get(key) is None}}
    for key, each in usual.items():
        if isinstance(each, Mapping) and isinstance(found[key], Mapping):
            found[key] = {**each, **found[key]}
    return found


def check_seeds(seeds: Sequence[Sequence[str]], n_topics: int) -> None:
    """Raise ValueError if words are of too many topics, none of one, or the same of two."""
    if len(seeds) > n_topics:
        raise ValueError(f"there are {len(seeds)} seed_topics, more than n_components = {n_topics}")
    for number, words in enumerate(seeds):
        if not words:
            raise ValueError(f"topic {number} of seed_topics needs at least one word")
        if set(words) in map(set, seeds[:number]):
            raise ValueError(f"topic {number} of seed_topics repeats another; give each its own")


def seeds_in(
    text: TextRules, seeds: Sequence[Sequence[str]], n_topics: int
) -> tuple[tuple[str, ...], ...]:
    """Return the words of seed_topics as texts have them; StudyError if a topic has none left."""
    found = []
    for number, words in enumerate(seeds):
        forms, left_out = text.forms_of(words)
        found.append(tuple(word for word in forms if word not in left_out))
        if not found[-1]:
            raise StudyError(
                f"All words of topic {number} of seed_topics are stop words, which no document "
                f"keeps: {', '.join(forms)}. Give others, or set stop_words."
            )
    try:
        check_seeds(found, n_topics)
    except ValueError as error:
        raise StudyError(f"As documents have their words, {error}.") from None
    return tuple(found)


def check_known(seeds: Mapping[int, Sequence[str]], known: Collection[str]) -> None:
    """Raise StudyError if all words of a topic, by its number in seed_topics, are unknown."""
    for number, words in seeds.items():
        if not any(word in known for word in words):
            near = next(filter(None, (closest(word, known) for word in words)), "")
            raise StudyError(
                f"No word of topic {number} of seed_topics is in the agreed vocabulary: "
                f"{', '.join(words)}. Give words that documents have{near and f', such as {near}'}."
            )


class TopicSettings(BaseModel):
    """Settings of all methods."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {}

    name: str = Field("", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(2000, ge=1, description="most rounds")
    clients_per_round: int | None = Field(
        None,
        ge=1,
        description="how many clients train in a round, drawn anew for each; by default all",
    )
    relevance: float | None = Field(
        None, ge=0, le=1,
        description="how topics are read: 1 by probability, 0 by lift; by default the most "
        "coherent way in which nine of ten words differ",
    )  # fmt: skip
    candidate_words: int | None = Field(
        None, ge=WORDS_SHOWN, le=50,
        description="of so many first words of a topic the ten that are most coherent together are "
        "shown first; 10 leaves them as they are; by default 15, or 10 if relevance says how "
        "topics are read",
    )  # fmt: skip
    coherence: Within = Field(
        "windows",
        description='where the topics\' words count as occurring together: "windows" of text, '
        '"documents" (where the order of words is lost), or "nothing": no coherence, no counts',
    )
    over_time: OverTime | None = Field(
        None,
        description="a table with period, begin and end, by which topics are summed at the end, "
        "of the clients' column of times; by_client tells all each client's sums",
    )
    stop_when: dict[str, float] = Field(
        {}, description="further rules that end the training, by name with their number"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, settings: Any) -> Any:
        found = fill_from(cls.PRESETS, settings)
        own = {  # what a method has in a group also holds where the group is given in part
            name: info.default.model_dump(exclude_unset=True)
            for name, info in cls.model_fields.items()
            if isinstance(info.default, BaseModel)
        }
        return filled(found, own) if isinstance(found, dict) else found

    @property
    def adds_up(self) -> bool:
        """Whether replies are added up, so that they can be masked, but for what a model says."""
        return True

    @field_validator("stop_when")
    @classmethod
    def _rules_exist(cls, value: dict[str, float]) -> dict[str, float]:
        for name in value:
            if name in SETTINGS_OF_METHODS:
                raise ValueError(
                    f"{name} is a setting of its own, of the methods that measure it; set it "
                    "there, not in stop_when"
                )
            try:
                STOP_RULES.find(name)
            except StudyError as error:
                raise ValueError(str(error)) from None
        return value

    def shape(self, kind: type[BaseModel], **more: Any) -> Any:
        """Return the settings that a model keeps, of this kind; a network's are in a group."""
        own = self.model_dump()
        own |= (own["network"] if isinstance(own.get("network"), dict) else {}) | more
        return kind(**{name: own[name] for name in kind.model_fields if name in own})

    @property
    def stops(self) -> dict[str, float]:
        """The method's own stop rules by name, with their numbers: of most its tolerance."""
        return self.model_dump(include={"tolerance"})

    def read_by(self, text: TextRules) -> Self:
        """Return them with the words that people give as documents have them."""
        return self

    def draw(self, seed: int) -> Draw:
        """Return which clients train in a round of the study with this seed."""
        return Draw(self.clients_per_round, seed)

    @property
    def method_name(self) -> str:
        """Name of the method: each has that one value of ``name``."""
        return self.name

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        """The kind of embeddings that documents need, if any."""
        return None

    def embedding_of(self, corpus: Corpus) -> EmbeddingSettings | None:
        """Return the kind of embeddings that these documents need, if any."""
        return self.needed_embedding

    @property
    def readings(self) -> list[Reading]:
        """The ways of reading topics of which the most coherent is chosen."""
        return READINGS if self.relevance is None else [Reading(self.relevance)]

    @property
    def n_candidate_words(self) -> int:
        """The first words of a topic of which the most coherent are shown first."""
        return self.candidate_words or (CANDIDATES if self.relevance is None else WORDS_SHOWN)

    @property
    def chooses_words(self) -> bool:
        """Whether documents choose which words of topics are shown."""
        return len(self.readings) > 1 or self.n_candidate_words > WORDS_SHOWN


class MinibatchSettings(TopicSettings):
    """Settings of the methods that train topics on an agreed vocabulary."""

    batch_size: int = Field(256, ge=1, description="documents of a round")
    batch_split: Literal["proportional", "fixed"] = Field(
        "proportional",
        description='"proportional": the clients share batch_size by their numbers of documents; '
        '"fixed": each client takes batch_size (as in the paper)',
    )
    tolerance: float = Field(
        0.0, ge=0, description="stop when the weights change by less, relative to their norm"
    )
    initialisation: NetworkBeginning = Field("random", description=FIRST_TOPICS)
