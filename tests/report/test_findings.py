"""What a report says first: sentences of what was found, and the answers of its header."""

import json
import math
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from fedtopics import Columns, Corpus, Policy, Study, TopicModel, train
from fedtopics.errors import FedTopicsError
from fedtopics.inference.clusters import Centres, ClusterShape
from fedtopics.model.card import card
from fedtopics.model.card import table as card_table
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.model.over_time import Grouped, changes, grouped_by_time
from fedtopics.report import render, summarise
from fedtopics.report.render import html, markdown
from fedtopics.report.run import RunFacts
from tests.helpers.clients import BOATS, TREES
from tests.helpers.federation import ANY_WORDS
from tests.helpers.letters import ABOUT, letters_run
from tests.helpers.models import BETA, edit_config, effect, made, table
from tests.helpers.report_runs import report_of, reported

SHARES = {"north": [0.5, 0.25, 0.25], "south": [0.0, 1.0, 0.0], "west": [0.5, 0.25, 0.25]}
DOCUMENTS = {"north": 40, "south": 40, "west": 40}


def model(**changed: Any) -> TopicModel:
    shares = {name: np.array(share) for name, share in SHARES.items()}
    return made(**{"shares": shares, "documents": DOCUMENTS} | changed)


def rows(shares: dict[Any, list[float]], documents: int = 100) -> list[dict[str, Any]]:
    """Shares of topics by period, as `topics_over_time` has them."""
    return [
        {"period": period, "topic": topic, "share": share, "count": share * documents}
        | {"documents": documents, "persons": documents, "clients": 2}
        for period, of_topics in shares.items()
        for topic, share in enumerate(of_topics)
    ]


def test_sentences_of_what_was_found() -> None:
    assert summarise(model(labels={0: "Trees", 1: "Tea"}))["found"] == [
        "120 documents have 3 topics; the largest is “Tea”, with 50%.",
        "1 of 3 topics is common to all clients.",
    ]


def of_periods(n_persons: int = 400, n_documents: int = 600, **changed: Any) -> TopicModel:
    before = table("time", "2024-01-01", persons=n_persons)
    both = table("time", "2024-01-01", "2025-01-01", persons=n_persons)
    documents = np.array([before.documents[0], n_documents])
    change = effect("change", "later", groups=np.array([n_persons]), **changed)
    return made(groups=(replace(both, documents=documents),), estimates=(change,))


def test_a_change_has_its_size_its_interval_and_what_is_behind_it() -> None:
    # 2.6 standard errors: Student's t at 1 - 0.03 / 3 / 2, with 199 degrees of freedom
    assert summarise(of_periods())["found"][-1] == (
        "2025 compared with 2024: “Trees | shrubs” grew by 3 points (1.7 to 4.3); “oak, elm, flu” "
        "shrank by 2 points (0.7 to 3.3). The comparison is within clients, with 97 % intervals "
        "of all comparisons, from 1,200 documents of 400 persons."
    )
    one = summarise(of_periods(clients=1, documents=400))["found"][-1]
    assert one.endswith(
        "is in the documents of one client, with 97 % intervals of all "
        "comparisons, from 400 documents."
    )
    page = markdown(summarise(of_periods()))
    assert "| 0 Trees \\| shrubs | 2024-01-01 | 30.0% | 28.0% | 32.0% | 600 | 400 |" in page
    assert "| 0 Trees \\| shrubs | 30.0% | 30.0% | 3 (1.8 to 4.2) |" in page


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({"covariances": np.full((3, 1, 1), 0.05**2)}, "nothing changed more than chance."),
        (
            {"n_persons": 29},
            "there is no comparison, as 2024 has documents of at most 30 persons.",
        ),
        (
            {"n_documents": 1300},
            "there is no comparison, as one has more than 2 times as many documents as the other.",
        ),
        ({"refused": "columns depend"}, "there is no comparison, as columns depend."),
    ],
)
def test_why_no_change_is_named(changed: dict[str, Any], answer: str) -> None:
    if "n_persons" in changed:
        changed = changed | {"persons": 58}
    found = summarise(of_periods(**changed))["found"]
    assert found[-1] == f"2025 compared with 2024: {answer}"


def test_a_change_without_an_estimate_is_not_named() -> None:
    only_shares = replace(of_periods(), estimates=())
    assert "as the chance of differences is not known" in summarise(only_shares)["found"][-1]


