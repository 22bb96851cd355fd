"""The ledger: what left a client and what came, a line each, and what can be read from it.

Lines are chained and, where there is a certificate, signed: see `chain`. Besides what "left" and
"came" they say when a process "began", by whose certificate, and which files it has "kept".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedtopics.errors import RunError
from fedtopics.extras import VERSION
from fedtopics.federation.chain import (
    FIRST,
    Head,
    HeadFile,
    Sign,
    digest_of_line,
    lines_of,
    unsigned,
    write_line,
)
from fedtopics.files import cut_half_line, make_folder, open_file, open_private, read_bytes
from fedtopics.methods.aggregation import Named, Payload, Rows, SharedPayload
from fedtopics.methods.base import Moment
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import fingerprint

FEW_WORDS = 20  # that a line lists
SEEDED = "from the study's seed"  # what all know


@dataclass(frozen=True)
class Answer:
    """A reply that left: when, to what, and digests of what it was computed from and of itself."""

    moment: Moment
    function: str = ""
    payload: str = ""
    reply: str = ""


class Ledger:
    """What left one client of a study with this fingerprint, and came; no path keeps nothing.

    `rounds` are the training rounds that earlier processes answered, with their run and attempt;
    `last` is the last answer in this run; `sums` says over which clients masked sums were opened,
    by turn and function; `asked` how sums with noise were asked for, by their names. Each line says
    if the client's secret is `seeded`, by the study, and if replies are `seen` by whoever adds, and
    is signed by `sign`. RunError if the file that is there is damaged.
    """

    def __init__(
        self, method: str, study: str, path: Path | None = None, run: str = "",
        seeded: bool = False, sign: Sign = unsigned, seen: bool = False,
    ) -> None:  # fmt: skip
        self._method = method
        self._study = study
        self._sign = sign
        self._file: IO[bytes] | None = None
        masks = {"masked": False} if seen else {}
        self._always = masks | ({"secret": SEEDED} if seeded else {})
        self.run = run
        self.rounds: set[tuple[str, int, int]] = set()
        self.sums: dict[tuple[int, str], list[str]] = {}
        self.asked: dict[str, str] = {}
        self.last = Answer(Moment(0))
        self._replies: dict[tuple[int, str], str] = {}  # digests of the last ones, by turn
        self._lines, self._before = 0, FIRST
        self._doubt: dict[str, Any] = {}
        if path is not None:
            make_folder(path.parent)
            if path.exists():
                cut_half_line(path)
                read_ledger(path, self._recall)
                self._go_on(path)
            self._file, self._head = open_private(path, "ab"), HeadFile(path, self._sign)
            if not self._doubt:
                self._head.write(self._lines, self._before)

    def _go_on(self, path: Path) -> None:
        """Take up the chain; if the head knows of other lines, the next line will say so for good.

        They were cut off or changed, or lost when power failed.
        """
        head, at_head, chained = Head.read(path), FIRST, False
        for self._lines, line in enumerate(lines_of(path), 1):
            self._before = digest_of_line(line)
            chained = line.startswith(b'{"before": ')
            if head is not None and self._lines == head.lines:
                at_head = self._before
        if head is None and chained:
            self._doubt = {"doubt": {"lines": None}}
        elif head is not None and head.sha256 != at_head:
            self._doubt = {"doubt": {"lines": head.lines, "sha256": head.sha256}}

    @property
    def is_kept(self) -> bool:
        """Whether there is a file."""
        return self._file is not None

    def write(
        self, client: str, function: str, payload: Payload, digest: str, moment: Moment,
        reply: Payload, once: bool = False, summed: int | None = None,
        asked: tuple[str, str] | None = None,
    ) -> bool:  # fmt: skip
        """Write down a reply before it leaves: names, shapes, sizes and digests, no values.

        It is of so many documents, `summed`, where it does not say so itself. `digest` is that of
        the payload. False, and nothing is written, if another reply to the same call has left; with
        `once`, to any call of the function at that turn.
        """
        noted = {} if asked is None else {"asked": asked}
        if self._file is None:
            self._remember(Answer(moment, function), {**payload, **noted})
            return True
        fields = {}
        content = hashlib.sha256()
        total = 0
        for name, value in flat_fields(reply):
            data, shape, dtype = _describe(value)
            fields[name] = {"shape": shape, "dtype": dtype, "bytes": len(data)}
            content.update(name.encode())
            content.update(data)
            total += len(data)
        answer = Answer(moment, function, digest, content.hexdigest())
        before = self._replies.get((moment.turn, function), answer.reply)
        if (moment == self.last.moment and answer != self.last) or (
            once and answer.reply != before
        ):
            return False
        self._add(
            "left",
            client=client,
            round=payload.get("round", 0),
            function=function,
            moment=astuple(moment),
            payload=digest,
            **_words(payload),
            **({"masked": True} if getattr(payload, "masked", False) else {}),
            **_sum(payload),
            **noted,
            documents=reply.get("documents", summed),
            fields=fields,
            bytes=total,
            sha256=answer.reply,
        )
        self._remember(answer, {**payload, **noted})
        return True

    def _remember(self, answer: Answer, content: Mapping[str, Any]) -> None:
        self.last, turn = answer, answer.moment.turn
        self._replies[turn, answer.function] = answer.reply
        if "counted" in content:
            self.sums[turn, content["called"]] = content["counted"]
        if "asked" in content:
            release, how = content["asked"]
            self.asked[release] = how

    def came(self, moment: Moment, function: str, digest: str, size: int) -> None:
        """Write down a total, by its SHA-256 and its bytes."""
        self._add("came", function=function, moment=astuple(moment), bytes=size, sha256=digest)

    def began(
        self, client: str, certificate: bytes, policy: Mapping[str, Any], corpus: Corpus,
        spent: float | None = None,
    ) -> None:  # fmt: skip
        """Write down that a process begins: whose, by which certificate and policy, on how much.

        The size of the texts is there so that what left can be seen beside it; `spent` is the
        epsilon of the client's account, with this run.
        """
        if self._file is not None:
            shown = {"certificate": certificate.decode("ascii")} if certificate else {}
            size = {"documents": len(corpus), "text_bytes": corpus.text_bytes}
            own = {"policy": policy} | ({} if spent is None else {"epsilon_spent": spent})
            self._add("began", client=client, fedtopics=VERSION, **own, **size, **shown)

    def kept(self, folder: Path, *names: str) -> None:
        """Write down what is in files of the run's folder, by their SHA-256."""
        for name in names if self._file is not None else ():
            content = read_bytes(folder / name)
            sha256 = hashlib.sha256(content).hexdigest()
            self._add("kept", file=name, bytes=len(content), sha256=sha256)

    def _add(self, what: str, **content: Any) -> None:
        if self._file is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        of = {"study": self._study, "run": self.run, "method": self._method}
        told = {"time": now, "what": what, **of, **self._always, **self._doubt, **content}
        line = write_line(self._before, told, self._sign)
        self._file.write(line + b"\n")
        self._file.flush()
        self._lines, self._before, self._doubt = self._lines + 1, digest_of_line(line), {}
        self._head.write(self._lines, self._before)

    def _recall(self, line: Mapping[str, Any]) -> None:
        if line["what"] != "left":
            return
        if line["round"]:
            self.rounds.add((line["run"], line["round"], line["moment"][1]))
        if line["run"] == self.run:
            moment = Moment(*line["moment"])
            answer = Answer(moment, line["function"], line["payload"], line["sha256"])
            self._remember(answer, line)

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._head.close()
            self._file.close()


