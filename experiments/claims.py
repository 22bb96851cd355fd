"""The papers' claims, by kept rows: a rule and a sentence each, in claims.toml.

A rule is a list of conditions, of which all, some or none hold. Rules and sentences are expressions
of Jinja with the functions of `rows`, an object of the classes below by the claim's table.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from experiments.flda.models import DATA_SETS
from experiments.flda.similarities import PAIRS
from experiments.flda.tables import auc, client_seconds, each_round, server_seconds
from experiments.fstc.methods import TITLES
from experiments.fstc.published import PUBLISHED, TABLE_1
from experiments.fstc.significance import UTest
from experiments.gfedntm.amwmd_claims import OTHER_SEED, Finding, Scores, findings
from experiments.gfedntm.figure3 import ETAS, SHARED
from experiments.gfedntm.figure3_runs import Case
from experiments.gfedntm.figure3_scores import Scores as Figure3Scores
from experiments.gfedntm.figure3_scores import gains_of
from experiments.report import Rows, mean, scores, select
from fedtopics.methods.flda.labelled_pairs import decided_alike, fit_curve, read_pairs

CLAIMS = tomllib.loads(Path(__file__).with_name("claims.toml").read_text("utf-8"))
SETS = [data.name for data in DATA_SETS]
TEXTS = ("agnews", "stackoverflow", "biomedical")
CORPORA = ("20ng", "news_outlets", "m10")
NEAR = 2.0  # points of ACC
ALONE = "skewed-alone-all"
COMMON = "known topics, eta 0.1, 300 words, 50% of them common"
CONVERGED = 0.95  # least likeness of two rounds
KEPT = 0.9  # least share that is kept
LEVEL = 0.01  # largest difference that is no change
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
Values = Sequence[float]


@dataclass(frozen=True)
class Claim:
    """A verdict, what it is limited to, and why."""

    verdict: str
    of: str
    text: str

    def __str__(self) -> str:
        return f"**{self.verdict}**{self.of}: {self.text}"


def claims(kind: str, rows: Any) -> dict[str, Claim]:
    """Return the claims of a table of claims.toml, by names that begin with the table's."""
    decided = {}
    for name, claim in CLAIMS[kind].items():
        rule: Any = ENVIRONMENT.compile_expression(claim["rule"])
        holds = [bool(one) for one in rule(rows=rows)]
        verdict = "holds" if all(holds) else "holds in part" if any(holds) else "does not hold"
        text = ENVIRONMENT.from_string(claim["text"]).render(rows=rows)
        decided[f"{kind}.{name}"] = Claim(verdict, claim.get("of", ""), text)
    return decided


def sentences(kind: str, rows: Any) -> list[str]:
    """Return the claims of a table, in words."""
    return [f"{name}: {claim}" for name, claim in claims(kind, rows).items()]


def falls(values: Iterable[float]) -> list[bool]:
    """Return for each value but the first whether it is below the one before."""
    return [after < before for before, after in pairwise(values)]


def positive(values: Values) -> list[bool]:
    """Return for each value whether it is above zero."""
    return [value > 0 for value in values]


def number(count: int) -> str:
    """Spell a small number."""
    return NUMBERS[count] if count < len(NUMBERS) else f"{count:,}"


ENVIRONMENT = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - Markdown
ENVIRONMENT.globals |= {"falls": falls, "positive": positive, "sum": sum, "max": max, "min": min}
ENVIRONMENT.globals |= {"abs": abs, "len": len, "sets": SETS, "common": COMMON}
ENVIRONMENT.filters |= {f"f{n}": f"{{:,.{n}f}}".format for n in range(4)}
ENVIRONMENT.filters |= {
    "number": number,
    "share": "{:.0%}".format,
    "whole": lambda x: "/".join(f"{one:.0f}" for one in x),
    "many": lambda x: f"{sum(x)} of {len(x)}",
}
ENVIRONMENT.filters |= {"each": lambda x: "/".join(f"{one:.1f}" for one in x)}


