"""The vocabulary without names: whoever adds learns the words that are agreed on, and no others.

Clients share a key that who adds does not have. Each counts its words in a table of keyed hashes,
and the tables are added up masked. Names of words whose bucket may hold an agreed one leave, for
the other clients to read; these words are counted exactly, again masked, and the names of those
that are chosen are told. A bucket says of a word no less than is
true, so what is left out for its bucket could not have been chosen. See
docs/secure-aggregation.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.core.aggregation import Named, Payload, SharedPayload
from fedtopics.methods.core.events import BadReply, Event, Voided
from fedtopics.methods.core.interfaces import Gathering
from fedtopics.methods.core.replies import (
    LONGEST,
    MOST_COUNT,
    MOST_DOCUMENTS,
    Field,
    Template,
    WordCounts,
    counts,
    find_fault,
)  # fmt: skip
from fedtopics.secure.keys import LENGTH
from fedtopics.secure.said import CHOSEN, FEWEST, KEY, LISTED, NAMES, SAME, SIZED, context_of
from fedtopics.secure.shares import SEAL, threshold

SIZES, TABLE, COUNTS = SUMS = "secure.sizes", "secure.table", "secure.counts"
COLUMNS = "frequency", "occurrences", "clients", "first"  # of `Named`, as of a bucket
SEALED = LENGTH + SEAL  # bytes of a client's part of the key, for another one
ROOMY = 16  # buckets for each word: few words share one
FEWEST_BUCKETS, MOST_BUCKETS = 1 << 12, 1 << 20
SPARE = 16  # buckets that pass beside those of as many words as are agreed on, and a quarter
ROOM = 16  # bytes of names for each bucket: words are shorter, on average
FEWEST_NAMES = 64  # for which there is room
DOUBLED = 8  # sizes that names can have, each twice the one before
LARGEST = 1 << 28  # bytes of the chosen names
Integers = NDArray[np.int64]


class Limits(Protocol):
    """Which words the agreed vocabulary keeps."""

    @property
    def max_words(self) -> int:
        """The most words."""

    @property
    def min_clients(self) -> int:
        """The fewest clients that name a word."""

    @property
    def max_document_share(self) -> float:
        """The largest share of all documents that a word may be in."""

    def chosen(self, counted: Integers, documents: int) -> list[int]:
        """Return the rows that are kept of an alphabetical list's counts."""


