"""A study's bound for each document, the noise that it needs, and a client's privacy budget.

All releases are sums with normal noise, so they compose exactly: sums i that one document changes
by at most 1, with noise of sigma_i, are as private as one release with mu^2 = sum of 1 / sigma_i^2.

References
----------
Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018, theorem 8.
Dong, Roth and Su, Gaussian Differential Privacy, JRSS B 2022, corollary 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal

import scipy  # whose parts are loaded when they are used
from pydantic import BaseModel, Field, field_validator, model_validator
from scipy.special import log_ndtr, ndtr

from fedtopics.errors import PolicyError, StudyError
from fedtopics.text.words import is_word

ROUNDING = 1e-3  # share of epsilon and of delta that rounding to whole numbers costs; see `noise`
DIGITS = 4  # digits of a standard deviation, which is rounded up: the same on all processors


class Privacy(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """A bound for everything that a study releases about one document or one person."""

    epsilon: float = Field(
        ge=0.01,
        le=100,
        description="any conclusion is at most e^epsilon times as likely with a document as "
        "without it: 2.7 times at 1, 20 times at 3, 2,981 times at 8",
    )
    delta: float = Field(
        1e-6,
        ge=1e-12,
        le=1e-3,
        description="is added to this bound of a probability; far below 1 / (number of documents)",
    )
    unit: Literal["document", "person"] = Field(
        "document",
        description="what the bound protects: each document, or all documents of a person (each "
        "client needs a column of persons)",
    )
    most_documents: int | None = Field(
        None,
        ge=1,
        description="at most this many documents of a person count; together they count as one",
    )

    @property
    def sensitivity(self) -> float:
        """The largest change of a sum by one document."""
        # Without a person's only document, another one of the person's takes its place.
        return 2.0 if self.most_documents == 1 else 1.0

    @property
    def promise(self) -> Privacy:
        return Privacy(**self.model_dump(include=set(Privacy.model_fields)))

    @property
    def plain(self) -> dict[str, Any]:
        """The bound as plain data, on which participants agree."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _of_persons_so_many(self) -> Privacy:
        if (self.unit == "person") != (self.most_documents is not None):
            raise ValueError(
                'unit = "person" needs most_documents, the most documents of a person that '
                'count; unit = "document" must not have it'
            )
        return self


class PrivacySettings(Privacy):
    """A study's [differential_privacy]: the bound, and the methods' public data."""

    words: tuple[str, ...] = Field(
        (),
        description="public words for the topics; by default the words that are one token of the "
        "embedding model",
    )
    nearest_words: int = Field(
        8,
        ge=1,
        le=100,
        description="number of a document's words, those nearest to its embedding, that describe "
        "its cluster; set 16 for long texts",
    )

    @field_validator("words")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(is_word, value)) or len(set(value)) < len(value):
            raise ValueError("words must be printable, and must not be repeated")
        return value


@dataclass(frozen=True)
class Budget:
    """A study's privacy budget and each release's share of mu^2; StudyError if they exceed 1.

    Examples
    --------
    >>> budget = Budget(Privacy(epsilon=3), {"words": 0.25, "histogram": 0.75})
    >>> budget.sigma("words"), budget.sigma("histogram")
    (3.089, 1.784)
    """

    privacy: Privacy
    shares: Mapping[str, float]

    def __post_init__(self) -> None:
        if min(self.shares.values(), default=1.0) <= 0 or sum(self.shares.values()) > 1 + 1e-9:
            raise StudyError(
                "The shares of the privacy budget have to be above 0 and add up to at most 1; "
                f"they add up to {sum(self.shares.values()):.3g}. Lower some of them."
            )

    def sigma(self, release: str) -> float:
        """Return the noise's standard deviation, for a total that one document changes by 1."""
        exact = 1 / (mu_of(self.privacy) * math.sqrt(self.shares[release]))
        unit = 10.0 ** (math.floor(math.log10(exact)) - DIGITS + 1)
        return round(math.ceil(exact / unit) * unit, 12)


@cache
def mu_of(privacy: Privacy) -> float:
    """Return the mu of all releases together, less the cost of rounding to whole numbers."""
    epsilon = privacy.epsilon - ROUNDING
    delta = privacy.delta * (1 - ROUNDING)
    return float(
        scipy.optimize.brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-5, 100, xtol=1e-12)
    )


