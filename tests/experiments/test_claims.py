"""Verdicts on the papers' claims follow from kept rows, and change with them."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from experiments import pages
from experiments.claims import CLAIMS, FLDA, FSTC, Figure3, Figure4, Quality, claims
from experiments.fstc.published import PUBLISHED
from experiments.pages import FIGURE_4, KEPT, PAPERS, made

Row = dict[str, Any]


def verdicts(
    kind: str, experiment: str, maker: Any, change: Callable[[Row], Row]
) -> dict[str, str]:
    rows = [change(row) for row in pages._rows(KEPT / experiment / "runs.jsonl")]
    return {name.split(".")[1]: one.verdict for name, one in claims(kind, maker(rows)).items()}


def test_verdicts_on_flda() -> None:
    def change(row: Row) -> Row:
        """Pooled LDA is the most coherent, guided LDA the best at clients; no round is alike."""
        scores = {"pooled": {"c_v": 0.99}, "alone-guided": {"c_v": 0.9, "diversity": 0.99}}
        scores |= {"alone": {"diversity": 0.1}, "transitive-1": {"m": 10.0}}
        alike = {
            "each_round": [round_row | {"alike": 0.1} for round_row in row.get("each_round", [])]
        }
        return row | scores.get(row["model"], {}) | alike

    verdict_of = verdicts("flda", "flda", FLDA, change)
    assert [verdict_of[name] for name in ("alone", "alone-diverse", "guided-alone", "merging")] == [
        "holds",
        "holds",
        "holds",
        "holds",
    ]
    assert (verdict_of["converges"], verdict_of["bytes"]) == ("does not hold", "holds")
    assert verdict_of["centralised"] != "holds"


def test_verdicts_on_figure_3() -> None:
    def change(row: Row) -> Row:
        common = row["scenario"] != row["scenario"].strip("0123456789")
        return row | ({"tss": 60.0, "dss": 5000.0} if common else {})

    as_kept = verdicts("figure3", "figure3", Figure3, dict)
    assert (as_kept["equivalent"], as_kept["gain"]) == ("does not hold", "holds in part")
    verdict_of = verdicts("figure3", "figure3", Figure3, change)
    assert (verdict_of["better"], verdict_of["reversal"]) == ("does not hold", "does not hold")


def test_verdicts_on_fstc() -> None:
    def change(row: Row) -> Row:
        best = row.get("name") == "paper" and row["part"] in ("table2", "clients")
        return row | ({"acc": 99.0 + row["seed"] / 10, "nmi": 99.0} if best else {})

    verdict_of = verdicts("fstc", "fstc", FSTC, change)
    assert [verdict_of[name] for name in ("best", "clients", "unequal")] == [
        "holds",
        "holds",
        "does not hold",
    ]


def test_verdicts_on_table_2_and_on_pictures() -> None:
    def change(row: Row) -> Row:
        published = PUBLISHED.get(row["data"], {}).get(row.get("name", ""))
        near = row["data"] == "biomedical"
        scores = {"acc": published.acc - 1, "nmi": published.nmi - 1} if published and near else {}
        return (
            row
            | {"acc": 0.0, "nmi": 0.0}
            | scores
            | {"neighbours": 50.0, "texts": 1, "words": 1.0, "clusters": 1}
        )

    verdict_of = verdicts("fstc", "fstc", FSTC, change)
    assert [verdict_of[name] for name in ("biomedical", "agnews", "table1", "picture")] == [
        "holds",
        "does not hold",
        "does not hold",
        "does not hold",
    ]


def test_verdicts_on_networks_with_embeddings() -> None:
    def verdict_with(**better: float) -> str:
        rows = [row | {"npmi": better.get(row["name"], 0.1)} for row in quality if "npmi" in row]
        return claims("quality", Quality(rows))["quality.embeddings"].verdict

    quality = pages._rows(KEPT / "quality.jsonl")
    assert verdict_with(**{"combinedtm": 0.2, "ctm-combined": 0.2}) == "holds"
    assert verdict_with(combinedtm=0.2) == "holds in part"
    assert verdict_with() == "does not hold"


def test_verdicts_on_figure_4() -> None:
    scores = {of: made(name).rows for name, of in FIGURE_4.items()}
    claims_by_name = claims("figure4", Figure4(scores))
    assert [claims_by_name[f"figure4.{name}"].verdict for name in ("ten", "own")] == [
        "holds in part",
        "holds",
    ]
    for every in scores.values():
        for one in every:
            one.values[:, :, one.models.index("federated 10")] = 0.0
            one.values[0, 0, 0] = 0.5  # a client's own model
    claims_by_name = claims("figure4", Figure4(scores))
    assert [claims_by_name[f"figure4.{name}"].verdict for name in ("ten", "own")] == [
        "holds",
        "does not hold",
    ]


def test_each_claim_is_in_the_table_of_verdicts() -> None:
    marked = set(re.findall(r"<!--claim:([\w.-]+)-->", (PAPERS / "coverage.md").read_text("utf-8")))
    assert marked == {f"{kind}.{name}" for kind, of in CLAIMS.items() for name in of}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        pages._claimed({}, pages.MARKS.search("| x<!--claim:flda.none--> |"))  # type: ignore[arg-type]
