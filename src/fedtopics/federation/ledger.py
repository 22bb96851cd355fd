"""The ledger: one JSON line for everything that a client sent or received, in a chain of digests.

The head, a file next to it, contains the number of lines and the last digest, to detect a cut
ledger. The client's key signs both, except in simulations. After a kill it can lack a line.
"""

from __future__ import annotations

import hashlib
import json
import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import msgspec

from fedtopics.contract.interfaces import Call, Position
from fedtopics.contract.payload import Payload, content_shape_and_type, flat_fields
from fedtopics.errors import RunError, first_problem
from fedtopics.files import (
    FILE,
    cut_torn_line,
    digest,
    make_folder,
    open_file,
    open_private,
    read_bytes,
)
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import fingerprint
from fedtopics.versions import LEDGER, VERSION

Sign = Callable[[bytes], bytes]
HEAD_SIZE = 512  # bytes: small enough for one atomic overwrite, also if the process is killed
MOST_LISTED = 20  # most words that a line lists
SEEDED = "from the study's seed"  # which all members know
SIGNATURE = "signature"
TEXTS = "function", "often", "data_sent", "seen", "over", "bounds"  # of the table of data sent
DAMAGES = ValueError, LookupError, TypeError, AttributeError, RecursionError


class Line(NamedTuple):
    """A line of a ledger and its digest; the content of a damaged line is empty."""

    number: int
    content: Mapping[str, Any]
    sha256: str

    def is_signed(self, is_own: Callable[[bytes, bytes], bool]) -> bool:
        plain = {key: value for key, value in self.content.items() if key != SIGNATURE}
        try:
            signature = b64decode(self.content.get(SIGNATURE, ""), validate=True)
        except DAMAGES:
            return False
        return is_own(signed_part(plain), signature)


def signed_part(content: Mapping[str, Any]) -> bytes:
    return b"fedtopics ledger line " + json.dumps(content).encode()


def lines_of(path: Path) -> Iterator[Line]:
    with suppress(FileNotFoundError), open_file(path) as file:
        for number, raw in enumerate((line.removesuffix(b"\n") for line in file), 1):
            try:
                content = json.loads(raw)
            except (ValueError, RecursionError):
                content = {}
            yield Line(
                number,
                content if isinstance(content, dict) else {},
                hashlib.sha256(raw).hexdigest(),
            )


def chain_of(lines: Iterable[Line]) -> tuple[list[str], int]:
    """Return the digests of lines, from line 0 on, and the first line that breaks the chain."""
    digests = [""]
    broken = 0
    for line in lines:
        if not broken and line.content.get("before") != digests[-1]:
            broken = line.number
        digests.append(line.sha256)
    return digests, broken


def head_path(ledger: Path) -> Path:
    return ledger.with_suffix(".head")


class Head(msgspec.Struct, frozen=True):
    lines: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str
    signature: bytes = b""

    @classmethod
    def read(cls, ledger: Path) -> Head | None:
        with suppress(OSError, *DAMAGES):  # also msgspec's errors
            return msgspec.json.decode(read_bytes(head_path(ledger)), type=cls)
        return None

    @property
    def signed(self) -> bytes:
        return f"fedtopics ledger of {self.lines} lines, the last {self.sha256}".encode()

    def fault(self, digests: Sequence[str]) -> str:
        """Describe how lines differ from those that the head counts; "" if none do."""
        if self.lines >= len(digests):
            return f"its head records {self.lines:,} lines, but there are {len(digests) - 1:,}"
        same = digests[self.lines] == self.sha256
        return "" if same else f"line {self.lines:,} differs from the one that its head records"


@dataclass(frozen=True)
class SentReply:
    position: Position
    function: str = ""
    payload: str = ""
    reply: str = ""


