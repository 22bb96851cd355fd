"""What a study promises for each document, how much noise that needs, and a client's account.

The account has what a client has let out of the same documents, over all studies.

All releases are sums with normal noise, so they compose exactly: noise of sigma_i on sums that one
document changes by at most 1 is as private as one release with mu^2 = sum of 1 / sigma_i^2.

References
----------
Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018, theorem 8.
Dong, Roth and Su, Gaussian Differential Privacy, JRSS B 2022, corollary 3.3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from fedtopics.errors import PolicyError, RunError, StudyError
from fedtopics.files import in_turn, read_text, write_durably
from fedtopics.text.words import is_word

ROUNDING = 1e-3  # of epsilon, and of delta relative to it: what whole numbers cost; see `noise`
DIGITS = 4  # of a standard deviation, rounded up: the same on all processors


class Privacy(BaseModel):
    """A bound for what all that a study releases says of one document, or of one author.

    Examples
    --------
    >>> Privacy(epsilon=3).delta
    1e-06
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epsilon: float = Field(
        ge=0.01,
        le=100,
        description="with or without a document, anything becomes known at most e^epsilon times as "
        "likely: 1 is strong, 3 usual, from 8 on it says little",
    )
    delta: float = Field(
        1e-6,
        ge=1e-12,
        le=1e-3,
        description="but for cases of this probability; far below 1 / (number of documents)",
    )
    unit: Literal["document", "author"] = Field(
        "document",
        description="what the bound is for: each document by itself, or all that a client has of "
        "an author, as a column of its documents says",
    )
    most_documents: int | None = Field(
        None,
        ge=1,
        description="documents of an author that count, at most; together they count as one",
    )

    @property
    def sensitivity(self) -> float:
        """By how much one document changes a sum at most.

        It is 1, except where one document of each author counts: without it another one of the
        author's takes its place.
        """
        return 2.0 if self.most_documents == 1 else 1.0

    @property
    def promise(self) -> Privacy:
        """The bound alone."""
        return Privacy(**self.model_dump(include=set(Privacy.model_fields)))

    @property
    def plain(self) -> dict[str, Any]:
        """What participants agree on, as plain data."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _of_authors_so_many(self) -> Privacy:
        if (self.unit == "author") != (self.most_documents is not None):
            raise ValueError(
                'unit = "author" needs most_documents, how many of an author count at most; '
                "no other unit has it"
            )
        return self


class PrivacySettings(Privacy):
    """A study's [privacy]: the bound, and what is public to the methods that keep it."""

    words: tuple[str, ...] = Field(
        (),
        description="public words, which topics are of; by default those that the embedding model "
        "has as one piece",
    )
    nearest_words: int = Field(
        8, ge=1, le=100,
        description="words of a document, the nearest ones to its embedding, that describe its "
        "cluster; 16 for long texts",
    )  # fmt: skip

    @field_validator("words")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(is_word, value)) or len(set(value)) < len(value):
            raise ValueError("words have to print, and to be different")
        return value


@dataclass(frozen=True)
class Budget:
    """What a study's releases may say together, and the share of each, of mu^2.

    Without `privacy` there is no noise. StudyError if the shares add up to more than 1.

    Examples
    --------
    >>> budget = Budget(Privacy(epsilon=3), {"words": 0.25, "histogram": 0.75})
    >>> budget.sigma("words"), budget.sigma("histogram")
    (3.089, 1.784)
    """

    privacy: Privacy | None
    shares: Mapping[str, float]

    def __post_init__(self) -> None:
        if min(self.shares.values(), default=1.0) <= 0 or sum(self.shares.values()) > 1 + 1e-9:
            raise StudyError(
                "The shares of the privacy budget have to be above 0 and add up to at most 1; "
                f"they add up to {sum(self.shares.values()):.3g}. Lower some of them."
            )

    def sigma(self, release: str) -> float:
        """Return the standard deviation of the noise of a total that a document changes by 1."""
        if self.privacy is None:
            return 0.0
        exact = 1 / (mu_of(self.privacy) * math.sqrt(self.shares[release]))
        unit = 10.0 ** (math.floor(math.log10(exact)) - DIGITS + 1)
        return round(math.ceil(exact / unit) * unit, 12)


