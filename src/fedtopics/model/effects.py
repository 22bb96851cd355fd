"""Differences between groups of documents, with their uncertainty: linear models of topics' shares.

Clients send sums only: X'X, X'theta and theta'theta, then, with the coefficients, sums of squared
scores by person. They are those of pooled documents.

References
----------
White, A Heteroskedasticity-Consistent Covariance Matrix Estimator, Econometrica 1980. Liang and
Zeger, Longitudinal Data Analysis Using Generalized Linear Models, Biometrika 1986 (persons with
several documents). Frisch and Waugh, Econometrica 1933 (clients as a factor, without their sums).
Benjamini and Hochberg, Controlling the False Discovery Rate, JRSS B 1995.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy  # whose parts are loaded when they are used
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtr, stdtrit

from fedtopics.errors import StudyError, refuse
from fedtopics.inference.vectors import Numbers
from fedtopics.model.formulas import one_hot
from fedtopics.text.rounding import rounded

LEVEL = 0.95  # of intervals
SINGULAR = 1e-10  # least eigenvalue of X'X, relative to its diagonal
Moments = Mapping[str, Any]
"""Sums over documents: xx, xy, yy; counts of documents, persons and clients; persons with each two
columns."""


def products(
    x: sparse.csr_array, theta: Numbers, owners: NDArray[np.int64], within: bool
) -> dict[str, NDArray[np.float64]]:
    """Return a client's sums; `within` clients, deviations from its own means count."""
    people = one_hot(owners, int(owners.max(initial=-1)) + 1).T.tocsr()
    has = sparse.csr_array((people @ abs(x)) > 0, dtype=np.float64)
    counts = [len(theta), len(np.unique(owners)), len(theta) > 0]
    x, theta = deviations(x, theta) if within else (x, theta)
    return {
        "xx": _dense(x.T @ x),
        "xy": np.asarray(x.T @ theta, np.float64),
        "yy": np.einsum("ik,ik->k", theta, theta, dtype=np.float64),
        "counts": np.array(counts, np.float64),
        "groups": _dense(has.T @ has),
    }


def squares(
    x: sparse.csr_array,
    theta: Numbers,
    coefficients: Numbers,
    owners: NDArray[np.int64],
    within: bool,
    cells: bool = False,
) -> NDArray[np.float64]:
    """Return a client's squared scores by person, (n_topics, p, p); of `cells` the diagonal."""
    x, theta = deviations(x, theta) if within else (x, theta)
    people = one_hot(owners, int(owners.max(initial=-1)) + 1).T.tocsr()
    sums = []
    for residual in (theta - x @ coefficients).T:
        scores = people @ sparse.csr_array(sparse.diags_array(residual) @ x)
        sums.append(
            np.asarray(scores.multiply(scores).sum(0)).ravel()
            if cells
            else _dense(scores.T @ scores)
        )
    return np.array(sums, np.float64)


def deviations(x: sparse.csr_array, theta: Numbers) -> tuple[sparse.csr_array, Numbers]:
    """Return deviations from means over a client's documents."""
    if not x.shape[0]:
        return x, theta
    dense = x.toarray()
    return sparse.csr_array(dense - dense.mean(0)), theta - theta.mean(0, dtype=np.float64)


