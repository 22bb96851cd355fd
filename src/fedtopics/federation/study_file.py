"""TOML files that people write, and one line on what is wrong with them."""

from __future__ import annotations

from pydantic import ValidationError


def explain(error: Exception) -> str:
    """Say in one line what pydantic, tomllib or the file system found."""
    found = str(error.strerror if isinstance(error, OSError) else error)
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        # pydantic adds which of the methods it took the table [method] for.
        parts = [str(part) for part in first["loc"]]
        where = ".".join([*parts[:1], *parts[2:]] if parts[:1] == ["method"] else parts)
        reason = first["msg"].removeprefix("Value error, ")
        found = f"{where!r} is {first['input']!r:.80}: {reason}" if where else reason
        if first["type"] == "extra_forbidden":
            found = f"there is no key {where!r}; remove it or correct its name"
    return found.removesuffix(".") + "."
