"""Every error that fedtopics raises on purpose, with its exit code of the command line.

    FedTopicsError (1)          the base, and an optional package that is missing
        InputError (2)          an argument, an option or a file cannot be used
            DataError           documents: a file, a column, a collection of texts
            StudyError          a parameter or a study file
            ModelError          a saved model
            RunError            a run folder or a checkpoint
            IdentityError       a certificate, a key or their folder
        PolicyError (3)         a client's own policy forbids a reply or a study
        FederationError (4)     the connection, versions or quorum prevent working together

A class without a number has the exit code of its parent. Every InputError is also a ValueError.

A message says what is wrong, where, and what to do. It never quotes a document.
Repeating a call without a change does not help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from numbers import Integral
from typing import Any

MOST_NAMES = 20  # names that a message lists
LIKENESS = 0.7  # of a name that is suggested; "passes" is less like "addresses"


class FedTopicsError(Exception):
    """Base of all errors of fedtopics."""

    exit_code = 1
    # Dask would send the error before this one along, which may quote a document.
    __context__ = None


class InputError(FedTopicsError, ValueError):
    """An argument, an option or a file cannot be used."""

    exit_code = 2


class DataError(InputError):
    """Documents cannot be used: a file, a column, a collection of texts.

    `value` is what stopped a user's own file, such as a date. The command that reads the file shows
    it on the terminal; the message, which is logged and may be sent, never has it.
    """

    def __init__(self, message: str, value: Any = "") -> None:
        super().__init__(message)
        self.value = str(value)

    def __reduce__(self) -> tuple[type[DataError], tuple[str]]:
        return type(self), (str(self),)  # without the value, as it may be sent to another machine


class StudyError(InputError):
    """A parameter or a study file cannot be used."""


class ModelError(InputError):
    """A saved model cannot be used."""


class RunError(InputError):
    """A run folder or a checkpoint cannot be used."""


class IdentityError(InputError):
    """A certificate, a key or their folder cannot be used."""


class PolicyError(FedTopicsError):
    """A client's own policy forbids a reply or a study."""

    exit_code = 3


class FederationError(FedTopicsError):
    """Server and clients cannot work together, because of the connection, versions or quorum."""

    exit_code = 4


@contextmanager
def of_client(name: str, kind: type[InputError] = DataError) -> Iterator[None]:
    """Let an error say of which client it is."""
    try:
        yield
    except kind as error:
        error.args = (f"Client {name!r}: {error}",)
        raise


def nearest_names(name: object, known: Iterable[object]) -> str:
    """Suggest the known name that is nearest to an unknown one, or list the known names.

    Examples
    --------
    >>> nearest_names("South", ["north", "south"]), nearest_names("elm", ["north", "south"])
    ("did you mean 'south'?", 'choose from: north, south.')
    """
    names = [*known]
    if close := closest(name, names):
        return f"did you mean {close!r}?"
    return (
        f"choose from: {', '.join(map(str, names[:MOST_NAMES]))}"
        f"{', ...' if len(names) > MOST_NAMES else '.'}"
    )


def closest(name: object, known: Iterable[Any]) -> Any:
    """Return the known name with the nearest spelling, ignoring case, or "" if none is near."""
    names = {str(candidate).casefold(): candidate for candidate in known}
    close = get_close_matches(str(name).casefold(), names, 1, LIKENESS)
    return names[close[0]] if close else ""


def check_number(value: Any, name: str, least: int = 1, most: float = inf) -> None:
    """Raise a StudyError if a parameter is not a whole number from `least` to `most`."""
    if not is_number(value, least, most):
        upto = f"{least} or more" if most == inf else f"{least} to {most:.0f}"
        raise StudyError(f"{name}={value!r:.40} cannot be used; give a whole number, {upto}.")


def is_number(value: Any, least: int, most: float) -> bool:
    """Whether a value is a whole number from `least` to `most`."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and least <= value <= most


def check_choice(value: Any, name: str, choices: Collection[str | None]) -> None:
    """Raise a StudyError if a parameter is none of the choices; the message leaves None out."""
    if value not in choices:
        raise StudyError(
            f"{name}={value!r} is unknown; choose from {', '.join(filter(None, choices))}."
        )


def check_keys(
    values: Any, known: Collection[Any], what: str, error: type[InputError] = StudyError
) -> None:
    """Raise `error` unless a value is a mapping of known keys; `what` is the word for a key."""
    if not isinstance(values, Mapping):
        raise error(f"Give a mapping of {what} to value, not {type(values).__name__}.")
    if unknown := [key for key in values if key not in known]:
        raise error(f"There is no {what} {unknown[0]!r}; {nearest_names(unknown[0], known)}")


def first_problem(problems: Mapping[str, bool]) -> str:
    """Return the first sentence of those that apply; "" if none does."""
    return next((sentence for sentence, applies in problems.items() if applies), "")


def refuse(problems: Mapping[str, bool], error: Callable[[str], Exception] = ValueError) -> None:
    """Raise an error with the first sentence of those that apply, if any."""
    if problem := first_problem(problems):
        raise error(problem)
