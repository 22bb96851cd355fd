"""The table of data sent: one row for each published function that a study calls.

`fedtopics check`, `join`, ledgers, reports, model cards, DPIAs and pages show these rows, which
follow from the functions themselves; see `fedtopics.contract.published`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from fedtopics.contract.interfaces import Clients
from fedtopics.contract.published import Often, Published, unknown
from fedtopics.contract.replies import (
    MOST_COUNT,
    Announced,
    Bounds,
    UpTo,
    WordCountBounds,
)
from fedtopics.errors import FedTopicsError, first_problem
from fedtopics.federation.program import recipe_of
from fedtopics.federation.study import Study
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import TopicClient
from fedtopics.methods.core.plan import WarmStart
from fedtopics.protocol import clients as protocol
from fedtopics.text.vocabulary import MOST_PROPOSED, MOST_WORDS, Vocabulary
from fedtopics.text.words import LONGEST_WORD

AFTER_COUNTS = ", after counts of its groups"
ALL_SEE = "all members"
KNOWN_WORDS = "known_words"  # only of models that are trained further
TOTAL = "members, as a total"
SERVER_SEES = "the server"
MASKED = 8  # bytes of a number in a secure sum
NUMBER_AS_TEXT = 25  # bytes of a number that is not in an array, at most
WORD_AS_TEXT = 12 * (LONGEST_WORD + 1)  # bytes of a word, at most


Rows = list[dict[str, Any]]
"""The table of data sent, as ledgers record it."""
NOT_RECORDED = dict.fromkeys(("often", "over", "data_sent", "seen"), "-") | {"bounds": ""}


@dataclass(frozen=True)
class OwnWords:
    """The words that a client would name, and their bytes."""

    number: int
    bytes: int


@dataclass(frozen=True)
class DataSent:
    """What a function sends in a study.

    Parameters
    ----------
    function : its name.
    often : when it is called, for people.
    calls : how often, at most.
    data_sent : what is sent, for people.
    short : the same in a few words.
    seen : who sees each client's reply, or only the total.
    over : the documents behind a reply.
    numbers : in a reply, at most; None if that is not known before the run.
    bytes : of a reply, at most; None likewise.
    bounds : of the numbers.
    """

    function: str
    often: str
    calls: int
    data_sent: str
    short: str
    seen: str
    over: str
    numbers: int | None
    bytes: int | None
    bounds: str

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def data_sent_in(
    study: Study,
    own_words: OwnWords | None = None,
    start: WarmStart | None = None,
    is_simulation: bool = False,
) -> list[DataSent]:
    """Return what a study sends, for these words of a client, and the model that it starts from."""
    recipe = recipe_of(study)
    most_words = (
        study.method.most_words(study.vocabulary.max_words)
        if start is None or start.continued is None
        else len(start.words)
    )
    n_public = 0
    if recipe is not None and study.differential_privacy is not None:
        with suppress(FedTopicsError):  # the encoder whose words are public is not installed here
            n_public = len(
                recipe.public_words(study.differential_privacy.words, study.method, study.text)
            )
    rows = TableMaker(
        clients=list(study.clients),
        is_secure=study.is_secure,
        n_words=min(most_words, MOST_WORDS),
        most_proposed=study.vocabulary.most_proposed(len(study.clients) or 1),
        n_public=n_public,
        own_words=own_words,
        is_simulation=is_simulation,
    )
    shown = rows.of_client((recipe or study.registration).client, study.method)
    if start is None or start.continued is None:
        shown = [row for row in shown if row.function != KNOWN_WORDS]
    if not study.is_secure:
        return shown
    # With differential privacy, words are public, and no exact document count is sent.
    steps = [
        step
        for step in protocol.STEPS
        if recipe is None or step.name in (protocol.MODEL, protocol.ARRAYS)
    ]
    return shown + [rows.row(step, step.often(None), [study.method], rounds=1) for step in steps]


@dataclass(frozen=True)
class TableMaker:
    """Makes rows for a study's clients, whose vocabulary has at most `n_words` words."""

    clients: Sequence[str]
    is_secure: bool
    n_words: int
    most_proposed: int = MOST_PROPOSED  # words of a client
    n_public: int = 0  # words that a call refers to with differential privacy
    own_words: OwnWords | None = None
    is_simulation: bool = False  # so that one process has everything

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        """Words whose counts are not known, as before a run."""
        n_words = self.n_public or self.n_words
        counts: Any = unknown(n_words)
        return Vocabulary(tuple(map(str, range(n_words))), counts, counts)

    def of_client(self, client: type[TopicClient[Any]], settings: Any) -> list[DataSent]:
        functions = client.functions()
        return [
            self.row(
                of=functions[name],
                often=often,
                stages=_stages_of(functions[name], settings),
                rounds=settings.max_rounds,
            )
            for name, often in client.in_study(settings).items()
        ]

    def row(self, of: Published, often: Often, stages: Sequence[Any], rounds: int) -> DataSent:
        replies = [self._largest_replies(of, stage) for stage in stages]
        largest = max(replies, key=lambda fields: sum(map(self._numbers, fields)), default=[])
        numbers, n_bytes = (sum(map(n, largest)) for n in (self._numbers, self._bytes))
        is_known = math.isfinite(n_bytes)
        return DataSent(
            function=of.name,
            often=f"{often}{AFTER_COUNTS if self.is_secure and of.counts_first else ''}",
            calls=often.total(rounds),
            data_sent=of.data_sent,
            short=of.short,
            seen=("one process; between machines: " if self.is_simulation else "")
            + (ALL_SEE if of.seen_by_all else TOTAL if self.is_secure else SERVER_SEES),
            over=of.over.text,
            numbers=int(numbers) if is_known else None,
            bytes=int(n_bytes) if is_known else None,
            bounds=_bounds_of(largest),
        )

    def _largest_replies(self, of: Published, settings: Any) -> list[Field]:
        """Return the fields of a function's largest reply, and those of counts before it."""
        method = getattr(settings, "settings", settings)
        agreement = Agreement(
            clients=cast("Clients", SimpleNamespace(names=self.clients, hidden=self.is_secure)),
            settings=method,
            vocabulary=self._vocabulary,
            documents=np.nan,  # type: ignore[arg-type]
            sizes=dict.fromkeys(self.clients, 0),
            has_counts=True,
        )
        most = self.most_proposed
        request = {
            "places": 0,
            "most": most,
            "n_listed": most,
            "n_own": min(most, self.own_words.number) if self.own_words else most,
            "n_clients": len(self.clients),
            **of.largest(method, self.n_public or self.n_words),
        }
        replies = [of.counts_first, of.reply] if self.is_secure else [of.reply]
        return [
            field
            for reply in replies
            if reply
            for field in reply_fields(agreement.bounds(of, reply, request))
        ]

    def _numbers(self, field: Field) -> float:
        """Return the most numbers or words of a field; infinite if that is not known."""
        if isinstance(field.bounds, WordCountBounds):
            return 5 * self.own_words.number if self.own_words else math.inf
        lengths = (n.most if isinstance(n, UpTo) else n for n in field.shape)
        return math.prod(math.inf if isinstance(n, str) else n for n in lengths)

    def _bytes(self, field: Field) -> float:
        """Return the most bytes of a field, as it is or as a vector of whole numbers."""
        if isinstance(field.bounds, WordCountBounds):
            return self.own_words.bytes if self.own_words else math.inf
        numbers = self._numbers(field)
        if not isinstance(field.bounds, Bounds):
            return numbers * WORD_AS_TEXT
        if not field.shape:
            return NUMBER_AS_TEXT
        is_masked = self.is_secure and field.bounds.dtype != "uint8"
        width = MASKED if is_masked else np.dtype(field.bounds.dtype).itemsize
        places = MASKED * field.shape[0] if field.bounds.rows else 0  # the rows' numbers
        return numbers * width + places


