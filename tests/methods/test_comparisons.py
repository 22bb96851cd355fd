"""Attacks on sums by group: no combination of what is shown is about few persons."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedtopics import Columns, Corpus
from fedtopics.errors import StudyError
from fedtopics.methods.core.comparisons import (
    Cut,
    persons_hide,
    persons_in,
    rows_kept,
    shape_of,
)
from fedtopics.model.effects import products
from fedtopics.model.formulas import Formula, one_hot
from fedtopics.text.grouping import GroupColumn

Cells = Mapping[tuple[int, ...], int]
LEAST = 10
NO_YES = GroupColumn(levels=("no", "yes"))
BITS = GroupColumn(levels=("0", "1"))
AMOUNT = GroupColumn(least=0, most=100)


@dataclass
class Opened:
    """What everyone sees of documents: counts, rules, and sums of the shares of four topics."""

    cut: Cut
    theta: NDArray[np.float64]
    sums: dict[str, Any]

    def of(self, design: str) -> NDArray[np.float64]:
        return np.asarray(self.sums[design]["xy"])


def opened(
    columns: Mapping[str, GroupColumn],
    values: Mapping[str, Any],
    effects: tuple[str, ...] = (),
    least: int = LEAST,
    owners: Any = None,
) -> Opened:
    n = len(next(iter(values.values())))
    theta = np.random.default_rng(0).dirichlet(np.ones(4), n)
    table = pa.table({"text": ["a"] * n, **{name: list(of) for name, of in values.items()}})
    corpus = Corpus.of(table, Columns(text="text", by={name: name for name in values}))
    codes = {name: column.codes(corpus, name) for name, column in columns.items()}
    people = np.arange(n) if owners is None else np.asarray(owners)
    shape = shape_of(columns)
    cells = np.ravel_multi_index([*codes.values()], shape)
    counted = {
        "persons": persons_in(cells, people, math.prod(shape)).reshape(shape),
        "clients": {name: np.ones(len(column.names)) for name, column in columns.items()},
    }
    formulas = [Formula.read(text, columns) for text in effects]
    cut = Cut(columns, formulas, counted, least, 1)
    coded = cut.values(codes, corpus)
    sums = {}
    for design in cut.designs:
        x = cut.matrix(design, coded)[0]
        if not design.by_client or persons_hide(x, people, least):
            sums[design.key] = products(x, theta, people, design.within)
    return Opened(cut, theta, sums)


def rows_of(cells: Cells) -> dict[str, list[str]]:
    """So many documents of each combination of the columns a, b and c."""
    rows = np.array([cell for cell, n in cells.items() for _ in range(n)])
    return {name: list(map(str, of)) for name, of in zip("abc", rows.T, strict=False)}


def test_the_difference_of_two_groups_is_no_person() -> None:
    """Funded are those of 2020 and one person."""
    rows = np.repeat([0, 1], 40)
    values = {"year": list(map(str, rows)), "funded": np.where(rows, "yes", "no").tolist()}
    values["funded"][0] = "yes"
    columns = {"year": BITS, "funded": NO_YES}
    exact = opened(columns, values, least=1)
    difference = exact.of("funded")[1] - exact.of("year")[1]
    np.testing.assert_allclose(difference, exact.theta[0])
    ruled = opened(columns, values)
    assert [*ruled.sums] == ["year", "year + client"]
    why = "not shown: with the other columns, it would be about fewer than 10 persons"
    assert ruled.cut.notes == {"funded": why, "year:funded": why}


def test_pairs_of_three_columns_do_not_sum_to_a_person() -> None:
    """She alone is 1 in all columns and nobody is 0 in all: sums by inclusion and exclusion."""
    cells = {tuple(cell): 30 for cell in np.ndindex(2, 2, 2)} | {(0, 0, 0): 0, (1, 1, 1): 1}
    columns = dict.fromkeys("abc", BITS)
    exact = opened(columns, rows_of(cells), least=1)
    pairs = [exact.of(name)[3] for name in ("a:b", "a:c", "b:c")]
    singles = [exact.of(name)[1] for name in "abc"]
    person = exact.of("a").sum(0) + sum(pairs) - sum(singles)
    np.testing.assert_allclose(person, exact.theta[-1])
    ruled = opened(columns, rows_of(cells), ("a + b + c",))
    assert [name for name in ruled.sums if ":" in name] == ["a:b", "a:c"]
    (formula,) = ruled.cut.formulas  # squared scores tell pairs of its columns apart
    assert "combinations of its columns, and of what else is shown" in ruled.cut.why_not(formula)


@pytest.mark.parametrize("effects", [(), ("a:b",)])
def test_a_pair_of_levels_less_another_column_is_no_person(effects: tuple[str, ...]) -> None:
    rows = np.array([cell for cell in np.ndindex(4, 4) for _ in range(40)])
    c = (rows == 1).all(1)
    c[0] = True
    values = {name: list(map(str, of)) for name, of in zip("abc", [*rows.T, c * 1], strict=True)}
    levels = GroupColumn(levels=("0", "1", "2", "3"))
    columns = {"a": levels, "b": levels, "c": BITS}
    exact = opened(columns, values, least=1)
    np.testing.assert_allclose(exact.of("c")[1] - exact.of("a:b")[5], exact.theta[0])
    assert not {"a:b", "formula 0"} & opened(columns, values, effects).sums.keys()


def test_a_formula_needs_many_persons_in_each_combination() -> None:
    rows: Cells = {(0, 0): 40, (0, 1): 40, (1, 0): 40, (1, 1): 1}
    columns = dict.fromkeys("ab", BITS)
    ruled = opened(columns, rows_of(rows), ("a + b", "a*b", "a"))
    assert [bool(ruled.cut.why_not(formula)) for formula in ruled.cut.formulas] == [
        True,
        True,
        False,
    ]
    assert {"formula 0", "formula 1"}.isdisjoint(ruled.sums), "its squares are not asked for"
    assert "formula 2" in ruled.sums
    enough = opened(columns, rows_of({**rows, (1, 1): 12}), ("a*b",)).cut
    assert enough.why_not(enough.formulas[0]) == ""


def test_numbers_in_which_one_person_differs() -> None:
    ruled = opened({"amount": AMOUNT}, {"amount": [50.0] * 60 + [100.0]}, ("amount",))
    assert "formula 0" not in ruled.sums
    spread = np.linspace(0, 100, 61)
    assert "formula 0" in opened({"amount": AMOUNT}, {"amount": spread}, ("amount",)).sums


@pytest.mark.parametrize("formula", ["funded*amount", "funded + amount", "spline"])
def test_a_combination_of_numbers_and_levels_is_no_person(formula: str) -> None:
    """Only one person has an amount, differs from what her level says, or is within a part."""
    funded = np.arange(80) < 40
    amount = np.where(funded, 50.0, 0.0) if "+" in formula else np.arange(80) % 2 * 100.0
    amount[0] = 17.0
    amount[1:40] *= "*" not in formula
    values = {"funded": np.where(funded, "yes", "no").tolist(), "amount": amount.tolist()}
    column = GroupColumn(least=0, most=100, knots=(40, 60)) if formula == "spline" else AMOUNT
    text = "amount" if formula == "spline" else formula
    for least in (1, LEAST):
        sums = opened({"funded": NO_YES, "amount": column}, values, (text,), least).sums
        assert ("formula 0" in sums) == (least == 1)


@pytest.mark.parametrize(("few", "is_shown"), [(1, False), (9, False), (12, True)])
def test_who_differs_within_a_client_is_not_alone(few: int, is_shown: bool) -> None:
    """Many others have the level, but at clients where all have it."""
    x = one_hot(np.array([0] * 80 + [1] * few), 2)[:, 1:]
    assert persons_hide(x, np.arange(80 + few), LEAST) == is_shown


@pytest.mark.parametrize("documents", [1, 10])
def test_thresholds_count_persons(documents: int) -> None:
    """Nine persons are too few for a level, whatever the number of their documents."""
    persons = np.repeat(np.arange(60), documents)
    values = {"funded": np.where(persons < 9, "yes", "no").tolist()}
    ruled = opened({"funded": NO_YES}, values, owners=persons)
    assert ruled.cut.labels["funded"] == ("no or yes",)
    assert not ruled.sums
    values = {"funded": np.where(persons < 10, "yes", "no").tolist()}
    assert opened({"funded": NO_YES}, values, owners=persons).cut.labels["funded"] == ("no", "yes")


SMALL = st.lists(st.integers(0, 25), min_size=12, max_size=12)


@settings(max_examples=80, deadline=None)
@given(SMALL, st.integers(2, 6))
def test_no_combination_of_what_is_shown_is_about_few(sizes: list[int], least: int) -> None:
    """By the span of all shown groups: nobody has more than 1/least of a combination's squares."""
    cells = dict(zip(np.ndindex(2, 2, 3), sizes, strict=True))
    rows = [cell for cell, n in cells.items() for _ in range(n)]
    if not rows:
        return
    values = {
        name: list(map(str, of)) for name, of in zip("abc", zip(*rows, strict=True), strict=True)
    }
    three = GroupColumn(levels=("0", "1", "2"))
    ruled = opened({"a": BITS, "b": BITS, "c": three}, values, ("a + b",), least)
    cut = ruled.cut
    shown = []
    for design in cut.designs:
        if design.within:
            continue
        for table in design.formula.tables if design.formula else [design.columns]:
            labels = [cut.places[name][np.array([*map(int, values[name])])] for name in table]
            _, groups = np.unique(labels, axis=1, return_inverse=True)
            shown.append(np.eye(groups.max() + 1)[groups])
    if shown:
        basis, values_, _ = np.linalg.svd(np.column_stack(shown), full_matrices=False)
        leverage = (basis[:, values_ > 1e-9] ** 2).sum(1)
        assert leverage.max() <= 1 / least + 1e-6