class Figure3:
    """Scores of figure 3; `case` is shared, eta, alpha."""

    def __init__(self, rows: Rows) -> None:
        self._scores = Figure3Scores(rows)

    def mean(self, model: str, scenario: str, score: str = "tss", **case: Any) -> float:
        """Return a score's mean over seeds."""
        return float(np.mean(self._scores.of(Case(**case), model, scenario, score)))

    def seeds(self, model: str) -> int:
        """Return how many seeds the federated model has in the first setting."""
        return len(self._scores.of(Case(), model, "federated", "tss"))

    def gain(self, model: str, score: str = "tss", **case: Any) -> float:
        """Return by how much the federated model is better than clients alone."""
        return float(gains_of(self._scores, Case(**case), model)[score])

    def gains(
        self, model: str, key: str = "shared", alpha: float = 0.1, score: str = "tss"
    ) -> Values:
        """Return the gains in a score by K' ("shared") or eta, in the settings that were run."""
        gains = (gains_of(self._scores, case, model) for case in _cases(key, alpha))
        return [float(gain[score]) for gain in gains if gain]

    def better(self, model: str) -> list[bool]:
        """Return whether the federated model is better, setting by setting."""
        return [gain > 0 for gain in (*self.gains(model), *self.gains(model, "eta")[1:])]

    def informed(self, model: str) -> list[bool]:
        """Return whether its TSS is above that of random topics, setting by setting."""
        cases = [*_cases("shared", 0.1), *_cases("eta", 0.1)[1:]]
        both = ((model, "federated"), ("random", ""))
        pairs = ([self._scores.of(case, *one, "tss") for one in both] for case in cases)
        return [float(np.mean(one)) > float(np.mean(other)) for one, other in pairs]


def _cases(key: str, alpha: float) -> list[Case]:
    values: Sequence[Any] = SHARED if key == "shared" else ETAS
    return [Case(alpha=alpha, **{key: value}) for value in values]


class FLDA:
    """Scores of F-LDA; two numbers are of medical questions and of tweets."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def mean(self, data: str, model: str, key: str = "c_v") -> float:
        """Return a score's mean over seeds."""
        return mean(self._rows, key, data=data, model=model)

    def of(self, model: str, key: str = "c_v") -> list[float]:
        """Return it for both data sets."""
        return [self.mean(data, model, key) for data in SETS]

    def both(self, model: str, key: str = "c_v") -> str:
        """Return it for both data sets, in words."""
        return _both(f"{value:.3f}".replace("0.", ".") for value in self.of(model, key))

    def above(self, one: str, other: str, *keys: str) -> list[bool]:
        """Return whether one model is above another, by score and data set."""
        pairs = (zip(self.of(one, key), self.of(other, key), strict=True) for key in keys)
        return [first > second for pair in pairs for first, second in pair]

    def wins(self, one: str, other: str, key: str = "c_v") -> int:
        """Return in how many trainings one model is above another."""
        both = (
            [x for data in SETS for x in scores(self._rows, key, data=data, model=model)]
            for model in (one, other)
        )
        return sum(first > second for first, second in zip(*both, strict=True))

    def _steps(self, *models: str) -> list[float]:
        values = zip(*(self.of(model) for model in models), strict=True)
        return [max(abs(b / a - 1) for a, b in pairwise(series)) for series in values]

    def steps(self, *models: str) -> str:
        """Return the largest relative step of c_v from one model to the next."""
        return _both(map("{:.0%}".format, self._steps(*models)))

    def steady(self, *models: str) -> list[bool]:
        """Return whether c_v changes by a tenth at most and stays above clients alone."""
        least = [min(series) for series in zip(*(self.of(model) for model in models), strict=True)]
        sets = zip(self._steps(*models), least, self.of("alone"), strict=True)
        return [step <= 0.1 and value > alone for step, value, alone in sets]

    def level(self, *models: str) -> list[bool]:
        """Return whether diversity changes by .01 at most."""
        values = zip(*(self.of(model, "diversity") for model in models), strict=True)
        return [max(series) - min(series) <= LEVEL for series in values]

    def rounds(self, model: str, key: str) -> list[Values]:
        """Return a score by round."""
        return [each_round(select(self._rows, data=data), model, key) for data in SETS]

    def last(self, model: str, key: str) -> str:
        """Return a score after the last round."""
        return _both(f"{series[-1]:.2f}" for series in self.rounds(model, key))

    def still(self, way: str) -> list[bool]:
        """Return whether topics of the same documents stay, and are as many as at first."""
        alike, m = (self.rounds(f"{way}-same", key) for key in ("alike", "m"))
        both = zip(alike, m, strict=True)
        return [one[-1] >= CONVERGED and other[-1] >= other[0] / 2 for one, other in both]

    def keeps(self, way: str) -> list[bool]:
        """Return whether its M* has nine tenths of what only one client has, as clients alone."""
        in_optimal = self.of(f"skewed-{way}-3", "found_in_own")
        alone = self.of(ALONE, "found_own")
        return [optimal >= KEPT * local for optimal, local in zip(in_optimal, alone, strict=True)]

    def _shares(self, model: str) -> list[float]:
        both = (self.rounds(model, key) for key in ("own_bytes", "m_bytes"))
        return [1 - sum(part) / sum(whole) for part, whole in zip(*both, strict=True)]

    def saves(self, model: str) -> list[bool]:
        """Return whether M* saves a tenth at least."""
        return [share > 1 - KEPT for share in self._shares(model)]

    def saved(self, model: str) -> str:
        """Return how much M* saves."""
        return _both(map("{:.0%}".format, self._shares(model)))

    def size(self, model: str, unit: float) -> str:
        """Return what a client sends."""
        return _both(f"{value / unit:,.0f}" for value in self.of(model, "bytes"))

    def gammas(self) -> list[tuple[float, int, int]]:
        """Return the threshold by labels, and how many pairs it and the paper's decide rightly."""
        thresholds = []
        for data in DATA_SETS:
            pairs = read_pairs(PAIRS / f"pairs-{data.name}.csv")
            value = fit_curve(pairs).threshold
            thresholds.append(
                (value, decided_alike(pairs, value), decided_alike(pairs, data.gamma))
            )
        return thresholds

    def seconds(self, data: str, model: str) -> tuple[float, float]:
        """Return the core-seconds of a client, and of merging."""
        rows = select(self._rows, data=data)
        return client_seconds(rows, model), server_seconds(rows, model)

    def auc(self, data: str, measure: str) -> float:
        """Return how well a similarity tells which topics are the same."""
        return float(np.mean(auc(select(self._rows, data=data, model="similarity"), measure)))