def find_ledgers(folder: Path) -> dict[str, Path]:
    """Return the ledgers that a run's folder has, by client."""
    places = "ledger.jsonl", "clients/*/ledger.jsonl"  # of a client's part, of a simulation
    paths = sorted(path for place in places for path in folder.glob(place))
    return {client_of(path): path for path in paths}


def client_of(path: Path) -> str:
    """Return whose ledger it is, as a line says, or its folder's name where none does."""
    with open_file(path) as file:
        for line in file:
            try:
                return str(json.loads(line)["client"])
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
    return path.resolve().parent.name


def summarise_ledger(path: Path) -> list[dict[str, Any]]:
    """Return a row a function: fields, replies, sizes, and how many totals came, of which size.

    RunError if a line is not of `Ledger`.
    """
    rows: dict[str, dict[str, Any]] = {}
    read_ledger(path, partial(_add_line, rows))
    return list(rows.values())


def bytes_by_round(path: Path) -> dict[int, int]:
    """Return how many bytes left in each round; 0 is what was before the first; raise as above."""
    sizes: Counter[int] = Counter()

    def add(line: Mapping[str, Any]) -> None:
        if line["what"] == "left":
            sizes.update({int(line["round"]): int(line["bytes"])})

    read_ledger(path, add)
    return dict(sizes)


