"""Effects of formulas, and shares by group: those of pooled least squares."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy import sparse, stats
from statsmodels.stats.multitest import multipletests

from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.federation import finished_model
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.core import group_sums
from fedtopics.model.effects import (
    Effects,
    GroupTable,
    coefficients_of,
    of_plain,
    plain,
    products,
    squares,
)
from fedtopics.model.formulas import one_hot
from fedtopics.text.grouping import GroupColumn
from tests.helpers.clients import BOATS, TREES
from tests.helpers.federation import ANY_WORDS
from tests.helpers.grpc_federation import federated

COLUMNS = Columns(
    text="text", person="person", by={name: name for name in ("funded", "county", "amount")}
)
COUNTIES = ["Cork", "Kerry", "Mayo"]
AMOUNT = {"least": 0.0, "most": 100.0}
POLICY = Policy(min_persons=3, min_persons_per_word=1, min_clients_in_sum=1)


def table_of(n: int, seed: int) -> pd.DataFrame:
    """Documents of so many persons, one to three of each, whose topics depend on the columns."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(n), rng.integers(1, 4, n))
    funded = rng.random(len(person)) < 0.5
    county = rng.integers(0, 3, len(person))
    amount = rng.uniform(0, 100, len(person)).round(1)
    boats = rng.random(len(person)) < 0.2 + 0.2 * funded + 0.1 * county + rng.random(n)[person] / 4
    mixed = [rng.choice(BOATS if is_boats else TREES, 10) for is_boats in boats]
    return pd.DataFrame(
        {
            "text": [" ".join([*words, *rng.choice(BOATS + TREES, 3)]) for words in mixed],
            "funded": np.where(funded, "yes", "no"),
            "county": np.array(COUNTIES)[county],
            "amount": np.where(rng.random(len(person)) < 0.2, np.nan, amount),
            "person": [f"p{number}" for number in person],
        }
    )


SIZES = {"a": 90, "b": 70, "c": 60}  # persons of each client
TABLES = {name: table_of(n, seed) for seed, (name, n) in enumerate(SIZES.items())}


def corpora_of(tables: Mapping[str, pd.DataFrame]) -> dict[str, Corpus]:
    return {name: Corpus.of(pa.Table.from_pandas(table), COLUMNS) for name, table in tables.items()}


def trained(by: Mapping[str, Any], effects: list[str], **study: Any) -> Study:
    plan = Study.make(
        method={"name": "nmf", "n_components": 3, "max_rounds": 20, "by": by, "effects": effects},
        vocabulary={**ANY_WORDS, "max_document_share": 1.0},
    )
    return plan.model_copy(update=study)


@pytest.fixture(scope="module")
def model() -> TopicModel:
    return train(trained({}, []), corpora_of(TABLES), at_once=False)


def pooled_of(thetas: Mapping[str, Any]) -> pd.DataFrame:
    """All documents in one table, with theta, and what formulas make of missing numbers."""
    parts = [table.assign(client=name) for name, table in TABLES.items()]
    pooled = pd.concat(parts, ignore_index=True)
    theta = np.concatenate([thetas[name] for name in TABLES]).astype(float)
    return pooled.assign(
        **{f"theta{topic}": theta[:, topic] for topic in range(3)},
        unknown=pooled["amount"].isna().astype(float),
        amount=pooled["amount"].fillna(50.0),
        who=pd.factorize(pooled["client"] + pooled["person"])[0],
    )


def differences(ours: Effects, pooled: pd.DataFrame, formula: str, by_person: bool) -> list[float]:
    """The largest differences of coefficients, errors and classical errors, relative to errors."""
    largest = [0.0, 0.0, 0.0]
    for topic in range(3):
        fitted = smf.ols(f"theta{topic} ~ {formula}", pooled)
        how: Any = {"cov_type": "HC1"}
        if by_person:
            how = {"cov_type": "cluster", "cov_kwds": {"groups": pooled["who"]}}
        robust = fitted.fit(**how)
        # Without an intercept where clients have their own; statsmodels has another order.
        names = [term.replace("amount unknown", "unknown") for term in ours.terms]
        if not {*names} <= {*robust.params.index}:
            names = [name for name in robust.params.index if "client" not in name][-len(names) :]
        expected = (robust.params, robust.bse, fitted.fit().bse)
        made = (ours.coefficients, ours.errors, ours.classical)
        for number, (one, other) in enumerate(zip(made, expected, strict=True)):
            apart = np.abs(one[:, topic] / other[names].to_numpy() - 1).max()
            largest[number] = max(largest[number], float(apart))
    return largest


SPLINE = "bs(amount, knots=[30, 60], degree=3, lower_bound=0, upper_bound=100)"