@cache
def mu_of(privacy: Privacy) -> float:
    """Return the mu of all releases together, with what whole numbers cost taken off."""
    epsilon, delta = privacy.epsilon - ROUNDING, privacy.delta * (1 - ROUNDING)
    return float(brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-5, 100, xtol=1e-12))


def delta_of(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of a release of sensitivity mu with standard normal noise."""
    rest = math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
    return float(ndtr(mu / 2 - epsilon / mu) - rest)


FAR_DEVIATIONS = 10.0  # standard deviations: any delta is larger than what is beyond


class Entry(BaseModel):
    """A run that took part of what may be said of a document."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: str
    study: str
    run: str
    privacy: Privacy
    noise: str = ""  # tells it from that of another secret, with which a run is a new one

    @property
    def identity(self) -> tuple[str, str, Privacy, str]:
        """What is released once, however often a run goes on."""
        return self.study, self.run, self.privacy, self.noise


class Account:
    """The runs that documents took part in, in a file of JSON lines, which need not exist yet.

    RunError if the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = self._read()

    @property
    def epsilon(self) -> float:
        """The epsilon of all runs together, at `delta`."""
        return together([entry.privacy for entry in self.entries])

    @property
    def delta(self) -> float | None:
        """The smallest delta of all runs; None if there are none."""
        return min((entry.privacy.delta for entry in self.entries), default=None)

    def charge(
        self, client: str, study: str, run: str, privacy: Privacy, most: float, noise: str = ""
    ) -> None:
        """Write a run down before anything leaves; what it does again costs nothing.

        It does so with the same parameters of privacy and the same `noise`, else it is a new one.
        PolicyError if all runs together may say more than `most`.
        """
        today = datetime.now(UTC).date().isoformat()
        entry = Entry(date=today, study=study, run=run, privacy=privacy.promise, noise=noise)
        with in_turn(self.path):
            self.entries = self._read()  # another study may have begun meanwhile
            if any(each.identity == entry.identity for each in self.entries):
                return
            self._check(client, privacy, most)
            self.entries.append(entry)
            lines = (json.dumps(entry.model_dump()) for entry in self.entries)
            write_durably(self.path, "".join(f"{line}\n" for line in lines).encode())

    def check(self, client: str, study: str, privacy: Privacy, most: float) -> None:
        """Raise PolicyError if a study more may say too much; one that goes on says nothing new."""
        if all((entry.study, entry.privacy) != (study, privacy.promise) for entry in self.entries):
            self._check(client, privacy, most)

    def _read(self) -> list[Entry]:
        try:
            lines = read_text(self.path).splitlines() if self.path.exists() else []
            return [Entry.model_validate_json(line) for line in lines]
        except (OSError, UnicodeDecodeError, ValidationError):
            raise RunError(
                f"{self.path} is no account of what studies may know; restore it. Without it "
                "nobody knows what was said of the documents already."
            ) from None

    def _check(self, client: str, privacy: Privacy, most: float) -> None:
        after = together([*(entry.privacy for entry in self.entries), privacy])
        if after > most:
            raise PolicyError(
                f"The policy of client {client!r} allows epsilon {most:g} over all studies; "
                f"{len(self.entries)} before had {self.epsilon:.3g}, and with this one it would be "
                f"{after:.3g}. Nothing has left; agree on a smaller epsilon, or raise max_epsilon."
            )


def together(promises: Sequence[Privacy]) -> float:
    """Return the epsilon of several studies on the same documents, at the smallest of their deltas.

    So it never falls when a study is added, whatever that study's delta is.
    """
    if not promises:
        return 0.0
    if len(promises) == 1 and promises[0].sensitivity == 1:
        return promises[0].epsilon
    mu = math.sqrt(sum((each.sensitivity * mu_of(each)) ** 2 for each in promises))
    delta = min(each.delta for each in promises) * (1 - ROUNDING) ** len(promises)
    exact = brentq(lambda epsilon: delta_of(mu, epsilon) - delta, 0, mu * (mu / 2 + FAR_DEVIATIONS))
    return float(exact) + ROUNDING * len(promises)
