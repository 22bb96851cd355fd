"""What must hold in a simulated world after every event, and at its end.

a: one stream of a key never masks two vectors; one key never seals two replies.
b: all accepted totals of a step are equal and true, and so are replies and models.
c: nothing opens but sums over all honest members.
d: no member says two different parts or bodies of a step.
e: no tag is bare.
f: nothing leaves before the transcripts of all honest members were compared.
g: a transcript depends on the key.
h: a vector is masked only with keys that the members drew themselves.
l: a total is over all members, of which their policies know; `words` has what holds of words.
"""

from collections import defaultdict
from contextlib import ExitStack
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np

from fedtopics.protocol import keys, masks, record
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.masks import P, Whole, stream, tag_of
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Body, Part, Stop, decode
from fedtopics.protocol.record import Record

Use: TypeAlias = tuple[bytes, str, str, int]  # a stream's key, its two members, its sign
Row: TypeAlias = tuple[str, bytes, bytes, list[Use]]  # member, digest of the vector, list, streams
Q = (1 << 31) - 1  # a prime, to count ranks with


class ViolationError(Exception):
    """Something happened that must not."""


class Checks:
    """Sees what masks and seals members use, and what they say and accept."""

    def __init__(self, names: list[str], accomplices: set[str], lies: bool, disks_fail: bool):
        self.names = names
        self.accomplices = accomplices
        self.honest = set(names) - accomplices
        self.lies = lies
        self.disks_fail = disks_fail
        self.acting: Member | None = None
        self.opened = self.forged = 0  # sums that open; totals of accomplices that were taken
        self._derived: list[tuple[tuple[Any, ...], bytes]] = []
        self._used: dict[tuple[bytes, str], bytes] = {}
        self._vectors: dict[tuple[bytes, str], Whole] = {}  # by list and name
        self._rows: dict[tuple[str, bytes, bytes], Row] = {}
        self._drawn: dict[str, set[bytes]] = defaultdict(set)
        self._sent: dict[tuple[str, int, str], bytes] = {}
        self._accepted: dict[int, list[bytes]] = {}
        self._replies: dict[tuple[str, int], set[bytes]] = defaultdict(set)
        self._signed: dict[tuple[int, bytes], set[str]] = defaultdict(set)  # by whom transcripts

    def watch(self, stack: ExitStack) -> None:
        """Look on when keys are derived, vectors masked and replies sealed."""
        real_derive = masks.derive
        real_mask = masks.mask
        real_seal = keys.seal

        def derive(secret: bytes, *label: Any) -> bytes:
            key = real_derive(secret, *label)
            self._derived.append((label, key))
            return key

        def mask(group: bytes, private: bytes, name: str, others: Any, bound: bytes, whole: Whole):
            self._derived.clear()
            words = real_mask(group, private, name, others, bound, whole)
            self._masked(group, others, bound, whole, words)
            return words

        def seal(key: bytes, content: bytes) -> bytes:
            self._sealed(key, content)
            return real_seal(key, content)

        for module, name, watched in (
            (masks, "derive", derive),
            (masks, "mask", mask),
            (keys, "seal", seal),
        ):
            stack.enter_context(patch.object(module, name, watched))

    # Vectors and replies that leave

    def _masked(
        self, group: bytes, others: dict[str, bytes], bound: bytes, whole: Whole, words: bytes
    ) -> None:
        member = self.acting
        if member is None:
            return
        name = member.name
        list_ = member.record.list_digest
        self._vectors[list_, name] = whole
        if name not in self.honest:
            return
        if any(others[other] not in self._drawn[other] for other in self.honest - {name}):
            raise ViolationError("h: a vector is masked with the key of a stranger")
        content = digest_of_fields(whole.tobytes())
        uses = []
        visible_tag = int.from_bytes(words[-8:], "little")  # what the adversary sees of the tag
        for label, key in self._derived:
            low, high = label[2:4] if label[0] == "pair" else ("", "")
            sign = 1 if name == low or not low else -1
            if label[0] in ("pair", "pad"):
                if self._used.setdefault((key, name), content) != content:
                    raise ViolationError("a: one stream masks two vectors")
                uses.append((key, low, high, sign))
            if {low, high} & self.accomplices:
                visible_tag -= sign * int(stream(key, len(whole) + 1)[-1])
            if label[0] == "tag pad" and self.accomplices:
                visible_tag -= int(stream(key, 1)[0])
        if (visible_tag - tag_of(group, bound, whole)) % P == 0:
            raise ViolationError("e: a bare tag")
        self._rows[name, content, list_] = name, content, list_, uses
        self._gate(member)

    def _sealed(self, key: bytes, content: bytes) -> None:
        member = self.acting
        if member is None or member.name not in self.honest:
            return
        if self._used.setdefault((key, "seal"), content) != content:
            raise ViolationError("a: one key seals two replies")
        if member.record.step:
            self._replies[member.name, member.record.step].add(content)
            self._gate(member)

    def _gate(self, member: Member) -> None:
        place = member.record.step, member.record.transcript
        if place[0] and not self._signed[place] >= self.honest:
            raise ViolationError("f: something left before the transcripts of all were compared")

    def said(self, name: str, content: bytes) -> None:
        """Take note of what a member says."""
        message = decode(content, Part | Body | Stop)
        if name not in self.honest or not isinstance(message, Part | Body):
            return
        if isinstance(message, Part):
            step = message.step
            kind = "part"
            self._signed[step, message.transcript].add(name)
            self._drawn[name].add(message.key)
        else:
            assert self.acting is not None
            step = self.acting.record.step
            kind = "body"
        if not self.disks_fail and self._sent.setdefault((name, step, kind), content) != content:
            raise ViolationError(f"d: two different messages: {kind}")

    # Totals that are accepted

    def accepted(self, member: Member, before: Record) -> None:
        """Take note of a total or of replies that a member accepts."""
        part = decode(before.parts[0], Part)
        opened = member.last.opened
        if member.name not in self.honest:
            return
        with_another_key = record.next_transcript(
            b"another key", before.transcript, part.function, before.list_digest, member.last.digest
        )
        if with_another_key == member.record.transcript:
            raise ViolationError("g: a transcript does not depend on the key")
        if part.kind == "sum":
            if sorted(decode(raw, Part).name for raw in before.parts) != sorted(self.names):
                raise ViolationError("l: a total is over other members")
            vectors = [self._vectors.get((before.list_digest, name)) for name in self.names]
            is_true = all(v is not None for v in vectors) and opened[0] == sum(vectors).tobytes()
            self.forged += not is_true
            if not is_true and not (self.lies and self.accomplices):
                raise ViolationError("b: a false total was accepted")
        elif before.step:
            for name, reply in zip(self.names, opened, strict=True):
                if name in self.honest and reply not in self._replies[name, before.step]:
                    raise ViolationError("b: a false reply was accepted")
        if self.disks_fail or (self.lies and self.accomplices):
            return
        if self._accepted.setdefault(before.step, opened) != opened:
            raise ViolationError("b: two totals of one step")

    # What opens

    def rank(self) -> None:
        """Raise an error if something else opens than sums over all honest members."""
        groups: dict[Any, list[Row]] = defaultdict(list)
        parent: dict[Any, Any] = {}

        def find(item: Any) -> Any:
            while parent.setdefault(item, item) != item:
                item = parent[item]
            return item

        rows = list(self._rows.values())
        for i, row in enumerate(rows):
            for use in row[3]:
                if self._is_hidden(use):
                    parent[find(i)] = find(use[0])
        for i, row in enumerate(rows):
            groups[find(i)].append(row)
        for group in groups.values():
            self._rank(group)

    def _is_hidden(self, use: Use) -> bool:
        """Whether the adversary does not know a stream."""
        return not {use[1], use[2]} & self.accomplices if use[1] else not self.accomplices

    def _rank(self, rows: list[Row]) -> None:
        """Compare the combinations of these rows without any stream with sums over all honest."""
        streams = {key: j for j, key in enumerate({u[0] for r in rows for u in r[3]})}
        vectors = {key: j for j, key in enumerate({row[:2] for row in rows})}
        matrix = np.zeros((len(rows), len(streams) + len(vectors)), object)
        for i, (name, content, _, uses) in enumerate(rows):
            for use in filter(self._is_hidden, uses):
                matrix[i, streams[use[0]]] += use[3]
            matrix[i, len(streams) + vectors[name, content]] = 1
        opened = [row[len(streams) :] for row in echelon(matrix) if not row[: len(streams)].any()]
        allowed = []
        for list_ in {row[2] for row in rows}:
            mine = {row[0]: row[1] for row in rows if row[2] == list_}
            if set(mine) == self.honest and self.accomplices:
                allowed.append(np.zeros(len(vectors), object))
                for key in mine.items():
                    allowed[-1][vectors[key]] = 1
        if len(echelon(allowed + opened)) != len(echelon(allowed)):
            raise ViolationError("c: more than sums over all honest members opens")
        self.opened += len(opened)


def echelon(rows: Any) -> list[Any]:
    """Return independent rows with the same span, modulo a prime."""
    matrix = np.array(rows, object) % Q
    rank = 0
    for column in range(matrix.shape[1] if matrix.size else 0):
        pivot = next((i for i in range(rank, len(matrix)) if matrix[i, column]), None)
        if pivot is None:
            continue
        matrix[[rank, pivot]] = matrix[[pivot, rank]]
        matrix[rank] = matrix[rank] * pow(int(matrix[rank, column]), -1, Q) % Q
        for i in range(len(matrix)):
            if i != rank and matrix[i, column]:
                matrix[i] = (matrix[i] - matrix[i, column] * matrix[rank]) % Q
        rank += 1
    return list(matrix[:rank])
