"""What a study promises of what others see: whether it can, and what its model says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedtopics.errors import FedTopicsError
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.model.topics import TrainingInfo
from fedtopics.privacy import MOST_CLIENTS

if TYPE_CHECKING:
    from fedtopics.federation.study import Study


def check_privacy(study: Study) -> None:
    """Raise ValueError for a promise that the method, or who adds, could not keep."""
    if why := study.method.unbounded:
        name = study.method.method_name
        others = ", ".join(other for other in _able() if other != name)
        raise ValueError(
            f"{name} cannot keep a bound for each document: {why}. Others that can: {others}; or "
            "leave out privacy"
        )
    if len(study.clients) > 1 and not study.masked:
        raise ValueError(
            "with privacy each client adds a part of the noise, which protects sums alone: set "
            "secure = true, which three clients can"
        )
    if len(study.clients) > MOST_CLIENTS:
        raise ValueError(
            f"with privacy a study has at most {MOST_CLIENTS:,} clients: of more, each one's part "
            "of the noise is too small for the whole numbers of masked sums"
        )
    if study.federation.robust not in (None, "none"):
        raise ValueError(
            "with privacy all clients' parts of the noise are in one sum, and a robust rule looks "
            "at sums of some: leave out federation.robust"
        )
    if study.method.clients_per_round is not None:
        raise ValueError("with privacy all clients take part: leave out clients_per_round")


def _able() -> Iterator[str]:
    """Yield the names of the methods that can keep a promise."""
    for name in METHODS.names:
        with suppress(FedTopicsError):  # one whose packages are not installed here
            settings = find_method(name).settings
            if not settings(**settings.with_privacy).unbounded:
                yield name


def check_here(study: Study) -> None:
    """Raise StudyError if this computer lacks the public words of a study with privacy."""
    if study.privacy is not None:
        study.method.public_words(study.text)


def with_privacy(study: Any) -> Any:
    """Fill in what a method's settings are in a study with privacy, where it does not name them."""
    method = study.get("method") if isinstance(study, Mapping) else None
    if not isinstance(method, Mapping) or not study.get("privacy"):
        return study
    name = method.get("name")
    usual = find_method(name).settings.with_privacy if name in METHODS.names else {}
    return {**study, "method": {**usual, **method}}


def in_the_clear(study: Study) -> list[str]:
    """Return what all see one by one of each client, though replies are masked; sorted names."""
    exchanges = study.registration.exchanges(study.method)
    return sorted(each.function for each in exchanges if each.seen_by_all)


def told_of(study: Study, seeded: bool = False) -> TrainingInfo:
    """Return what a study's model says of its masks, and of what is promised for each document."""
    info: TrainingInfo = {} if seeded else {"masked": study.masked}
    if info.get("masked"):
        info["clear"] = in_the_clear(study)
    if study.privacy is not None:
        told: Any = study.privacy.told | {"seeded": seeded}
        info["privacy"] = told
    return info
