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


def best_of_flda(row: Row) -> Row:
    """Pooled LDA is the most coherent, guided LDA the best at clients; no round is alike."""
    scores = {"pooled": {"c_v": 0.99}, "alone-guided": {"c_v": 0.9, "diversity": 0.99}}
    scores |= {"alone": {"diversity": 0.1}, "transitive-1": {"m": 10.0}}
    alike = {"each_round": [one | {"alike": 0.1} for one in row.get("each_round", [])]}
    return row | scores.get(row["model"], {}) | alike


def best_together(row: Row) -> Row:
    common = row["scenario"] != row["scenario"].strip("0123456789")
    return row | ({"tss": 60.0, "dss": 5000.0} if common else {})


def best_of_fstc(row: Row) -> Row:
    best = row.get("name") == "paper" and row["part"] in ("table2", "clients")
    return row | ({"acc": 99.0 + row["seed"] / 10, "nmi": 99.0} if best else {})


def near_on_biomedical(row: Row) -> Row:
    """Table 2 is as published on one data set alone; pictures show nothing."""
    published = PUBLISHED.get(row["data"], {}).get(row.get("name", ""))
    near = row["data"] == "biomedical"
    scores = {"acc": published.acc - 1, "nmi": published.nmi - 1} if published and near else {}
    return (
        row
        | {"acc": 0.0, "nmi": 0.0}
        | scores
        | {"neighbours": 50.0, "texts": 1, "words": 1.0, "clusters": 1}
    )


HOLDS = "holds"
IN_PART = "holds in part"
NOT = "does not hold"


@pytest.mark.parametrize(
    ("kind", "maker", "change", "expected"),
    [
        (
            "flda",
            FLDA,
            best_of_flda,
            dict.fromkeys(("alone", "alone-diverse", "guided-alone", "merging", "bytes"), HOLDS)
            | {"converges": NOT, "centralised": IN_PART},
        ),
        ("figure3", Figure3, dict, {"equivalent": NOT, "gain": IN_PART}),
        ("figure3", Figure3, best_together, {"better": NOT, "reversal": NOT}),
        ("fstc", FSTC, best_of_fstc, {"best": HOLDS, "clients": HOLDS, "unequal": NOT}),
        (
            "fstc",
            FSTC,
            near_on_biomedical,
            {"biomedical": HOLDS, "agnews": NOT, "table1": NOT, "picture": NOT},
        ),
    ],
)
def test_verdicts(
    kind: str, maker: Any, change: Callable[[Row], Row], expected: dict[str, str]
) -> None:
    rows = [change(row) for row in pages._rows(KEPT / kind / "runs.jsonl")]
    said = {name.split(".")[1]: one.verdict for name, one in claims(kind, maker(rows)).items()}
    assert {name: said[name] for name in expected} == expected


def test_verdicts_on_networks_with_embeddings() -> None:
    def verdict_with(**better: float) -> str:
        rows = [row | {"npmi": better.get(row["name"], 0.1)} for row in quality if "npmi" in row]
        return claims("quality", Quality(rows))["quality.embeddings"].verdict

    quality = pages._rows(KEPT / "quality.jsonl")
    assert verdict_with(**{"combinedtm": 0.2, "ctm-combined": 0.2}) == HOLDS
    assert verdict_with(combinedtm=0.2) == IN_PART
    assert verdict_with() == NOT


def test_verdicts_on_figure_4() -> None:
    def verdicts() -> list[str]:
        claims_by_name = claims("figure4", Figure4(scores))
        return [claims_by_name[f"figure4.{name}"].verdict for name in ("ten", "own")]

    scores = {of: made(name).rows for name, of in FIGURE_4.items()}
    assert verdicts() == [IN_PART, HOLDS]
    for every in scores.values():
        for one in every:
            one.values[:, :, one.models.index("federated 10")] = 0.0
            one.values[0, 0, 0] = 0.5  # a client's own model
    assert verdicts() == [HOLDS, NOT]


def test_each_claim_is_in_the_table_of_verdicts() -> None:
    assert set(
        re.findall(r"<!--claim:([\w.-]+)-->", (PAPERS / "coverage.md").read_text("utf-8"))
    ) == {f"{kind}.{name}" for kind, of in CLAIMS.items() for name in of}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        pages._claimed({}, pages.MARKS.search("| x<!--claim:flda.none--> |"))  # type: ignore[arg-type]
