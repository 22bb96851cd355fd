"""The agreement on words in a simulated world: members with all, some, the same or no words.

A member has no words (zeros), some of the usual ones (a subset), those of the first member (a
repeat), or words that only it has. An accomplice marks all buckets, which it did not announce.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedtopics.contract.payload import CountsByWord
from fedtopics.protocol import vocabulary
from fedtopics.protocol.messages import Kind
from fedtopics.protocol.values import dumps, loads
from fedtopics.protocol.vocabulary import COLUMNS, COUNTS, LISTED, TABLE
from fedtopics.text.vocabulary import VocabularyLimits
from tests.protocol.checks import ViolationError
from tests.protocol.malicious import STUDY

MARKS = "documents"  # a step in which members also tell how many words they mark
STEPS: dict[str, Kind] = {MARKS: "call", TABLE: "sum", LISTED: "call", COUNTS: "sum"}
USUAL = [f"word{i}" for i in range(8)]
LIMITS = VocabularyLimits()


class Words:
    """The words of members, and what each sends of them, by what it knows of earlier steps."""

    def __init__(self, seed: int, names: Sequence[str], liars: Collection[str]) -> None:
        r = random.Random(seed)  # noqa: S311
        self.liars = liars
        self.least = LIMITS.clients_per_word(len(names))
        kinds: dict[str, list[str]] = {}
        for name in names:
            few = r.sample(USUAL, 4)
            kinds[name] = r.choice(
                [[], few, kinds.get(names[0], USUAL), few + [f"{name}{i}" for i in range(3)]]
            )
        self.own = {name: counted(words, r) for name, words in kinds.items()}

    def members_with(self, word: str) -> int:
        return sum(word in own.names for own in self.own.values())

    def settled(self, state: bytes, function: str, opened: list[bytes]) -> bytes:
        """Add what a step opened to the state behind its three numbers."""
        content = [np.frombuffer(o, "<i8") for o in opened] if STEPS[function] == "sum" else opened
        known = knowledge(state) | {function: content}
        if function == COUNTS and not self.liars:
            self.check(known)
        return state[:24] + dumps(known)

    def content(self, name: str, function: str, state: bytes) -> bytes:
        """Return what a member sends; FederationError if others sent what cannot be."""
        own = self.own[name]
        if function == MARKS:
            return dumps(len(own.names))
        known = knowledge(state)
        marks = [loads(mark) for mark in known[MARKS]]
        vocabulary.check_marks(marks, LIMITS)
        size = vocabulary.buckets_for(sum(marks))
        if function == TABLE:
            lie = np.ones(size, np.int64)
            return (lie if name in self.liars else vocabulary.table_of(own, STUDY, size)).tobytes()
        (table,) = known[TABLE]
        vocabulary.check_table(table, sum(marks))
        if function == LISTED:
            listed = vocabulary.words_to_list(own, STUDY, table, self.least)
            if any(self.members_with(word) < self.least for word in listed):
                raise ViolationError("l: a word of too few members is listed")
            return dumps(listed)
        joined = vocabulary.joined(
            [loads(words) for words in known[LISTED]], marks, STUDY, table, self.least
        )
        counts = vocabulary.counts_over(own, joined)
        return np.concatenate([counts[column] for column in COLUMNS]).tobytes()

    def check(self, known: Mapping[str, Any]) -> None:
        """Compare the total counts of words with all members' words."""
        owns = self.own.values()
        expected = {
            word: sum(own.values[own.names.index(word)] for own in owns if word in own.names)
            for word in {word for own in owns for word in own.names if self.members_with(word) > 1}
        }
        joined = sorted({word for words in known[LISTED] for word in loads(words)})
        total = known[COUNTS][0].reshape(len(COLUMNS), -1).T
        if dict(zip(joined, total.tolist(), strict=True)) != {w: [*expected[w]] for w in expected}:
            raise ViolationError("l: words or counts are not those of at least two members")


def counted(words: list[str], r: random.Random) -> CountsByWord:
    """Return counts of words, as a client proposes them."""
    rows = [[r.randint(5, 9), r.randint(9, 99), 1, 1] for _ in words]
    return CountsByWord(sorted(words), np.array(rows, np.int64).reshape(-1, len(COLUMNS)))


def knowledge(state: bytes) -> dict[str, Any]:
    return loads(state[24:]) if len(state) > 24 else {}
