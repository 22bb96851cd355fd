"""Studies whose members have no connection: people carry files, and approve what leaves."""

from pathlib import Path
from typing import Any

import pytest

from fedtopics import Policy, Study
from fedtopics.errors import FederationError, PolicyError, StudyError
from fedtopics.federation.approval import decide, pages_in
from fedtopics.federation.ledger import Line, lines_of
from fedtopics.federation.verify import verify
from fedtopics.methods.core.plan import fingerprint_of
from tests.helpers.airlock import policy_of
from tests.helpers.background import Background, until
from tests.helpers.by_folders import Carried
from tests.helpers.federation import ANY_WORDS, subjects
from tests.helpers.grpc_federation import federated
from tests.helpers.keys import key_of

NAMES = ["north", "south", "west"]
SHORT = {
    "name": "nmf",
    "n_components": 2,
    "max_rounds": 1,
    "coherence": "nothing",
}


def planned(method: dict[str, Any] = SHORT) -> Study:
    return Study.make(name="air", method=method, vocabulary=ANY_WORDS, aggregation="secure")


@pytest.fixture(scope="module")
def corpora() -> Any:
    return subjects(dict.fromkeys(NAMES, 20))


def approved_by(*names: str, needed: int = 2) -> Policy:
    return policy_of(names, needed, min_persons=1, min_persons_per_word=1)


def lines_that(what: str, run: Path) -> list[Line]:
    """The lines of a run's ledger that record what was, say, received."""
    return [line for line in lines_of(run / "ledger.jsonl") if line.content["what"] == what]


@pytest.mark.parametrize("method", ["nmf", "lda", "mixture", "kmeans"])
def test_files_give_the_same_bits_as_a_connection(
    tmp_path: Path, method: str, corpora: Any
) -> None:
    plan = planned({"name": method, "n_components": 2, "max_rounds": 2})
    scene = Carried(plan, corpora, tmp_path / "carried")
    models = scene.run()
    connected = federated(plan, corpora, tmp_path / "connected", keys=scene.keys).model
    assert models == {fingerprint_of(connected)}
    steps = 1 + len(lines_that("received", tmp_path / "carried/north/run"))  # 1: the group key
    assert scene.carryings == 2 * steps


def test_a_member_hosts_the_relay_in_its_own_step(tmp_path: Path, corpora: Any) -> None:
    scene = Carried(planned(), corpora, tmp_path, host="north")
    assert len(scene.run()) == 1
    assert scene.problems == []


def test_nothing_leaves_before_two_people_have_approved_the_study(
    tmp_path: Path, corpora: Any
) -> None:
    rules = {"north": approved_by("anna", "ben", "clara")}
    scene = Carried(planned(), corpora, tmp_path, rules)
    pending = scene.outbox("north") / "pending"

    def approve(number: int) -> None:
        """One approves after the sixth turn, twice, another after the tenth."""
        for page in pending.glob("study.md") if number in (6, 7, 10) else ():
            decide(page, page.read_text(), key_of("anna" if number < 10 else "ben"))
        assert number >= 10 or not lines_that("released", tmp_path / "north/run")

    assert len(scene.run(approve)) == 1
    waited = scene.events["north"].of("pending")
    assert {(event["approvals"], event["needed"]) for event in waited} == {(0, 2)}
    # Its sentence is in the error of each turn.
    assert "waits for approval" not in str(scene.events["server"])
    assert not [check.text for check in verify(tmp_path / "north/run") if check.holds is False]
    assert {path.name for path in pending.iterdir()} == {
        "study.md",
        "approvers.json",
        "study.anna.verdict.json",
        "study.ben.verdict.json",
    }


def test_a_step_waits_for_its_own_page_and_others_learn_that(tmp_path: Path, corpora: Any) -> None:
    rules = {"north": approved_by("anna", "ben", needed=1)}
    scene = Carried(planned(), corpora, tmp_path, rules)
    for _ in range(4):
        waits = scene.go_round(*NAMES)
    assert all(
        sentence.startswith("The study waits for north (waits for approval since 20")
        for sentence in waits[1:]
    )
    scene.policies = {}
    with pytest.raises(PolicyError, match="began with a policy that requires 1 approvals"):
        scene.turn("north")
    scene.policies = rules
    outbox = scene.outbox("north")
    (page,) = [path for path in pages_in(outbox) if path.name != "study.md"]
    assert page.name == "0000-2-client-sizes.md"
    decide(page, page.read_text(), key_of("anna"), refused="ask the ward first")
    with pytest.raises(PolicyError, match=r"^Its approver anna refuses: ask the ward first\.$"):
        scene.turn("north")
    scene.go_round()
    with pytest.raises(FederationError, match=r"by north: Its approver anna refuses: ask the ward"):
        scene.turn("south")
    decide(page, page.read_text(), key_of("anna"))
    scene.go_round("north")

    def approve(number: int) -> None:
        for path, page in pages_in(outbox).items():
            if path.name != "study.md":
                decide(path, page, key_of("ben"))

    assert len(scene.run(approve)) == 1


def test_join_waits_for_approval_over_a_connection(tmp_path: Path, corpora: Any) -> None:
    rules = {"north": approved_by("anna", needed=1)}
    run = Background(lambda: federated(planned(), corpora, tmp_path, policies=rules))
    page = tmp_path / "north/pending/0000-2-client-sizes.md"
    until(page.exists)
    decide(page.with_name("study.md"), page.with_name("study.md").read_text(), key_of("anna"))
    waits = run.result().partners["south"].events.of("waits for")
    assert not waits or "north" in waits[0]["clients"]
    assert not page.exists()


def test_plain_aggregation_has_no_exchange_of_files_and_no_approvals(
    tmp_path: Path, corpora: Any
) -> None:
    plan = Study.make(name="air", method={"name": "nmf", "n_components": 2}, aggregation="plain")
    with pytest.raises(StudyError, match="plain aggregation, whose rounds do not wait for people"):
        Carried(plan, corpora, tmp_path).turn("north")
    with pytest.raises(PolicyError, match="requires approvals, but the study has plain"):
        approved_by("anna", needed=1).check_aggregation("north", is_secure=False)