def test_the_chance_is_split_among_all_comparisons() -> None:
    columns = "funded", "abroad", "large"
    groups = [table(name, "no", "yes", "maybe") for name in columns[:-1]]
    groups.append(replace(table("large", "no", "yes"), persons=np.array([400, 29])))
    two: dict[str, Any] = {"terms": ("yes", "maybe"), "groups": np.array([200, 200])}
    two |= {"coefficients": np.array([[0.014, 0, 0], [0, 0, 0.1]])}
    two |= {"covariances": np.tile(np.eye(2) * 0.005**2, (3, 1, 1))}
    two |= {"classical": np.full((2, 3), 0.005)}
    of = {name: effect(f"{name} + client", **two) for name in columns[:-1]}
    found = summarise(
        made(groups=tuple(groups), estimates=(*of.values(), effect("large + client")))
    )["found"]
    # 0.014 is 2.8 standard errors: clear of one comparison (2.6), but not of four (3.1).
    assert [sentence for sentence in found if "By " in sentence] == [
        f"By {name}: “oak, elm, flu” is more frequent by 10 points (8.5 to 12) where {name} is "
        "maybe, compared with no. The comparison is within clients, with 97 % intervals of all "
        "comparisons, from 1,200 documents of 400 persons."
        for name in of
    ] + [
        "By large: there is no comparison, as each other group has documents of at most 30 persons."
    ]


@pytest.mark.parametrize(("seed", "growth"), [(0, 0.0), (1, 0.0), (2, 0.0), (0, 0.25)])
def test_a_planted_change_is_found_and_chance_is_not(seed: int, growth: float) -> None:
    rng = np.random.default_rng(seed)
    corpora = {}
    for client in ("north", "south"):
        years = rng.integers(2024, 2026, 200)
        is_boat = rng.random(200) < 0.4 + growth * (years == 2025)
        texts = [" ".join(rng.choice(BOATS if boat else TREES, 12)) for boat in is_boat]
        rows = {"text": texts, "written": [f"{year}-05-01" for year in years]}
        corpora[client] = Corpus.of(pa.table(rows), Columns(text="text", time="written"))
    period = {"period": "year", "begin": "2024-01-01", "end": "2025-12-31"}
    plan = Study.make(
        method={"name": "nmf", "n_components": 2, "over_time": period},
        vocabulary={**ANY_WORDS, "max_document_share": 1.0},
    )
    trained = train(plan, corpora)
    found = summarise(trained)["found"][-1]
    assert found.startswith("2025 compared with 2024: ")
    assert ("nothing changed more than chance" in found) == (growth == 0)
    dates = {name: corpus.times for name, corpus in corpora.items()}
    grouped = grouped_by_time(trained, corpora, dates, by="year")
    assert grouped.change is not None
    by_sums = {estimate.formula: estimate for estimate in trained.estimates}["change"]
    np.testing.assert_allclose(grouped.change.coefficients, by_sums.coefficients, atol=5e-3)


def test_a_federations_periods_are_rows_and_what_grew() -> None:
    shares = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]])
    periods = replace(table("time", "2023-01-01", "2025-01-01"), shares=shares)
    summary = summarise(made(groups=(periods,)))
    assert [row["share"] for row in summary["over_time"]] == [0.5, 0.25, 0.25, 0.25, 0.5, 0.25]
    assert summarise(made())["over_time"] is None
    assert (summary["change"]["before"], summary["change"]["after"]) == ("2023", "2025")
    assert summary["change"]["topics"][1] == {
        "before": 0.25,
        "after": 0.5,
        "points": [(0.0, 0.25), (1.0, 0.5)],
        "within": None,
    }


def test_who_has_a_topic_alone_is_named() -> None:
    shares = {"north": np.array([0.9, 0.1, 0.0]), "south": np.array([0.05, 0.45, 0.5])}
    summary = summarise(made(shares=shares, documents={"north": 1000, "south": 1000}))
    topics = {topic["topic"]: topic for topic in summary["topics"]}
    # 900 of 950 documents are 95 % of topic 0, surely more than 90; 500 of 500 are all of topic 2.
    assert [topics[k]["owner"] for k in range(3)] == ["north", None, "south"]
    assert summary["found"][1] == (
        "north has nearly all of “Trees | shrubs”; south has nearly all of “oak, elm, flu”."
    )
    assert summary["found"][2] == "1 of 3 topics is common to all clients."
    page = html(summary)
    assert page.count("<strong>Only here:</strong> no topic") == 0
    assert page.count("<strong>Only here:</strong> <a href") == 2


