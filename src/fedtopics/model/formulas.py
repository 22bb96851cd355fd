"""Formulas such as funded + year + client: which columns of numbers they make of documents.

A formula names columns of a study. It contains no functions, so that nobody can send code in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations_with_replacement
from math import prod
from typing import Any

import numpy as np
import scipy  # whose parts are loaded when they are used
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import StudyError, nearest_names, refuse
from fedtopics.extras import require
from fedtopics.text.grouping import GroupColumn

CLIENT = "client"  # in a formula: each client has its own level, and none is sent
DEGREE = 3  # of splines
LONGEST = 300  # characters of a formula
BETWEEN = "__"  # a name and its part, in a name that formulas can contain


@dataclass(frozen=True)
class Levels:
    """Each document's level."""

    codes: NDArray[np.int64]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Numbered:
    """Each document's numbers: one, see `scale_of`, or the bases of a spline.

    Unknown ones are in the middle, with a column that says so if enough persons have them.
    """

    columns: NDArray[np.float64]  # (n_documents, n_columns)
    parts: tuple[str, ...]  # what follows the name in the names of columns

    @classmethod
    def of(
        cls,
        numbers: NDArray[np.float64],
        ends: Sequence[float],
        knots: Sequence[float],
        unknown: bool,
    ) -> Numbered:
        """Return numbers, or bases of a cubic spline, and with `unknown` which are missing."""
        is_missing = np.isnan(numbers)
        whole = np.where(is_missing, np.mean(ends), numbers)
        columns = whole[:, None] / scale_of(ends)
        parts: tuple[str, ...] = ("",)
        if knots:
            places = np.r_[[ends[0]] * (DEGREE + 1), knots, [ends[1]] * (DEGREE + 1)]
            columns = scipy.interpolate.BSpline.design_matrix(whole, places, DEGREE).toarray()[
                :, 1:
            ]
            parts = tuple(f"{BETWEEN}{number}" for number in range(1, columns.shape[1] + 1))
        if unknown:
            columns = np.column_stack([columns, is_missing])
            parts = (*parts, f"{BETWEEN}unknown")
        return cls(columns.astype(np.float64), parts)


Values = Mapping[str, Levels | Numbered]


@dataclass(frozen=True)
class Formula:
    """Columns of a study whose effects on topics' shares are estimated."""

    text: str
    terms: tuple[tuple[str, ...], ...]  # columns that are multiplied
    has_intercept: bool
    within: bool  # whether each client has its own level

    @classmethod
    def read(cls, text: str, columns: Collection[str]) -> Formula:
        """Read a formula; StudyError if it has functions, or columns that are not there."""
        factors = parsed(text)  # nothing is evaluated: the text is of somebody else
        products = [tuple(name for name, _ in term) for term in factors if term[0][1] != "literal"]
        terms = tuple(term for term in products if term != (CLIENT,))
        if any(how not in ("lookup", "literal") for term in factors for _, how in term):
            raise StudyError(
                f"The formula {text!r:.200} has a function or a sign that is not + or :; give "
                "numbers knots in the study for a spline."
            )
        for name in chain.from_iterable(products):
            refuse(
                {
                    f"The formula {text!r:.200} has {name!r}; give that column a name of letters, "
                    "digits and single _.": not name.isidentifier() or "__" in name,
                    f"The formula {text!r:.200} has {name!r}, which [method.by] does not have; "
                    f"{nearest_names(name, [*columns, CLIENT])}": name not in (*columns, CLIENT),
                },
                error=StudyError,
            )
        refuse(
            {
                f"The formula {text!r:.200} multiplies client by another column, which would tell "
                "each client's differences; write + client.": any(CLIENT in term for term in terms),
                f"The formula {text!r:.200} has no column; add one, such as funded.": not terms,
            },
            error=StudyError,
        )
        return cls(
            text=text,
            terms=terms,
            has_intercept=any(term[0] == ("1", "literal") for term in factors),
            within=(CLIENT,) in products,
        )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of all terms, each once."""
        return tuple(dict.fromkeys(name for term in self.terms for name in term))

    @property
    def tables(self) -> set[tuple[str, ...]]:
        """The combinations of columns that products of two terms and a residual can tell apart."""
        return {
            tuple(name for name in self.columns if name in (*one, *other, *third))
            for one, other, third in combinations_with_replacement(self.terms, 3)
        }

    def matrix(self, values: Values) -> tuple[sparse.csr_array, tuple[str, ...]]:
        """Return one row per document, and the names of its columns."""
        import formulaic
        import pandas as pd  # which formulaic needs

        frame: dict[str, Any] = {}
        named: dict[str, str] = {}
        for name in self.columns:
            value = values[name]
            if isinstance(value, Levels):
                frame[name] = pd.Categorical.from_codes(value.codes, value.labels)
                named[name] = name
            else:
                parts = [f"{name}{part}" for part in value.parts]
                frame |= dict(zip(parts, value.columns.T, strict=True))
                named[name] = f"({' + '.join(parts)})"
        terms = [":".join(named[name] for name in term) for term in self.terms]
        made = formulaic.model_matrix(
            formulaic.Formula(" + ".join([str(int(self.has_intercept or self.within)), *terms])),
            pd.DataFrame(frame),
            output="sparse",
            context={},
        )
        names = [name.replace(BETWEEN, " ") for name in made.model_spec.column_names]
        first = int(self.within)  # a client's own level contains the intercept
        return sparse.csr_array(made)[:, first:], tuple(names[first:])


def parsed(text: str) -> list[list[tuple[str, str]]]:
    """Return the factors of each term of a formula, and of what kind each is."""
    if "**" in text or "^" in text or len(text) > LONGEST:
        raise StudyError(
            f"The formula {text!r:.200} has a power, or more than {LONGEST} characters; write out "
            "its terms with + and :."
        )
    require("Formulas need", "'fedtopics[effects]'", ("formulaic", "formulaic"))
    import formulaic

    try:
        return [
            [(factor.expr, factor.eval_method.value) for factor in term.factors]
            for term in formulaic.Formula(text)
        ]
    except Exception:  # the parser has errors of many types
        raise StudyError(
            f"The formula {text!r:.200} cannot be read; write names of columns with + and :, such "
            "as funded + year + client."
        ) from None


def one_hot(codes: NDArray[np.int64], n: int) -> sparse.csr_array:
    """Return one row per document, with a 1 in the column of its level."""
    return sparse.csr_array((np.ones(len(codes)), (np.arange(len(codes)), codes)), (len(codes), n))


def scale_of(ends: Sequence[float]) -> float:
    """Return a power of ten by which numbers between these ends are divided, to be at most 1."""
    return float(10.0 ** np.ceil(np.log10(max(map(abs, ends)))))


def scales(terms: Sequence[str], by: Mapping[str, GroupColumn]) -> NDArray[np.float64]:
    """Return by what the numbers of each term of a formula were divided."""
    divided = {
        name: scale_of(column.ends)
        for name, column in by.items()
        if column.is_number and not column.knots
    }
    return np.array(
        [prod(divided.get(factor, 1.0) for factor in term.split(":")) for term in terms]
    )
