"""The only exit from a client: its own policy, and a ledger of all that left.

The policy belongs to the client; no server can change it. Every reply passes `Door.call`, which
refuses what the policy forbids and writes a ledger line before it hands the reply on.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtopics.errors import DataError, PolicyError, RunError, StudyError
from fedtopics.methods.aggregation import Payload, Rows

LEDGERS = ("ledger.jsonl", "clients/*/ledger.jsonl")  # of a client's part, of a simulation


class Policy(BaseModel):
    """What a client lets out, whatever a server asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    methods: tuple[str, ...] = Field(
        ("gfedntm", "lda", "flda", "kmeans", "discriminative", "fstc", "fsccl"),
        description="methods that may run",
    )
    min_documents: int = Field(
        10, ge=1, description="a reply must sum over at least this many documents"
    )
    min_document_frequency: int = Field(
        5, ge=1, description="a word may leave only if this many documents have it"
    )
    max_rounds: int = Field(100_000, ge=1, description="most rounds of a study")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Raises
        ------
        StudyError
            If the file is missing, is not TOML, or has an unknown key.
        """
        try:
            return cls(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise StudyError(f"The policy {path} cannot be used: {explain(error)}") from None

    def check_method(self, client: str, method: str) -> None:
        """Refuse a method that is not allowed.

        Raises
        ------
        PolicyError
            Before anything was computed.
        """
        if method not in self.methods:
            raise PolicyError(
                f"The policy of client {client!r} does not allow the method {method!r}; "
                "add it to the policy's methods."
            )


OPEN_POLICY = Policy(min_documents=1, min_document_frequency=1)
"""For documents that stay in one's own hands: one corpus, trained where it is."""