def _both(values: Iterable[str]) -> str:
    return "/".join(values)


class FSTC:
    """Scores of FSTC in per cent."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def of(self, name: str, score: str = "acc", part: str = "table2", **more: Any) -> list[float]:
        """Return a score's mean over seeds, by data set; three of table 2."""
        sets = dict.fromkeys(row["data"] for row in select(self._rows, part=part, name=name))
        return [
            mean(self._rows, score, part=part, data=d, name=name, **more)
            for d in TEXTS
            if d in sets
        ]

    def gains(self, one: str, other: str, **more: Any) -> list[float]:
        """Return by how many points of ACC one method is above another."""
        return [a - b for a, b in zip(self.of(one, **more), self.of(other, **more), strict=True)]

    def reached(self, data: str) -> list[bool]:
        """Return whether the paper's method has its published ACC and NMI, or is NEAR them."""
        published = PUBLISHED[data]["paper"]
        both = zip(("acc", "nmi"), (published.acc, published.nmi), strict=True)
        return [self._table_2(data, "paper", score) >= value - NEAR for score, value in both]

    def beyond(self, data: str, sign: int) -> str:
        """Name the methods that are above (1) or below (-1) their published ACC by NEAR points."""
        titles = [
            TITLES[name].removesuffix(" (frozen)")
            for name, one in PUBLISHED[data].items()
            if sign * (self._table_2(data, name, "acc") - one.acc) > NEAR
        ]
        return ", ".join(titles) or "none"

    def _table_2(self, data: str, name: str, score: str) -> float:
        return mean(self._rows, score, part="table2", data=data, name=name)

    def variant(self, data: str) -> str:
        """Return ACC and NMI of the paper's method, ours and published."""
        published = PUBLISHED[data]["paper"]
        ours = "/".join(f"{self._table_2(data, 'paper', score):.1f}" for score in ("acc", "nmi"))
        return f"{ours}, published {published.acc:.1f}/{published.nmi:.1f}"

    def sizes(self) -> list[bool]:
        """Return whether clusters, texts and words per text are the published ones."""
        sets = {row["data"]: row for row in select(self._rows, part="sets")}
        return [
            round(sets[data][key]) == value
            for data, counts in TABLE_1.items()
            for key, value in counts._asdict().items()
        ]

    def pictured(self, *names: str) -> list[float]:
        """Return the shares of pictured texts whose nearest neighbours have the same labels."""
        return [mean(self._rows, "neighbours", part="picture", name=name) for name in names]

    def has(self, **wanted: Any) -> bool:
        """Return whether there is such a row."""
        return bool(select(self._rows, **wanted))

    def sweep(self, name: str, part: str, key: str) -> list[list[float]]:
        """Return ACC by what is varied, by data set."""
        rows = select(self._rows, part=part, name=name)
        values = sorted({row[key] for row in rows})
        return [
            [mean(rows, "acc", data=data, **{key: value}) for value in values]
            for data in TEXTS
            if select(rows, data=data)
        ]

    def best(self, name: str) -> list[bool]:
        """Return whether a method is above all baselines in ACC, by data set."""
        baselines = [self.of(other) for other in ("fbow", "ftfidf", "fsbert", "fsccl")]
        return [ours > max(others) for ours, *others in zip(self.of(name), *baselines, strict=True)]

    def spread(self, name: str) -> float:
        """Return by how many points ACC varies with the clients' sizes."""
        (values,) = self.sweep(name, "shares", "rho")
        return max(values) - min(values)

    def squared(self, name: str) -> list[float]:
        """Return by how many points of ACC squared error is above cross entropy, by data set."""
        return [squared - entropy for entropy, squared in self.sweep(name, "losses", "loss")]

    def over(self, one: str, part: str, key: str) -> list[float]:
        """Return by how many points a method is above FSCCL, by what is varied."""
        (ours,), (theirs,) = self.sweep(one, part, key), self.sweep("fsccl", part, key)
        return [a - b for a, b in zip(ours, theirs, strict=True)]

    def significant(self, other: str) -> list[bool]:
        """Return whether FSTC is above another method in both scores, by Mann-Whitney's test."""
        return [
            all(
                UTest.of(self._rows, data, score, "paper", other).significant
                for score in ("acc", "nmi")
            )
            for data in TEXTS
        ]


