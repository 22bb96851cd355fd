"""A client's part in a study: where it keeps what came of it."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Policy, Study, train
from fedtopics.errors import PolicyError, RunError, StudyError
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.study import example_study
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.federation.verify import verify
from fedtopics.protocol.roster import Key
from tests.helpers.federation import study, subjects
from tests.helpers.keys import key_of

SIZES = {"north": 12, "south": 12}


def planned(**changes: Any) -> Study:
    return study(max_rounds=6).model_copy(update=changes).with_clients(SIZES)


def joined(plan: Study, out: Path | None = None) -> Path:
    part = Participation(key_of("north"), subjects(SIZES)["north"], OPEN_POLICY, out)
    try:
        part.review(plan)
        part.consider(plan, part.state_folder(plan))
    finally:
        part.close()
    return part.out


@pytest.mark.usefixtures("here")
def test_each_study_has_a_folder() -> None:
    first = planned(name="letters")
    second = planned(name="letters", seed=8)
    home = Path("runs/north")
    assert joined(first) == home / "letters"
    assert joined(second) == home / second.fingerprint, "another study has the name"
    assert joined(first) == home / "letters", "the same study goes on where it was"
    assert joined(planned(name="reports", seed=9)) == home / "reports"
    assert joined(planned(name="letters", run=2)) == home / "letters-run2"
    assert Study.read(home / "letters/study.toml").fingerprint == first.fingerprint
    assert Study.read(home / "letters/study.toml").name == "letters"


@pytest.mark.parametrize("spoilt", ["cut", "deleted", "deleted with its head"])
def test_a_client_whose_ledger_was_changed_does_not_go_on(tmp_path: Path, spoilt: str) -> None:
    joined(planned(), tmp_path)
    ledger = tmp_path / "ledger.jsonl"
    if spoilt == "cut":
        ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    else:
        ledger.unlink()
    if spoilt == "deleted with its head":
        (tmp_path / "ledger.head").unlink()
    with pytest.raises(RunError, match=r"Nothing was sent; put it and ledger.head back from a c"):
        joined(planned(), tmp_path)
    assert any(check.holds is False for check in verify(tmp_path))


def looked(plan: Study, policy: Policy) -> dict[str, Any]:
    """What a client with 12 documents is shown of a study."""
    events: list[dict[str, Any]] = []
    part = Participation(key_of("north"), subjects(SIZES)["north"], policy, None, events.append)
    part.review(plan)
    return events[0]


def test_what_is_shown_of_a_secure_study() -> None:
    shown = looked(
        planned(aggregation=None, federation=FederationSettings()).with_clients("abc"), Policy()
    )
    assert shown["seen"].startswith("The relay: the members' names, which functions run, sizes,")
    assert shown["policy"].startswith(
        "By this client's policy, an update sums over at least 10 doc"
    )


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (planned(), "a round has fewer than 3 clients"),
        (planned().with_clients("abc"), "the study sets it"),
        (
            Study.make(method={"name": "flda"}).with_clients("abc"),
            "flda merges the updates of clients",
        ),
    ],
)
def test_what_is_shown_of_a_plain_study(plan: Study, why: str) -> None:
    with pytest.raises(PolicyError, match="does not set min_persons"):
        looked(plan, Policy())
    shown = looked(plan, Policy(min_persons=10))
    assert shown["seen"].startswith(
        f"The server: every update of every member. Aggregation is plain, as {why}"
    )
    assert "recovered 10 of 10 documents from one gradient" in shown["policy"]
    with pytest.raises(PolicyError, match="requires secure aggregation, but the study has plain"):
        looked(plan, Policy(min_persons=10, min_persons_in_sum=1000))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("../../evil", "evil"),
        ("/etc/passwd", "etc-passwd"),
        ("..", "study"),
        ("", "study"),
        ("Bücher & Briefe ", "Bücher-Briefe"),
        ("x" * 100, "x" * 60),
    ],
)
def test_a_study_cannot_choose_another_place(name: str, folder: str) -> None:
    assert joined(planned(name=name)) == Path("runs/north") / folder


def test_a_look_refuses_what_every_round_would() -> None:
    """Sums over too few clients or documents; empty documents are in no sum."""
    plan = planned()
    least = len(plan.clients)
    texts = Corpus.of([*["elm and oak"] * 40, *[""] * 20])

    def review(policy: Policy, corpus: Corpus = texts, plan: Study = plan) -> None:
        Participation(key_of("north"), corpus, policy, None).review(plan)

    review(Policy(min_clients_in_sum=least, min_persons=40))
    with pytest.raises(PolicyError, match=f"at least {least + 1} clients, but a round of the st"):
        review(Policy(min_clients_in_sum=least + 1, min_persons=10))
    few = study(clients_per_round=1, max_rounds=6).with_clients(SIZES)
    with pytest.raises(PolicyError, match="at least 2 clients, but a round of the study has 1"):
        review(Policy(min_persons=10), plan=few)
    masked = plan.model_copy(update={"aggregation": "secure"})
    with pytest.raises(PolicyError, match="at least 3 clients, but a round of the study has 2"):
        review(Policy(), plan=masked)
    with pytest.raises(PolicyError, match="40 documents that are new wait"):
        review(Policy(min_persons=41))
    vectors = texts.with_embeddings(np.ones((60, 2)))  # which can be of what is not in the table
    review(Policy(min_persons=60), vectors)


ABOUT = {
    "purpose": "To find what letters are about",
    "operator": "City of Elms, archive",
    "recipients": ["the council", "two universities"],
    "retention": "until the end of 2028",
    "contact": "archive@example.org",
}
ARCHIVES = {name: Corpus.of(["oak elm fir"] * 30) for name in ("north", "south")}


def about(**changes: Any) -> Study:
    method = {"name": "lda", "n_components": 2, "max_rounds": 1, "coherence": "nothing"}
    told = {"about": ABOUT | changes} if changes.get("purpose", "x") else {}
    limits = {"max_document_share": 1.0}
    return Study.make(method=method, vocabulary=limits, **told).with_clients(ARCHIVES)


def test_it_is_part_of_what_is_agreed() -> None:
    study = about()
    assert study.agreed["about"] == ABOUT
    assert [*study.about.rows()] == [
        ("purpose", "To find what letters are about"),
        ("operator", "City of Elms, archive"),
        ("recipients", "the council; two universities"),
        ("retention", "until the end of 2028"),
        ("contact", "archive@example.org"),
    ]
    others = {about(**{name: "" if name != "recipients" else []}).fingerprint for name in ABOUT}
    others |= {about(recipients=ABOUT["recipients"][::-1]).fingerprint}
    assert len(others | {study.fingerprint}) == 7, "each of it counts"


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(about().to_toml())
    assert tomllib.loads(path.read_text())["about"] == ABOUT
    assert Study.read(path).fingerprint == about().fingerprint
    assert "[about]\n# purpose = " in example_study()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("purpose", "two\nlines"),
        ("purpose", "\x1b[2Jhidden"),
        ("operator", "turned \u202eround"),
        ("contact", "e" + 7 * "\u0301"),
        ("purpose", "x" * 501),
        ("operator", "x" * 201),
        ("retention", "x" * 501),
        ("contact", "x" * 201),
        ("recipients", ["x"] * 21),
        ("recipients", [""]),
        ("recipients", ["x" * 201]),
        ("recipients", "the council"),
        ("recipients", ["a\nb"]),
        ("why", "because"),
    ],
)
def test_what_it_cannot_say(name: str, value: Any) -> None:
    with pytest.raises(StudyError, match=rf"The study cannot be used: .*'about\.{name}"):
        about(**{name: value})


def test_who_has_begun_notices_another_purpose(tmp_path: Path) -> None:
    train(about(), ARCHIVES, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"resume with the study\.toml in the run's folder"):
        train(about(purpose="Another"), ARCHIVES, out=tmp_path / "run", resume=True)
    part = Participation(key_of("north"), ARCHIVES["north"], OPEN_POLICY, tmp_path / "north")
    part.consider(about(), part.state_folder(about()))
    part.close()
    for another in (about(purpose="Another"), about(recipients=[])):
        with pytest.raises(RunError, match="contains another study of this client"):
            part.consider(another, part.state_folder(another))


def test_the_same_documents_with_other_members(tmp_path: Path) -> None:
    """Two totals over the same documents of which one lacks a member show that member's update."""
    keys = {name: Key.create(tmp_path / name, name) for name in ("north", "south", "west", "s")}

    def plan(*names: str, **changes: Any) -> Study:
        clients = {name: {"certificate": keys[name].certificate.decode()} for name in names}
        server = {"certificate": keys["s"].certificate.decode()}
        return Study.make(
            method={"name": "lda", "n_components": 2}, clients=clients, server=server, **changes
        )

    def begin(
        study: Study, corpus: Corpus = ARCHIVES["north"], accepted: str = "", joins: bool = True
    ) -> None:
        out = tmp_path / study.fingerprint / str(corpus.text_bytes)
        part = Participation(keys["north"], corpus, OPEN_POLICY, out, accepted_roster=accepted)
        part.review(study)
        if joins:
            part.consider(study, part.state_folder(study))
            part.close()

    fewer = plan("north", "south")
    begin(fewer, joins=False)  # a dry run, which says nothing of the documents
    begin(plan("north", "south", "west"))
    begin(plan("north", "south", "west", seed=1))
    for _ in range(2):
        with pytest.raises(PolicyError, match="were in a study with other members"):
            begin(fewer)
    begin(plan("north", "south", seed=2), Corpus.of(["other documents"] * 30))
    begin(fewer, accepted=fewer.fingerprint, joins=False)  # accepts nothing for later
    with pytest.raises(PolicyError, match="were in a study with other members"):
        begin(fewer)
    begin(fewer, accepted=fewer.fingerprint)
    begin(fewer)