def coefficients_of(sums: Moments) -> NDArray[np.float64]:
    """Return the coefficients, (p, n_topics); StudyError if columns depend on each other."""
    xx = np.asarray(sums["xx"])
    refuse(
        {
            "no client has documents of enough persons in each group": not sums["counts"][0],
            "there are no two groups": len(xx) == 0,
        },
        error=StudyError,
    )
    scale = np.sqrt(np.maximum(np.diag(xx), 0))
    if not scale.all():
        raise StudyError("a column of the formula is the same for all documents that count")
    if np.linalg.eigvalsh(xx / np.outer(scale, scale)).min() < SINGULAR * len(xx):
        raise StudyError(
            "its columns depend on each other, such as a level that all documents of a client have "
            "and no others"
        )
    return np.asarray(np.linalg.solve(xx, sums["xy"]))


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Shares of topics by group: levels of a column, pairs of levels, or periods."""

    columns: tuple[str, ...]
    groups: tuple[str, ...]
    shares: Numbers  # (n_groups, n_topics)
    errors: Numbers  # their standard errors, (n_groups, n_topics)
    documents: NDArray[np.int64]  # (n_groups,)
    persons: NDArray[np.int64]  # (n_groups,)
    note: str = ""  # why groups are shown together, or not shown

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        groups: Sequence[str],
        sums: Moments,
        spread: Numbers,
        note: str = "",
    ) -> GroupTable:
        """Make a table from sums of `cells` and their squares."""
        documents = np.diag(sums["xx"])
        n_persons = sums["counts"][1]
        rows = np.flatnonzero(documents > 0).tolist()
        factor = n_persons / max(n_persons - 1, 1)
        n = documents[rows, None]
        return cls(
            columns=columns,
            groups=tuple(groups[row] for row in rows),
            shares=np.asarray(sums["xy"])[rows] / n,
            errors=np.sqrt(np.maximum(spread.T[rows] * factor, 0)) / n,
            documents=np.rint(documents[rows]).astype(np.int64),
            persons=np.rint(np.diag(sums["groups"])[rows]).astype(np.int64),
            note=note,
        )

    @property
    def name(self) -> str:
        """The columns, with a colon between them."""
        return ":".join(self.columns)

    def fits(self, n_topics: int) -> bool:
        """Whether all numbers are there for a model of so many topics."""
        n = len(self.groups)
        return (
            _are_texts(self.columns, self.groups)
            and self.shares.shape == self.errors.shape == (n, n_topics)
            and self.documents.shape == self.persons.shape == (n,)
            and _are_valid(self.shares, self.errors, self.documents, self.persons)
        )

    def rounded(self, digits: int) -> GroupTable:
        """Return rounded shares and counts; see `text.rounding`."""
        return replace(
            self,
            shares=np.round(self.shares, digits),
            errors=significant(self.errors),
            documents=rounded(self.documents),
            persons=rounded(self.persons),
        )

    def of_topics(self, sums: Callable[[Numbers], Numbers]) -> GroupTable:
        """Return the table of merged topics; errors are at most the sum of the topics' errors."""
        return replace(self, shares=sums(self.shares.T).T, errors=sums(self.errors.T).T)

    def rows(self, level: float = LEVEL) -> Iterator[dict[str, Any]]:
        """Yield one row per group and topic, with the interval of its share."""
        for place, group in enumerate(self.groups):
            persons = max(int(self.persons[place]), 2)
            reach = stdtrit(persons - 1, (1 + level) / 2) * np.sqrt(persons / (persons - 1))
            for topic, share in enumerate(self.shares[place].tolist()):
                error = float(self.errors[place, topic])
                yield {
                    "group": group,
                    "topic": topic,
                    "share": share,
                    "low": max(float(share - reach * error), 0.0),
                    "high": min(float(share + reach * error), 1.0),
                    "documents": int(self.documents[place]),
                    "persons": int(self.persons[place]),
                }


