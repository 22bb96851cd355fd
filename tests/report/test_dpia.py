"""The form of an impact assessment: what it says is in the records, the rest is marked."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import RunError
from fedtopics.federation.audit import Audit
from fedtopics.federation.data_sent import ALL_SEE, TOTAL, data_sent_in
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.verify import verify
from fedtopics.methods.registry import METHODS
from fedtopics.report import find_run, summarise
from fedtopics.report.dpia import SECTIONS, assess
from fedtopics.report.dpia_document import (
    Document,
    FormTable,
    Gap,
    Statement,
    form_as_html,
    form_as_markdown,
)
from fedtopics.report.dpia_records import TABLES, Records
from fedtopics.report.render import markdown as report_markdown
from fedtopics.terminal.run_display import show_offer
from tests.helpers.command_line import Done, Refused
from tests.helpers.grpc_federation import Outcome, federated
from tests.helpers.ledgers import lines_that_left
from tests.helpers.recipes import PUBLIC, planned, themed
from tests.helpers.records import write_audit

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
    *("5", "5.1", "5.2", "6", "A"),
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
    folder = tmp_path_factory.mktemp("federation")
    return folder, federated(study(vocabulary={"max_document_share": 1.0}), corpora(), folder)


@pytest.fixture(scope="module")
def north(federation: tuple[Path, Outcome]) -> Path:
    return federation[0] / "north"


def parts(form: Document, number: str) -> list[Statement | Gap | FormTable]:
    return list(next(section for section in form.sections if section.number == number).parts)


def said(form: Document, number: str) -> str:
    return " ".join(part.text for part in parts(form, number) if isinstance(part, Statement))


def asked(form: Document, number: str) -> str:
    return " ".join(part.question for part in parts(form, number) if isinstance(part, Gap))


def everything(form: Document) -> list[Statement | Gap | FormTable]:
    return [part for section in form.sections for part in section.parts]


def test_each_question_is_answered_or_marked(federation: tuple[Path, Outcome]) -> None:
    folder, _ = federation
    plan = folder / "plan.toml"
    plan.write_text(Study.make(clients={n: {} for n in "abc"}, aggregation="secure").to_toml())
    for place in (folder / "north", plan):
        form = assess(place)
        assert tuple(section.number for section in form.sections) == HEADINGS
        for section, following in zip(form.sections, [*form.sections[1:], None], strict=True):
            inner = following is not None and following.number.startswith(section.number)
            assert section.parts or inner or section.number in "12345", section.number
        for part in everything(form):
            if isinstance(part, Gap):
                assert part.question.endswith(("?", "."))
            else:
                assert part.source
            if isinstance(part, FormTable):
                assert part.rows
                assert {len(row) for row in part.rows} == {len(part.head)}


def test_what_it_says_is_what_records_say(north: Path) -> None:
    form = assess(north)
    lines = lines_that_left(north / "ledger.jsonl")
    number = [json.loads(line) for line in (north / "ledger.jsonl").read_text().splitlines()]
    (flows,) = [
        p for p in parts(form, "1.2") if isinstance(p, FormTable) and p.head[0] == "function"
    ]
    told = [line for line in number if line["what"] in ("sent", "received")]
    assert {row[0] for row in flows.rows} == {line["function"] for line in told}
    table = {row.function: row for row in data_sent_in(Study.read(north / "study.toml"))}
    for function, when, meaning, seen, replies, fewest, left, came, span in flows.rows:
        sent = [line for line in lines if line["function"] == function]
        totals = [x for x in number if x["what"] == "received" and x["function"] == function]
        about = table[function]
        bounds = f" Bounds: {about.bounds}." if about.bounds else ""
        assert (when, meaning) == (f"{about.often}; {about.over}", about.data_sent + bounds)
        assert replies == f"{len(sent)}"
        assert fewest == f"{min([x['documents'] for x in sent if x['documents']], default='-')}"
        assert seen == (TOTAL if [line for line in sent if line.get("masked")] == sent else ALL_SEE)
        assert left == f"{sum(line['bytes'] for line in sent):,}"
        assert came == f"{sum(line['bytes'] for line in totals):,}"
        first, last = (int(n.replace(",", "")) for n in span.split(" to "))
        of = [i for i, line in enumerate(number, 1) if line.get("function") == function]
        assert (first, last) == (of[0], of[-1])
    # What is computed for the vocabulary is sent as table, list and counts.
    wire = sum(line["bytes"] for line in lines if line["function"] != "vocabulary")
    texts = number[0]["text_bytes"]
    assert texts == sum(len(t.encode()) for batch in corpora()["north"].texts() for t in batch)
    assert f"{wire:,} bytes left north, {wire / texts:,.0f} times" in said(form, "1.2")
    assert f"north has 60 documents with {texts:,} bytes of text." in said(form, "1.1.a")
    first, last = (number[i]["time"][:19].replace("T", " ") for i in (0, -1))
    assert f"north took part from {first} UTC to {last} UTC." in said(form, "0.4")
    policy, files = (
        {row[0]: row[1] for p in parts(form, number) if isinstance(p, FormTable) for row in p.rows}
        for number in ("2.3.a", "2.2.a")
    )
    assert policy["min_persons"] == "1"
    assert files["model/vocabulary.json"].startswith(f"line {len(number) - 3}, SHA-256 ")
    assert "north signs with the key of its certificate." in said(form, "2.3.e")


def test_purpose_and_parties(north: Path) -> None:
    form = assess(north)
    for number, sentence in (
        ("1.1.b", ABOUT["purpose"]),
        ("0.2", "Operator: City of Elms"),
        ("0.2", "which sees no document, word, number or total"),
        ("0.1", "north, south, west"),
        ("2.2.a", "the council"),
        ("2.2.a", "until 2028"),
    ):
        assert sentence in said(form, number)


def test_masks(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    clients: dict[str, Any] = {name: {} for name in "abc"}
    for kind in ("plain", "secure"):
        secure = kind == "secure"
        method = {"name": "lda", "n_components": 2, "learning": "stochastic"}
        path.write_text(Study.make(method=method, clients=clients, aggregation=kind).to_toml())
        form = assess(path)
        sees = "no document, word, number or total" if secure else "the update of each"
        assert sees in said(form, "0.2")
        (impacts,) = [part for part in parts(form, "3.1") if isinstance(part, FormTable)]
        assert len(impacts.rows) == (1 if secure else 2)
        assert ('aggregation = "secure"' in str(parts(form, "4.2.a")[0])) != secure


@pytest.mark.parametrize("method", METHODS.names)
def test_every_method(method: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(Study.make(method={"name": method}, clients={"a": {}, "b": {}}).to_toml())
    (flows,) = [p for p in parts(assess(path), "1.2")[1:] if isinstance(p, FormTable)]
    assert all(row[2] for row in flows.rows)


def test_no_document_no_word(north: Path, federation: tuple[Path, Outcome]) -> None:
    assert CANARY in "".join(t for batch in corpora()["north"].texts() for t in batch)
    for write in (form_as_markdown, form_as_html):
        text = write(assess(north))
        words = {*federation[1].model.vocabulary.words, CANARY}
        assert not [word for word in words if re.search(rf"\b{word}\b", text)]


def test_measures_name_tests_that_are_there() -> None:
    test_names = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = {name for measure in TABLES["measures"] for name in measure["tests"]}
    assert named <= test_names, named - test_names
    assert all(measure["tests"] for measure in TABLES["measures"])


def test_figures_are_those_of_the_threat_model() -> None:
    lines = (ROOT / "docs/concepts/threat-model.md").read_text(encoding="utf-8").splitlines()
    for attack in TABLES["attacks"]:
        script = ROOT / attack["command"]
        if script.suffix == ".py":
            assert script.exists()
            assert any(script.name in line and attack["figure"] in line for line in lines), attack
        else:
            assert any(attack["figure"] in line for line in lines), attack


@pytest.mark.parametrize(
    ("method", "attacks"),
    [({"name": "nmf"}, 0), ({"name": "lda"}, 0), ({"name": "lda", "learning": "stochastic"}, 2)],
)
def test_only_risks_of_the_study_are_listed(method: Any, attacks: int, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(Study.make(method=method).to_toml())
    risks = Records.read(tmp_path / "study.toml").holding("attacks")
    assert sum("minibatch" in risk["what"] for risk in risks) == attacks


def test_the_offer_and_the_report_say_what_the_study_is_for(
    federation: tuple[Path, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, outcome = federation
    (offer,) = outcome.partners["north"].events.of("offer")
    show_offer(offer)
    shown = capsys.readouterr().out
    assert "  purpose: To find what <b>letters</b> are about | and more\n" in shown
    assert "  recipients: the council\n" in shown
    place, facts = find_run(folder / "north")
    assert place == folder / "north/model"
    summary = summarise(outcome.model, facts)
    assert summary["about"][1] == ("operator", "City of Elms")
    assert "- operator: City of Elms\n" in report_markdown(summary)
    assert "about" not in summary["settings"]["tables"]


NAMES = "north", "south", "west"


def plan(**privacy: Any) -> Study:
    study = planned("lda", 3).model_copy(update={"name": "letters"})
    plain = study.model_dump(mode="json", exclude_none=True, exclude={"clients"})
    plain["differential_privacy"] |= privacy
    return Study.make(**plain | {"clients": {name: {} for name in NAMES}})


def private_corpora() -> dict[str, Corpus]:
    return {name: themed(3000, seed).with_embeddings(None) for seed, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private study between three clients, of which north keeps an account."""
    folder: Path = tmp_path_factory.mktemp("private")
    policies = {"north": OPEN_POLICY.model_copy(update={"max_epsilon": 8.0})}
    federated(plan(), private_corpora(), folder, policies=policies, seeded=False)
    return folder