@dataclass(frozen=True)
class Field:
    """A field of a reply: its name, its bounds, and its shape."""

    name: str
    bounds: Any
    shape: Sequence[Any] = ()


def reply_fields(template: Any, name: str = "") -> Iterator[Field]:
    """Yield the fields of a reply, also those inside others."""
    fields = getattr(template, "fields", template)  # those of windows and of pairs
    match fields:
        case Mapping():
            for key, field in fields.items():
                yield from reply_fields(field, f"{name}.{key}".lstrip("."))
        case Announced():
            yield Field(name, Bounds((), MOST_COUNT, 0, dtype="int64"))
        case Bounds():
            yield Field(name, fields, fields.shape)
        case tuple():
            yield Field(name, Bounds(fields), fields)
        case list():
            yield Field(name, fields, fields)
        case _:
            yield Field(name, fields)


def _stages_of(of: Published, settings: Any) -> list[Any]:
    """Return the settings of the study, and of stages before its rounds, that call a function."""
    return ([settings] if of.often(settings) else []) + [
        called for stage in settings.stages for called in _stages_of(of, stage)
    ]


def _bounds_of(fields: Sequence[Field]) -> str:
    """Describe the bounds of fields, of those with the same bounds together."""
    names: dict[str, dict[str, None]] = {}
    for field in fields:
        if field.name != "documents":
            names.setdefault(_range_of(field.bounds), {})[field.name.split(".")[0]] = None
    return "; ".join(f"{', '.join(of)}: {bounds}" for bounds, of in names.items())


def _range_of(bounds: Any) -> str:
    if not isinstance(bounds, Bounds):
        return "a list" if isinstance(bounds, list) else "four counts for each word"
    most = float(np.max(bounds.most))
    least = float(np.min(bounds.least))
    low = -bounds.per_document if least < 0 else 0.0
    shown = (f"{n:,.0f}" if n.is_integer() else f"{n:,g}" for n in (least, most))
    return first_problem(
        {
            "0 or more, adding up to the number of documents": bounds.adds_up,
            f"{low:,.0f} to {bounds.per_document:,.0f} for each document": (
                bounds.per_document < np.inf
            ),
            "bounded by counts of words or documents": bool(np.isnan(most)),
            "sums of vectors of length 1": bounds.length > 0 or bounds.products,
            "0 or more": most >= MOST_COUNT and least >= 0,
            "without a bound": most >= MOST_COUNT,
            " to ".join(shown): True,
        }
    )
