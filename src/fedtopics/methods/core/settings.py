"""Settings that all methods have, and rules that end a training early."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, field_validator, model_validator

from fedtopics.contract.published import NEVER, Often
from fedtopics.errors import StudyError, closest
from fedtopics.extras import Registry
from fedtopics.methods.core.comparisons import shape_of
from fedtopics.model.card import why_number
from fedtopics.model.formulas import Formula
from fedtopics.model.shown_words import CANDIDATES, WORD_RANKINGS, WORDS_SHOWN, WordRanking
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.grouping import TIME, GroupColumn, check_columns
from fedtopics.text.rules import TextRules


@dataclass(frozen=True)
class TrainingProgress:
    round: int
    loss: float = np.nan  # mean over the documents of the round, or NaN
    change: float = np.inf  # change of the model, relative to its norm; infinite if not measured
    validations_without_gain: int = 0
    best_loss: float = np.inf  # best loss of all validations


StopRule = Callable[[TrainingProgress, float], str]
"""Returns the reason why the training ends, or "" if it continues."""


def _tolerance(progress: TrainingProgress, limit: float) -> str:
    return (
        f"the model changed by {progress.change:.2e}, less than the tolerance"
        if progress.change < limit
        else ""
    )


def _patience(progress: TrainingProgress, limit: float) -> str:
    return (
        f"no better validation loss than {progress.best_loss:.4f} in "
        f"{progress.validations_without_gain} validations"
        if progress.validations_without_gain >= max(limit, 1)
        else ""
    )


def _loss(progress: TrainingProgress, limit: float) -> str:
    return f"the loss is {progress.loss:.4f}, at most {limit:g}" if progress.loss <= limit else ""


SETTINGS_OF_METHODS: dict[str, StopRule] = {"tolerance": _tolerance, "patience": _patience}
"""Rules that are settings of the methods that measure what these rules need."""
STOP_RULES: Registry[StopRule] = Registry(
    "stop rule", "fedtopics.stop_rules", items={**SETTINGS_OF_METHODS, "loss": _loss}
)


FIRST_TOPICS = (
    'first topics: "random", from anchor words that indicate a single topic ("anchors"; one more '
    'exchange of sums), or from a matrix factorisation ("nmf"; thirty exchanges of sums)'
)
Beginning = Literal["random", "anchors", "nmf"]
NetworkBeginning = Literal[Beginning, "mixture"]


def filled(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Fill missing settings, also in groups; None counts as missing, as TOML has no None."""
    missing = {key: default for key, default in defaults.items() if settings.get(key) is None}
    complete = {**settings, **missing}
    return complete | {
        key: {**default, **complete[key]}
        for key, default in defaults.items()
        if isinstance(default, Mapping) and isinstance(complete[key], Mapping)
    }


def check_seeds(seeds: Sequence[Sequence[str]], n_topics: int) -> None:
    if len(seeds) > n_topics:
        raise ValueError(f"there are {len(seeds)} seed_topics, more than n_components = {n_topics}")
    earlier = set()
    for number, words in enumerate(map(frozenset, seeds)):
        if not words:
            raise ValueError(f"topic {number} of seed_topics needs at least one word")
        if words in earlier:
            raise ValueError(f"topic {number} of seed_topics repeats another topic; change one")
        earlier.add(words)


def seeds_in(
    text: TextRules, seeds: Sequence[Sequence[str]], n_topics: int
) -> tuple[tuple[str, ...], ...]:
    """Return seed_topics in the form they have in texts; StudyError if a topic has no word left."""
    topics = []
    forms_of = text.forms_of_words()  # once: it reads all stop words
    for number, words in enumerate(seeds):
        forms, left_out = forms_of(words)
        topics.append(tuple(word for word in forms if word not in left_out))
        if not topics[-1]:
            raise StudyError(
                f"All words of topic {number} of seed_topics are stop words, which are removed "
                f"from documents: {', '.join(forms)}. Give other words, or set stop_words."
            )
    try:
        check_seeds(topics, n_topics)
    except ValueError as error:
        raise StudyError(f"After processing words like documents, {error}.") from None
    return tuple(topics)


def check_known(seeds: Mapping[int, Sequence[str]], vocabulary: Collection[str]) -> None:
    for number, words in seeds.items():
        if not any(word in vocabulary for word in words):
            near = next(filter(None, (closest(word, vocabulary) for word in words)), "")
            raise StudyError(
                f"No word of topic {number} of seed_topics is in the agreed vocabulary: "
                f"{', '.join(words)}. Give words that documents have{near and f', such as {near}'}."
            )


class TopicSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Settings of all methods; base class of each method's settings."""

    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {}
    TABLES: ClassVar[Mapping[str, dict[str, Any]]] = {}  # other settings of a study, by preset
    decisive: ClassVar[str] = "preset"  # the setting whose value chooses among PRESETS
    agrees_first: ClassVar[bool] = True  # whether clients agree on words before the first round
    longest_point: ClassVar[float] = 1.0  # length of points by embeddings, at most

    name: str = Field("", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(2000, ge=1, description="maximum number of rounds")
    clients_per_round: int | None = Field(
        None,
        ge=1,
        description="number of clients that train in a round, sampled for each round; by default "
        "all clients",
    )
    relevance: float | None = Field(
        None,
        ge=0,
        le=1,
        description="how words are ranked: 1 by probability, 0 by lift; by default the most "
        "coherent ranking in which nine of ten words differ between topics",
    )
    coherence_candidates: int | None = Field(
        None,
        ge=WORDS_SHOWN,
        le=50,
        description="a topic's ten most coherent words, chosen among this many first words, are "
        "shown first; 10 keeps the words' order; by default 15, or 10 if "
        "relevance is set",
    )
    coherence: Literal["windows", "documents", "nothing"] = Field(
        "windows",
        description='where words count as occurring together: in "windows" of text, in '
        '"documents" (which ignores the order of words), or "nothing" (no words are '
        "counted, and topics get no score, neither coherence nor nearness)",
    )
    over_time: GroupColumn | None = Field(
        None,
        description="a table with period, begin and end: topics are compared by period, from the "
        "clients' column of times",
    )
    by: dict[str, GroupColumn] = Field(
        {},
        description="tables of columns by which topics are compared at the end of the training: "
        "each has levels; or period, begin and end; or least, most and knots of numbers",
    )
    effects: tuple[str, ...] = Field(
        (),
        description='formulas of these columns, such as "funded + year + client", whose effects on '
        "topics' shares are estimated (needs fedtopics[effects] at each client)",
    )
    trains: bool = Field(
        True,
        description="false: no round; the study compares groups in the model with which it begins "
        "(--from), which has the same method and text",
    )
    stop_when: dict[str, float] = Field(
        {}, description="further rules that end the training: names of rules, each with a number"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        if settings.get("n_components") == "auto":
            raise ValueError(
                "this method needs n_components; nmf, discriminative and fstc can choose it"
            )
        groups = {  # a method's own defaults in a group also apply if the group is given in part
            name: info.default.model_dump(exclude_unset=True)
            for name, info in cls.model_fields.items()
            if isinstance(info.default, BaseModel)
        }
        return filled(
            filled(settings, cls.PRESETS.get(str(settings.get(cls.decisive)), {})), groups
        )

    @property
    def compared(self) -> dict[str, GroupColumn]:
        """The columns by which documents are compared."""
        return ({} if self.over_time is None else {TIME: self.over_time}) | self.by

    @property
    def adds_up(self) -> bool:
        """Whether replies (except those in the model) are summed, so that they can be masked."""
        return True

    @property
    def can_hide(self) -> bool:
        """Whether aggregation can be secure: no round shows members each client's sums."""
        return self.adds_up

    @property
    def stages(self) -> Sequence[Any]:
        """Return the settings of stages before the first round, such as another method's rounds."""
        return ()

    @property
    def scoring(self) -> Often:
        """How often topics are scored in addition to the end."""
        return NEVER

    @property
    def most_topics(self) -> int:
        """The largest number of topics that a study may have."""
        return max(getattr(self, "candidates", ()), default=self.n_components)

    @property
    def sketched(self) -> int:
        """For how many topics a sketch of words is made, at most; see nmf/sketch.py."""
        return self.most_topics

    def most_words(self, max_words: int) -> int:
        """Return the largest number of agreed words, if the study limits them to `max_words`."""
        return max_words

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        check_columns(self.by)
        for text in self.effects:
            Formula.read(text, self.compared)
        if self.over_time is not None and not self.over_time.begin:
            raise ValueError("over_time needs begin and end")
        shape_of(self.compared)
        return self

    @field_validator("stop_when")
    @classmethod
    def _rules_exist(cls, rules: dict[str, float]) -> dict[str, float]:
        for name in rules:
            if name in SETTINGS_OF_METHODS:
                raise ValueError(
                    f"{name} is a setting of the methods that measure it; set it in [method], not "
                    "in stop_when"
                )
            STOP_RULES.find(name)
        return rules

    def shape(self, kind: type[BaseModel], **more: Any) -> Any:
        """Return the settings that a model keeps, as an object of this kind."""
        settings = self.model_dump()
        network = settings.get("network")
        settings |= (network if isinstance(network, dict) else {}) | more
        return kind(**{name: settings[name] for name in kind.model_fields if name in settings})

    @property
    def draws(self) -> bool:
        """Whether each round is over a minibatch that clients draw."""
        return False

    def drawn(self, share: float) -> float:
        """Return how many documents a client draws that has this share of all documents."""
        return np.inf

    @property
    def number(self) -> str:
        """The number of topics for people, or the numbers from which it is chosen."""
        numbers = getattr(self, "candidates", ())
        return f"{numbers[0]} to {numbers[-1]}" if numbers else str(self.n_components)

    @property
    def stops(self) -> dict[str, float]:
        return self.model_dump(include={"tolerance"})

    def read_by(self, text: TextRules) -> Self:
        """Return the settings with seed_topics in the form that words have in documents."""
        seeds = getattr(self, "seed_topics", ())
        return (
            self.model_copy(update={"seed_topics": seeds_in(text, seeds, self.n_components)})
            if seeds
            else self
        )

    @property
    def method_name(self) -> str:
        return self.name

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        """The kind of embeddings that the method needs, if any."""
        return None

    @property
    def readings(self) -> list[WordRanking]:
        return WORD_RANKINGS if self.relevance is None else [WordRanking(self.relevance)]

    @property
    def n_candidate_words(self) -> int:
        return self.coherence_candidates or (CANDIDATES if self.relevance is None else WORDS_SHOWN)

    @property
    def chooses_words(self) -> bool:
        return len(self.readings) > 1 or self.n_candidate_words > WORDS_SHOWN


TOO_FEW = "There are too few documents or words to choose n_components; set it to a number."
NUMBERS = (2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40, 60)


def best_of(
    scores: Mapping[int, float], candidates: Sequence[int], good: Sequence[int] = ()
) -> int:
    """Return the number with the best score; warn if it is the largest, as more may be better.

    `good` are the least and the largest number that are about as good, if this is known.
    """
    best = max(scores, key=lambda number: scores[number])
    if best == candidates[-1]:
        warnings.warn(
            f"The search for n_components ended at the largest candidate ({why_number(best, good)})"
            ", so more may be better; give larger candidates, or the number.",
            stacklevel=2,
        )
    return best


class ChoosesNumber(BaseModel):
    """Settings of methods that can choose the number of topics or clusters themselves."""

    candidates: tuple[int, ...] = Field(
        (),
        description='numbers from which n_components is chosen; n_components = "auto" takes some '
        f"from {NUMBERS[0]} to {NUMBERS[-1]}",
    )

    @model_validator(mode="before")
    @classmethod
    def _find_candidates(cls, settings: Any) -> Any:
        if not isinstance(settings, dict) or settings.get("n_components") != "auto":
            return settings
        others = {name: setting for name, setting in settings.items() if name != "n_components"}
        return others | {"candidates": others.get("candidates") or NUMBERS}

    @field_validator("candidates")
    @classmethod
    def _ascending(cls, numbers: tuple[int, ...]) -> tuple[int, ...]:
        if any(number < 2 for number in numbers) or list(numbers) != sorted(set(numbers)):
            raise ValueError("give numbers in ascending order, each once, at least 2")
        return numbers


class MinibatchSettings(TopicSettings):
    batch_size: int = Field(256, ge=1, description="number of documents in a round")
    batch_split: Literal["proportional", "fixed"] = Field(
        "proportional",
        description='"proportional": clients share batch_size in proportion to their numbers of '
        'documents; "fixed": each client uses batch_size documents (as in the paper)',
    )
    tolerance: float = Field(
        0.0,
        ge=0,
        description="stop when the weights change by less than this, relative to their norm",
    )
    initialisation: NetworkBeginning = Field("random", description=FIRST_TOPICS)

    @property
    def draws(self) -> bool:
        return True

    def drawn(self, share: float) -> float:
        return self.batch_size * (share if self.batch_split == "proportional" else 1)
