"""A client's memory of releases: which documents were in which runs, as keyed digests in one file.

Every total that a run opens is over all documents of its release. So documents that were in exactly
the same releases have the same weight in each linear combination of totals. They form a group, and
no group may be of fewer than `min_persons` persons. New persons wait until there are enough. Who
leaves takes company: persons of the same group, drawn by lot, who stay out for good.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedtopics.contract.events import Event
from fedtopics.errors import PolicyError, RunError
from fedtopics.escaping import file_name
from fedtopics.files import in_turn, make_folder, read_bytes, write_durably
from fedtopics.privacy.accounting import BudgetEntry
from fedtopics.text.corpus import Corpus

CHECKSUM = hashlib.sha256().digest_size  # bytes, in front of the content
DIGEST = 8  # bytes: two of two million texts share a digest with a probability of 1e-7
STEP = np.uint64(0x9E3779B97F4A7C15)  # between the digests of equal texts; odd, so all differ
NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())
LOWER = bytes(ord(chr(code).lower()) if code < 128 else code for code in range(256))
LETTERS = re.compile(r"[^\W_]+")
NEARLY_ALL = 0.9  # share of earlier persons whose texts are all new, from which a run stops
Digests = NDArray[np.uint64]
Places = NDArray[np.int64]


class Release(BaseModel, frozen=True):
    """A run that used documents."""

    study: str  # fingerprint
    run: int = 1
    roster: str = ""  # digest of the clients' certificates
    columns: dict[str, str] = Field(default_factory=dict)  # by which documents were compared
    effects: tuple[str, ...] = ()  # formulas of these columns
    rules: str = ""  # digest of those by which texts become words, and words a vocabulary
    confirmed: tuple[str, ...] = ()  # what the operator confirmed, such as "first release"
    finished: str = ""  # when this client got the model
    time: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


class Group(BaseModel, frozen=True):
    """The releases that some documents were in, and no others."""

    releases: tuple[int, ...] = ()
    closed: bool = False  # its documents are in no further release


class Header(BaseModel):
    """All of a memory except the documents."""

    secret: str = Field(default_factory=lambda: secrets.token_hex(32))
    releases: list[Release] = []
    groups: list[Group] = [Group()]  # the first: documents that were in no release
    erased: list[int] = []  # digests of persons
    account: list[BudgetEntry] = []


class Remembered(Event, kind="memory"):  # how earlier releases limit the documents of a run
    text: str


@dataclass
class Choice:
    """Which documents of a corpus are in a release."""

    texts: Digests  # of each document
    persons: Digests
    places: Places  # of each document in the memory; -1 if it is new
    empty: Places  # rows without text
    release: int  # its number
    is_resumed: bool = False
    # By group of the memory: rows that are in the release, and remembered documents that leave it.
    staying: dict[int, Places] = field(default_factory=dict)
    leaving: dict[int, Places] = field(default_factory=dict)
    waiting: Places = field(default_factory=lambda: np.zeros(0, np.int64))  # rows
    left: int = 0  # persons who left with company
    company: int = 0  # persons who leave with them
    least: int = 0
    has_persons: bool = True
    once: bool = False  # whether only documents are taken that were in no release

    @property
    def rows(self) -> Places:
        return np.sort(np.concatenate([*self.staying.values(), self.empty]))

    @property
    def text(self) -> str:
        """What happens to documents that are not in the release, for the operator."""
        persons = len(np.unique(self.persons[self.waiting]))
        who = f" of {persons:,} new persons" if self.has_persons else " that are new"
        unit = "persons have" if self.has_persons else "documents have"
        unused = len(self.texts) - len(self.rows) - len(self.waiting)
        why = "were in earlier runs, or are" if self.once else "are"
        sentences = {
            f"{len(self.waiting):,} documents{who} wait ({self.least:,} are needed).": persons,
            f"{self.left:,} {unit} left; {self.company:,} others, drawn by lot, leave with "
            "them.": self.company,
            f"In all, {unused:,} documents {why} put aside.": unused,
        }
        return " ".join(sentence for sentence, number in sentences.items() if number)


@dataclass
class Memory:
    """Earlier releases; for each remembered document, digests and the number of its group."""

    header: Header = field(default_factory=Header)
    texts: Digests = field(default_factory=lambda: np.zeros(0, np.uint64))
    persons: Digests = field(default_factory=lambda: np.zeros(0, np.uint64))
    groups: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    @classmethod
    def read(cls, path: Path) -> Memory:
        """Read a memory, which need not exist yet; RunError if it is damaged."""
        try:
            content = read_bytes(path)
            if content[:CHECKSUM] != hashlib.sha256(content[CHECKSUM:]).digest():
                raise ValueError
            arrays = load(content[CHECKSUM:])
            return cls(Header.model_validate_json(arrays.pop("header").tobytes()), **arrays)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, LookupError, TypeError, SafetensorError):
            raise RunError(
                f"The memory {path} is damaged. It shows which documents earlier runs released. "
                "Nothing was sent; put it back from a copy. If there is none, move it away; then "
                "join asks whether the run is the first one."
            ) from None

    def write(self, path: Path) -> None:
        content = save(
            {
                "header": np.frombuffer(self.header.model_dump_json().encode(), np.uint8),
                "texts": self.texts,
                "persons": self.persons,
                "groups": self.groups,
            }
        )
        write_durably(path, hashlib.sha256(content).digest() + content)

    def choose(
        self,
        corpus: Corpus,
        least: int,
        study: str,
        once: bool = False,
        grows: bool = False,
        changed: bool = False,
    ) -> Choice:
        """Choose the documents of a study's release, so that no group has too few persons.

        Parameters
        ----------
        corpus : Corpus
        least : int
            Fewest persons of a group.
        study : str
            Fingerprint. A study that has begun keeps its documents; RunError if some are missing.
        once : bool
            Take only documents that were in no release, as in a run that continues a model.
        grows : bool
            Let a study that has begun take new documents too, whatever their number.
        changed : bool
            Accept that nearly all texts of earlier persons are new, which is a PolicyError.
        """
        texts, persons = self._digests_of(corpus)
        _, rows, remembered = np.intersect1d(
            texts, self.texts, assume_unique=True, return_indices=True
        )
        places = np.full(len(corpus), -1)
        places[rows] = remembered
        earlier_persons = persons.copy()
        earlier_persons[rows] = self.persons[remembered]
        erased = np.isin([persons, earlier_persons], np.array(self.header.erased, np.uint64)).any(0)
        begun = [number for number, old in enumerate(self.header.releases) if old.study == study]
        # Documents without text are in no sum, so they make no group larger.
        empty = corpus.is_empty & (corpus.embeddings is None)
        choice = Choice(
            texts=texts,
            persons=earlier_persons if corpus.persons is None else persons,
            places=places,
            empty=np.flatnonzero(empty),
            release=begun[0] if begun else len(self.header.releases),
            is_resumed=bool(begun),
            least=1 if grows else least,
            has_persons=corpus.persons is not None,
            once=once,
        )
        groups = np.zeros(len(corpus), np.int32)
        groups[rows] = self.groups[remembered]
        groups[erased | empty] = -1
        if begun:
            self._repeat(choice, groups)
        elif choice.has_persons and not changed:
            self._check_texts(persons, rows)
        for group in np.unique(groups[groups >= 0]).tolist() if grows or not begun else []:
            if not (self.header.groups[group].closed or (once and group)):
                self._split(choice, group, np.flatnonzero(groups == group))
        if not (choice.staying or grows):
            raise PolicyError(
                f"None of these documents can be used. {choice.text} Nothing was sent; wait for "
                "documents of more persons."
            )
        return choice

    def _split(self, choice: Choice, group: int, rows: Places) -> None:
        """Decide which rows of a group are in the release."""
        is_absent = self.groups == group
        is_absent[choice.places[rows] if group else rows[:0]] = False
        absent = np.flatnonzero(is_absent)
        left = np.unique(self.persons[absent])
        whose = choice.persons[rows]
        if group:
            # Of equal texts, those of one person may be missing under another one's name. So those
            # left who have fewer documents now. With other pseudonyms all have: then the names of
            # the last release count, by which nobody is drawn as company of her own.
            fell = fewer(self.persons[self.groups == group], whose)
            if len(fell) <= len(left):
                left = fell
            else:
                whose = self.persons[choice.places[rows]]
        company = left[:0]
        if 0 < len(left) < choice.least:
            candidates = np.setdiff1d(whose, left)
            company = self._lot(group).choice(
                candidates,
                size=min(choice.least - len(left), len(candidates)),
                replace=False,
            )
        joins_them = np.isin(whose, company)
        if len(np.unique(whose[~joins_them])) >= choice.least:
            choice.staying[group] = rows[~joins_them]
            if len(company):
                choice.leaving[group] = np.append(absent, choice.places[rows[joins_them]])
                choice.left += len(left)
                choice.company += len(company)
        elif not group:
            choice.waiting = rows

    def _lot(self, group: int) -> np.random.Generator:
        """Return random choices for a group, the same until there is a further release."""
        seed = self._digest(f"{len(self.header.releases)} {group}".encode(), b"lot")
        return np.random.default_rng(int.from_bytes(seed))

    def _repeat(self, choice: Choice, groups: NDArray[np.int32]) -> None:
        """Choose the documents of a release that has begun."""
        for group, stored in enumerate(self.header.groups):
            if choice.release in stored.releases:
                choice.staying[group] = np.flatnonzero(groups == group)
                if len(choice.staying[group]) < (self.groups == group).sum():
                    raise RunError(
                        "Documents with which this run began are missing or erased, or their "
                        "texts have changed, but a run that is resumed needs the same documents. "
                        "Put them back, or agree with the other members on another run (run in "
                        "the study)."
                    )

    def _check_texts(self, persons: Digests, rows: Places) -> None:
        """Refuse texts of earlier persons if nearly all are new: it may be the same letters."""
        earlier = np.isin(self.persons, persons).sum()
        changed = 1 - len(rows) / max(earlier, 1)
        if earlier and changed >= NEARLY_ALL:
            raise PolicyError(
                f"Of the texts of persons in earlier runs, {changed:.0%} changed since "
                f"{self.header.releases[-1].time[:10]}. If they were only cleaned, this run could "
                "tell who left in the meantime. Nothing was sent; give the texts as they were. If "
                "these are other documents, or if nobody left, add --texts-changed."
            )

    def record(self, choice: Choice, release: Release, closed: bool = False) -> None:
        """Add the chosen documents to a release; if `closed`, they are in no further one."""
        if not choice.is_resumed:
            self.header.releases.append(release)
        for group, rows in choice.staying.items():
            before = self.header.groups[group].releases
            if choice.release in before:
                continue
            name = self._add(Group(releases=(*before, choice.release), closed=closed))
            if group:
                self.groups[choice.places[rows]] = name
                self.persons[choice.places[rows]] = choice.persons[rows]
            else:
                self.texts = np.append(self.texts, choice.texts[rows])
                self.persons = np.append(self.persons, choice.persons[rows])
                self.groups = np.append(self.groups, np.full(len(rows), name, np.int32))
        for group, places in choice.leaving.items():
            self.groups[places] = self._add(
                Group(releases=self.header.groups[group].releases, closed=True)
            )

    def _add(self, group: Group) -> int:
        self.header.groups.append(group)
        return len(self.header.groups) - 1

    def earlier(self, choice: Choice) -> list[Release]:
        """Return the earlier releases that have some of the chosen documents."""
        numbers = {i for group in choice.staying for i in self.header.groups[group].releases}
        return [self.header.releases[number] for number in sorted(numbers)]

    def erase(self, person: str) -> tuple[int, int]:
        """Use no document of a person in further releases; return her documents and releases."""
        digest = self._digests_of_names([person])[0]
        self.header.erased = sorted({*self.header.erased, int(digest)})
        groups = np.unique(self.groups[self.persons == digest]).tolist()
        releases = {number for group in groups for number in self.header.groups[group].releases}
        return int((self.persons == digest).sum()), len(releases)

    def _digests_of_names(self, names: Sequence[str]) -> Digests:
        """Return digests of names, the same for all Unicode forms of a name."""
        content = [
            self._digest(normalize("NFC", name).strip().encode(errors="replace"), b"person")
            for name in names
        ]
        return np.frombuffer(b"".join(content), np.uint64)

    def _digest(self, content: bytes, kind: bytes) -> bytes:
        return hashlib.blake2b(
            content, digest_size=DIGEST, key=bytes.fromhex(self.header.secret), person=kind
        ).digest()

    def _digests_of(self, corpus: Corpus) -> tuple[Digests, Digests]:
        """Return digests of each document's text, all different, and of its person."""
        content = b"".join(
            self._digest(letters_of(text), b"text") for batch in corpus.texts() for text in batch
        )
        texts = np.frombuffer(content, np.uint64).copy()
        persons = None
        if corpus.persons is not None:
            codes = corpus.persons.combine_chunks().dictionary_encode()
            persons = self._digests_of_names(codes.dictionary.to_pylist())[codes.indices.to_numpy()]
        # Equal texts are numbered in the order of their persons, not of their rows.
        order = (
            np.argsort(texts, kind="stable") if persons is None else np.lexsort((persons, texts))
        )
        is_first = np.diff(texts[order], prepend=~texts[order[:1]]) != 0
        begins = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        texts[order] += (np.arange(len(order)) - begins).astype(np.uint64) * STEP
        return texts, texts if persons is None else persons


def fewer(before: Digests, now: Digests) -> Digests:
    """Return the persons with fewer documents than before."""
    return np.array([*(Counter(before.tolist()) - Counter(now.tolist()))], np.uint64)


def letters_of(text: str) -> bytes:
    """Return a text's letters and digits in lower case, the same for all its Unicode forms."""
    content = text.encode().translate(LOWER, NO_LETTERS)
    return (
        content
        if content.isascii()
        else "".join(LETTERS.findall(normalize("NFC", text).lower())).encode()
    )


def default_place(name: str) -> Path:
    """Return the file of a member's memory if its policy names none."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedtopics" / "memory" / file_name(name)


@contextmanager
def changed_memory(path: Path) -> Iterator[Memory]:
    """Read a memory in turn with other processes; write it when the block ends without error."""
    make_folder(path.parent)
    with in_turn(path):
        memory = Memory.read(path)
        yield memory
        memory.write(path)
