"""Topics by period and class: means of theta, of clients that have enough documents there."""

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedtopics import LDA, Columns, Corpus, TopicModel
from fedtopics.errors import DataError
from fedtopics.model.over_time import changes, grouped_by_class, grouped_by_time, grown
from tests.helpers.clients import ALL, TEXTS
from tests.helpers.models import made

EAST = timezone(timedelta(hours=9))


@pytest.fixture(scope="module")
def model() -> TopicModel:
    return LDA(2, max_rounds=20).fit(ALL).model_


def periods(rows: list[dict[str, Any]], key: str = "period") -> list[Any]:
    return [row[key] for row in rows if row["topic"] == 0]


def test_rows_are_means_of_theta(model: TopicModel) -> None:
    times = ["2025-03-01"] * 20 + ["2025-03-31"] * 30 + ["2025-04-01"] * 30
    theta = model.transform(ALL)
    rows = model.topics_over_time(ALL, times)
    assert rows == [
        {
            "period": period,
            "topic": topic,
            "documents": len(part),
            "persons": len(part),
            "clients": 1,
            "share": pytest.approx(part[:, topic].mean(), rel=1e-5),
            "count": pytest.approx(part[:, topic].sum(), rel=1e-5),
        }
        for period, part in ((date(2025, 3, 1), theta[:50]), (date(2025, 4, 1), theta[50:]))
        for topic in (0, 1)
    ]


def test_clients_with_few_documents_in_a_period_have_no_part(model: TopicModel) -> None:
    times = {"boats": np.repeat([2024, 2025], [31, 9]).tolist()}
    times["trees"] = np.repeat([2024, 2025, 2026, 2027], [20, 10, 9, 1]).tolist()
    rows = model.topics_over_time(TEXTS, times)
    assert str(periods(rows)) == "[2024, 2025]"  # and not 2024.0
    assert [(row["documents"], row["clients"]) for row in rows] == [(51, 2)] * 2 + [(10, 1)] * 2
    theta = model.transform(TEXTS["trees"])
    assert rows[2]["share"] == pytest.approx(theta[20:30, 0].mean(), rel=1e-5)
    every = model.topics_over_time(TEXTS, times, min_documents=1)
    assert periods(every) == [2024, 2025, 2026, 2027]


@pytest.mark.parametrize(
    ("by", "begins"),
    [
        (None, [date(2024, 12, 1), date(2025, 2, 1)]),
        ("year", [date(2024, 1, 1), date(2025, 1, 1)]),
        ("quarter", [date(2024, 10, 1), date(2025, 1, 1)]),
        ("week", [date(2024, 12, 30), date(2025, 2, 17)]),  # Mondays
        ("day", [date(2024, 12, 31), date(2025, 2, 20)]),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        lambda days: days,
        lambda days: [day.isoformat() for day in days],
        lambda days: [datetime(day.year, day.month, day.day, 23, 59) for day in days],
        lambda days: [datetime(d.year, d.month, d.day, 1, tzinfo=EAST) for d in days],
        lambda days: [f"{day.isoformat()}T01:30:00+14:00" for day in days],
        lambda days: np.array(days, "datetime64[ns]"),
    ],
    ids=["dates", "texts", "times", "zones", "texts of zones", "numpy"],
)
def test_periods_of_dates(model: TopicModel, by: Any, begins: list[date], form: Any) -> None:
    days = [date(2025, 2, 20)] * 40 + [date(2024, 12, 31)] * 40
    assert periods(model.topics_over_time(ALL, form(days), by=by)) == begins


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1] * 79, "80 documents but 79 times or classes"),
        (["oak"] * 80, "cannot be read as a time"),
        ([*[1.0] * 79, float("inf")], "cannot be read as a time"),
        ([*["2025-01-01"] * 79, "secret text"], "cannot be read as a time"),
        ([*["2025-01-01"] * 79, "today"], "cannot be read as a time"),  # another day tomorrow
        ([*["2025-01-01"] * 79, "300000-01-01"], "cannot be read as a time"),
        (np.array(["300000-01-01"] * 80, "datetime64[D]"), "cannot be read as a time"),
        ([True] * 80, "cannot be read as a time"),
    ],
)
def test_what_are_no_times(model: TopicModel, times: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        model.topics_over_time(ALL, times)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    "none", [None, "", " ", float("nan"), pd.NaT, pd.NA, np.datetime64("NaT")], ids=repr
)
def test_documents_without_a_value_are_counted(model: TopicModel, none: Any) -> None:
    times: list[Any] = [*["2025-01-01"] * 40, *["2025-02-01"] * 37, none, none, none]
    grouped = grouped_by_time(model, ALL, np.array(times, object))
    assert [(row["period"], row["documents"]) for row in grouped.rows[::2]] == [
        (date(2025, 1, 1), 40),
        (date(2025, 2, 1), 37),
    ]
    assert (grouped.without, grouped.few, grouped.unknown) == (3, 0, 0)
    by_class = grouped_by_class(model, ALL, times, min_documents=38)
    assert [row["class"] for row in by_class.rows] == ["2025-01-01"] * 2
    assert (by_class.without, by_class.few) == (3, 37)


