"""Published functions: what a client's function sends, how often, within which bounds, to whom.

To learn what a client sends, read the functions marked with `published`: methods, the outbound
filter, `check`, reports and pages all read these descriptions.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.replies import Template

Reply = dict[str, Any]
"""What a published function returns: numbers, arrays and words by name."""
Function = TypeVar("Function", bound=Callable[..., Reply])
Settings = Any  # those of a method, or of a stage before a method's first round


@dataclass(frozen=True)
class Often:
    """How often a study calls a function.

    Parameters
    ----------
    times : calls at a fixed place of the study.
    before : calls before the first round.
    per_round : calls in each round; 1/50 is once in 50 rounds.
    at_end : calls after the last round.
    at_most : whether there may be fewer calls.
    instead : when these calls replace those of another function.
    """

    times: int = 0
    before: int = 0
    per_round: float = 0.0
    at_end: int = 0
    at_most: bool = False
    instead: str = ""

    def __bool__(self) -> bool:
        return self.total(1) > 0

    def __add__(self, other: Often) -> Often:
        return Often(
            times=self.times + other.times,
            before=self.before + other.before,
            per_round=self.per_round + other.per_round,
            at_end=self.at_end + other.at_end,
            at_most=self.at_most or other.at_most,
            instead=self.instead or other.instead,
        )

    def __str__(self) -> str:
        most = "at most " if self.at_most else ""
        in_rounds = (
            f"every {round(1 / self.per_round)} rounds"
            if 0 < self.per_round < 1
            else "each round"
            if self.per_round == 1
            else "twice per round"
        )
        parts = {
            _counted(self.times): self.times,
            f"{most}{_counted(self.before)}, before the first round": self.before,
            in_rounds: self.per_round,
            f"{most}{_counted(self.at_end)}, at the end": self.at_end,
        }
        called = ", and ".join(part for part, number in parts.items() if number)
        return called + (f" {self.instead}" if self.instead else "")

    def total(self, rounds: int) -> int:
        """Return the largest number of calls in a study of so many rounds."""
        return self.times + self.before + math.ceil(self.per_round * rounds) + self.at_end

    def of_stage(self, rounds: int) -> Often:
        """Return how often a stage of so many rounds before the first round calls the function."""
        return Often(
            before=self.before + math.ceil(self.per_round * rounds),
            at_most=self.at_most or self.per_round > 0,
        )


def _counted(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


NEVER = Often()
ONCE = Often(times=1)
FIRST = Often(before=1)
EACH_ROUND = Often(per_round=1)
LAST = Often(at_end=1)


def of_method(
    kind: type[Any], often: Callable[[Any], Often] | Often
) -> Callable[[Settings], Often]:
    """Return how often methods with settings of this kind call a function; others never do."""
    calls = often if callable(often) else lambda _: often
    return lambda settings: calls(settings) if isinstance(settings, kind) else NEVER


def unknown(*shape: int) -> NDArray[np.float64]:
    """Return NaN in an array that needs no memory: an argument of which only the shape is known."""
    return np.broadcast_to(np.nan, shape)


@dataclass(frozen=True)
class Over:
    """Over which documents a reply is, for people.

    `fewest` returns of how many persons of all clients a total is at least, from the agreement,
    which has the number of each client, and from the call's arguments.
    """

    text: str
    fewest: Callable[[Any, Mapping[str, Any]], int] = lambda agreement, _: agreement.n_persons(1)


ALL_DOCUMENTS = Over("all documents")
NO_DOCUMENTS = Over("no further documents", lambda *_: 0)


@dataclass(frozen=True, eq=False)
class Published:
    """What a function of a client sends.

    Parameters
    ----------
    name : the function's name.
    data_sent : what is sent, for people.
    short : the same in a few words, for tables of pages.
    often : how often a study with given settings calls it; by default each round.
    reply : the bounds of a reply, from those of its arguments, of `agreement` and of `settings`
        that it names.
    counts_first : for sums by group, the bounds of the groups' counts; with secure aggregation they
        are summed first, over all clients, and groups with too few documents are then left out.
    largest : arguments with which a reply is largest, from settings and the number of words.
    over : over which documents a reply is.
    seen_by_all : whether all participants see each client's reply. Otherwise, with secure
        aggregation members see only the total, and with plain aggregation the server sees replies.
    noise : None if every attempt at a round gives the same reply, False if attempts use different
        documents, True if replies differ even for the same documents.
    has_words : whether a call refers to the words that clients agreed on.
    has_documents : whether a reply contains its number of documents.
    has_groups : whether a call may say which groups are large enough.
    """

    name: str
    data_sent: str
    short: str
    reply: Callable[..., Template]
    often: Callable[[Settings], Often] = lambda _: ONCE
    counts_first: Callable[..., Template] | None = None
    largest: Callable[[Settings, int], Mapping[str, Any]] = lambda *_: {}
    over: Over = ALL_DOCUMENTS
    seen_by_all: bool = False
    noise: bool | None = None
    has_words: bool = True
    has_documents: bool = True
    has_groups: bool = False

    def in_study(self, settings: Settings) -> Often:
        """Return how often a study calls the function, in the method and in stages before it."""
        often = self.often(settings)
        for stage in settings.stages:
            if of_stage := self.in_study(stage):
                often += of_stage.of_stage(stage.max_rounds)
        return often


def published(
    data_sent: str,
    short: str = "",
    *,
    reply: Callable[..., Template],
    often: Callable[[Settings], Often] | Often = EACH_ROUND,
    counts_first: Callable[..., Template] | None = None,
    largest: Callable[[Settings, int], Mapping[str, Any]] = lambda *_: {},
    over: Over = ALL_DOCUMENTS,
    seen_by_all: bool = False,
    noise: bool | None = None,
    has_words: bool = True,
    has_documents: bool = True,
) -> Callable[[Function], Function]:
    """Mark a function of the client whose result is sent; see `Published` for the arguments."""

    def publish(function: Function) -> Function:
        vars(function)["published"] = Published(
            name=function.__name__,
            data_sent=data_sent,
            short=short or data_sent,
            often=(lambda _: often) if isinstance(often, Often) else often,
            reply=reply,
            counts_first=counts_first,
            largest=largest,
            over=over,
            seen_by_all=seen_by_all,
            noise=noise,
            has_words=has_words,
            has_documents=has_documents,
            has_groups="groups" in inspect.signature(function).parameters,
        )
        return function

    return publish


def description_of(function: Callable[..., Any]) -> Published:
    """Return the description of a published function."""
    return cast("Published", vars(function)["published"])


@cache
def arguments_of(bounds: Callable[..., Template]) -> tuple[str, ...]:
    """Return the names of what the bounds of a reply depend on."""
    return tuple(inspect.signature(bounds).parameters)