@dataclass
class Words:
    """What all participants know of a round's words, whoever adds among them."""

    limits: Limits
    context: bytes  # of the key
    members: Sequence[str]  # for whom its parts are sealed
    keys: Mapping[str, bytes] = field(repr=False)  # of these
    parts: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # of the key, by sender
    sizes: Mapping[str, Any] = field(default_factory=dict)  # documents, occurrences, words
    table: Mapping[str, Any] = field(default_factory=dict, repr=False)
    named: bytes = b""  # the context of the names
    names: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # sealed, by sender
    length: int = 0  # of the list that they make
    counts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def buckets(self) -> int:
        """How many buckets the table has."""
        wanted = 1 << (ROOMY * int(self.sizes["words"])).bit_length()
        return min(max(wanted, FEWEST_BUCKETS), MOST_BUCKETS)

    @property
    def template(self) -> Template:
        """That of the table."""
        documents, clients = self.sizes["documents"], len(self.members)
        most = documents, self.sizes["occurrences"], clients, clients
        columns = zip(COLUMNS, most, strict=True)
        return {
            "documents": Field((), documents, 0, dtype="int64"),
            **{n: Field((self.buckets,), bound, 0, dtype="int64") for n, bound in columns},
        }

    def passing(self) -> Integers:
        """Return the buckets whose words may be among the agreed ones.

        Words that share a bucket look more frequent, and as if more clients had them: more pass
        than can be chosen, but not of one client's liking, so at most two or three times as many.
        """
        documents, occurrences, clients, first = (self.table[name] for name in COLUMNS)
        limits = self.limits
        key = occurrences + np.where(first > 0, MOST_COUNT, 0)
        enough = np.flatnonzero(clients >= max(limits.min_clients, 1))
        order = enough[np.argsort(-key[enough], kind="stable")]
        fit = documents[order] <= limits.max_document_share * self.table["documents"]
        usual, often = order[fit], order[~fit]
        # Two words of one client each can look like one of two clients.
        further = limits.max_words if limits.min_clients > 1 else limits.max_words // 4
        room = limits.max_words + further + SPARE
        least = key[usual[room - 1]] if len(usual) >= room else 0
        kept = [part[key[part] >= least] for part in (usual, often)]
        return np.sort(np.concatenate([part[: 2 * room] for part in kept]))

    @property
    def rooms(self) -> list[int]:
        """The sizes that a client's names can have: nearly always the first one."""
        least = ROOM * max(len(self.passing()), FEWEST_NAMES)
        return [least << doubled for doubled in range(DOUBLED)]

    @property
    def counted(self) -> Integers:
        """The counts of the list, shape (length, 4)."""
        return np.column_stack([self.counts[name] for name in COLUMNS])

    def named_by(self, answer: Mapping[str, bytes]) -> Named | None:
        """Return the counts of the agreed words, if that is what an answer says."""
        names = answer["words"].decode(errors="replace").split("\n") if answer["words"] else []
        rows = np.frombuffer(answer["rows"][: len(answer["rows"]) // 4 * 4], "<u4")
        fits = len(answer["rows"]) == 4 * len(names) and rows.max(initial=0) < max(self.length, 1)
        return Named(names, self.counted[rows]) if fits else None


class WordSum:
    """The sum of a round's counts by word, of which names come last.

    What is opened stays: an attempt that is worked again, as a client was lost, goes on from there.

    Parameters
    ----------
    engine : Gathering
    limits : Limits
        Of the agreed vocabulary.
    ask, add_up, keys, void : function
        Of masked sums: get signed answers, add up, know the members' keys, give up an attempt.
    notify : function
        Gets what people should know.
    """

    def __init__(
        self, engine: Gathering, limits: Limits, ask: Callable[..., dict[str, dict[str, bytes]]],
        add_up: Callable[..., dict[str, Any]],
        keys: Callable[[Sequence[str]], dict[str, bytes]], void: Callable[..., None],
        notify: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._limits = limits
        self._ask = ask
        self._add_up = add_up
        self._keys = keys
        self._void = void
        self._notify = notify
        self._words: Words | None = None
        self._found: dict[str, Any] = {}

    def sum(self, function: str, template: Template, payload: Payload) -> dict[str, Any]:
        """Return the counts of the words that are agreed on, of all that clients have."""
        if self._found:
            return self._found
        words = self._with_key(function)
        self._check_key(words, function, payload)
        if not words.sizes:
            said = {
                "documents": template["documents"], "occurrences": counts(each=LONGEST),
                "words": counts(),
            }  # fmt: skip
            words.sizes = self._add_up(SIZES, {"words": words}, said)
        if not words.table:
            words.sizes = self._believed(words)
            words.table = self._add_up(TABLE, {"words": words}, words.template)
        if not words.length:
            self._list(words, function)
        if not words.counts:
            columns = dict.fromkeys(COLUMNS, counts(words.length))
            said = {"documents": template["documents"], **columns}
            words.counts = self._add_up(
                COUNTS, {"words": words}, said, partial(_fault_of_counts, template)
            )
        sizes = dict.fromkeys(("rows", "words"), range(LARGEST))
        named = words.named_by(self._agreed(CHOSEN, sizes, words, function))
        if named is None:
            self._void(function, "it has other words than were counted")
        found = {
            name: named if isinstance(each, WordCounts) else words.counts[name]
            for name, each in template.items()
        }
        self._found = found
        return found

    def _with_key(self, function: str) -> Words:
        """Let clients draw a key, or go on with those who have one."""
        members = list(self._engine.members)
        if self._words is not None and set(members) <= set(self._words.members):
            return self._words
        context = context_of(self._engine.moment, KEY, members)
        words = Words(self._limits, context, members, self._keys(members))
        answers = self._ask(KEY, context, {"sealed": SEALED * len(members)}, words=words)
        words.parts = {name: answer["sealed"] for name, answer in answers.items()}
        self._words = words
        return words

    def _check_key(self, words: Words, function: str, payload: Payload) -> None:
        """Let clients count their words; see that all have the same key."""
        asked = {"called": function, "payload": SharedPayload(payload)}
        context = context_of(self._engine.moment, SAME, self._engine.members)
        answers = self._ask(SAME, context, {"same": LENGTH}, words=words, **asked)
        _, others = _most({name: answer["same"] for name, answer in answers.items()})
        if others:
            if not words.table:
                self._words = None
            fault = f"{_listed(others)} said another key of words than most clients"
            self._void(function, fault, apart=others if 2 * len(others) < len(answers) else ())

    def _believed(self, words: Words) -> Mapping[str, Any]:
        """Return the sizes; the largest that can be where a client alone has more than all."""
        members = self._engine.members
        context = context_of(self._engine.moment, SIZED, members)
        answers = self._ask(SIZED, context, {"exceeds": 1}, words=words)
        more = [name for name, answer in answers.items() if answer["exceeds"] != b"\0"]
        if not more:
            return words.sizes
        self._notify(Voided(0, f"{_listed(more)} said more than all together did"))
        documents = len(members) * MOST_DOCUMENTS
        return {"documents": documents, "occurrences": MOST_COUNT, "words": MOST_BUCKETS}

    def _list(self, words: Words, function: str) -> None:
        """Let clients name words to each other; learn how many they are."""
        members = list(self._engine.members)
        words.named = context_of(self._engine.moment, NAMES, members)
        rooms = [room + SEAL for room in words.rooms]
        answers = self._ask(
            NAMES, words.named, {"names": rooms}, None, _least(members), words=words
        )
        words.names = {name: answer["names"] for name, answer in answers.items()}
        sizes = {"length": 8, "digest": LENGTH}
        words.length = int.from_bytes(self._agreed(LISTED, sizes, words, function)["length"], "big")

    def _agreed(
        self, stage: str, sizes: Mapping[str, Any], words: Words, function: str
    ) -> dict[str, bytes]:
        """Return what most clients say, and name those that say something else."""
        members = list(self._engine.members)
        context = context_of(self._engine.moment, stage, members)
        answers = self._ask(stage, context, sizes, None, _least(members), words=words)
        said = {name: tuple(answer[part] for part in sizes) for name, answer in answers.items()}
        most, others = _most(said)
        for name in others:
            reason = f"it said other words in {stage!r} than most clients"
            self._notify(BadReply(name, 0, reason))
        if 2 * len(others) >= len(said):
            self._void(function, f"{_listed(others)} said other words than the rest")
        return dict(zip(sizes, most, strict=True))


def word_counts(template: Template | None) -> bool:
    """Whether replies are counts by word, whose names are to be hidden."""
    return any(isinstance(each, WordCounts) for each in (template or {}).values())


def _fault_of_counts(of_words: Template, found: Any, template: Template, of: Sequence[str]) -> str:
    """Return what is wrong with counts of a list, as with those of its words; or ''."""
    if fault := find_fault(found, template, of):
        return fault
    rows = np.column_stack([found[name] for name in COLUMNS])
    rows = rows[rows.any(1)]
    numbers = [f"{number:08}" for number in range(len(rows))]  # in place of words
    named = {
        name: Named(numbers, rows) if isinstance(each, WordCounts) else found[name]
        for name, each in of_words.items()
    }
    return find_fault(named, of_words, of)


def _least(members: Sequence[str]) -> int:
    """Return how many of some clients have to be left, where others may be lost."""
    return max(threshold(len(members)), FEWEST)


def _most(said: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """Return what most say, and who says something else."""
    found = Counter(said.values()).most_common(1)[0][0]
    return found, [name for name, each in said.items() if each != found]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