def test_a_column_of_the_documents(model: TopicModel, tmp_path: Path) -> None:
    table = pd.DataFrame({"text": ALL, "office": ["a"] * 40 + ["b"] * 40, "year": [1999] * 80})
    expected = model.topics_per_class(ALL, table["office"])
    assert model.topics_per_class(table, "office") == expected
    assert model.topics_per_class(pa.table(table), "office") == expected
    table.to_csv(tmp_path / "all.csv", index=False)
    assert model.topics_per_class(tmp_path / "all.csv", "office") == expected
    assert periods(model.topics_over_time(table, "year")) == [1999]
    assert model.topics_per_class({"north": table[:40], "south": table[40:]}, "office") == [
        row | {"clients": 1} for row in expected
    ]
    with pytest.raises(DataError, match="no column 'town' in the documents; it has: text, office"):
        model.topics_per_class(table, "town")
    with pytest.raises(DataError, match="'office' names a column, but the documents are"):
        model.topics_per_class(ALL, "office")


def test_dates_whose_order_only_the_user_knows(model: TopicModel) -> None:
    times = ["3/4/2025"] * 40 + ["3/5/2025"] * 40
    with pytest.raises(DataError, match=r"as a time; [^;]* date_format, such as %d/%m/%Y"):
        model.topics_over_time(ALL, times)
    assert periods(model.topics_over_time(ALL, times, date_format="%d/%m/%Y")) == [
        date(2025, 4, 1),
        date(2025, 5, 1),
    ]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pa.array])
def test_numbers_are_no_dates(model: TopicModel, kind: Any) -> None:
    seconds = kind([1_700_000_000 + 86_400 * (row % 3) for row in range(80)])
    for by in ("month", "day"):
        with pytest.raises(DataError, match="times are numbers that are not all years"):
            model.topics_over_time(ALL, seconds, by=by)  # type: ignore[arg-type]
    assert len({row["period"] for row in model.topics_over_time(ALL, seconds)}) == 3
    assert len({row["period"] for row in model.topics_over_time(ALL, seconds, nr_bins=2)}) == 2
    assert model.topics_over_time(ALL, [None] * 80, by="month") == []


def test_a_chart(model: TopicModel) -> None:
    figure = model.plot_over_time(ALL, [2024] * 40 + [2025] * 40)
    assert figure.content.count('<path class="run"') == 2
    assert "2025 compared with 2024" in figure.content
    with pytest.raises(DataError, match="Fewer than two periods have min_documents documents"):
        model.plot_over_time(ALL, [2024] * 80)
    with pytest.raises(DataError, match="Each number is its own period, and none has 10 doc"):
        model.plot_over_time(ALL, range(80))


