"""What a study with [privacy] needs, and which settings of its method it has by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from fedtopics.errors import FedTopicsError
from fedtopics.methods.core.outliers import Rule
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.privacy import MOST_CLIENTS


def check_privacy(method: TopicSettings, clients: int, masked: bool, robust: Rule | None) -> None:
    """Raise ValueError for a bound that the method, or whoever adds, could not keep."""
    if why := method.unbounded:
        name = method.method_name
        others = ", ".join(other for other in _able() if other != name)
        raise ValueError(
            f"{name} cannot keep a bound for each document: {why}. Others that can: {others}; or "
            "leave out privacy"
        )
    if clients > 1 and not masked:
        raise ValueError(
            "with privacy each client adds a part of the noise, which protects sums alone: set "
            "secure = true, which three clients can"
        )
    if clients > MOST_CLIENTS:
        raise ValueError(
            f"with privacy a study has at most {MOST_CLIENTS:,} clients: of more, each one's part "
            "of the noise is too small for the whole numbers of masked sums"
        )
    if robust not in (None, "none"):
        raise ValueError(
            "with privacy each reply holds a part of the noise, and a robust rule looks at replies "
            "one by one: leave out federation.robust"
        )
    if method.clients_per_round is not None:
        raise ValueError("with privacy all clients take part: leave out clients_per_round")


def _able() -> Iterator[str]:
    """Yield the names of the methods that can keep a bound."""
    for name in METHODS.names:
        with suppress(FedTopicsError):  # one whose packages are not installed here
            settings = find_method(name).settings
            if not settings(**settings.with_privacy).unbounded:
                yield name


def with_privacy(study: Any) -> Any:
    """Fill in what a method's settings are in a study with privacy, where it does not name them."""
    method = study.get("method") if isinstance(study, Mapping) else None
    if not isinstance(method, Mapping) or not study.get("privacy"):
        return study
    name = method.get("name")
    usual = find_method(name).settings.with_privacy if name in METHODS.names else {}
    return {**study, "method": {**usual, **method}}