@pytest.mark.parametrize(
    ("formula", "expected", "number"),
    [
        ("county", "county", {}),
        ("funded:county", "funded:county", {}),
        ("0 + county", "0 + county", {}),
        ("amount", "amount + unknown", AMOUNT),  # missing numbers are in the middle, with a column
        ("funded + amount", "funded + amount + unknown", AMOUNT),
        ("funded*amount", "funded + amount + unknown + funded:amount + funded:unknown", AMOUNT),
        ("funded + county + client", "client + funded + county", {}),
        ("funded*county + client", "client + funded*county", {}),
        ("amount + client", f"client + {SPLINE} + unknown", {**AMOUNT, "knots": (30, 60)}),
        ("funded + amount", f"funded + {SPLINE} + unknown", {**AMOUNT, "knots": (30, 60)}),
    ],
)
@pytest.mark.parametrize("by_person", [True, False])
def test_effects_are_those_of_pooled_least_squares(
    model: TopicModel, formula: str, expected: str, number: dict[str, Any], by_person: bool
) -> None:
    by = {"amount": GroupColumn(**number)} if number else {}
    columns = Columns(text="text", person="person" if by_person else None)
    ours = model.effects(formula, TABLES, by=by, columns=columns)
    pooled = pooled_of({name: model.transform(t["text"].tolist()) for name, t in TABLES.items()})
    assert ours.documents == len(pooled)
    assert ours.persons == (pooled["who"].nunique() if by_person else len(pooled))
    assert max(differences(ours, pooled, expected, by_person)) < 1e-8


BY = {"funded": {"levels": ["no", "yes"]}, "county": {"levels": COUNTIES}, "amount": AMOUNT}
FORMULAS = {
    "funded + county + client": "client + funded + county",
    "funded*amount": "funded + amount + unknown + funded:amount + funded:unknown",
}


