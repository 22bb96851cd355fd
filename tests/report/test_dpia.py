"""The form of an impact assessment: what it says is in the records, the rest is marked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedtopics.cli.news import show_offer
from fedtopics.federation.study import Study
from fedtopics.methods.registry import METHODS
from fedtopics.report import find_run, summarise
from fedtopics.report.dpia import assess
from fedtopics.report.dpia_document import (
    Document,
    Gap,
    Statement,
    Table,
    html,
    markdown,
)
from fedtopics.report.dpia_records import TABLES, Records
from fedtopics.report.render import markdown as report_markdown
from fedtopics.text.corpus import Corpus
from tests.helpers.grpc_federation import Outcome, authority, federated
from tests.helpers.ledgers import lines_that_left

ROOT = Path(__file__).parents[2]
CANARY = "quetzalcoatl"
ABOUT = {
    "purpose": "To find what <b>letters</b> are about | and more",
    "operator": "City of Elms",
    "recipients": ["the council"],
    "retention": "until 2028",
    "contact": "archive@example.org",
}
HEADINGS = (
    *("0", "0.1", "0.2", "0.3", "0.4", "0.5"),
    *("1", "1.1", "1.1.a", "1.1.b", "1.1.c", "1.1.d", "1.2", "1.3", "1.4"),
    *("2", "2.1", "2.1.a", "2.1.b", "2.2", "2.2.a", "2.2.b"),
    *("2.3", "2.3.a", "2.3.b", "2.3.c", "2.3.d", "2.3.e", "3", "3.1", "3.2", "3.3"),
    *("4", "4.1", "4.1.a", "4.1.b", "4.1.c", "4.2", "4.2.a", "4.2.b", "4.2.c"),
    *("5", "5.1", "5.2", "6"),
)


def study(**more: Any) -> Study:
    method = {"name": "lda", "n_components": 2, "max_rounds": 2, "batch_size": 60}
    return Study.make(name="letters", method=method, **({"about": ABOUT} | more))


def corpora() -> dict[str, Corpus]:
    texts = {"north": "oak elm fir ash", "south": "brig yawl dory", "west": "oak brig plum"}
    documents = {name: [f"{text} {i % 7}x" for i in range(60)] for name, text in texts.items()}
    documents["north"][7] += f" {CANARY}"
    return {name: Corpus.of(rows) for name, rows in documents.items()}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A server and three clients with certificates; their folders."""
    folder = tmp_path_factory.mktemp("federation")
    certificates = authority(folder / "pki", *corpora())
    plan = study(vocabulary={"max_document_share": 1.0})
    return folder, federated(plan, corpora(), folder, certificates)


@pytest.fixture(scope="module")
def north(federation: tuple[Path, Outcome]) -> Path:
    return federation[0] / "north"


def parts(form: Document, number: str) -> list[Statement | Gap | Table]:
    return list(next(each for each in form.sections if each.number == number).parts)


def said(form: Document, number: str) -> str:
    return " ".join(part.text for part in parts(form, number) if isinstance(part, Statement))


def test_each_question_is_answered_or_marked(federation: tuple[Path, Outcome]) -> None:
    folder, _ = federation
    plan = folder / "plan.toml"
    plan.write_text(Study.make(clients={n: {} for n in "abc"}, secure=True).to_toml())
    for place in (folder / "north", folder / "server", plan):
        form = assess(place)
        assert tuple(section.number for section in form.sections) == HEADINGS
        for section, following in zip(form.sections, [*form.sections[1:], None], strict=True):
            inner = following is not None and following.number.startswith(section.number)
            assert section.parts or inner or section.number in "12345", section.number
        for part in (part for section in form.sections for part in section.parts):
            if isinstance(part, Gap):
                assert part.question.endswith(("?", "."))
            else:
                assert part.source
            if isinstance(part, Table):
                assert part.rows
                assert {len(row) for row in part.rows} == {len(part.head)}


