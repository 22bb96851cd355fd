"""Which groups of documents are compared, so that no sum, nor a combination of sums, tells of few.

The rules are those of statistical disclosure control. Groups of too few persons are shown together,
with the smallest other group as company. No combination of groups of all columns lets one person
have more than 1/least of its sum of squares (her leverage): else the difference of two groups, such
as "funded" and "2024", could be one person. A formula needs enough persons, or none, in each
combination of levels that it can tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.core.groups import with_company
from fedtopics.model.formulas import Formula, Levels, Numbered, Values, one_hot
from fedtopics.model.over_time import CHANGE, EARLIER, LATER, REST, spans_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.grouping import OTHER, TIME, UNKNOWN, GroupColumn

Columns = Mapping[str, GroupColumn]
Table = tuple[str, ...]
"""Columns whose levels are combined."""
MOST_CELLS = 5_000  # combinations of levels of a table
MOST_SHOWN = 400  # combinations of two columns' levels whose shares are shown
MOST_COMPARED = 40  # levels of a column that are compared with its first one
MOST_PATTERNS = 20_000  # combinations of all columns' levels
NAMED_TOGETHER = 3  # most levels that a group of several names
ROUNDING = 1e-9
POWERS = 5  # of numbers: 0 to 4


def tables_of(columns: Columns, formulas: Sequence[Formula]) -> list[Table]:
    """Return the tables that are counted: each column, each pair, and what formulas tell apart."""
    wanted = [(name,) for name in columns] + [*combinations(columns, 2)]
    order = [*columns]
    for formula in formulas:
        wanted += [tuple(sorted(table, key=order.index)) for table in sorted(formula.tables)]
    tables = [*dict.fromkeys(wanted)]
    for table in tables:
        if prod(len(columns[name].names) for name in table) > MOST_CELLS:
            raise StudyError(
                f"{' and '.join(table)} have more than {MOST_CELLS:,} combinations of levels; "
                "choose longer periods, fewer levels, or leave a column out."
            )
    return tables


def shape_of(columns: Columns, table: Table) -> tuple[int, ...]:
    return tuple(len(columns[name].names) for name in table)


def count_cells(
    codes: Mapping[str, NDArray[np.int64]],
    columns: Columns,
    table: Table,
    owners: NDArray[np.int64],
    weights: Numbers,
) -> tuple[Numbers, Numbers]:
    """Return a client's persons in each cell of a table, and documents by weight."""
    shape = shape_of(columns, table)
    cells = np.ravel_multi_index([codes[name] for name in table], shape)
    size = prod(shape)
    persons = np.bincount(np.unique(owners * size + cells) % size, minlength=size)
    weighted = np.bincount(cells, weights, size)
    return persons.reshape(shape).astype(np.float64), weighted.reshape(shape)


def rows_kept(
    codes: Mapping[str, NDArray[np.int64]],
    columns: Columns,
    tables: Sequence[Table],
    owners: NDArray[np.int64],
    least: int,
) -> NDArray[np.bool_]:
    """Return which documents a client uses whose sums others see: those in no cell of few persons.

    If the others are of fewer than `least` persons, the smallest cell is left out as well.
    """
    kept = np.ones(len(owners), bool)
    changed = least > 1
    while changed:
        before = int(kept.sum())
        for table in tables:
            shape = shape_of(columns, table)
            cells = np.ravel_multi_index([codes[name] for name in table], shape)
            size = prod(shape)
            persons = np.bincount(np.unique((owners * size + cells)[kept]) % size, minlength=size)
            kept &= persons[cells] >= least
            smallest = np.where(persons >= least, persons, len(owners) + 1).argmin()
            if 0 < len(np.unique(owners[~kept])) < least:
                kept &= cells != smallest
        changed = int(kept.sum()) < before
    return kept


@dataclass(frozen=True)
class Design:
    """What a linear model of topics' shares is of: groups, or a formula."""

    key: str
    columns: Table
    cells: Sequence[str] = ()  # the groups, if it is a table of groups
    formula: Formula | None = None

    @property
    def within(self) -> bool:
        """Whether differences are within clients, and so not those of clients."""
        return self.formula.within if self.formula is not None else not self.cells