class Ledger:
    """What one client of a study sent and received; without a path nothing is kept."""

    def __init__(
        self,
        method: str,
        study: str,
        path: Path | None = None,
        run: str = "",
        seeded: bool = False,
        sign: Sign = lambda content: b"",
        seen: bool = False,
        begun: bool = False,
        is_own: Callable[[bytes, bytes], bool] = lambda signed, signature: True,
        copy: Callable[[bytes], None] | None = None,  # writes each line to a second place
    ) -> None:
        self._method = method
        self._study = study
        self._sign = sign
        self._copy = copy
        self._file: IO[bytes] | None = None
        self._always = ({"masked": False} if seen else {}) | ({"secret": SEEDED} if seeded else {})
        self.run = run
        self.rounds: set[tuple[str, int, int]] = set()  # run, round and attempt of all answers
        self.questions: dict[str, str] = {}  # how noisy sums were requested, by name
        self.shares: dict[str, float] = {}  # of the privacy budget that they used, by name
        self.last = SentReply(Position(0))
        self.sent: dict[Position, SentReply] = {}  # of this run
        self.newest: Mapping[str, Any] = {}  # the line of the last of them
        # Pages and what people said of them, by SHA-256 of the page.
        self.approved: dict[str, tuple[str, Sequence[Mapping[str, Any]]]] = {}
        self.n_released = Counter[str]()  # by function
        self.needed = 0  # approvals, by the strictest policy of the run
        self.released: dict[tuple[str, tuple[int, ...]], str] = {}  # keyed digests, by position
        self._replies: dict[tuple[int, str], str] = {}  # their last digests, by turn and function
        self._lines = 0
        self._before = ""
        if path is not None:
            self._open(path, begun, is_own)

    def _open(self, path: Path, begun: bool, is_own: Callable[[bytes, bytes], bool]) -> None:
        make_folder(path.parent)
        if path.exists():
            cut_torn_line(path)
            read_ledger(path, self._recall)
        digests, broken = chain_of(lines_of(path))
        head = Head.read(path)
        self._lines = len(digests) - 1
        self._before = digests[-1]
        # A process that was killed can leave lines that the head does not count; those are signed.
        counted = head.lines if head else self._lines
        uncounted = islice(lines_of(path), counted, None) if counted < self._lines else ()
        of_head = head.fault(digests) if head else ""
        fault = first_problem(
            {
                "it is empty": begun and not self._lines,
                f"{head_path(path).name} next to it is missing or damaged": (
                    self._lines > 0 and head is None
                ),
                of_head: of_head != "",
                f"line {broken:,} does not follow the one before": broken > 0,
                "its head is not signed with this client's key": (
                    head is not None and not is_own(head.signed, head.signature)
                ),
                f"lines from {counted + 1:,} on are not signed with this client's key": (
                    not all(line.is_signed(is_own) for line in uncounted)
                ),
            }
        )
        if fault:
            raise RunError(
                f"The ledger {path} is not as this client left it: {fault}. Nothing was sent; put "
                f"it and {head_path(path).name} back from a copy. If there is none, find out "
                "whether somebody changed it or the power failed, then start with another folder."
            )
        self._file = open_private(path, "ab")
        head_path(path).touch(FILE)
        self._head = open_file(head_path(path), "r+b", buffering=0)
        self._write_head()

    def write_reply(
        self,
        client: str,
        call: Call,
        reply: Payload,
        once: bool = False,
        summed: int | None = None,
        persons: int | None = None,
        question: tuple[str, str, float] | None = None,
    ) -> bool:
        """Record a reply before it is sent: names, shapes, sizes and digests, no values.

        `summed` is the number of documents of a reply that does not contain it, `persons` that of
        persons, if it differs. Return False, and write nothing, if a different reply was sent to
        the same call or, with `once`, to any call of the function at that turn. A `question` is a
        noisy sum: its name, a digest of how it was requested, and the share of the privacy budget
        that it uses.
        """
        noted = {} if question is None else {"asked": question}
        if self._file is None:
            self._remember(SentReply(call.position, call.function), noted)
            return True
        fields = {}
        content = hashlib.sha256()
        total = 0
        for name, value in flat_fields(reply):
            data, shape, dtype = content_shape_and_type(value)
            fields[name] = {"shape": shape, "dtype": dtype, "bytes": len(data)}
            content.update(name.encode())
            content.update(data)
            total += len(data)
        answer = SentReply(call.position, call.function, call.digest, content.hexdigest())
        before = self._replies.get((call.position.turn, call.function), answer.reply)
        # The difference of two replies to one call would show what changed in the documents.
        if self.sent.get(call.position, answer) != answer or (once and answer.reply != before):
            return False
        masked = {"masked": True} if call.hidden else {}
        self.add(
            "sent",
            client=client,
            round=call.payload.get("round", 0),
            function=call.function,
            position=astuple(call.position),
            **masked,
            payload=call.digest,
            **_words(call.payload),
            **noted,
            fields=fields,
            documents=reply.get("documents", summed),
            persons=persons,
            bytes=total,
            sha256=answer.reply,
        )
        self._remember(answer, noted)
        return True

    def _remember(self, answer: SentReply, content: Mapping[str, Any]) -> None:
        self.last = max(self.last, answer, key=lambda reply: reply.position)
        self.sent[answer.position] = answer
        self._replies[answer.position.turn, answer.function] = answer.reply
        if "asked" in content:
            release, how, share = content["asked"]
            self.questions[release] = how
            self.shares[release] = max(share, self.shares.get(release, 0.0))

    def write_total(self, position: Position, function: str, digest: str, size: int) -> None:
        self.add(
            "received", function=function, position=astuple(position), bytes=size, sha256=digest
        )

    def write_start(
        self,
        client: str,
        certificate: bytes,
        policy: Mapping[str, Any],
        corpus: Corpus,
        data_sent: Sequence[Mapping[str, Any]],
        spent: float | None = None,
        confirmed: Sequence[str] = (),
    ) -> None:
        """Record that a process begins, with certificate, policy, documents and the data sent.

        `confirmed` is what the operator confirmed about earlier releases of the documents.
        """
        if self._file is not None:
            content = {
                "client": client,
                "format": LEDGER,
                "fedtopics": VERSION,
                "policy": policy,
                "epsilon_spent": spent,
                "confirmed": list(confirmed) or None,
                "documents": len(corpus),
                "persons": corpus.n_persons(),
                "unit": corpus.unit,
                "text_bytes": corpus.text_bytes,
                "data_sent": data_sent,
                "certificate": certificate.decode("ascii") or None,
            }
            self.add("started", **{key: x for key, x in content.items() if x is not None})

    def write_files(self, folder: Path, *names: str) -> None:
        for name in names if self._file is not None else ():
            content = read_bytes(folder / name)
            self.add(
                "stored",
                file=name,
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )

    def add(self, what: str, **content: Any) -> None:
        """Add a line of a kind; the content is its own keys."""
        if self._file is None:
            return
        entry = {
            "before": self._before,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "what": what,
            "study": self._study,
            "run": self.run,
            "method": self._method,
            **self._always,
            **content,
        }
        if signature := self._sign(signed_part(entry)):
            entry[SIGNATURE] = b64encode(signature).decode()
        line = json.dumps(entry).encode()
        # First of all: if this fails, the next process writes the line again.
        if self._copy is not None:
            self._copy(line)
        self._file.write(line + b"\n")
        self._file.flush()
        self._lines += 1
        self._before = hashlib.sha256(line).hexdigest()
        self._write_head()
        self._note(entry)

    def _write_head(self) -> None:
        head: dict[str, Any] = {"lines": self._lines, "sha256": self._before}
        if signature := self._sign(Head(**head).signed):
            head[SIGNATURE] = b64encode(signature).decode()
        self._head.seek(0)
        self._head.write(json.dumps(head).encode().ljust(HEAD_SIZE - 1) + b"\n")

    def _note(self, line: Mapping[str, Any]) -> None:
        """Remember what the gate of approvals asks for."""
        match line["what"]:
            case "started":
                self.needed = max(self.needed, line["policy"].get("approvals", 0))
            case "sent":
                self.newest = line
            case "approved":
                self.approved[digest(line["page"])] = line["page"], line["approvals"]
            case "released":
                self.released[line["function"], tuple(line["position"])] = line["content"]
                self.n_released[line["function"]] += 1

    def _recall(self, line: Mapping[str, Any]) -> None:
        is_sent = line["what"] == "sent"
        if is_sent and line["round"]:
            self.rounds.add((line["run"], line["round"], line["position"][1]))
        if line["run"] != self.run:
            return
        self._note(line)
        if is_sent:
            turn, attempt, exchange = line["position"]
            self._remember(
                SentReply(
                    position=Position(turn=turn, attempt=attempt, exchange=exchange),
                    function=line["function"],
                    payload=line["payload"],
                    reply=line["sha256"],
                ),
                line,
            )

    def close(self) -> None:
        if self._file is not None:
            self._head.close()
            self._file.close()


