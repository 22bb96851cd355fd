"""What functions were given and returned while a test ran."""

from functools import wraps
from typing import Any

import pytest

Called = list[tuple[tuple[Any, ...], Any]]


def noted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Called:
    """Note each call of a function: what it was given by place, and what it returned."""
    function = getattr(owner, name)
    calls = Called()

    @wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        returned = function(*given, **named)
        calls.append((given, returned))
        return returned

    monkeypatch.setattr(owner, name, noting)
    return calls