@dataclass(frozen=True)
class Cut:
    """What may be told of the columns, from counts over all clients; the same for everyone."""

    columns: Columns
    formulas: Sequence[Formula]
    counted: Mapping[str, Any]  # "persons" and "weights" by table, "clients" by column, "powers"
    least: int
    clients: int
    places: dict[str, NDArray[np.int64]] = field(default_factory=dict)  # of levels among `labels`
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            persons = self.counted["persons"][name]
            enough = (persons >= self.least) & (self.counted["clients"][name] >= self.clients)
            self._pool(name, column.names, persons, enough | (persons == 0))

    def _pool(self, name: str, names: Sequence[str], persons: Numbers, enough: Any) -> None:
        """Show small levels together."""
        enough = with_company(enough & (persons > 0), persons)
        alone = np.flatnonzero(enough)
        small = np.flatnonzero(~enough & (persons > 0))
        places = np.full(len(names), len(alone))
        places[alone] = np.arange(len(alone))
        labels = [names[place] for place in alone]
        if len(small):
            together = " or ".join(names[place] for place in small)
            labels.append(together if len(small) <= NAMED_TOGETHER else "others")
            self.notes[name] = (
                f"{len(small)} groups are shown together, as one of them has documents of fewer "
                f"than {self.least} persons"
            )
        self.places[name] = places
        self.labels[name] = tuple(labels)

    def table(self, kind: str, table: Table) -> Numbers:
        """Return counts by the levels that are shown: sums of weights, the largest of persons."""
        raw = self.counted[kind][":".join(table)]
        total = np.zeros([max(len(self.labels[name]), 1) for name in table])
        cells = np.ix_(*[self.places[name].clip(max=len(self.labels[name]) - 1) for name in table])
        (np.add if kind == "weights" else np.maximum).at(total, cells, raw)
        return total

    @cached_property
    def shown(self) -> list[str]:
        """The columns whose groups are shown: no combination of them is about few persons."""
        shown: list[str] = []
        for name in self.columns:
            if (
                self.least == 1
                or self._largest_leverage([*shown, name]) <= 1 / self.least + ROUNDING
            ):
                shown.append(name)
            else:
                self.notes[name] = (
                    "not shown: with the other columns, it would tell of fewer than "
                    f"{self.least} persons"
                )
        return shown

    def _largest_leverage(self, names: Sequence[str]) -> float:
        """Return the largest leverage of a person in all combinations of levels that can exist."""
        sizes = [len(self.labels[name]) for name in names]
        if prod(sizes) > MOST_PATTERNS:
            return np.inf
        starts = np.cumsum([0, *sizes])
        gram = np.zeros((starts[-1], starts[-1]))
        patterns = np.array([*product(*map(range, sizes))], np.int64)
        exists = np.ones(len(patterns), bool)
        for one, other in product(range(len(names)), repeat=2):
            place = slice(*starts[one : one + 2]), slice(*starts[other : other + 2])
            if one == other:
                gram[place] = np.diag(self.table("weights", (names[one],)))
            elif one < other:
                pair = self.table("weights", (names[one], names[other]))
                gram[place] = pair
                gram[place[::-1]] = pair.T
                exists &= pair[patterns[:, one], patterns[:, other]] > ROUNDING
        x = np.zeros((int(exists.sum()), starts[-1]))
        for column, start in enumerate(starts[:-1]):
            x[np.arange(len(x)), start + patterns[exists, column]] = 1
        return float(leverage(x, gram).max(initial=0.0))

    def shown_cells(self, table: Table) -> NDArray[np.bool_]:
        """Return which cells of two columns are shown next to the columns' own groups."""
        persons = self.table("persons", table)
        weights = self.table("weights", table)
        shown = persons >= max(self.least, 1)
        n_rows, n_columns = weights.shape
        rows, columns = np.indices(weights.shape).reshape(2, -1)
        while shown.any() and self.least > 1:
            x = np.column_stack(
                [
                    rows[:, None] == np.arange(n_rows),
                    columns[:, None] == np.arange(n_columns),
                    np.eye(weights.size)[:, shown.ravel()],
                ]
            ).astype(np.float64)
            by_cell = leverage(x, x.T @ (weights.ravel()[:, None] * x))
            by_cell[weights.ravel() <= ROUNDING] = 0
            worst = int(by_cell.argmax())
            if by_cell[worst] <= 1 / self.least + ROUNDING:
                break
            near = shown & (
                (np.indices(shown.shape)[0] == rows[worst])
                | (np.indices(shown.shape)[1] == columns[worst])
            )
            near = near if near.any() else shown
            shown.ravel()[np.where(near, weights, np.inf).argmin()] = False
        return shown

    def why_not(self, formula: Formula) -> str:
        """Return why a formula would tell of few persons, or cannot be computed; "" if it can."""
        for name in formula.columns:
            column = self.columns[name]
            if name not in self.shown:
                return self.notes[name]
            empty = [
                level
                for level, persons in zip(column.names, self.counted["persons"][name], strict=True)
                if level not in (OTHER, UNKNOWN) and not persons
            ]
            if empty and not column.is_number:
                return f"no document has {name} = {empty[0]}; leave that level out of the study"
            if column.is_number and self._depends_on_few(name):
                return (
                    f"the numbers of {name} differ in documents of fewer than {self.least} persons"
                )
        for table in sorted(formula.tables):
            persons = self.table("persons", tuple(sorted(table, key=[*self.columns].index)))
            if ((persons > 0) & (persons < self.least)).any():
                return (
                    f"a combination of {' and '.join(table)} has documents of fewer than "
                    f"{self.least} persons; list fewer levels or longer periods"
                )
        return ""

    def _depends_on_few(self, name: str) -> bool:
        """Whether few persons' numbers differ from the mean, by fourth powers; see `groups`."""
        numbers = [other for other, column in self.columns.items() if column.is_number]
        n, s1, s2, s3, s4 = self.counted["powers"][numbers.index(name)]
        mean = s1 / max(n, 1)
        second = s2 - n * mean**2
        fourth = s4 - 4 * mean * s3 + 6 * mean**2 * s2 - 3 * n * mean**4
        return bool(second**2 < self.least * fourth * (1 - ROUNDING))

    @cached_property
    def designs(self) -> list[Design]:
        """All linear models of the study that may be told."""
        several = [name for name in self.shown if len(self.labels[name]) > 1]
        designs = [Design(name, (name,), self.labels[name]) for name in several]
        for table in combinations(several, 2):
            if prod(len(self.labels[name]) for name in table) <= MOST_SHOWN:
                cells = [
                    " and ".join(labels) for labels in product(*[self.labels[n] for n in table])
                ]
                designs.append(Design(":".join(table), table, cells))
        for name in several:
            if name == TIME and self._spans is not None:
                designs.append(Design(CHANGE, (TIME,)))
            elif name != TIME and len(self.labels[name]) <= MOST_COMPARED:
                designs.append(Design(f"{name} + client", (name,)))
        return designs + [
            Design(f"formula {number}", formula.columns, formula=formula)
            for number, formula in enumerate(self.formulas)
            if not self.why_not(formula)
        ]

    @cached_property
    def _spans(self) -> NDArray[np.int64] | None:
        """By shown period: 1 if it is in the last ones, 0 in those before, 2 for the rest."""
        begins = self.columns[TIME].begins.tolist()
        if len(begins) < 2:
            return None
        order = (EARLIER, LATER, REST)
        spans = [order.index(span) for span in spans_of(begins)] + [2, 2]
        by_label = [
            {span for span, place in zip(spans, self.places[TIME], strict=True) if place == shown}
            for shown in range(len(self.labels[TIME]))
        ]
        return np.array([of.pop() if len(of) == 1 else 2 for of in by_label])

    def values(self, codes: Mapping[str, NDArray[np.int64]], corpus: Corpus) -> Values:
        """Return a client's documents by the levels that are shown."""
        values: dict[str, Levels | Numbered] = {}
        for name in self.shown:
            column = self.columns[name]
            values[name] = Levels(self.places[name][codes[name]], self.labels[name])
            if column.is_number:
                values[f"{name} as number"] = self._numbered(name, column.numbers(corpus, name))
        return values

    def _numbered(self, name: str, numbers: NDArray[np.float64]) -> Numbered:
        column = self.columns[name]
        return Numbered.of(numbers, column.ends, column.knots, UNKNOWN in self.labels[name])

    def names(self, design: Design) -> tuple[str, ...]:
        """Return the names of a design's columns, as one document has them."""
        zero = np.zeros(1, np.int64)
        one: dict[str, Levels | Numbered] = {
            name: Levels(zero, self.labels[name]) for name in design.columns
        }
        for name in design.columns:
            if self.columns[name].is_number:
                one[f"{name} as number"] = self._numbered(
                    name, np.array([self.columns[name].ends[0]])
                )
        return self.matrix(design, one)[1]

    def matrix(self, design: Design, values: Values) -> tuple[sparse.csr_array, tuple[str, ...]]:
        """Return a design's row of each document, and the names of its columns."""
        if design.formula is not None:
            used = {name: values.get(f"{name} as number", values[name]) for name in design.columns}
            return design.formula.matrix(used)
        levels = [values[name] for name in design.columns]
        codes = [level.codes for level in levels if isinstance(level, Levels)]
        if not design.cells:  # differences from the first level
            labels = self.labels[design.columns[0]]
            if design.key == CHANGE and self._spans is not None:
                codes = [self._spans[codes[0]]]
                labels = (EARLIER, LATER, REST)[: 2 + (self._spans == 2).any()]
            return one_hot(codes[0], len(labels))[:, 1:], labels[1:]
        n = [len(self.labels[name]) for name in design.columns]
        cells = np.ravel_multi_index(codes, n)
        x = one_hot(cells, prod(n))
        if len(n) == 1:
            return x, tuple(design.cells)
        return sparse.csr_array(x.multiply(self.shown_cells(design.columns).ravel())), tuple(
            design.cells
        )


def leverage(x: Numbers, gram: Numbers) -> NDArray[np.float64]:
    """Return each row's leverage: how much of a combination's sum of squares it can have."""
    return np.asarray(
        np.einsum("ip,pq,iq->i", x, np.linalg.pinv(gram, hermitian=True), x, optimize=True)
    )


def powers_of(
    numbers: NDArray[np.float64], ends: Sequence[float], owners: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return sums over persons of powers 0 to 4 of their mean number, scaled to 0 to 1."""
    present = ~np.isnan(numbers)
    low, high = ends
    people, places = np.unique(owners[present], return_inverse=True)
    scaled = (numbers[present] - low) / (high - low)
    means = np.bincount(places, scaled, len(people)) / np.maximum(
        np.bincount(places, minlength=len(people)), 1
    )
    return np.asarray([(means**power).sum() for power in range(POWERS)])