def test_the_last_year_is_held_against_the_one_before() -> None:
    months = {date(y, m, 1): [y - 2022.0, m] for y in (2023, 2024, 2025) for m in (1, 7)}
    change = changes(Grouped(rows(months, documents=10)))
    assert change is not None
    assert (change["before"], change["after"]) == ("2024", "2025")
    assert (change["first"], change["last"]) == ("Jan 2023", "Jul 2025")
    assert change["topics"][0]["before"] == 2
    assert change["topics"][0]["after"] == 3
    del months[date(2025, 7, 1)]  # half a year is compared with the same half
    change = changes(Grouped(rows(months, documents=10)))
    assert change is not None
    assert (change["before"], change["after"]) == ("Jan 2024", "Jan 2025")
    months = {date(y, m, 1): [m, 0] for y in (2024, 2025) for m in range(1, 13 if y < 2025 else 4)}
    change = changes(Grouped(rows(months, documents=10)))
    assert change is not None
    assert (change["before"], change["after"]) == ("Jan to Mar 2024", "Jan to Mar 2025")
    assert change["topics"][0]["before"] == change["topics"][0]["after"]


def test_the_lines_of_topics() -> None:
    months = {date(y, m, 1): [y - 2022.0, m] for y in (2023, 2024, 2025) for m in (1, 7)}
    change = changes(Grouped(rows(months, documents=10)))
    assert change is not None
    where, shares = zip(*change["topics"][1]["points"], strict=True)
    assert shares == (1, 7, 1, 7, 1, 7)
    assert (where[0], where[-1]) == (0, 1)