@settings(max_examples=80, deadline=None)
@given(SMALL, st.integers(2, 12))
def test_plain_sums_leave_no_few_persons(sizes: list[int], least: int) -> None:
    """A server sees each client's sums, and those of all its documents."""
    columns = {"a": BITS, "b": BITS, "c": GroupColumn(levels=("0", "1", "2"))}
    codes = np.array(
        [cell for cell, n in zip(np.ndindex(2, 2, 3), sizes, strict=True) for _ in range(n)]
    )
    codes = codes.reshape(-1, 3).astype(int)
    by_name = dict(zip("abc", codes.T, strict=True))
    owners = np.arange(len(codes)) // 2  # persons of two documents, perhaps of two groups
    cells = np.ravel_multi_index([*by_name.values()], shape_of(columns))
    used = rows_kept(cells, owners, least)
    left_out = len(np.unique(owners[~used]))
    assert left_out == 0 or left_out >= least or not used.any()
    pairs = np.unique(np.column_stack([owners, cells])[used], axis=0)
    _, persons = np.unique(pairs[:, 1], return_counts=True)
    assert (persons >= least).all()


@pytest.mark.parametrize(
    "text",
    ["np.log(funded)", "__import__('os').system('true')", "{funded}", "C(funded)", "bs(year, 3)"],
)
def test_a_formula_with_a_function_is_refused_before_it_is_evaluated(text: str) -> None:
    with pytest.raises(StudyError, match=r"function or a sign|cannot be read|does not have"):
        Formula.read(text, {"funded": NO_YES, "year": BITS})


@pytest.mark.parametrize("text", ["funded + ", "funded + other", "funded:client", "client", "1"])
def test_other_formulas_that_are_refused(text: str) -> None:
    with pytest.raises(
        StudyError, match=r"cannot be read|no column|does not have|multiplies client"
    ):
        Formula.read(text, {"funded": NO_YES})
