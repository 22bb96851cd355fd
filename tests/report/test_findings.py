"""What a report says first: sentences of what was found, and the answers of its header."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError
from fedtopics.federation.policy import Policy
from fedtopics.model.figures import owner, parts
from fedtopics.model.over_time import changes
from fedtopics.model.periods import TOGETHER, Periods
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import over_time, summarise
from fedtopics.report.render import html, markdown
from fedtopics.report.run import RunFacts
from tests.helpers.command_line import Typed
from tests.helpers.letters import ABOUT, TEXTS, letters_run, write_letters
from tests.helpers.models import made
from tests.helpers.report_runs import Reported, report_of, reported

SHARES = {"north": [0.5, 0.25, 0.25], "south": [0.0, 1.0, 0.0], "west": [0.5, 0.25, 0.25]}
DOCUMENTS = {"north": 40, "south": 40, "west": 40}


def model(**changed: Any) -> TopicModel:
    shares = {name: np.array(share) for name, share in SHARES.items()}
    return made(**{"shares": shares, "documents": DOCUMENTS} | changed)


def rows(shares: dict[Any, list[float]], documents: int = 100) -> list[dict[str, Any]]:
    """Shares of topics by period, as `topics_over_time` has them."""
    return [
        {"period": period, "topic": topic, "share": share, "count": share * documents}
        | {"documents": documents, "clients": 2}
        for period, of_topics in shares.items()
        for topic, share in enumerate(of_topics)
    ]


# Sentences


def test_three_sentences_of_what_was_found() -> None:
    said = summarise(model(labels={0: "Trees", 1: "Tea"}))["found"]
    assert said == [
        "120 documents have 3 topics; the largest is “Tea”, with 50%.",
        "No topic is one client's alone; north and west are the most alike.",
        "1 of 3 topics are common to all clients.",
    ]


def test_a_federations_periods_are_what_grew() -> None:
    sums = {TOGETHER: np.array([[20.0, 10, 10], [0, 0, 0], [10, 20, 10]])}
    periods = Periods("year", ("2023-01-01", "2024-01-01", "2025-01-01"), sums)
    summary = summarise(replace(made(), periods=periods))
    assert summary["change"]["topics"][1] == {
        "before": 0.25, "after": 0.5, "points": [(0.0, 0.25), (1.0, 0.5)],
    }  # fmt: skip
    assert "one client" not in summary["found"][2]


def test_what_grew_takes_the_third_sentence() -> None:
    years = {date(2024, 1, 1): [0.3, 0.5, 0.2], date(2025, 1, 1): [0.45, 0.38, 0.17]}
    said = summarise(model(labels={0: "Trees", 1: "Tea"}), over_time=rows(years))["found"][2]
    assert said == (
        "Jan 2025 against Jan 2024: “Trees” grew most, from 30.0% to 45.0%; “Tea” shrank most, "
        "from 50.0% to 38.0%."
    )
    still = {date(2024, 1, 1): [0.3, 0.5, 0.2], date(2025, 1, 1): [0.302, 0.499, 0.199]}
    assert summarise(model(), over_time=rows(still))["found"][2].endswith("nothing changed much.")


def test_who_has_a_topic_alone_is_named() -> None:
    shares = {"north": np.array([0.9, 0.1, 0.0]), "south": np.array([0.05, 0.45, 0.5])}
    summary = summarise(made(shares=shares, documents={"north": 100, "south": 100}))
    topics = {topic["topic"]: topic for topic in summary["topics"]}
    # 90 and 5 of 95 documents are 95 % of topic 0, and 50 of 50 all of topic 2.
    assert [topics[k]["owner"] for k in range(3)] == ["north", None, "south"]
    assert summary["found"][1] == (
        "north alone has “Trees | shrubs”; south alone has “oak, elm, flu”."
    )
    page = html(summary)
    assert page.count("<strong>Alone has</strong> no topic") == 0
    assert page.count("<strong>Alone has</strong> <a href") == 2


@pytest.mark.parametrize(("share", "whose"), [(0.9, "a"), (0.89, None)])
def test_alone_is_nine_in_ten_documents(share: float, whose: str | None) -> None:
    topic = {"share": 0.5, "clients": {"a": share, "b": 1 - share}}
    assert parts(topic, {"a": 10, "b": 10}) == pytest.approx({"a": share, "b": 1 - share})
    assert owner(topic, {"a": 10, "b": 10}) == whose
    hidden = {"share": 0.5, "clients": {"a": None, "b": None}}
    assert parts(hidden, {"a": 10, "b": 10}) == {}
    assert owner(hidden, {"a": 10, "b": 10}) is None


# What grew


def test_the_last_year_is_held_against_the_one_before() -> None:
    months = {date(y, m, 1): [y - 2022.0, m] for y in (2023, 2024, 2025) for m in (1, 7)}
    change = changes(rows(months, documents=10))
    assert change is not None
    assert (change["before"], change["after"]) == ("2024", "2025")
    assert (change["first"], change["last"]) == ("Jan 2023", "Jul 2025")
    assert change["topics"][0]["before"] == 2
    assert change["topics"][0]["after"] == 3
    where, shares = zip(*change["topics"][1]["points"], strict=True)
    assert shares == (1, 7, 1, 7, 1, 7)
    assert (where[0], where[-1]) == (0, 1)


def test_periods_count_by_their_documents() -> None:
    uneven = rows({1.0: [0.1], 2.0: [0.2]}, 30) + rows({3.0: [0.5]}, 10) + rows({4.0: [0.9]}, 30)
    change = changes(uneven)
    assert change is not None
    assert (change["before"], change["after"]) == ("1 to 2", "3 to 4")
    assert change["topics"][0]["before"] == pytest.approx(0.15)
    assert change["topics"][0]["after"] == pytest.approx((5 + 27) / 40)


def test_one_period_is_no_change() -> None:
    assert changes(None) is None
    assert changes(rows({2024.0: [0.5, 0.5]})) is None
    page = html(summarise(model(), over_time=rows({2024.0: [0.5, 0.3, 0.2]})))
    assert 'id="change"' not in page


# The header


def answers(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {fact["name"]: fact for fact in summary["facts"]}


def test_a_simulations_header(tmp_path: Path) -> None:
    page = report_of(letters_run(tmp_path, part=0.2))
    found = answers(page.summary)
    assert page.summary["title"] == "Letters to the city"
    assert f'<p class="purpose">{ABOUT["purpose"]}</p>' in page.html
    assert found["Who runs it"]["value"] == ABOUT["operator"]
    assert found["Who took part"]["value"] == "5 clients"
    assert found["Who gets it"]["value"] == "the city council"
    assert found["Kept for"]["value"] == "two years"
    today = json.loads((page.folder / "events.jsonl").read_text().splitlines()[-1])["time"]
    assert page.facts.ended == str(np.datetime64(int(today), "s").astype("datetime64[D]"))
    assert str(int(page.facts.ended[-2:])) == found["When"]["value"].split()[0]
    assert found["Were policies met?"]["good"] is True
    fewest = min(row["documents"] for row in page.summary["left"]["functions"])
    assert f"sums over {fewest} documents or more; 10 are asked for." in page.html
    for fact in found.values():
        assert f"- {fact['name']} " in page.markdown


def test_a_clients_report_has_the_studys_name_its_date_and_its_policy(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    demo = reported("demo", tmp_path_factory)
    own = tmp_path / "letters"
    shutil.copytree(demo.folder / "model", own / "model")
    shutil.copy(demo.folder / "clients" / "north" / "ledger.jsonl", own)
    shutil.copy(demo.folder / "study.toml", own)
    page = report_of(own)
    assert page.facts.place == "client"
    assert (page.summary["title"], page.summary["own"]) == ("demo", "north")
    assert "Report of client north" in page.html
    assert "Report of client north" in page.markdown
    found = answers(page.summary)
    assert found["When"]["value"] == answers(demo.summary)["When"]["value"]
    assert found["Was its policy met?"]["good"] is True
    assert "policy a reply sums over at least 10 documents" in page.html
    assert ">What left us</h2>" in page.html
    assert ">What left each client</h2>" not in page.html


def test_a_policy_that_was_not_kept_to_is_told() -> None:
    row = {"function": "forward", "method": "gfedntm", "documents": 9, "fields": [], "replies": 1}
    facts = RunFacts(
        "run",
        ledgers={"north": [row | {"bytes": 7, "masked": False}]},
        policies={"north": Policy(methods=("lda",))},
        place="client",
    )
    fact = answers(summarise(model(), facts))["Was its policy met?"]
    assert fact["good"] is False
    assert fact["detail"] == (
        "A reply of north is over 9 documents. The policy of north does not allow gfedntm. See "
        "fedtopics verify."
    )


def test_a_servers_header_points_to_the_clients() -> None:
    fact = answers(summarise(model(), RunFacts("run", place="server")))["Were policies met?"]
    assert (fact["value"], fact["good"]) == ("At each client", None)
    assert "its ledger, which stays there, is the proof" in fact["detail"]


@pytest.mark.parametrize(
    ("info", "value", "good", "detail"),
    [
        ({}, "Sums alone, no promise", None, "No document left its client;"),
        ({"masked": True}, "Sums alone, no promise", None, "Replies were masked: nobody saw"),
        ({"masked": False}, "Sums alone, no promise", None, "Replies were not masked: whoever"),
        (
            {"privacy": {"epsilon": 3.0, "delta": 1e-5, "unit": "document", "seeded": False}},
            "Yes, epsilon 3", True, "For each document.",
        ),
        (
            {"privacy": {"epsilon": 3.0, "delta": 1e-5, "unit": "document", "seeded": True}},
            "For trying alone", False, "follows from the study's seed",
        ),
    ],
)  # fmt: skip
def test_whether_it_is_private(info: Any, value: str, good: bool | None, detail: str) -> None:
    fact = answers(summarise(model(info={"method": "lda"} | info)))["Is it private?"]
    assert (fact["value"], fact["good"]) == (value, good)
    assert detail in fact["detail"]


# Times


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return report_of(letters_run(tmp_path_factory.mktemp("letters"), part=0.5))


def test_a_simulations_times_are_those_of_its_clients_files(letters: Reported) -> None:
    found = over_time(letters.model, letters.facts)
    assert found is not None
    months = {row["period"] for row in found}
    assert min(months) == date(2024, 1, 1)
    assert all(month.day == 1 for month in months)
    assert all(row["documents"] >= 10 for row in found)
    assert over_time(letters.model, RunFacts("run", letters.facts.study, place="server")) is None
    assert over_time(made(), RunFacts("run")) is None


def test_ones_own_times(letters: Reported, typed: Typed, tmp_path: Path) -> None:
    run, north = letters.folder, write_letters(tmp_path, part=0.3)["north"]
    given = "report", run, "--with-documents", north, "-o", tmp_path / "own.html"
    assert typed(*given, "--time", TEXTS[1])[0] == 0
    own = (tmp_path / "own.html").read_text(encoding="utf-8")
    assert 'id="change"' in own
    assert "against 2024, in the documents of one client: “" in own
    assert typed(*given)[0] == 0
    assert 'id="change"' not in (tmp_path / "own.html").read_text(encoding="utf-8")
    for words, said in (
        ((*given, "--time", "when"), "There is no column 'when' in "),
        ((*given, "--time", "text"), "Some timestamps cannot be read as times;"),
        (("report", run / "model", "--labels", tmp_path / "no.json"), "There is no file "),
    ):
        code, _, err = typed(*words)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err
    with pytest.raises(DataError, match="name their file with --with-documents"):
        over_time(made(), RunFacts("model"), time="written")


def test_the_run_command_writes_what_grew(typed: Typed, tmp_path: Path) -> None:
    write_letters(tmp_path, part=0.3)
    tables = "".join(
        f'[clients.{name}]\ndata = "{name}.csv"\ntime = "written"\n' for name in ("north", "south")
    )
    method = '[method]\nname = "nmf"\nn_components = 4\nmax_rounds = 3\n'
    (tmp_path / "study.toml").write_text(method + tables)
    assert typed("run", tmp_path / "study.toml", "--out", tmp_path / "out")[0] == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert 'id="change"' in page
    twin = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert "## What grew, what shrank" in twin
    assert markdown(report_of(tmp_path / "out").summary) != twin, "which is of files, and times"
