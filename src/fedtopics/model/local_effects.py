"""Effects of formulas on topics' shares: those of a study, or of documents that are here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.model.effects import Effects, coefficients_of, products, squares
from fedtopics.model.finding import TopicFinder
from fedtopics.model.formulas import Formula, Levels, Numbered, parsed, scales
from fedtopics.text.columns import Column
from fedtopics.text.corpus import Corpus
from fedtopics.text.grouping import UNKNOWN, GroupColumn, values_in
from fedtopics.text.tables import Columns

Part = tuple[Any, NDArray[Any], NDArray[np.int64]]
"""A client's groups or numbers by document, its theta, and persons; see `Corpus.person_numbers`."""


def effects(
    model: TopicFinder,
    formula: str,
    documents: Any = None,
    *,
    by: Mapping[str, Any] | None = None,
    columns: Columns | None = None,
) -> Effects:
    """Return the effects of a formula on the topics' shares, with intervals.

    Parameters
    ----------
    formula : str
        Columns, such as ``"funded + year + client"``; ``client`` compares within clients.
    documents : table or file, or a mapping of client to that, optional
        Your own documents, which have the columns. Without documents, the estimates are those of
        the study, if it lists the formula under ``effects``.
    by : mapping of column to GroupColumn or list of levels, optional
        How columns of `documents` are read; by default texts are levels, and numbers are numbers.
    columns : Columns, optional
        Names of the columns of text and persons. With a column of persons, errors are by person.

    Returns
    -------
    Effects
        `Effects.rows` and `Effects.contrast` give estimates with intervals.

    Raises
    ------
    StudyError
        If the study has no such formula, or its columns depend on each other.
    """
    if documents is None:
        return _of_study(model, formula)
    columns = columns or Columns()
    described = {name: _described(name, column) for name, column in (by or {}).items()}
    words = {name for term in parsed(formula) for name, _ in term}
    corpora = {
        client: Corpus.of(table, replace(columns, by={name: name for name in words}))
        for client, table in (
            documents if isinstance(documents, Mapping) else {"": documents}
        ).items()
    }
    present = {name for corpus in corpora.values() for name in _names(corpus)}
    described |= {name: _guessed(name, corpora.values()) for name in present - described.keys()}
    return _estimate(model, Formula.read(formula, described), corpora, described)


def _of_study(model: TopicFinder, formula: str) -> Effects:
    by_formula = {"".join(of.formula.split()): of for of in model.estimates}
    wanted = "".join(formula.split())
    if wanted not in by_formula:
        raise StudyError(
            f"The study has no effects of {formula!r:.200}; choose from "
            f"{', '.join(of.formula for of in model.estimates) or 'none'}, or give documents."
        )
    if why := by_formula[wanted].refused:
        raise StudyError(f"The effects of {formula!r:.200} were not computed: {why}.")
    return by_formula[wanted]


def _names(corpus: Corpus) -> list[str]:
    return [] if corpus.groups is None else [field.name for field in corpus.groups.type]


def _described(name: str, column: Any) -> GroupColumn:
    """Return how a column is read; StudyError if that is not possible."""
    try:
        if isinstance(column, Mapping):
            return GroupColumn(**column)
        if not isinstance(column, GroupColumn):
            return GroupColumn(levels=tuple(map(str, column)))
    except (TypeError, ValueError):
        raise StudyError(
            f"The column {name!r} cannot be compared; give a list of up to 238 different levels "
            "(not other, unknown or others), or numbers that differ."
        ) from None
    return column


def _guessed(name: str, corpora: Iterable[Corpus]) -> GroupColumn:
    """Return how a column is read that the user does not describe."""
    column = Column([values_in(corpus, name) for corpus in corpora if name in _names(corpus)], name)
    arrow = column.arrow
    if arrow is not None and str(arrow.type).startswith(("int", "uint", "float", "double")):
        numbers = np.array([v for v in column.plain() if v is not None], np.float64)
        return _described(
            name, {"least": numbers.min(initial=np.inf), "most": numbers.max(initial=-np.inf)}
        )
    return _described(name, sorted({*column.names().to_pylist()} - {""}))


def _estimate(
    model: TopicFinder,
    formula: Formula,
    corpora: Mapping[Any, Corpus],
    by: Mapping[str, GroupColumn],
) -> Effects:
    parts = [_seen(model, corpus) for corpus in corpora.values()]
    present = {
        name: np.unique(np.concatenate([by[name].codes(corpus, name) for corpus, _ in parts]))
        for name in formula.columns
    }
    made = [
        formula.matrix(
            {name: _values(corpus, name, places, by[name]) for name, places in present.items()}
        )
        for corpus, _ in parts
    ]
    terms = made[0][1]
    return pooled(
        formula.text,
        terms,
        [
            (x, theta, corpus.person_numbers)
            for (x, _), (corpus, theta) in zip(made, parts, strict=True)
        ],
        within=formula.within,
        scales=scales(terms, by),
    )


def pooled(
    formula: str,
    terms: Sequence[str],
    parts: Sequence[Part],
    within: bool,
    scales: NDArray[np.float64],
) -> Effects:
    """Return effects from each client's numbers by document, theta, and persons."""
    sums = [products(x, theta, owners, within) for x, theta, owners in parts]
    total = {name: np.sum([part[name] for part in sums], axis=0) for name in sums[0]}
    coefficients = coefficients_of(total)
    spread = [squares(x, theta, coefficients, owners, within) for x, theta, owners in parts]
    return Effects.of(
        formula=formula,
        terms=terms,
        sums=total,
        spread=np.sum(spread, axis=0),
        within=within,
        scales=scales,
    )


def _seen(model: TopicFinder, corpus: Corpus) -> tuple[Corpus, NDArray[np.float64]]:
    """Return the documents that contain something the model knows, and their theta."""
    _, theta, seen = model.read(corpus)
    return corpus.take(np.flatnonzero(seen)), theta[seen].astype(np.float64)


def _values(
    corpus: Corpus, name: str, places: NDArray[np.int64], column: GroupColumn
) -> Levels | Numbered:
    """Return a client's values of a column, by the levels (`places`) that any document has."""
    labels = tuple(column.names[place] for place in places)
    return (
        Numbered.of(column.numbers(corpus, name), column.ends, column.knots, UNKNOWN in labels)
        if column.is_number
        else Levels(np.searchsorted(places, column.codes(corpus, name)), labels)
    )