def delta_of(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of a release of sensitivity mu with standard normal noise."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2)))


FAR_DEVIATIONS = 10.0  # standard deviations; the tail beyond them is smaller than any delta


class BudgetEntry(BaseModel, extra="forbid", frozen=True):
    """A run that used part of the documents' privacy budget."""

    date: str
    study: str
    run: str
    privacy: Privacy
    noise: str = ""  # identity of the secret; a run with another secret counts as a new run
    share: float = Field(1.0, ge=0, le=1)  # of mu^2; less than 1 if a run failed before its end

    @property
    def identity(self) -> tuple[str, str, Privacy, str]:
        """The identity of a run. A resumed run keeps it, so its releases count once."""
        return self.study, self.run, self.privacy, self.noise


@dataclass(frozen=True)
class Account:
    """The runs that used the documents."""

    entries: Sequence[BudgetEntry] = ()

    @property
    def epsilon(self) -> float:
        """The epsilon of all runs together, at `delta`."""
        return together(
            [entry.privacy for entry in self.entries], [entry.share for entry in self.entries]
        )

    @property
    def delta(self) -> float | None:
        """The smallest delta of all runs; None if there are none."""
        return min((entry.privacy.delta for entry in self.entries), default=None)

    def charged(
        self, client: str, study: str, run: str, privacy: Privacy, most: float, noise: str = ""
    ) -> Account:
        """Return the account with a run; PolicyError if all runs together exceed `most`."""
        entry = BudgetEntry(
            date=datetime.now(UTC).date().isoformat(),
            study=study,
            run=run,
            privacy=privacy.promise,
            noise=noise,
        )
        others = Account([old for old in self.entries if old.identity != entry.identity])
        if entry.identity in {old.identity for old in self.entries if old.share == 1}:
            return self
        others._check(client, privacy, most)
        return Account([*others.entries, entry])

    def settled(self, study: str, noise: str, share: float) -> Account:
        """Return the account after a run failed: it used only this `share` of its mu^2.

        Which sums are released may depend on earlier ones, as all of them stay within the budget.
        """
        return Account(
            [
                entry.model_copy(update={"share": share})
                if (entry.study, entry.noise) == (study, noise)
                else entry
                for entry in self.entries
            ]
        )

    def check(self, client: str, study: str, privacy: Privacy, most: float) -> None:
        """Raise PolicyError if a new study would exceed `most`; a resumed one sends nothing new."""
        if all((entry.study, entry.privacy) != (study, privacy.promise) for entry in self.entries):
            self._check(client, privacy, most)

    def _check(self, client: str, privacy: Privacy, most: float) -> None:
        planned = BudgetEntry(date="", study="", run="", privacy=privacy.promise)
        after = Account([*self.entries, planned]).epsilon
        if after > most:
            raise PolicyError(
                f"The policy of client {client!r} allows epsilon {most:g} over all studies; "
                f"earlier runs ({len(self.entries)}) used {self.epsilon:.3g}, and with this one it "
                f"would be {after:.3g}. Nothing was sent; agree on a smaller epsilon for the study."
            )


def together(promises: Sequence[Privacy], shares: Sequence[float] = ()) -> float:
    """Return the epsilon of several studies at their smallest delta; it never falls.

    `shares` are those of their mu^2 that were used; by default all was.
    """
    shares = shares or [1.0] * len(promises)
    used = [pair for pair in zip(promises, shares, strict=True) if pair[1] > 0]
    if not used:
        return 0.0
    if len(used) == 1 and used[0][0].sensitivity == used[0][1] == 1:
        return used[0][0].epsilon
    mu = math.sqrt(sum(share * (p.sensitivity * mu_of(p)) ** 2 for p, share in used))
    delta = min(promise.delta for promise, _ in used) * (1 - ROUNDING) ** len(used)
    return epsilon_of(mu, delta) + ROUNDING * len(used)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the epsilon at delta of a release of sensitivity mu with standard normal noise."""
    return float(
        scipy.optimize.brentq(
            lambda epsilon: delta_of(mu, epsilon) - delta, 0, mu * (mu / 2 + FAR_DEVIATIONS)
        )
    )