def is_seen(path: Path) -> bool:
    """Whether whoever added saw a reply, as a study had no masks; raise as above."""
    seen = []
    read_ledger(path, lambda line: seen.append(line.get("masked") is False))
    return any(seen)


def is_seeded(path: Path) -> bool:
    """Whether draws that went into a reply followed from the study's seed; raise as above."""
    seeded = []
    read_ledger(path, lambda line: seeded.append(line.get("secret") == SEEDED))
    return any(seeded)


def read_ledger(path: Path, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Give each line to `take`, in their order; RunError if one is not of `Ledger`."""
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                take(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                raise RunError(f"Line {number} of the ledger {path} is damaged.") from None


def _add_line(rows: dict[str, dict[str, Any]], line: Mapping[str, Any]) -> None:
    if line["what"] not in ("left", "came"):
        return
    name = line["function"]
    counts = dict.fromkeys(("replies", "values", "bytes", "totals", "bytes_of_totals"), 0)
    start = {"function": name, "method": line["method"], "fields": [], "documents": 0}
    start["masked"] = False  # whether what left of it left in masked sums alone
    row = rows.setdefault(name, start | counts)
    if line["what"] == "came":
        row["totals"] += 1
        row["bytes_of_totals"] += line["bytes"]
        return
    row["fields"] = sorted({*row["fields"], *line["fields"]})
    row["masked"] = line.get("masked", False) and (row["masked"] or not row["replies"])
    documents = line["documents"] or 0
    row["documents"] = min(row["documents"], documents) if row["replies"] else documents
    row["replies"] += 1
    values = sum(math.prod(field["shape"]) for field in line["fields"].values())
    row["values"] = max(row["values"], values)
    row["bytes"] += line["bytes"]


def flat_fields(reply: Payload, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values of plain data under dotted names, maps, sparse rows and counts in parts."""
    for name, value in reply.items():
        if isinstance(value, Mapping):
            yield from flat_fields(value, f"{prefix}{name}.")
        elif isinstance(value, Rows):
            yield f"{prefix}{name}.index", value.index
            yield f"{prefix}{name}.values", value.values
        elif isinstance(value, Named):
            yield f"{prefix}{name}.names", value.names
            yield f"{prefix}{name}.values", value.values
        else:
            yield prefix + name, value


def digest_of(payload: Payload) -> str:
    """Return the SHA-256 of a payload: of its names, kinds, shapes and values."""
    if isinstance(payload, SharedPayload) and payload.digest:
        return payload.digest
    content = hashlib.sha256()
    for name, value in flat_fields(payload):
        data, shape, dtype = _describe(value)
        content.update(json.dumps([name, shape, dtype, len(data)]).encode())
        content.update(data)
    if isinstance(payload, SharedPayload):
        payload.digest = content.hexdigest()
    return content.hexdigest()


def _words(payload: Payload) -> dict[str, Any]:
    """Return the words that were asked for, or their number and fingerprint where they are many."""
    words = payload.get("words")
    if not isinstance(words, list):
        return {}
    few = len(words) <= FEW_WORDS
    return {"words": words if few else {"number": len(words), "fingerprint": fingerprint(words)}}


def _sum(payload: Payload) -> dict[str, Any]:
    """Return which sum was opened, and whose replies are in it."""
    return {name: payload[name] for name in ("called", "counted") if name in payload}


def _describe(value: Any) -> tuple[memoryview, list[int], str]:
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return flat.data, list(value.shape), str(value.dtype)
    shape = [len(value)] if isinstance(value, list) else []
    kind = type(value[0]).__name__ if isinstance(value, list) and value else type(value).__name__
    return memoryview(json.dumps(value).encode()), shape, kind
