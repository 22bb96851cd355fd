"""A member of a run, as a state machine without threads, clocks, sockets or files.

All its messages can be sent again, byte for byte, from the disk: no step is computed twice.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from fedtopics.errors import FederationError
from fedtopics.escaping import as_sentence
from fedtopics.protocol import keys, masks
from fedtopics.protocol.keys import LABEL, LENGTH, context_of, derive, digest_of_fields, framed
from fedtopics.protocol.messages import (
    Ask,
    Body,
    Kind,
    List,
    Part,
    Parts,
    Phase,
    Stop,
    Total,
    Want,
    decode,
    encode,
)
from fedtopics.protocol.record import Disk, OpenedStep, Record

OLDER = "its folder is an older copy, or two processes use its key"
CHANGED = "its documents, study or software changed during the run"
FALSE_TOTAL = "a check of the total failed"


class Member:
    """One member in one process; `record` and `content` are what the disk contains."""

    def __init__(
        self,
        name: str,
        study: bytes,
        names: Sequence[str],
        sign: Callable[[bytes], bytes],
        verify: Callable[[str, bytes, bytes], bool],
        random: Callable[[int], bytes],
        disk: Disk,
        record: Record,
        content: bytes,
    ) -> None:
        self.name = name
        self.record = record
        self.content = content
        self.phase: Phase = "compute"
        self.reason = ""  # of a stop
        self.names = sorted(names)
        self.study = study
        self._sign = sign
        self._verify = verify
        self._random = random
        self._disk = disk
        self._process = random(8)
        self.last = OpenedStep(-1, "", [])  # result of the last step

    # The program's side

    def give(self, function: str, kind: Kind, layout: bytes, content: bytes) -> list[bytes]:
        """Begin a step with a vector of int64 or with a reply; return the messages to send."""
        record = self.record
        part = Part(
            run=record.run,
            step=record.step,
            transcript=record.transcript,
            function=function,
            kind=kind,
            layout=digest_of_fields(layout),
            name=self.name,
            key=b"",
        )
        context = context_of(self.study, part, self.names)
        if record.part:
            is_same_step = context == context_of(self.study, decode(record.part, Part), self.names)
            if not is_same_step or digest_of_fields(self.content) != record.content:
                return self.stop(CHANGED)
        else:
            if record.step == 0:  # the first member chooses the group key
                content = self._random(LENGTH) if self.name == self.names[0] else b""
            vector = np.frombuffer(content, np.int64) if kind == "sum" else None
            if vector is not None and not masks.is_inside(vector, len(self.names)):
                return self.stop("a number is too large")
            self._begin(part, context, content)
        self.phase = "body" if self.record.parts else "part"
        return [self.record.part]

    def _begin(self, part: Part, context: bytes, content: bytes) -> None:
        content_digest = digest_of_fields(content)
        private = keys.one_time(self._random(LENGTH), context, content_digest)
        key = keys.public_key(private)
        signed = msgspec.structs.replace(
            part, key=key, signature=self._sign(self._signed("part", context, self.name, key))
        )
        self.content = content
        self._save(
            msgspec.structs.replace(
                self.record, private=private, content=content_digest, part=encode(signed)
            ),
            content,
        )

    def _save(self, record: Record, content: bytes | None = None) -> None:
        self._disk.save(record, content)
        self.record = record

    def _signed(self, *fields: bytes | str | int) -> bytes:
        return framed(LABEL, self.study, *fields)

    def question(self, reason: str = "") -> bytes:
        """Return the question to the relay, with the reason why this member does not go on."""
        record = self.record
        return encode(Ask(self._process, record.step, self.phase, record.list_digest, reason))

    def stop(self, reason: str) -> list[bytes]:
        """End this run's processes for a reason; return the messages to send."""
        self.phase = "stopped"
        self.reason = f"{self.name}: {reason}"
        stop = Stop(self.name, self._process, self.record.run, self.record.step, reason)
        return [
            encode(
                msgspec.structs.replace(
                    stop, signature=self._sign(self._signed("stop", *_fields(stop)))
                )
            )
        ]

    # The relay's side

    def answer(self, message: List | Total | Want | Stop | None) -> list[bytes]:
        """Take an answer of the relay other than a total; return the messages to send."""
        try:
            match message:
                case List():
                    return self._take_list(message)
                case Want():
                    return [self.record.part] if message.what == "part" else self._bodies()
                case Stop():
                    is_real = self._verify(
                        message.name, message.signature, self._signed("stop", *_fields(message))
                    )
                    who = message.name if is_real else "the relay"
                    self.phase = "stopped"
                    self.reason = f"{who}: {as_sentence(message.reason)}"
        except FederationError as error:
            return self.stop(as_sentence(str(error)))
        return []

    def _take_list(self, message: List) -> list[bytes]:
        record = self.record
        parts = [decode(part, Part) for part in message.parts]
        if [part.name for part in parts] != self.names:
            raise FederationError("the list has other names than the study")
        place = self.names.index(self.name)
        mine = parts[place]
        if mine.step < record.step and mine.run == record.run:
            return []
        if message.parts[place] != record.part:
            self._check_signature(mine)
            raise FederationError(OLDER)
        if record.parts and keys.digest_of_list(message.parts) == record.list_digest:
            return []
        for part in parts:  # before all else: a forged part must not put the blame on a member
            self._check_signature(part)
        if record.parts:
            names = ", ".join(
                part.name
                for part, now, before in zip(parts, message.parts, record.parts, strict=True)
                if now != before
            )
            raise FederationError(f"there are two different parts of {names}")
        for part in parts:
            self._check(part, mine)
        self._save(msgspec.structs.replace(record, parts=message.parts))
        self.phase = "body"
        return self._bodies()

    def _check(self, part: Part, mine: Part) -> None:
        for field in ("run", "step", "function", "kind", "layout", "transcript"):
            if getattr(part, field) != getattr(mine, field):
                difference = f" ({part.function}; {mine.function})" if field == "function" else ""
                raise FederationError(
                    f"the {field} of {part.name} and {self.name} differ{difference}: their studies "
                    "or software differ, or they received different messages"
                )
        try:  # before the list is on disk: with an invalid key nobody could answer it
            keys.shared(self.record.private, part.key)
        except FederationError:
            raise FederationError(f"the one-time key of {part.name} is not valid") from None

    def _check_signature(self, part: Part) -> None:
        content = self._signed(
            "part", context_of(self.study, part, self.names), part.name, part.key
        )
        if not self._verify(part.name, part.signature, content):
            raise FederationError(
                f"the part of {part.name} is not signed for this study: its study or software "
                "differs, or the relay changed the part"
            )

    def _bound(self) -> tuple[list[Part], bytes]:
        """Return the parts of the list, and the digest that binds the keys to this step."""
        parts = [decode(part, Part) for part in self.record.parts]
        return parts, digest_of_fields(
            context_of(self.study, parts[0], self.names), self.record.list_digest
        )

    def _bodies(self) -> list[bytes]:
        record = self.record
        if not record.parts:
            return []
        parts, bound = self._bound()
        others = {part.name: part.key for part in parts}
        if parts[0].kind == "sum":
            vector = np.frombuffer(self.content, np.int64)
            content = masks.mask(record.group, record.private, self.name, others, bound, vector)
        else:
            sealed = self._sealed(others, bound)
            content = encode((sealed, self._sign(self._signed("reply", bound, self.name, sealed))))
        return [encode(Body(record.list_digest, self.name, content))]

    def _sealed(self, others: dict[str, bytes], bound: bytes) -> bytes:
        record = self.record
        if record.step > 0:
            return keys.seal(derive(record.group, "call", bound, self.name), self.content)
        if self.name != self.names[0]:
            return b""
        secrets = {name: keys.shared(record.private, others[name]) for name in self.names[1:]}
        return encode(
            [
                keys.seal(derive(secret, "group", bound, name), self.content)
                for name, secret in secrets.items()
            ]
        )

    def open(self, total: bytes) -> list[bytes]:
        """Take the total, or nothing; after the step `phase` is "compute", `last` the result."""
        if self.phase != "body" or not total:
            return []
        parts, bound = self._bound()
        try:
            opened, group = self._opened(parts, bound, total)
        except FederationError:
            return self.stop(FALSE_TOTAL)
        entry = OpenedStep(self.record.step, parts[0].function, opened)
        record = self.record.after(entry, group)
        if entry.step == 0:  # the group key is in no total on disk, only in the record
            self._save(record)
        else:
            self._disk.append(entry)
            self.record = record
        self.phase = "compute"
        self.last = entry
        return []

    def _opened(self, parts: list[Part], bound: bytes, total: bytes) -> tuple[list[bytes], bytes]:
        record = self.record
        names = self.names
        if parts[0].kind == "sum":
            if len(total) != len(self.content) + 8:
                raise FederationError("The total has another length.")
            return [masks.unmask(record.group, bound, total).tobytes()], b""
        bodies = decode(total, Parts)
        if len(bodies) != len(names):
            raise FederationError("There are more or fewer replies than members.")
        replies = []
        for name, body in zip(names, bodies, strict=True):
            sealed, signature = decode(body, tuple[bytes, bytes])
            if not self._verify(name, signature, self._signed("reply", bound, name, sealed)):
                raise FederationError(f"The signature of {name} is wrong.")
            replies.append(sealed)
        if record.step > 0:
            return [
                keys.unseal(derive(record.group, "call", bound, name), sealed)
                for name, sealed in zip(names, replies, strict=True)
            ], b""
        if self.name == names[0]:
            return [], self.content
        boxes = decode(replies[0], Parts)
        if len(boxes) != len(names) - 1:
            raise FederationError("The group key is not sealed for all members.")
        key = derive(keys.shared(record.private, parts[0].key), "group", bound, self.name)
        return [], keys.unseal(key, boxes[names.index(self.name) - 1])

    def save(self) -> None:
        """Make the record durable, before a checkpoint replaces all totals."""
        self._save(self.record)

    def finish(self) -> None:
        """End the program; the model is on disk."""
        self.save()
        self.phase = "done"


def _fields(stop: Stop) -> tuple[bytes | str | int, ...]:
    return stop.process, stop.name, stop.run, stop.step, stop.reason
