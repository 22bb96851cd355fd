"""The ledger: what left a client, a line a reply, and what can be read from it."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedtopics.errors import RunError
from fedtopics.files import cut_half_line
from fedtopics.methods.aggregation import Payload, Rows


class Ledger:
    """What left one client of a study with this fingerprint, a line a reply; no path keeps none.

    `rounds` are the training rounds that earlier processes answered. RunError if the file that is
    there is damaged.
    """

    def __init__(self, method: str, study: str, path: Path | None = None) -> None:
        self._method = method
        self._study = study
        self._file: IO[str] | None = None
        self.rounds: frozenset[int] = frozenset()
        if path is not None:
            if path.exists():
                cut_half_line(path)
                self.rounds = frozenset(bytes_by_round(path)) - {0}
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def write(self, client: str, function: str, payload: Payload, reply: Payload) -> None:
        """Write down a reply before it leaves: names, shapes, sizes and digests, no values."""
        if self._file is None:
            return
        fields = {}
        digest = hashlib.sha256()
        total = 0
        for name, value in flat_fields(reply):
            data, shape, dtype = _describe(value)
            fields[name] = {"shape": shape, "dtype": dtype, "bytes": len(data)}
            digest.update(name.encode())
            digest.update(data)
            total += len(data)
        line = {
            "time": time.time(),
            "client": client,
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
    places = "ledger.jsonl", "clients/*/ledger.jsonl"  # of a client's part, of a simulation
    paths = sorted(path for place in places for path in folder.glob(place))
    return {client_of(path): path for path in paths}


def client_of(path: Path) -> str:
    """Return whose ledger it is, by its first line, or its folder's name where there is none."""
    with path.open(encoding="utf-8") as file:
        try:
            return str(json.loads(file.readline())["client"])
        except (ValueError, KeyError, TypeError):
            return path.resolve().parent.name


def summarise_ledger(path: Path) -> list[dict[str, Any]]:
    """Return a row a function: fields, replies, sizes; RunError if a line is not of `Ledger`."""
    rows: dict[str, dict[str, Any]] = {}
    _read_ledger(path, partial(_add_line, rows))
    return list(rows.values())


def bytes_by_round(path: Path) -> dict[int, int]:
    """Return how many bytes left in each round; 0 is what was before the first; raise as above."""
    sizes: Counter[int] = Counter()
    _read_ledger(path, lambda line: sizes.update({int(line["round"]): int(line["bytes"])}))
    return dict(sizes)


def _read_ledger(path: Path, take: Callable[[Mapping[str, Any]], None]) -> None:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                take(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise RunError(f"Line {number} of the ledger {path} is damaged.") from None


def _add_line(rows: dict[str, dict[str, Any]], line: Mapping[str, Any]) -> None:
    name, method, documents = line["function"], line["method"], line["documents"]
    start = {"function": name, "method": method, "fields": [], "documents": documents}
    row = rows.setdefault(name, start | {"replies": 0, "values": 0, "bytes": 0})
    row["fields"] = sorted({*row["fields"], *line["fields"]})
    row["replies"] += 1
    row["documents"] = min(row["documents"], documents)
    values = sum(math.prod(field["shape"]) for field in line["fields"].values())
    row["values"] = max(row["values"], values)
    row["bytes"] += line["bytes"]


def flat_fields(reply: Payload, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a reply's values under dotted names, maps and sparse rows in their parts."""
    for name, value in reply.items():
        if isinstance(value, Mapping):
            yield from flat_fields(value, f"{prefix}{name}.")
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