def last_records(lines: Iterable[Line]) -> dict[str, Line]:
    """Return the last line about each file of a run: that it was stored, or deleted."""
    return {
        str(line.content.get("file")): line
        for line in lines
        if line.content.get("what") in ("stored", "deleted")
    }


def outside_of(folder: Path, name: str) -> bool:
    """Whether a name leads out of a folder: a ledger may be of somebody else."""
    try:
        return not (folder / name).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # no name of a file, or links in a circle
        return True


def find_ledgers(folder: Path) -> dict[str, Path]:
    # Of a member, and of a simulation's clients.
    paths = [*folder.glob("ledger.jsonl"), *folder.glob("clients/*/ledger.jsonl")]
    return {client_of_ledger(path): path for path in sorted(paths)}


def client_of_ledger(path: Path) -> str:
    """Return the client of a ledger, from a line or else from the name of its folder."""
    named = (line.content["client"] for line in lines_of(path) if "client" in line.content)
    return str(next(named, path.resolve().parent.name))


def add_line(rows: dict[str, dict[str, Any]], line: Mapping[str, Any]) -> None:
    """Add a line about what was sent or received to the row of its function."""
    name = line["function"]
    row = rows.setdefault(
        name,
        {
            "function": name,
            "method": line["method"],
            "fields": [],
            "documents": math.inf,
            "replies": 0,
            "values": 0,
            "bytes": 0,
            "totals": 0,
            "bytes_of_totals": 0,
            "masked": True,  # until a line shows otherwise
        },
    )
    if line["what"] == "received":
        row["totals"] += 1
        row["bytes_of_totals"] += line["bytes"]
        return
    row["fields"] = sorted({*row["fields"], *line["fields"]})
    row["masked"] &= line.get("masked", False)
    row["documents"] = min(row["documents"], line["documents"] or 0)
    row["replies"] += 1
    row["values"] = max(
        row["values"], sum(math.prod(field["shape"]) for field in line["fields"].values())
    )
    row["bytes"] += line["bytes"]


