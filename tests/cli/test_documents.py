"""Topics of one's own documents at the command line: by a column, by period."""

import json
from pathlib import Path

import pytest

from fedtopics import LDA
from tests.helpers.clients import ALL
from tests.helpers.command_line import Done, Typed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and documents with an office and a date that some lack."""
    folder = tmp_path_factory.mktemp("letters")
    model = LDA(2, max_rounds=20).fit(ALL).model_
    boats = int(model.main_topics([ALL[0]])[0])
    model.with_labels({boats: "Boats"}).save_pretrained(folder / "model")
    offices = ["port"] * 36 + ["few"] * 4 + ["wood"] * 30 + [""] * 10
    rows = zip(ALL, offices, ["2025-01-07"] * 40 + ["2025-02-01"] * 40, strict=True)
    lines = "".join(f"{text},{office},{day}\n" for text, office, day in rows)
    (folder / "letters.csv").write_text(f"text,office,written\n{lines}")
    return folder


def test_topics_by_column_and_year(
    place: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed, done: Done
) -> None:
    monkeypatch.chdir(place)
    transform = ("transform", "model", "letters.csv", "--columns", "text=text", "--by", "office")
    out = typed(*transform[:3], "--columns", "text=text,id=office", "--out", "theta.csv")[1]
    assert "row numbers" not in out
    rows = Path("theta.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows[1:37]] == ['"port"'] * 36
    assert "row numbers" in typed(*transform[:5], "--out", "numbered.csv")[1]
    out = done(*transform)
    assert "port: 36 documents\n" in out
    assert "Boats\n" in out.partition("port: ")[2].partition("%")[2].splitlines()[0] + "\n"
    assert "10 documents without a value, 4 in groups of fewer than 10, and 0 in" in out
    assert "few:" not in out

    tables = json.loads(typed(*transform, "--json", "--by-time", "written", "--period", "year")[1])
    assert [row["class"] for row in tables["office"]["rows"]] == ["port"] * 2 + ["wood"] * 2
    assert {key: tables["office"][key] for key in ("without", "few", "unknown")} == {
        "without": 10,
        "few": 4,
        "unknown": 0,
    }
    by_year = tables["written"]["rows"]
    assert [(row["period"], row["documents"]) for row in by_year] == [("2025-01-01", 80)] * 2
    assert sum(row["share"] for row in by_year) == pytest.approx(1)