def explain(error: Exception) -> str:
    """Say in one line what pydantic, tomllib or the file system found."""
    found = str(error.strerror if isinstance(error, OSError) else error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        found = f"{where!r} is {first['input']!r:.80}: {reason}" if where else reason
        if first["type"] == "extra_forbidden":
            found = f"there is no key {where!r}; remove it or correct its name"
    return found.removesuffix(".") + "."


class Half(Protocol):
    """A method's client half: the functions it names in `published` may be called."""

    @property
    def method(self) -> str:
        """Name of the method."""

    @property
    def published(self) -> Collection[str]:
        """Names of the functions."""


class Ledger:
    """What left one client, a line a reply.

    Parameters
    ----------
    method : str
    study : str
        Fingerprint of the study.
    path : path or None
        File of JSON lines, appended to; None keeps no ledger.
    """

    def __init__(self, method: str, study: str, path: Path | None = None) -> None:
        self._method = method
        self._study = study
        self._file: IO[str] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def write(self, function: str, payload: Payload, reply: Payload) -> None:
        """Write down a reply before it leaves: names, shapes, sizes and digests, no values."""
        if self._file is None:
            return
        fields = {}
        digest = hashlib.sha256()
        total = 0
        for name, value in _flat(reply):
            data, shape, dtype = _describe(value)
            fields[name] = {"shape": shape, "dtype": dtype, "bytes": len(data)}
            digest.update(name.encode())
            digest.update(data)
            total += len(data)
        line = {
            "time": time.time(),
            "study": self._study,
            "method": self._method,
            "round": payload.get("round", 0),
            "function": function,
            "documents": reply.get("documents"),
            "fields": fields,
            "bytes": total,
            "sha256": digest.hexdigest(),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def find_ledgers(folder: Path) -> dict[str, Path]:
    """Return the ledgers that a run's folder has, by client."""
    paths = sorted(path for place in LEDGERS for path in folder.glob(place))
    return {path.resolve().parent.name: path for path in paths}


def summarise_ledger(path: Path) -> list[dict[str, Any]]:
    """Return a row a function: which fields left, in how many replies, how much.

    Raises
    ------
    RunError
        If a line is not what `Ledger` writes.
    """
    rows: dict[str, dict[str, Any]] = {}
    _read_ledger(path, partial(_add_line, rows))
    return list(rows.values())


def bytes_by_round(path: Path) -> dict[int, int]:
    """Return how many bytes left in each round; 0 stands for what was before the first.

    Raises
    ------
    RunError
        If a line is not what `Ledger` writes.
    """
    found: Counter[int] = Counter()
    _read_ledger(path, lambda line: found.update({int(line["round"]): int(line["bytes"])}))
    return dict(found)


def _read_ledger(path: Path, take: Callable[[Mapping[str, Any]], None]) -> None:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise RunError(f"Line {number} of the ledger {path} is damaged.") from None


def _add_line(rows: dict[str, dict[str, Any]], line: Mapping[str, Any]) -> None:
    name = line["function"]
    new = {
        "function": name,
        "method": line["method"],
        "fields": [],
        "replies": 0,
        "documents": line["documents"],
        "values": 0,
        "bytes": 0,
    }
    row = rows.setdefault(name, new)
    row["fields"] = sorted({*row["fields"], *line["fields"]})
    row["replies"] += 1
    row["documents"] = min(row["documents"], line["documents"])
    values = sum(math.prod(field["shape"]) for field in line["fields"].values())
    row["values"] = max(row["values"], values)
    row["bytes"] += line["bytes"]


class Door:
    """Call a client's functions and let their replies out, if its policy allows.

    Parameters
    ----------
    client : str
        Name of the client.
    half : Half
        The client half of a method.
    policy : Policy
    ledger : Ledger
    """

    def __init__(self, client: str, half: Half, policy: Policy, ledger: Ledger) -> None:
        policy.check_method(client, half.method)
        self.client = client
        self._half = half
        self._policy = policy
        self._ledger = ledger

    def call(self, function: str, payload: Payload) -> dict[str, Any]:
        """Call a published function, check its reply, write it down, return it.

        Leaves the client
            The reply, and only if the policy allows it.

        Raises
        ------
        PolicyError
            If the function is not published or the policy forbids the reply.
        """
        if function not in self._half.published:
            raise PolicyError(f"Client {self.client!r} publishes no function {function!r}.")
        if payload.get("round", 0) > self._policy.max_rounds:
            raise PolicyError(
                f"The policy of client {self.client!r} ends at round {self._policy.max_rounds}; "
                "lower the study's max_rounds or raise that of the policy."
            )
        try:
            reply: dict[str, Any] = getattr(self._half, function)(**payload)
        except DataError as error:
            raise DataError(f"Client {self.client!r}: {error}") from None
        self._check(function, reply)
        self._ledger.write(function, payload, reply)
        return reply

    def repeat(self, function: str, payload: Payload) -> None:
        """Work a call again that was answered: where a process ends with each call, what it knew.

        Leaves the client
            Nothing.
        """
        getattr(self._half, function)(**payload)

    def _check(self, function: str, reply: Payload) -> None:
        documents = reply.get("documents", 0)
        if documents == 0 and not any(np.any(value) for _, value in _flat(reply)):
            return  # it says no more than that there is nothing to say
        if documents < self._policy.min_documents:
            raise PolicyError(
                f"The reply to {function!r} of client {self.client!r} sums over {documents} "
                f"documents, its policy asks for {self._policy.min_documents}; give the client "
                "more documents, or lower min_documents in its policy."
            )
        rarest = np.min(reply.get("document_frequency", np.inf))
        if rarest < self._policy.min_document_frequency:
            raise PolicyError(
                f"The reply to {function!r} of client {self.client!r} names a word of {rarest} "
                f"documents, its policy asks for {self._policy.min_document_frequency}."
            )


def _flat(reply: Payload, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in reply.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Rows):
            yield f"{prefix}{name}.index", value.index
            yield f"{prefix}{name}.values", value.values
        else:
            yield prefix + name, value


def _describe(value: Any) -> tuple[memoryview, list[int], str]:
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return flat.data, list(value.shape), str(value.dtype)
    shape = [len(value)] if isinstance(value, list) else []
    kind = type(value[0]).__name__ if isinstance(value, list) and value else type(value).__name__
    return memoryview(json.dumps(value).encode()), shape, kind
