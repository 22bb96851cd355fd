"""Whether a method is above another by more than chance, by the paper's test."""

from __future__ import annotations

import math
from dataclasses import dataclass

from experiments.report import Rows, scores

LEVEL = 0.01  # the paper's
PAIRS = (  # what the paper says, and what we say
    ("paper", "fbow"),
    ("paper", "ftfidf"),
    ("paper", "fsbert"),
    ("paper", "fsccl"),
    ("stc", "fsbert"),
    ("rstc", "stc"),
    ("paper", "rstc"),
    ("discriminative", "fsbert"),
    ("discriminative", "fsccl"),
    ("discriminative", "stc"),
    ("fstc", "discriminative"),
)


@dataclass(frozen=True)
class UTest:
    """A one-sided Mann-Whitney U test of one method's scores against another's.

    There is no p without scores of both; `smallest` is what it would be if all scores of the one
    were above all of the other.
    """

    p: float | None
    smallest: float = 1.0

    @classmethod
    def of(cls, all_rows: Rows, data: str, score: str, one: str, other: str) -> UTest:
        """Test the scores of two methods in table 2 of a data set."""
        from scipy.stats import mannwhitneyu

        ours, theirs = (
            scores(all_rows, score, part="table2", data=data, name=name) for name in (one, other)
        )
        if not ours or not theirs:
            return cls(None)
        p = float(mannwhitneyu(ours, theirs, alternative="greater").pvalue)
        return cls(p, 1 / math.comb(len(ours) + len(theirs), len(ours)))

    @property
    def can_tell(self) -> bool:
        """Whether so many scores could come below the level."""
        return self.p is not None and self.smallest < LEVEL

    @property
    def significant(self) -> bool:
        """Whether the one is above the other."""
        return self.p is not None and self.can_tell and self.p < LEVEL

    def __str__(self) -> str:
        if self.p is None:
            return "-"
        if not self.can_tell:
            return "too few"
        return f"{self.p:.3f}{'*' if self.significant else ''}"