class Figure4:
    """Findings of figure 4, by recipe and data set."""

    def __init__(self, recipes: Mapping[str, Sequence[Scores]]) -> None:
        self._found = {
            (name, one.data_set): findings(one) for name, every in recipes.items() for one in every
        }
        self._recipes = recipes
        self._scores = [one for every in recipes.values() for one in every]

    def finding(self, recipe: str, data: str, number: int) -> Finding:
        """Return a finding of `amwmd_claims.STATEMENTS` by its number."""
        return self._found[recipe, data][number]

    def closer(self, recipe: str, data: str, number: int) -> str:
        """Return for how many clients it is so."""
        finding = self.finding(recipe, data, number)
        return f"{finding.n_closer}/{finding.closer.shape[1]}"

    def documents(self) -> str:
        """Return how many documents the data sets have."""
        sizes = {one.data_set: sum(one.documents.values()) for one in self._scores}
        return "/".join(f"{size:,}" for size in sizes.values())

    def own(self) -> list[bool]:
        """Return whether each client's own model is at distance 0."""
        return [
            bool(np.allclose(np.einsum("sii->si", one.values[:, :, : len(one.documents)]), 0))
            for one in self._scores
        ]

    def other_seed(self, recipe: str) -> str:
        """Return the mean distance of the same model with another seed."""
        means = (one.of(OTHER_SEED).mean() for one in self._recipes[recipe])
        return ", ".join(f"{value:.2f}".replace("0.", ".") for value in means)

    def clients(self, number: int) -> list[bool]:
        """Return of all recipes and data sets whether it is so for some, and for every client."""
        findings = [one[number] for one in self._found.values()]
        return [n for one in findings for n in (one.n_closer > 0, one.outcome == "holds")]


class Quality:
    """Scores of `make bench NAME=quality`, with twenty topics of pooled documents."""

    def __init__(self, rows: Rows) -> None:
        self._rows = [row for row in rows if row["topics"] == 20 and "npmi" in row]

    def of(self, name: str, clients: str) -> list[float]:
        """Return NPMI by data set."""
        wanted = {"name": name, "clients": clients}
        return [mean(self._rows, "npmi", data=data, **wanted) for data in CORPORA]

    def seeds(self, name: str) -> int:
        """Return how many seeds a model has."""
        return len({row["seed"] for row in select(self._rows, name=name)})

    def above(self, one: str, other: str, clients: str = "pooled") -> list[bool]:
        """Return whether one model is more coherent than another, by data set."""
        both = zip(self.of(one, clients), self.of(other, clients), strict=True)
        return [first > second for first, second in both]


KINDS = {"figure3": Figure3, "flda": FLDA, "fstc": FSTC}
