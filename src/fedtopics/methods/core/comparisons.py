"""Which groups of documents are compared, so that no combination of sums is about few persons.

The rules are those of statistical disclosure control. Groups of too few persons are shown together,
with the smallest other group as company. No combination of all that is shown (groups of columns, of
pairs of columns, and what formulas can tell apart) lets one person have more than 1/least of its
sum of squares (her leverage): else the difference of two groups, such as "funded" and "2024", could
be one person. Leverage is that of all columns together, whose combinations are counted. A person
counts in each group by the share of her documents there, so that she counts once in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.groups import persons_by_label, with_company
from fedtopics.model.formulas import Formula, Levels, Numbered, Values, one_hot
from fedtopics.model.over_time import CHANGE, EARLIER, LATER, REST, spans_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.grouping import OTHER, OTHERS, TIME, UNKNOWN, GroupColumn

Columns = Mapping[str, GroupColumn]
Table = tuple[str, ...]
"""Columns whose levels are combined."""
MOST_CELLS = 20_000  # combinations of all columns' levels
MOST_SHOWN = 400  # combinations of two columns' levels whose shares are shown
MOST_COMPARED = 40  # levels of a column that are compared with its first one
MOST_NUMBERS = 50_000_000  # of a matrix whose leverage is computed
NAMED_TOGETHER = 3  # most levels that a group of several names
ROUNDING = 1e-9


def shape_of(columns: Columns) -> tuple[int, ...]:
    """Return the numbers of levels; StudyError if they have too many combinations."""
    shape = tuple(len(column.names) for column in columns.values())
    if prod(shape) > MOST_CELLS:
        raise StudyError(
            f"{' and '.join(columns)} have more than {MOST_CELLS:,} combinations of levels; "
            "choose longer periods, fewer levels, or leave a column out."
        )
    return shape


def persons_in(cells: NDArray[np.int64], owners: NDArray[np.int64], n: int) -> Numbers:
    """Return a client's persons in each of n cells: each by the share of her documents there."""
    weights = 1 / np.bincount(owners, minlength=1)[owners]
    return np.asarray(np.bincount(cells, weights, n), np.float64)


