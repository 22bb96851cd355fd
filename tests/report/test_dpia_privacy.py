"""What form, card, report and `verify` say of a bound for each document, and of an audit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import RunError
from fedtopics.federation.audit import Audit
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.federation.verify import verify
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import find_run, summarise
from fedtopics.report.dpia import assess
from fedtopics.report.dpia_document import Document, Gap, Statement, Table
from fedtopics.report.dpia_records import CONTROL
from fedtopics.text.corpus import Corpus
from tests.helpers.bounded import PUBLIC, planned, themed
from tests.helpers.grpc_federation import authority, federated

ROOT = Path(__file__).parents[2]
NAMES = "north", "south", "west"


def plan(**privacy: Any) -> Study:
    study = planned("lda", 3).model_copy(update={"name": "letters"})
    plain = study.model_dump(mode="json", exclude_none=True, exclude={"clients"})
    clients = {name: {} for name in NAMES}
    return Study.make(**plain | {"privacy": {"epsilon": 3, **privacy}, "clients": clients})


def corpora() -> dict[str, Corpus]:
    return {name: themed(3000, seed).with_embeddings(None) for seed, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private study between three clients, of which north keeps an account."""
    folder: Path = tmp_path_factory.mktemp("private")
    own = OPEN_POLICY.model_copy(
        update={"max_epsilon": 8.0, "account": folder / "north.account.jsonl"}
    )
    certificates = authority(folder / "pki", *NAMES)
    federated(plan(), corpora(), folder, certificates, policies={"north": own}, seeded=False)
    return folder


@pytest.fixture
def north(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "north", tmp_path / "north"))


def said(form: Document, number: str) -> str:
    found = next(each for each in form.sections if each.number == number).parts
    return " ".join(part.text for part in found if isinstance(part, Statement))


def asked(form: Document, number: str) -> str:
    found = next(each for each in form.sections if each.number == number).parts
    return " ".join(part.question for part in found if isinstance(part, Gap))


def checked(folder: Path) -> dict[str, bool | None]:
    return {check.what: check.holds for check in verify(folder)}


def audit(folder: Path, study: str) -> Path:
    found = {
        "study": study, "shadows": 16, "documents": 3200, "auc": 0.512, "found": 0.014,
        "allowed": [0.7, 0.2],
    }  # fmt: skip
    path = folder / "audit.json"
    path.write_text(json.dumps(found))
    return path


def test_what_is_promised(runs: Path) -> None:
    form = assess(runs / "north")
    told = said(form, "3.1")
    assert "for each document: epsilon 3, delta 1e-06. Whatever somebody makes of it is" in told
    assert "at most 20.1 times as likely with a given document" in told
    assert f"the {len(PUBLIC)} words that may be in topics" in told
    assert "enough if 1 of the 3 are missing, or tell others theirs" in told
    assert "had epsilon 3 together when it took part, this one included; its policy allows 8." in (
        told
    )
    assert "has no max_epsilon, so no account is kept" in asked(assess(runs / "south"), "3.1")
    assert "In the clear left north: nothing." in said(form, "1.2")


def test_what_does_not_hold_in_a_private_study_is_not_said(runs: Path) -> None:
    form = assess(runs / "north")
    assert "all others know its number of documents" not in said(form, "3.1")
    assert "that enough of a client's documents have" not in said(form, "1.1.a")
    tables = [
        row for section in form.sections for part in section.parts
        if isinstance(part, Table) for row in part.rows
    ]  # fmt: skip
    cells = {cell for row in tables for cell in row}
    assert not any(cell.startswith("A word that fewer documents have") for cell in cells)
    assert any("moves each sum by a vector of length 1 at most" in cell for cell in cells)
    assert 'coherence = "nothing"' not in cells
    assert "what model and totals tell of a single document, within epsilon 3" in cells
    assert 'unit = "author" in the study' in cells


def test_each_statement_names_its_record(runs: Path) -> None:
    form = assess(runs / "north")
    (promise,) = [
        part for section in form.sections for part in section.parts
        if isinstance(part, Statement) and "differentially private" in part.text
    ]  # fmt: skip
    assert promise.source.startswith(f"study.toml, fingerprint {plan().fingerprint}, [privacy]")
    (spent,) = [
        part for section in form.sections for part in section.parts
        if isinstance(part, Statement) and "By the account of north" in part.text
    ]  # fmt: skip
    line = int(spent.source.removeprefix("ledger of north, line "))
    began = json.loads((runs / "north/ledger.jsonl").read_text().splitlines()[line - 1])
    assert (began["what"], began["epsilon_spent"]) == ("began", 3)
    assert began["policy"]["max_epsilon"] == 8