@dataclass(frozen=True, eq=False)
class Effects:
    """Coefficients of a formula for each topic's share, with their covariances."""

    formula: str
    terms: tuple[str, ...]
    coefficients: Numbers  # (n_terms, n_topics)
    # (n_topics, n_terms, n_terms): by person, or HC1 where each document is one
    covariances: Numbers
    classical: Numbers  # standard errors of ordinary least squares, (n_terms, n_topics)
    groups: Numbers  # persons with each term, (n_terms,)
    documents: int
    persons: int
    clients: int
    refused: str = ""  # why there are no coefficients

    @classmethod
    def refusal(cls, formula: str, why: str) -> Effects:
        """Return a table without coefficients, and why."""
        empty = np.zeros((0, 0))
        return cls(formula, (), empty, np.zeros((0, 0, 0)), empty, np.zeros(0), 0, 0, 0, why)

    @classmethod
    def of(
        cls,
        formula: str,
        terms: Sequence[str],
        sums: Moments,
        spread: Numbers,
        within: bool,
        scales: Numbers,
    ) -> Effects:
        """Make the table from the sums over all clients; `scales` divided the terms' numbers."""
        coefficients = coefficients_of(sums)
        documents, persons, clients = sums["counts"]
        free = documents - len(terms) - (clients if within else 0)
        inverse = np.linalg.inv(sums["xx"])
        rest = sums["yy"] - np.einsum("pk,pk->k", coefficients, sums["xy"])
        if free < 1 or persons < len(terms) + 2:
            raise StudyError(
                f"there are {persons:.0f} persons for {len(terms)} columns; use fewer columns"
            )
        factor = persons / (persons - 1) * (documents - 1) / free
        return cls(
            formula=formula,
            terms=tuple(terms),
            coefficients=coefficients / scales[:, None],
            covariances=factor * (inverse @ spread @ inverse) / np.outer(scales, scales),
            classical=np.sqrt(np.outer(np.diag(inverse), np.maximum(rest, 0) / free))
            / scales[:, None],
            groups=np.diag(sums["groups"]),
            documents=round(documents),
            persons=round(persons),
            clients=round(clients),
        )

    def fits(self, n_topics: int) -> bool:
        """Whether all numbers are there for a model of so many topics."""
        p = len(self.terms)
        return bool(self.refused) or (
            _are_texts(self.terms)
            and self.coefficients.shape == self.classical.shape == (p, n_topics)
            and self.covariances.shape == (n_topics, p, p)
            and self.groups.shape == (p,)
            and _are_valid(self.classical, self.groups, np.array(self.documents))
            and bool(np.isfinite(self.coefficients).all() and np.isfinite(self.covariances).all())
        )

    @property
    def errors(self) -> NDArray[np.float64]:
        """Standard errors, (n_terms, n_topics)."""
        return np.asarray(np.sqrt(np.maximum(np.einsum("kpp->pk", self.covariances), 0)))

    def rounded(self) -> Effects:
        """Return numbers rounded to less than a twentieth of their uncertainty."""
        steps = 10.0 ** np.floor(np.log10(np.maximum(self.errors, 1e-12)) - 1)
        return replace(
            self,
            coefficients=np.round(self.coefficients / steps) * steps,
            covariances=significant(self.covariances),
            classical=significant(self.classical),
            groups=rounded(self.groups).astype(np.float64),
            documents=int(rounded(np.array(self.documents))),
            persons=int(rounded(np.array(self.persons))),
        )

    def rows(self, level: float = LEVEL) -> list[dict[str, Any]]:
        """Return one row per term and topic; see `contrast`."""
        return [
            {"term": term} | row
            for place, term in enumerate(self.terms)
            for row in self._tested(np.eye(len(self.terms))[place], level)
        ]

    def contrast(self, plus: str, minus: str, level: float = LEVEL) -> list[dict[str, Any]]:
        """Return the difference of two terms, by topic.

        Parameters
        ----------
        plus, minus : str
            Two of `terms`, such as ``year[T.2025-01-01]`` and ``year[T.2024-01-01]``.
        level : float
            Of the intervals.

        Returns
        -------
        list of dict
            ``topic``; ``estimate``; its standard ``error`` and interval, ``low`` to ``high``;
            ``p``; ``q``, the false discovery rate over the topics if this and all with smaller p
            count as discoveries; ``low_of_all`` to ``high_of_all``, an interval that holds for all
            topics at once (Bonferroni).

        Raises
        ------
        StudyError
            If there is no such term.
        """
        if other := [term for term in (plus, minus) if term not in self.terms]:
            raise StudyError(f"There is no term {other[0]!r}; choose from {', '.join(self.terms)}.")
        return self._tested(
            np.array([float(term == plus) - float(term == minus) for term in self.terms]), level
        )

    def _tested(self, weights: Numbers, level: float) -> list[dict[str, Any]]:
        estimates = weights @ self.coefficients
        errors = np.sqrt(np.maximum(np.einsum("p,kpq,q->k", weights, self.covariances, weights), 0))
        # A small group has a few residuals of its own, which are smaller than its errors.
        inside = self.groups[weights != 0]
        outside = self.persons - inside
        smallest = max(np.min([*inside, *outside[outside > 0]], initial=self.persons), 2)
        free = max(min(self.persons - len(self.terms), smallest - 1), 1)
        wider = np.sqrt(smallest / (smallest - 1))
        p = 2 * stdtr(free, -np.abs(estimates) / np.maximum(wider * errors, 1e-300))
        q = scipy.stats.false_discovery_control(p)
        parts = np.array([2, 2 * len(p)])
        reach, joint_reach = wider * stdtrit(free, 1 - (1 - level) / parts)
        return [
            {
                "topic": topic,
                "estimate": float(estimate),
                "error": float(error),
                "low": float(estimate - reach * error),
                "high": float(estimate + reach * error),
                "low_of_all": float(estimate - joint_reach * error),
                "high_of_all": float(estimate + joint_reach * error),
                "p": float(p[topic]),
                "q": float(q[topic]),
            }
            for topic, (estimate, error) in enumerate(zip(estimates, errors, strict=True))
        ]


def significant(numbers: Numbers, digits: int = 3) -> NDArray[np.float64]:
    """Round numbers to so many significant digits."""
    steps = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(numbers), 1e-30))) + 1 - digits)
    return np.asarray(np.round(numbers / steps) * steps)


def plain(table: GroupTable | Effects) -> dict[str, Any]:
    """Return a table as lists, numbers and texts."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(table).items()
    }


Kind = TypeVar("Kind", GroupTable, Effects)


def of_plain(kind: type[Kind], content: Mapping[str, Any]) -> Kind:
    """Return a table from what `plain` returned."""
    arrays = {
        name: tuple(value) if value and isinstance(value[0], str) else np.array(value)
        for name, value in content.items()
        if isinstance(value, list)
    }
    return kind(**{**content, **arrays})


def _are_valid(*arrays: NDArray[Any]) -> bool:
    return all(bool(np.isfinite(array).all() and (array >= 0).all()) for array in arrays)


def _are_texts(*names: Sequence[Any]) -> bool:
    return all(isinstance(of, tuple) and all(isinstance(n, str) for n in of) for of in names)


def _dense(product: Any) -> NDArray[np.float64]:
    return np.asarray(product.toarray(), np.float64)