def check_version(line: Line, path: Path) -> None:
    """Raise RunError for a line of another format, which must not count as nothing sent."""
    content = line.content
    # The first format had no number, and other kinds of lines.
    other = content.get("what") == "started" and content.get("format") != LEDGER
    if other or content.get("what") in {"began", "came", "kept", "left"}:
        raise RunError(
            f"The ledger {path} was written by fedtopics {content.get('fedtopics', 'before 0.1')}, "
            f"in another format than that of fedtopics {VERSION}; read it with that version, and "
            "start a new run."
        )


def checked_lines(path: Path) -> list[Line]:
    """Return the lines of a ledger of this format; RunError for another one."""
    lines = list(lines_of(path))
    for line in lines:
        check_version(line, path)
    return lines


def read_ledger(path: Path, take: Callable[[Mapping[str, Any]], None]) -> None:
    for line in lines_of(path):
        check_version(line, path)
        try:
            if not line.content:
                raise ValueError
            take(line.content)
        except DAMAGES:
            raise RunError(f"Line {line.number} of the ledger {path} is damaged.") from None


def _words(payload: Payload) -> dict[str, Any]:
    """Return the words of a call, or their number and fingerprint if there are many."""
    words = payload.get("words")
    if not isinstance(words, list):
        return {}
    return {
        "words": words
        if len(words) <= MOST_LISTED
        else {"number": len(words), "fingerprint": fingerprint(words)}
    }