@pytest.fixture(scope="module")
def private_form(runs: Path) -> Document:
    return assess(runs / "north")


@pytest.fixture
def private_north(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "north", tmp_path / "north"))


def checked(folder: Path) -> dict[str, bool | None]:
    return {check.what: check.holds for check in verify(folder)}


def test_what_is_promised(private_form: Document, runs: Path) -> None:
    told = said(private_form, "3.1")
    for sentence in (
        "for each document: epsilon 3, delta 1e-06.",
        "at most 20.1 times as likely with a document as without (epsilon 3)",
        f"the {len(PUBLIC)} words that may be in topics",
        "suffices even if 1 of the 3 parts is missing or known to others",
        "had used epsilon 3 when it took part, including this one; its policy allows 8.",
    ):
        assert sentence in told
    assert "has no max_epsilon, so no privacy budget is kept" in asked(
        assess(runs / "south"), "3.1"
    )
    tables = [part for part in parts(private_form, "1.2") if isinstance(part, FormTable)]
    assert [row[0] for table in tables for row in table.rows if ALL_SEE in row] == ["model: digest"]


def test_what_does_not_hold_in_a_private_study_is_not_said(private_form: Document) -> None:
    assert "each member's numbers of documents" not in said(private_form, "3.1")
    assert "words that enough" not in said(private_form, "1.1.a")
    assert "encoder" not in said(private_form, "3.1"), "the study has none"
    tables = [part for part in everything(private_form) if isinstance(part, FormTable)]
    cells = {cell for table in tables for row in table.rows for cell in row}
    assert not any(cell.startswith("A word in documents of fewer") for cell in cells)
    assert any("change each sum by a vector of length 1 at most" in cell for cell in cells)
    assert 'coherence = "nothing"' not in cells
    assert "what model and totals reveal about a single document, within epsilon 3" in cells
    assert 'unit = "person" in the study' in cells