def test_what_it_says_is_what_records_say(north: Path) -> None:
    form, lines = assess(north), lines_that_left(north / "ledger.jsonl")
    number = [json.loads(line) for line in (north / "ledger.jsonl").read_text().splitlines()]
    (flows,) = [p for p in parts(form, "1.2") if isinstance(p, Table) and p.head[0] == "what left"]
    told = [line for line in number if line["what"] in ("left", "came")]
    assert {row[0] for row in flows.rows} == {line["function"] for line in told}
    for function, meaning, how, replies, fewest, left, came, span in flows.rows:
        own = [line for line in lines if line["function"] == function]
        totals = [x for x in number if x["what"] == "came" and x["function"] == function]
        assert meaning == Records.read(north).leaves(function) != ""
        assert replies == f"{len(own)}"
        assert fewest == f"{min([x['documents'] for x in own if x['documents']], default='-')}"
        masked = [line for line in own if line.get("masked")]
        assert (how == "in masked sums") == (masked == own != [])
        if masked:
            assert (left, came) == ("in secure.add", "in secure.add")
        else:
            assert left == f"{sum(line['bytes'] for line in own):,}"
            assert came == f"{sum(line['bytes'] for line in totals):,}"
        first, last = (int(n.replace(",", "")) for n in span.split(" to "))
        of = [i for i, line in enumerate(number, 1) if line.get("function") == function]
        assert (first, last) == (of[0], of[-1])
    wire = [line["bytes"] for line in lines if not line.get("masked")]
    everything, texts = sum(wire), number[0]["text_bytes"]
    assert "In the clear left north: secure.chosen, counted, shares; all else" in said(form, "1.2")
    assert texts == sum(len(t.encode()) for batch in corpora()["north"].texts() for t in batch)
    assert f"{everything:,} bytes left north, {everything / texts:,.0f} times" in said(form, "1.2")
    assert f"north has 60 documents, with {texts:,} bytes." in said(form, "1.1.a")
    first, last = (number[i]["time"][:19].replace("T", " ") for i in (0, -1))
    assert f"north took part from {first} UTC to {last} UTC." in said(form, "0.4")
    policy = {
        row[0]: row[1] for p in parts(form, "2.3.a") if isinstance(p, Table) for row in p.rows
    }
    assert policy["min_documents"] == "1"
    kept = {row[0]: row[1] for p in parts(form, "2.2.a") if isinstance(p, Table) for row in p.rows}
    assert kept["model/vocabulary.json"].startswith(f"line {len(number) - 1}, SHA-256 ")
    assert "north signs with the key of its certificate." in said(form, "2.3.e")


def test_purpose_and_parties(north: Path) -> None:
    form = assess(north)
    assert ABOUT["purpose"] in said(form, "1.1.b")
    assert "Operator: City of Elms" in said(form, "0.2")
    assert "which sees masked replies, whose masks it can undo: they followed" in said(form, "0.2")
    assert "north, south, west" in said(form, "0.1")
    assert "the council" in said(form, "2.2.a")
    assert "until 2028" in said(form, "2.2.a")


def test_masks(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    clients: dict[str, Any] = {name: {} for name in "abc"}
    for secure in (False, True):
        method = {"name": "lda", "n_components": 2}
        path.write_text(Study.make(method=method, clients=clients, secure=secure).to_toml())
        form = assess(path)
        sees = "sums over at least three clients" if secure else "the reply of each"
        assert sees in said(form, "0.2")
        (impacts,) = [part for part in parts(form, "3.1") if isinstance(part, Table)]
        assert len(impacts.rows) == (1 if secure else 2)
        offered = str(parts(form, "4.2.a")[0])
        assert ("no secure = false" in offered) != secure


@pytest.mark.parametrize("method", METHODS.names)
def test_every_method(method: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(Study.make(method={"name": method}, clients={"a": {}, "b": {}}).to_toml())
    (flows,) = [p for p in parts(assess(path), "1.2")[1:] if isinstance(p, Table)]
    assert all(row[2] for row in flows.rows)


def test_no_document_no_word(north: Path, federation: tuple[Path, Outcome]) -> None:
    assert CANARY in "".join(t for batch in corpora()["north"].texts() for t in batch)
    for write in (markdown, html):
        text = write(assess(north))
        words = {*federation[1].model.vocabulary.words, CANARY}
        assert not [word for word in words if re.search(rf"\b{word}\b", text)]


def test_measures_name_tests_that_are_there() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = {name for measure in TABLES["measures"] for name in measure["tests"]}
    assert named <= there, named - there
    assert all(measure["tests"] for measure in TABLES["measures"])


def test_figures_are_those_of_the_threat_model() -> None:
    lines = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8").splitlines()
    for attack in TABLES["attacks"]:
        script = ROOT / attack["command"]
        if script.suffix == ".py":
            assert script.exists()
            assert any(script.name in line and attack["figure"] in line for line in lines), attack
        else:
            assert any(attack["figure"] in line for line in lines), attack


def test_the_offer_and_the_report_say_what_the_study_is_for(
    federation: tuple[Path, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, outcome = federation
    (offer,) = outcome.partners["north"].events.of("offer")
    show_offer(offer, "The study")
    shown = capsys.readouterr().out
    assert "  purpose: To find what <b>letters</b> are about | and more\n" in shown
    assert "  recipients: the council\n" in shown
    place, facts = find_run(folder / "north")
    assert place == folder / "north/model"
    summary = summarise(outcome.model, facts)
    assert summary["about"][1] == ("operator", "City of Elms")
    assert "- operator: City of Elms\n" in report_markdown(summary)
    assert "about" not in summary["settings"]["tables"]