def test_of_authors(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(plan(unit="author", most_documents=5).to_toml())
    told = said(assess(path), "3.1")
    assert "for each author: epsilon 3" in told
    assert "at most 5 documents of each count, together as one" in told


def test_verify_checks_what_is_promised(north: Path) -> None:
    found = checked(north)
    assert found["privacy"] is True
    assert found["clear"] is True
    assert "audit" not in found
    config = north / "model/config.json"
    content = json.loads(config.read_text())
    content["info"]["privacy"]["epsilon"] = 1.0
    config.write_text(json.dumps(content))
    assert checked(north)["privacy"] is False


def test_verify_finds_what_left_without_masks(north: Path) -> None:
    ledger = north / "ledger.jsonl"
    text = ledger.read_text()
    assert ', "masked": true' in text
    ledger.write_text(text.replace(', "masked": true', ""))
    (clear,) = [check for check in verify(north) if check.what == "clear"]
    assert clear.holds is False
    assert "extent left in the clear, and the study has masks for it" in clear.text


def test_verify_finds_an_account_beyond_the_policy(north: Path) -> None:
    ledger = north / "ledger.jsonl"
    text = ledger.read_text()
    for spent in ("9.5", '"much"', "null"):
        ledger.write_text(text.replace('"epsilon_spent": 3.0', f'"epsilon_spent": {spent}'))
        assert checked(north)["privacy"] is False


def test_an_audit_is_quoted(north: Path, tmp_path: Path) -> None:
    assert "fedtopics audit STUDY --data FILE -o audit.json" in asked(assess(north), "3.1")
    path = audit(north, plan().fingerprint)
    digest = Audit.read(path, plan().fingerprint).sha256
    form = assess(north)
    (table,) = [
        part for section in form.sections if section.number == "3.1" for part in section.parts
        if isinstance(part, Table) and part.head[0] == "attack"
    ]  # fmt: skip
    assert [list(row) for row in table.rows] == [
        ["membership, by the model", "0.512", "1.4%", "3,200"],
        ["allowed by epsilon", "0.700", "20.0%", "-"],
    ]  # fmt: skip
    assert "fedtopics audit STUDY" not in asked(form, "3.1")
    assert digest in str(form)
    (check,) = [check for check in verify(north) if check.what == "audit"]
    assert check.holds
    assert digest in check.text
    elsewhere = path.rename(tmp_path / "elsewhere.json")
    assert digest in str(assess(north, elsewhere))


def test_an_audit_of_another_study(north: Path) -> None:
    path = audit(north, "f00d")
    with pytest.raises(RunError, match="is an audit of the study f00d, not of"):
        assess(north)
    assert checked(north)["audit"] is False
    path.write_text("{}")
    with pytest.raises(RunError, match="is not an audit; write one with: fedtopics audit STUDY"):
        assess(north)


def test_card_and_report_say_it(north: Path) -> None:
    place, facts = find_run(north)
    card = (place / "README.md").read_text("utf-8")
    assert "- Differentially private for each document: epsilon 3, delta 1e-06, of all" in card
    assert "is the control in docs/privacy.md" in card
    assert "- Documents, counted with noise: " in card
    model = TopicModel.from_pretrained(place)
    assert model.info["clear"] == []
    sentences = " ".join(summarise(model, facts)["sentences"])
    assert "documents of all clients, counted with noise, by" in sentences
    assert "Differentially private for each document: epsilon 3" in sentences


def test_a_simulation_keeps_no_promise(tmp_path: Path) -> None:
    train(plan(), corpora(), out=tmp_path / "run", policies=dict.fromkeys(NAMES, OPEN_POLICY))
    assert "in this run the promise is not kept" in said(assess(tmp_path / "run"), "3.1")
    assert {check.holds for check in verify(tmp_path / "run") if check.what == "privacy"} == {None}


def test_the_control_is_that_of_the_table() -> None:
    rows = (ROOT / "benchmarks/results/private.md").read_text("utf-8").splitlines()
    of = {tuple(row.split(" | ")[:2]): row.split(" | ") for row in rows if " | " in row}
    three = of["| 20ng, kmeans", "3"]
    for figure in (three[7], three[2]):
        assert figure.replace("0.", ".", 1) in CONTROL