def test_the_change_is_within_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with documents of one period only does not count; persons may have several."""
    rng = np.random.default_rng(0)
    theta = {"a": rng.dirichlet([1, 1, 1], 60), "b": rng.dirichlet([9, 1, 1], 40)}
    monkeypatch.setattr(
        TopicModel,
        "read",
        lambda _, of: (None, theta["a" if len(of) == 60 else "b"], np.ones(len(of), bool)),
    )
    who = pa.table({"text": ["oak"] * 60, "who": [f"p{row % 20}" for row in range(60)]})
    corpora = {
        "a": Corpus.of(who, Columns(text="text", person="who")),
        "b": Corpus.of(["oak"] * 40),
    }
    times = {"a": [2024, 2025] * 30, "b": [2025] * 40}
    grouped = grouped_by_time(made(), corpora, times)
    assert grouped.change is not None
    difference = theta["a"][1::2].mean(0) - theta["a"][::2].mean(0)
    np.testing.assert_allclose(grouped.change.coefficients, [difference])
    assert grouped.change.groups.tolist() == [10 + 40]
    assert [row["persons"] for row in grouped.rows[::3]] == [10, 10 + 40]
    change = changes(grouped)
    assert change is not None
    assert change["topics"][1]["within"]["estimate"] == pytest.approx(difference[1])
    assert change["topics"][1]["after"] - change["topics"][1]["before"] != difference[1]
    assert grown(change) == np.argsort(-difference).tolist()
    alone = grouped_by_time(made(), corpora, times | {"a": [2024] * 60}).change
    assert alone is not None and alone.refused and not alone.rows()


def test_periods_of_neither_span_are_the_rest(model: TopicModel) -> None:
    dates = np.repeat(["2023-05-01", "2024-05-01", "2025-05-01", "2025-06-01"], 20)
    change = grouped_by_time(model, ALL, dates).change
    assert change is not None
    assert change.terms == ("later", "rest")
    theta = model.transform(ALL).astype(np.float64)
    np.testing.assert_allclose(
        change.coefficients[0], theta[40:60].mean(0) - theta[20:40].mean(0), rtol=1e-5
    )


def test_many_classes_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one pass over the documents a class, 200,000 of them would take minutes."""
    n = 200_000
    theta = np.random.default_rng(0).dirichlet([1, 1, 1], n).astype(np.float32)
    monkeypatch.setattr(TopicModel, "read", lambda *_: (None, theta, np.ones(n, bool)))
    classes = np.arange(n).astype(str)
    start = perf_counter()
    grouped = grouped_by_class(made(), Corpus.of(["oak"] * n), classes)
    assert perf_counter() - start < 20
    assert (grouped.rows, grouped.few) == ([], n)
    few = grouped_by_class(made(), Corpus.of(["oak"] * n), np.arange(n) % 1000)
    assert len(few.rows) == 3000
    zero = theta[::1000].sum(0).tolist()
    assert [row["count"] for row in few.rows if row["class"] == "0"] == zero


def test_classes_in_any_order_and_documents_without() -> None:
    texts = ["oak", "tea", "", "elm", "flu", "unknown", "oak oak", "tea tea"]
    classes = ["b", "a", "a", "b", None, "a", "b", "c"]
    grouped = grouped_by_class(made(), texts, classes, min_documents=1)
    theta = made().transform(texts)
    by_class = {"a": [1], "b": [0, 3, 6], "c": [7]}
    assert {row["class"]: row["documents"] for row in grouped.rows} == {"a": 1, "b": 3, "c": 1}
    for row in grouped.rows:
        assert row["share"] == pytest.approx(theta[by_class[row["class"]], row["topic"]].mean())
    assert (grouped.without, grouped.unknown, grouped.few) == (1, 2, 0)
    assert grouped_by_class(made(), texts, classes, min_documents=2).few == 2


def test_a_corpus_has_the_columns_that_were_read(model: TopicModel) -> None:
    table = pd.DataFrame({"text": ALL, "ward": ["a", "b"] * (len(ALL) // 2), "when": 2026})
    corpus = Corpus.of(table, Columns(time="when", by={"ward": "ward"}))
    assert model.topics_per_class(corpus, "ward") == model.topics_per_class(table, "ward")
    assert periods(model.topics_over_time(corpus, "time")) == [2026]
    with pytest.raises(DataError, match="'month' names a column, but the documents are neither"):
        model.topics_per_class(corpus, "month")