def test_each_statement_names_its_record(private_form: Document, runs: Path) -> None:
    told = [part for part in everything(private_form) if isinstance(part, Statement)]
    (promise,) = [part for part in told if "differentially private" in part.text]
    assert promise.source.startswith("study.toml, [differential_privacy]")
    text = form_as_markdown(private_form)
    places = [private_form.sources.index(record) + 1 for record in promise.source.split("; ")]
    assert f"\\[{', '.join(map(str, places))}\\]" in text
    listed = text.split("## Records")[1].replace("\\", "")
    assert all(f"{n}. {name}" in listed for n, name in enumerate(private_form.sources, 1))
    digest = Study.read(runs / "north/study.toml").fingerprint
    assert text.count(digest) == 1 == text.split("## A Digests")[1].count(digest)
    (spent,) = [part for part in told if "By the privacy budget of north" in part.text]
    line = int(spent.source.removeprefix("ledger of north, line "))
    began = json.loads((runs / "north/ledger.jsonl").read_text().splitlines()[line - 1])
    assert (began["what"], began["epsilon_spent"]) == ("started", 3)
    assert began["policy"]["max_epsilon"] == 8


def test_of_authors(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(plan(unit="person", most_documents=5).to_toml())
    told = said(assess(path), "3.1")
    assert "for each person: epsilon 3" in told
    assert "At most 5 documents per person count, together as one" in told
    (measures,) = [part for part in parts(assess(path), "4.2.a") if isinstance(part, FormTable)]
    assert [row[0] for row in measures.rows] == ["a smaller epsilon", "max_epsilon in policies"]


def test_before_a_run(tmp_path: Path, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes documents and policy, and speaks of what the column of persons names."""
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(
        Study.make(method={"name": "nmf", "n_components": 2}).with_clients("abc").to_toml()
    )
    rows = [f"{text},p{i % 30}" for i, text in enumerate(corpora()["south"].documents.to_pylist())]
    Path("south.csv").write_text("\n".join(["text,patient", *rows]))
    Path("policy.toml").write_text("min_persons = 12\n")
    command = ["audit", "dpia", "study.toml", "--data", "south.csv", "--policy", "policy.toml"]
    out = done(*command, "--columns", "person=patient", "-o", "dpia.md")
    text = Path("dpia.md").read_text()
    for sentence in (
        "This client has 60 documents of 30 patients, with ",
        "A sum over all documents is of 30 patients of this client",
        "Each message is over at least 12 patients of this client",
        "reveal about a single patient has no bound",
        "| min\\_persons | 12 |",
    ):
        assert sentence in text
    assert "k-means" not in text
    assert "encoder" not in text
    answers = tomllib.loads(Path("answers.toml").read_text())["question"]
    assert len(answers) == text.count("to be filled in by") > 30
    assert f"answers.toml has {len(answers)} questions for people to answer." in out


def test_answers_are_used_again(
    tmp_path: Path, done: Done, refused: Refused, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(study().to_toml())
    command = "audit", "dpia", "study.toml", "-o", "dpia.md", "--answers", "ours.toml"
    done(*command)
    asked_ = Path("ours.toml").read_text()
    place = asked_.index('answer = ""', asked_.index("Which legal basis (Article 6(1))"))
    given = 'answer = """Article 6(1)(e):\n"public" interest \U0001f600."""'
    old = '[[question]]\nsection = "9"\nwho = "x"\nquestion = "An old one?"\nanswer = "Yes."\n'
    Path("ours.toml").write_text(
        asked_[:place] + given + asked_[place + len('answer = ""') :] + old, "utf-8"
    )
    for _ in range(2):
        out = done(*command)
        text = Path("dpia.md").read_text("utf-8")
        assert 'Article 6(1)(e): "public" interest \U0001f600.' in " ".join(text.split())
        assert "ours.toml has" in out
    kept = tomllib.loads(Path("ours.toml").read_text("utf-8"))["question"]
    assert {row["question"] for row in tomllib.loads(asked_)["question"]} < {
        row["question"] for row in kept
    }
    assert {row["answer"] for row in kept} == {
        "",
        "Yes.",
        'Article 6(1)(e):\n"public" interest \U0001f600.',
    }
    others = "[[question]]\nsection = 1\n", "min_persons = 20\n", "x = [", "question = 3\n"
    for other in others:  # such a file is somebody's own, and stays as it is
        Path("ours.toml").write_text(other)
        assert "ours.toml is not a file of answers: each [[question]]" in refused(*command)
        assert Path("ours.toml").read_text() == other


def test_verify_checks_what_is_promised(private_north: Path) -> None:
    checks = checked(private_north)
    assert checks["privacy"] is True
    assert checks["data sent"] is True
    assert "audit" not in checks
    config = private_north / "model/config.json"
    content = json.loads(config.read_text())
    content["info"]["privacy"]["epsilon"] = 1.0
    config.write_text(json.dumps(content))
    assert checked(private_north)["privacy"] is False


def test_verify_finds_what_left_without_masks(private_north: Path) -> None:
    ledger = private_north / "ledger.jsonl"
    text = ledger.read_text()
    assert ', "masked": true' in text
    ledger.write_text(text.replace(', "masked": true', ""))
    (check,) = [check for check in verify(private_north) if check.what == "data sent"]
    assert check.holds is False
    assert (
        "noisy_document_count, as sent in the clear, but the study has secure aggregation for it"
        in check.text
    )


def test_verify_finds_an_account_beyond_the_policy(private_north: Path) -> None:
    ledger = private_north / "ledger.jsonl"
    text = ledger.read_text()
    for spent in ("9.5", '"much"', "null"):
        ledger.write_text(text.replace('"epsilon_spent": 3.0', f'"epsilon_spent": {spent}'))
        assert checked(private_north)["privacy"] is False


def test_an_audit_is_quoted(private_north: Path, tmp_path: Path) -> None:
    command = "fedtopics audit attack STUDY --data FILE -o audit.json"
    assert command in asked(assess(private_north), "3.1")
    study_ = Study.read(private_north / "study.toml").fingerprint
    path = write_audit(private_north, study_)
    digest = Audit.read(path, study_).sha256
    form = assess(private_north)
    (table,) = [p for p in parts(form, "3.1") if isinstance(p, FormTable) and p.head[0] == "attack"]
    assert [list(row) for row in table.rows] == [
        ["membership of documents, by the model", "0.512", "1.4%", "3,200"],
        ["allowed by epsilon", "0.700", "20.0%", "-"],
    ]
    assert "fedtopics audit attack STUDY" not in asked(form, "3.1")
    assert digest in str(form)
    (check,) = [check for check in verify(private_north) if check.what == "audit"]
    assert check.holds
    assert digest in check.text
    assert digest in str(assess(private_north, path.rename(tmp_path / "elsewhere.json")))


def test_an_audit_of_another_study(private_north: Path) -> None:
    path = write_audit(private_north, "f00d")
    with pytest.raises(RunError, match="is an audit of the study f00d, not of"):
        assess(private_north)
    assert checked(private_north)["audit"] is False
    path.write_text("{}")
    with pytest.raises(RunError, match="is not an audit; write one with: fedtopics audit attack S"):
        assess(private_north)


def test_card_and_report_say_it(private_north: Path) -> None:
    place, facts = find_run(private_north)
    card = (place / "README.md").read_text("utf-8")
    assert "- Differentially private for each document: epsilon 3, delta 1e-06, for every" in card
    assert "Settings and words are public" in card, "this method has no encoder"
    assert "- Documents, counted with noise: " in card
    model = TopicModel.from_pretrained(place)
    assert {row["seen"] for row in model.info["data_sent"]} == {TOTAL, ALL_SEE}
    sentences = " ".join(summarise(model, facts)["sentences"])
    assert "documents of all clients, counted with noise, by" in sentences
    assert "Differentially private for each document: epsilon 3" in sentences


def test_a_simulation_keeps_no_promise(tmp_path: Path) -> None:
    train(
        plan(), private_corpora(), out=tmp_path / "run", policies=dict.fromkeys(NAMES, OPEN_POLICY)
    )
    assert "this run does not keep the guarantee" in said(assess(tmp_path / "run"), "3.1")
    assert checked(tmp_path / "run")["privacy"] is None


def test_the_control_is_that_of_the_table() -> None:
    rows = (ROOT / "benchmarks/results/private.md").read_text("utf-8").splitlines()
    of = {tuple(row.split(" | ")[:2]): row.split(" | ") for row in rows if " | " in row}
    three = of["| 20ng, kmeans", "3"]
    for figure in (three[7], three[2]):
        assert figure.replace("0.", ".", 1) in str(SECTIONS["3.1"])