def answers(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {fact["name"]: fact for fact in summary["facts"]}


def test_a_simulations_header(tmp_path: Path) -> None:
    page = report_of(letters_run(tmp_path, part=0.2))
    facts = answers(page.summary)
    assert page.summary["title"] == "Letters to the city"
    assert f'<p class="purpose">{ABOUT["purpose"]}</p>' in page.html
    assert facts["Who runs it"]["value"] == ABOUT["operator"]
    assert facts["Who took part"]["value"] == "5 clients"
    assert facts["Who gets the model"]["value"] == "the city council"
    assert facts["Kept for"]["value"] == "two years"
    today = json.loads((page.folder / "events.jsonl").read_text().splitlines()[-1])["time"]
    assert page.facts.ended == str(np.datetime64(int(today), "s").astype("datetime64[D]"))
    assert str(int(page.facts.ended[-2:])) == facts["When"]["value"].split()[0]
    assert facts["Were policies met?"]["good"] is True
    fewest = min(row["documents"] for row in page.summary["left"]["functions"])
    assert f"sums {fewest} or more documents; those of 10 persons are required." in page.html
    for fact in facts.values():
        assert f"- {fact['name']} " in page.markdown


def test_a_clients_report_has_the_studys_name_its_date_and_its_policy(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    demo = reported("demo", tmp_path_factory)
    folder = tmp_path / "letters"
    shutil.copytree(demo.folder / "model", folder / "model")
    shutil.copy(demo.folder / "clients" / "north" / "ledger.jsonl", folder)
    shutil.copy(demo.folder / "study.toml", folder)
    page = report_of(folder)
    assert page.facts.place == "client"
    assert (page.summary["title"], page.summary["own"]) == ("demo", "north")
    assert "Report of client north" in page.html
    assert "Report of client north" in page.markdown
    facts = answers(page.summary)
    assert facts["When"]["value"] == answers(demo.summary)["When"]["value"]
    assert facts["Was its policy met?"]["good"] is True
    assert "policy, an update sums over at least 10 persons" in page.html
    assert ">Data that we sent</h2>" in page.html
    assert ">Data sent by each client</h2>" not in page.html


def test_a_policy_that_was_not_kept_to_is_told() -> None:
    row = {
        "function": "batch_sums",
        "method": "gfedntm",
        "documents": 9,
        "fields": [],
        "replies": 1,
    }
    facts = RunFacts(
        "run",
        ledgers={"north": [row | {"bytes": 7, "masked": False}]},
        policies={"north": Policy(methods=("lda",))},
        place="client",
    )
    fact = answers(summarise(model(), facts))["Was its policy met?"]
    assert fact["good"] is False
    assert fact["detail"] == (
        "An update of north is over 9 documents. The policy of north does not allow gfedntm. See "
        "fedtopics audit verify."
    )


@pytest.mark.parametrize(
    ("info", "value", "good", "detail"),
    [
        ({}, "Only sums, no guarantee", None, "Sums have no bound for a single document"),
        ({"masked": True}, "Only sums, no guarantee", None, "Aggregation was secure: nobody saw"),
        ({"masked": False}, "Only sums, no guarantee", None, "Aggregation was plain: the server"),
        (
            {"privacy": {"epsilon": 3.0, "delta": 1e-5, "unit": "document", "seeded": False}},
            "Epsilon 3",
            None,
            "Any conclusion is at most 20.1 times as likely with a document as without",
        ),
        (
            {"privacy": {"epsilon": 3.0, "delta": 1e-5, "unit": "document", "seeded": True}},
            "Only for experiments",
            False,
            "drawn from the study's seed",
        ),
    ],
)
def test_whether_it_is_private(info: Any, value: str, good: bool | None, detail: str) -> None:
    fact = answers(summarise(model(info={"method": "lda"} | info)))["Is it private?"]
    assert (fact["value"], fact["good"]) == (value, good)
    assert detail in fact["detail"]


WRONG: list[Any] = [
    None,
    True,
    -1,
    0.5,
    7,
    2**63,
    10**400,
    math.nan,
    -math.inf,
    "",
    "1",
    "x\x1b",
    "y" * 500,
    [],
    [[]],
    [None],
    ["1"],
    {},
    {"a": {"b": [1]}},
]
TRIED = 120  # replacements of each model
TOPIC = {"id": 4, "words": ["oak"], "occurrences": 3.5, "clients": ["north"]}
INFO = {
    "method": "flda",
    "rounds": 3,
    "seed": 1,
    "length": 7.5,
    "seen": 40,
    "ids": [4, 1, 2],
    "history": [
        {
            "round": 1,
            "documents": 40,
            "arrived": {"north": 30},
            "threshold": 0.5,
            "topics": [TOPIC],
            "new": [4],
            "vanished": [TOPIC],
        },
    ],
    "continued": {"model": "beef", "method": "lda", "rounds": 2, "vocabulary": "keep"},
}


def clusters() -> TopicModel:
    shape = ClusterShape(n_components=3, representation="bow")
    beta = torch.from_numpy(BETA)
    weights = {"origin": torch.zeros(5).double(), "centres": beta * 2, "beta": beta}
    sizes = {"north": [10, 10, 10], "south": [0, 10, 0]}
    return made(
        inference=Centres(5, shape),
        weights=weights,
        info={
            "method": "kmeans",
            "rounds": 3,
            "seed": 1,
            "sizes": sizes,
            "same": 1,
            "unclear": {"north": 2, "south": 0},
        },
    )


MODELS = {"topics": lambda: made(info=INFO), "clusters": clusters}


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the maps and lists of JSON, each with the keys of what is in it."""
    for key in list(content) if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from places(content[key])


def shown(folder: Path) -> None:
    model = TopicModel.from_pretrained(folder)
    rows = model.get_topic_info()
    summary = summarise(model)
    render.html(summary), render.markdown(summary), card(model), repr(model), card_table(model)
    as_csv(rows), as_markdown(rows), model.to_pandas()
    model.to_pyldavis(), model.to_gensim(), model.to_octis()
    model.transform([["oak", "tea"]])
    model.save_pretrained(folder / "again")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", MODELS)
def test_anything_for_anything(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "report_templates", cache(render.report_templates))  # for templates
    MODELS[kind]().save_pretrained(tmp_path)
    edit_config(tmp_path)
    files = {
        name: (tmp_path / name).read_text()
        for name in ("config.json", "vocabulary.json", "topics.json")
    }
    shown(tmp_path)
    tries = [
        (name, number, wrong)
        for name, text in files.items()
        for number in range(sum(1 for _ in places(json.loads(text))))
        for wrong in WRONG
    ]
    refused = 0
    for name, number, wrong in random.Random(0).sample(tries, TRIED):  # noqa: S311
        content = json.loads(files[name])
        around, key = list(places(content))[number]
        around[key] = wrong
        (tmp_path / name).write_text(json.dumps(content))
        try:
            shown(tmp_path)
        except FedTopicsError as error:
            refused += 1
            assert "\n" not in str(error)
            assert len(str(error)) < 1000
        except Exception as error:
            raise AssertionError(f"{name}: {wrong!r:.20} for {around!r:.200}[{key!r}]") from error
        (tmp_path / name).write_text(files[name])
    assert TRIED / 4 < refused < TRIED


def test_suggested_labels_are_marked() -> None:
    summary = summarise(made().with_suggested_labels())
    told = {topic["topic"]: (topic["label"], topic["suggested"]) for topic in summary["topics"]}
    assert told == {
        0: ("Trees | shrubs", False),
        1: ("__init__, flu, tea", True),
        2: ("Oak, elm, flu", True),
    }
    assert "Oak, elm, flu (suggested)" in markdown(summary)
    assert html(summary).count('<span class="badge">suggested</span>') == 2
