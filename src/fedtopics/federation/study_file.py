"""TOML files that people write, and one line on what is wrong with them."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedtopics import harmless


def explain(error: Exception) -> str:
    """Say in one line what pydantic, tomllib or the file system found."""
    problem = str(error.strerror if isinstance(error, OSError) else error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        problem = f"{where!r:.80} is {first['input']!r:.80}: {reason}" if where else reason
        if first["type"] == "extra_forbidden":
            problem = f"there is no key {where!r:.80}; remove it or correct its name"
    return problem.removesuffix(".") + "."


def as_toml(model: BaseModel, table: str = "", *, example: bool = False) -> str:
    """Write a model as TOML: plain values first, then its tables.

    In an example, defaults are commented out, and paths are as given.
    """
    lines, tables = [], []
    for key, info in type(model).model_fields.items():
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            inner = f"{table}{key}"
            body = as_toml(value, f"{inner}.", example=example)
            tables.append(f"\n# {info.description}\n[{inner}]\n{body}")
        elif key == "clients":
            for name, entry in value.items():
                body = as_toml(entry, "", example=example)
                tables.append(f"\n[{table}{key}.{json.dumps(name)}]\n{body}")
        else:
            usual = example and value == info.default and key != "name"
            hidden = "# " if value is None or usual else ""
            lines.append(f"{hidden}{key} = {_plain(value, example)}  # {info.description}")
    return "\n".join(lines) + "\n" + "".join(tables)


def _plain(value: Any, example: bool) -> str:
    if value is None:
        return '"..."'
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_plain(entry, example)}" for key, entry in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Path):
        value = str(value if example else value.absolute())
    return harmless.as_toml(value)