def rows_kept(cells: NDArray[np.int64], owners: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """Return which documents a client uses whose sums others see: those in no cell of few persons.

    If the others are of fewer than `least` persons, the smallest cell is left out as well.
    """
    persons = persons_by_label(cells, int(cells.max(initial=0)) + 1, owners)
    used = persons[cells] >= least
    if 0 < len(np.unique(owners[~used])) < least:
        used &= cells != np.where(persons >= least, persons, len(owners) + 1).argmin()
    return np.asarray(used)


@dataclass(frozen=True)
class Design:
    """What a linear model of topics' shares is of: groups, or a formula."""

    key: str
    columns: Table
    cells: Sequence[str] = ()  # the groups, if it is a table of groups
    formula: Formula | None = None
    # Whether each client sees to it that its own sums are of enough persons: counts of groups do
    # not say who differs from a client's mean, nor by how much.
    by_client: bool = False

    @property
    def within(self) -> bool:
        """Whether differences are within clients, and so not those of clients."""
        return self.formula.within if self.formula is not None else not self.cells


@dataclass(frozen=True)
class Cut:
    """What may be shown of the columns, from counts over all clients; the same for everyone."""

    columns: Columns
    formulas: Sequence[Formula]
    counted: Mapping[str, Any]  # "persons" of each combination, "clients" by level
    least: int
    clients: int
    places: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # of levels among `labels`
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            persons = self._persons_by_level(name)
            enough = persons >= self.least - ROUNDING
            enough &= self.counted["clients"][name] >= self.clients
            self._pool(name, column.names, persons, enough)

    def _persons_by_level(self, name: str) -> Numbers:
        axes = tuple(axis for axis, other in enumerate(self.columns) if other != name)
        return np.asarray(self.counted["persons"].sum(axes))

    def _pool(
        self, name: str, names: Sequence[str], persons: Numbers, enough: NDArray[np.bool_]
    ) -> None:
        """Show small levels together."""
        enough = with_company(enough & (persons > ROUNDING), persons)
        alone = np.flatnonzero(enough).tolist()
        small = np.flatnonzero(~enough & (persons > ROUNDING)).tolist()
        places = np.full(len(names), len(alone))
        places[alone] = np.arange(len(alone))
        labels = [names[place] for place in alone]
        if len(small):
            together = " or ".join(names[place] for place in small)
            is_short = len(small) <= NAMED_TOGETHER and together not in names
            labels.append(together if is_short else OTHERS)
            self.notes[name] = (
                f"{len(small)} groups are shown together, as one of them is of fewer than "
                f"{self.least} persons or {self.clients} clients"
            )
        self.places[name] = places
        self.labels[name] = tuple(labels)

    def persons(self, table: Table) -> Numbers:
        """Return the persons in each cell of a table, by the levels that are shown."""
        total = np.zeros(self._shape((*self.columns,)))
        levels = np.indices(self.counted["persons"].shape)
        places = tuple(
            self.places[name].clip(max=max(len(self.labels[name]), 1) - 1)[level]
            for name, level in zip(self.columns, levels, strict=True)
        )
        np.add.at(total, places, self.counted["persons"])
        return np.asarray(total.sum(tuple(a for a, n in enumerate(self.columns) if n not in table)))

    def _shape(self, table: Table) -> list[int]:
        return [max(len(self.labels[name]), 1) for name in table]

    @cached_property
    def shown(self) -> list[str]:
        """The columns whose groups are shown."""
        return [name for name in self.columns if (name,) in self._safe]

    @cached_property
    def _safe(self) -> set[Table]:
        """The tables that are shown: no combination of their groups is about few persons.

        Formulas come last, in their order: a later study can add some.
        """
        safe: set[Table] = set()
        wanted: list[Table] = [*((name,) for name in self.columns), *combinations(self.columns, 2)]
        for tables in [*({table} for table in wanted), *map(self._tables, self.formulas)]:
            parts = {(name,) for table in tables for name in table}
            is_safe = parts <= safe | tables and self._hides_persons(safe | tables)
            safe |= tables if is_safe else set()
        for table in [table for table in wanted if table not in safe]:
            self.notes[":".join(table)] = (
                f"not shown: with the other columns, it would be about fewer than {self.least} "
                "persons"
            )
        return safe

    def _tables(self, formula: Formula) -> set[Table]:
        """Return what a formula can tell apart, with columns in the study's order."""
        return {tuple(name for name in self.columns if name in table) for table in formula.tables}

    def _hides_persons(self, tables: set[Table]) -> bool:
        """Whether no person has much leverage in any combination of the groups of tables."""
        if self.least == 1:
            return True
        persons = self.persons((*self.columns,))
        codes = dict(zip(self.columns, np.nonzero(persons > ROUNDING), strict=True))
        sizes = {table: prod(self._shape(table)) for table in sorted(tables)}
        if len(next(iter(codes.values()))) * sum(sizes.values()) > MOST_NUMBERS:
            return False
        parts = [
            one_hot(np.ravel_multi_index([codes[name] for name in table], self._shape(table)), size)
            for table, size in sizes.items()
        ]
        x = sparse.hstack(parts, format="csr")
        gram = (x.T @ sparse.diags_array(persons[persons > ROUNDING]) @ x).toarray()
        return bool(leverage(x.toarray(), gram).max(initial=0.0) <= 1 / self.least + ROUNDING)

    def why_not(self, formula: Formula) -> str:
        """Return why a formula is about few persons, or cannot be computed; "" if it can."""
        if formula.within and self.clients > 1:
            return (
                f"differences within a client are its own, and groups need {self.clients} clients"
            )
        for name in formula.columns:
            column = self.columns[name]
            if name not in self.shown:
                return self.notes[name]
            empty = [
                level
                for level, persons in zip(column.names, self._persons_by_level(name), strict=True)
                if level not in (OTHER, UNKNOWN) and not persons
            ]
            if empty and not column.is_number:
                return f"no document has {name} = {empty[0]}; leave that level out of the study"
        if not self._tables(formula) <= self._safe:
            return (
                "combinations of its columns, and of what else is shown, are about fewer than "
                f"{self.least} persons; list fewer levels, longer periods or fewer columns"
            )
        return ""

    @cached_property
    def designs(self) -> list[Design]:
        """All linear models of the study that may be shown."""
        several = [name for name in self.shown if len(self.labels[name]) > 1]
        designs = [Design(name, (name,), self.labels[name]) for name in several]
        for table in combinations(several, 2):
            if table in self._safe and prod(len(self.labels[n]) for n in table) <= MOST_SHOWN:
                cells = [
                    " and ".join(labels) for labels in product(*[self.labels[n] for n in table])
                ]
                designs.append(Design(":".join(table), table, cells))
        # Differences within a client are its own.
        for name in [] if self.clients > 1 else several:
            if name == TIME and self._spans is not None:
                designs.append(Design(CHANGE, (TIME,), by_client=True))
            elif name != TIME and len(self.labels[name]) <= MOST_COMPARED:
                designs.append(Design(f"{name} + client", (name,), by_client=True))
        done = {"".join(design.key.split()) for design in designs if not design.cells}
        return designs + [
            Design(
                key=f"formula {number}",
                columns=formula.columns,
                formula=formula,
                by_client=formula.within or any(self.columns[n].is_number for n in formula.columns),
            )
            for number, formula in enumerate(self.formulas)
            if not self.why_not(formula) and "".join(formula.text.split()) not in done
        ]

    @cached_property
    def _spans(self) -> NDArray[np.int64] | None:
        """By shown period: 1 if it is in the last ones, 0 in those before, 2 for the rest."""
        begins = self.columns[TIME].begins.tolist()
        if len(begins) < 2:
            return None
        spans = [(EARLIER, LATER, REST).index(span) for span in spans_of(begins)] + [2, 2]
        by_label = [
            {span for span, place in zip(spans, self.places[TIME], strict=True) if place == shown}
            for shown in range(len(self.labels[TIME]))
        ]
        return np.array([of.pop() if len(of) == 1 else 2 for of in by_label])

    def values(self, codes: Mapping[str, NDArray[np.int64]], corpus: Corpus) -> Values:
        """Return a client's documents by the levels that are shown."""
        return self._values(
            {name: self.places[name][codes[name]] for name in self.shown},
            lambda name: self.columns[name].numbers(corpus, name),
        )

    def _values(
        self,
        places: Mapping[str, NDArray[np.int64]],
        numbers: Callable[[str], NDArray[np.float64]],
    ) -> Values:
        """Return columns of documents, from their places among `labels` and their numbers."""
        levels = {name: Levels(of_column, self.labels[name]) for name, of_column in places.items()}
        numbered = {
            f"{name} as number": Numbered.of(
                numbers(name), column.ends, column.knots, UNKNOWN in self.labels[name]
            )
            for name, column in self.columns.items()
            if name in places and column.is_number
        }
        return {**levels, **numbered}

    def names(self, design: Design) -> tuple[str, ...]:
        """Return the names of a design's columns, as one document has them."""
        values = self._values(
            dict.fromkeys(design.columns, np.zeros(1, np.int64)),
            lambda name: np.array([self.columns[name].ends[0]]),
        )
        return self.matrix(design, values)[1]

    def matrix(self, design: Design, values: Values) -> tuple[sparse.csr_array, tuple[str, ...]]:
        """Return a design's row of each document, and the names of its columns."""
        if design.formula is not None:
            used = {name: values.get(f"{name} as number", values[name]) for name in design.columns}
            return design.formula.matrix(used)
        codes = [cast(Levels, values[name]).codes for name in design.columns]
        if not design.cells:  # differences from the first level
            labels = self.labels[design.columns[0]]
            if design.key == CHANGE and self._spans is not None:
                codes = [self._spans[codes[0]]]
                labels = (EARLIER, LATER, REST)[: 2 + (self._spans == 2).any()]
            return one_hot(codes[0], len(labels))[:, 1:], labels[1:]
        n = [len(self.labels[name]) for name in design.columns]
        return one_hot(np.ravel_multi_index(codes, n), prod(n)), tuple(design.cells)


def persons_hide(x: sparse.csr_array, owners: NDArray[np.int64], least: int) -> bool:
    """Whether no person has more than 1/least of a combination of a client's columns.

    The sum over all documents of the client is one more column: everybody knows it.
    """
    rows = np.column_stack([np.ones(x.shape[0]), x.toarray()])
    of_persons = np.bincount(owners, leverage(rows, rows.T @ rows))
    return bool(of_persons.max(initial=0.0) <= 1 / least + ROUNDING)


def leverage(x: Numbers, gram: Numbers) -> NDArray[np.float64]:
    """Return each row's leverage: how much of a combination's sum of squares it can have."""
    return np.asarray(
        np.einsum("ip,pq,iq->i", x, np.linalg.pinv(gram, hermitian=True), x, optimize=True)
    )
