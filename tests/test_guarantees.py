"""Promises name tests that are there, and figures of attacks are those of the benchmark."""

from pathlib import Path

import pytest

from docs._site.generated import promises
from fedtopics.guarantees import TABLES, attacked, not_promised

TITLES = "Documents", "Membership"
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("aggregation", ["secure", "plain"])
def test_rows_name_tests_that_are_there(aggregation: str) -> None:
    for promise in promises(aggregation):
        # What a thief of a disk has under plain aggregation is all that was on it.
        assert promise["tests"] or (aggregation == "plain" and "thief" in promise["adversary"])
        assert all((ROOT / test).is_file() for test in promise["tests"])


def test_figures_of_attacks_are_those_of_the_benchmark() -> None:
    text = (ROOT / "benchmarks/results/sums.md").read_text("utf-8")
    documents, membership = (
        {row.split(" | ")[0].strip("| "): row.split(" | ") for row in part.splitlines()}
        for part in (text.split(f"**{title}")[1].split("\n**")[0] for title in TITLES)
    )
    for figures in TABLES["attacks"]["methods"].values():
        row = documents.get(figures["row"], ["", "", "0 (0)", "0 (0)"])
        computed, words = row[3].removesuffix(")").split(" (")
        assert float(row[2].split()[0]) == figures["update"]
        assert (float(computed), float(words)) == (figures["total"], figures["words"])
        assert float(membership[figures["row"]][3]) == figures["auc"]
    assert "computed 17 completely" in attacked("nmf", "update")
    assert attacked("flda", "total") == ""


def test_only_what_a_study_has_is_not_promised() -> None:
    nothing = not_promised()
    with_noise = not_promised(noise=True, secure=True, draws=False, persons=True)
    assert set(with_noise) < set(nothing)
    assert not [text for text in with_noise if "Without a column" in text or "minibatches" in text]
    assert any("raise the total epsilon" in text for text in with_noise)