@pytest.fixture
def thetas(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Exact numbers in models, and each client's theta as its sums are of it."""
    seen: dict[str, Any] = {}
    names = {len(table): name for name, table in TABLES.items()}

    def noted(x: Any, theta: Any, owners: Any, within: bool) -> Any:
        seen[names[len(theta)]] = theta
        return products(x, theta, owners, within)

    monkeypatch.setattr(finished_model, "without_exact_counts", lambda model: model)
    monkeypatch.setattr(group_sums, "products", noted)
    return seen


def assert_are_pooled(model: TopicModel, thetas: dict[str, Any], within: float) -> None:
    """Compare all tables and effects of a study with those of pooled documents."""
    pooled = pooled_of(thetas)
    by_formula = {of.formula: of for of in model.estimates}
    cases = FORMULAS | {"funded + client": "client + funded", "county + client": "client + county"}
    for formula, expected in cases.items():
        assert not by_formula[formula].refused
        assert max(differences(by_formula[formula], pooled, expected, True)) < within
    tables = {table.name: table for table in model.groups}
    assert {"funded", "county", "amount", "funded:county"} <= tables.keys()
    for name in ("funded", "county"):
        means = pooled.groupby(name)[["theta0", "theta1", "theta2"]].mean()
        np.testing.assert_allclose(tables[name].shares, means, rtol=within)
        assert tables[name].documents.tolist() == pooled.groupby(name).size().tolist()
        assert tables[name].persons.tolist() == pooled.groupby(name)["who"].nunique().tolist()
        fitted = smf.ols(f"theta0 ~ 0 + {name}", pooled)
        fit = fitted.fit(cov_type="cluster", cov_kwds={"groups": pooled["who"]})
        n = len(pooled)  # without the correction for the number of columns
        errors = fit.bse * np.sqrt((n - len(means)) / (n - 1))
        np.testing.assert_allclose(tables[name].errors[:, 0], errors, rtol=within)


@pytest.mark.parametrize(("aggregation", "policy"), [("plain", OPEN_POLICY), ("secure", POLICY)])
def test_effects_of_a_study(aggregation: str, policy: Policy, thetas: dict[str, Any]) -> None:
    plan = trained(BY, [*FORMULAS], aggregation=aggregation)
    corpora = corpora_of(TABLES)
    model = train(plan, corpora, policies=dict.fromkeys(corpora, policy), at_once=False)
    assert_are_pooled(model, thetas, within=1e-8)


def test_effects_over_the_secure_protocol(tmp_path: Path, thetas: dict[str, Any]) -> None:
    outcome = federated(trained(BY, [*FORMULAS]), corpora_of(TABLES), tmp_path, policy=POLICY)
    assert outcome.model.info["masked"]
    assert_are_pooled(outcome.model, thetas, within=1e-8)


def effects_of(x: Any, theta: Any, persons: Any = None, within: bool = False) -> Effects:
    """Effects of a matrix of 0 and 1, of one client."""
    matrix = sparse.csr_array(np.asarray(x, float))
    owners = np.arange(len(theta)) if persons is None else persons
    sums = products(matrix, theta, owners, within)
    spread = squares(matrix, theta, coefficients_of(sums), owners, within)
    terms = [f"t{n}" for n in range(matrix.shape[1])]
    return Effects.of("f", terms, sums, spread, within, scales=np.ones(len(terms)))


def test_intervals_and_differences_of_terms() -> None:
    rng = np.random.default_rng(0)
    theta = rng.dirichlet([1, 2, 3], 60)
    codes = np.arange(60) % 3
    effects = effects_of(np.eye(3)[codes], theta)
    fit = sm.OLS(theta[:, 1], np.eye(3)[codes]).fit(cov_type="HC1", use_t=True)
    row = effects.rows(level=0.9)[1]
    assert (row["term"], row["topic"]) == ("t0", 1)
    wider = np.sqrt(20 / 19)  # as the smallest group has 20 persons
    reach = stats.t.ppf(0.95, 19) * wider * fit.bse[0]
    np.testing.assert_allclose([row["low"], row["high"]], fit.params[0] + reach * np.array([-1, 1]))
    difference = effects.contrast("t2", "t0")[1]
    test = fit.t_test([-1, 0, 1])
    error = test.sd[0, 0]
    np.testing.assert_allclose(
        [difference[n] for n in ("estimate", "error")], [test.effect[0], error]
    )
    p = 2 * stats.t.sf(abs(test.tvalue.item()) / wider, 19)
    np.testing.assert_allclose(difference["p"], p)
    of_all = test.effect[0] + stats.t.ppf(1 - 0.05 / 6, 19) * wider * error * np.array([-1, 1])
    np.testing.assert_allclose([difference["low_of_all"], difference["high_of_all"]], of_all)
    difference = effects.contrast("t2", "t0")
    p = np.array([row["p"] for row in difference])
    expected = multipletests(p, method="fdr_bh")[1]
    np.testing.assert_allclose([row["q"] for row in difference], expected)
    with pytest.raises(StudyError, match="There is no term 't9'; choose from t0, t1, t2"):
        effects.contrast("t9", "t0")
    again = of_plain(Effects, json.loads(json.dumps(plain(effects))))
    assert again.rows() == effects.rows() and again.terms == effects.terms


@pytest.mark.parametrize(
    ("x", "within", "says"),
    [
        ([[1, 0], [1, 0], [1, 0]] * 4, False, "a column of the formula is the same"),
        ([[1, 1], [1, 1], [0, 0]] * 4, False, "its columns depend on each other"),
        ([[1], [1], [1]] * 4, True, "a column of the formula is the same"),
        ([[1, 0], [0, 1], [1, 1]], False, "there are 3 persons for 2 columns"),
    ],
)
def test_what_has_no_effects(x: list[list[int]], within: bool, says: str) -> None:
    with pytest.raises(StudyError, match=says):
        effects_of(x, np.random.default_rng(0).dirichlet([1, 1], len(x)), within=within)


def test_a_group_of_one_level_has_the_error_of_its_mean() -> None:
    theta = np.random.default_rng(0).dirichlet([1, 2], 30)
    x = one_hot(np.repeat([0, 1], [20, 10]), 2)
    sums = products(x, theta, np.arange(30), False)
    means = sums["xy"] / np.diag(sums["xx"])[:, None]
    spread = squares(x, theta, means, np.arange(30), False, cells=True)
    table = GroupTable.of(("c",), ["no", "yes"], sums, spread)
    expected = theta[20:].std(0) / np.sqrt(10) * np.sqrt(30 / 29)
    np.testing.assert_allclose(table.errors[1], expected)
    row = [*table.rows()][2]
    reach = stats.t.ppf(0.975, 9) * expected[0] * np.sqrt(10 / 9)
    np.testing.assert_allclose(
        [row["low"], row["high"]], [means[1, 0] - reach, means[1, 0] + reach]
    )


def test_a_refused_formula_is_in_the_model(model: TopicModel, tmp_path: Path) -> None:
    refused = Effects.refusal("funded + client", "it would tell of few persons")
    replace(model, estimates=(refused,)).save_pretrained(tmp_path)
    again = TopicModel.from_pretrained(tmp_path)
    assert again.estimates[0].rows() == []
    with pytest.raises(StudyError, match="were not computed: it would tell of few persons"):
        again.effects("funded + client")
    with pytest.raises(
        StudyError, match=r"has no effects of 'county'; choose from funded \+ client"
    ):
        again.effects("county")
