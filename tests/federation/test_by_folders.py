"""Studies whose members have no connection: people carry files, and approve what leaves."""

from pathlib import Path
from typing import Any

import pytest

from fedtopics import Policy, Study
from fedtopics.errors import FederationError, PolicyError, StudyError
from fedtopics.federation.approval import decide, pages_in
from fedtopics.federation.ledger import lines_of
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.verify import verify
from fedtopics.methods.core.plan import fingerprint_of
from fedtopics.protocol.roster import Key
from tests.helpers.background import Background, until
from tests.helpers.by_folders import Carried
from tests.helpers.federation import ANY_WORDS, subjects
from tests.helpers.grpc_federation import federated, keys_of

NAMES = ["north", "south", "west"]
METHODS: dict[str, dict[str, Any]] = {
    "nmf": {"n_components": 2, "max_rounds": 2},
    "lda": {"n_components": 2, "max_rounds": 2},
    "mixture": {"n_components": 2, "max_rounds": 2},
    "kmeans": {"n_components": 2, "max_rounds": 2},
}


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


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Key]:
    names = [*NAMES, "server", "anna", "ben", "clara"]
    return keys_of(tmp_path_factory.mktemp("keys"), *names)


def approved_by(keys: dict[str, Key], *names: str, needed: int = 2) -> Policy:
    people = tuple(keys[name].certificate.decode() for name in names)
    return Policy(min_persons=1, min_persons_per_word=1, approvals=needed, approvers=people)


def sent(folder: Path) -> list[Any]:
    lines = [line.content for line in lines_of(folder / "ledger.jsonl")]
    return [line for line in lines if line["what"] == "received"]


@pytest.mark.parametrize("method", METHODS)
def test_files_give_the_same_bits_as_a_connection(
    tmp_path: Path, method: str, corpora: Any, keys: dict[str, Key]
) -> None:
    plan = planned({"name": method, **METHODS[method]})
    scene = Carried(plan, corpora, tmp_path / "carried", keys)
    scene.run()
    of_three = {name: keys[name] for name in [*NAMES, "server"]}
    connected = federated(plan, corpora, tmp_path / "connected", keys=of_three).model
    assert {fingerprint_of(model) for model in scene.models.values()} == {fingerprint_of(connected)}
    steps = 1 + len(sent(tmp_path / "carried/north/run"))  # and that of the group key
    assert scene.carryings == 2 * steps


def test_a_member_hosts_the_relay_in_its_own_step(
    tmp_path: Path, corpora: Any, keys: dict[str, Key]
) -> None:
    members = {name: keys[name] for name in NAMES}
    scene = Carried(planned(), corpora, tmp_path, members, host="north")
    scene.run()
    assert len({fingerprint_of(model) for model in scene.models.values()}) == 1
    assert not any(site.problems for site in scene.sites.values())


def test_nothing_leaves_before_two_people_have_approved_the_study(
    tmp_path: Path, corpora: Any, keys: dict[str, Key]
) -> None:
    rules = {"north": approved_by(keys, "anna", "ben", "clara")}
    scene = Carried(planned(), corpora, tmp_path, keys, rules)
    outbox = scene.sites["north"].outbox

    def approve(number: int) -> None:
        """One approves after the sixth turn, twice, another after the tenth."""
        for page in outbox.glob("pending/study.md") if number in (6, 7, 10) else ():
            decide(page, page.read_text(), keys["anna" if number < 10 else "ben"])
        steps = [line.content for line in lines_of(tmp_path / "north/run/ledger.jsonl")]
        released = [line for line in steps if line["what"] == "released"]
        assert not released or number >= 10

    scene.run(approve)
    waited = [event for event in scene.events["north"] if event["event"] == "pending"]
    assert {(event["approvals"], event["needed"]) for event in waited} == {(0, 2)}
    south = " ".join(str(event) for event in scene.events["server"])
    assert "waits for approval" not in south  # its sentence is in the error of each turn
    assert len({fingerprint_of(model) for model in scene.models.values()}) == 1
    checks = list(verify(tmp_path / "north/run"))
    assert not [check.text for check in checks if check.holds is False]
    names = {path.name for path in (outbox / "pending").iterdir()}
    assert names == {
        "study.md",
        "approvers.json",
        "study.anna.verdict.json",
        "study.ben.verdict.json",
    }


def test_a_step_waits_for_its_own_page_and_others_learn_that(
    tmp_path: Path, corpora: Any, keys: dict[str, Key]
) -> None:
    rules = {"north": approved_by(keys, "anna", "ben", needed=1)}
    scene = Carried(planned(), corpora, tmp_path, keys, rules)
    for _ in range(4):
        waits = [scene.turn(name) for name in NAMES]
        scene.carry()
        waits.append(scene.turn("server"))
        scene.carry()
    assert all(
        sentence.startswith("The study waits for north (waits for approval since 20")
        for sentence in waits[1:]
    )
    (page,) = [path for path in pages_in(scene.sites["north"].outbox) if path.name != "study.md"]
    assert page.name == "0000-2-client-sizes.md"
    decide(page, page.read_text(), keys["anna"], refused="ask the ward first")
    with pytest.raises(PolicyError, match=r"^Its approver anna refuses: ask the ward first\.$"):
        scene.turn("north")
    scene.carry()
    scene.turn("server")
    scene.carry()
    with pytest.raises(FederationError, match=r"by north: Its approver anna refuses: ask the ward"):
        scene.turn("south")
    decide(page, page.read_text(), keys["anna"])
    scene.turn("north")
    scene.carry()
    scene.turn("server")
    scene.carry()

    def approve(number: int) -> None:
        for path, page in pages_in(scene.sites["north"].outbox).items():
            if path.name != "study.md":
                decide(path, page, keys["ben"])

    scene.run(approve)
    assert len({fingerprint_of(model) for model in scene.models.values()}) == 1


def test_join_waits_for_approval_over_a_connection(
    tmp_path: Path, corpora: Any, keys: dict[str, Key]
) -> None:
    rules = {"north": approved_by(keys, "anna", needed=1)}
    of_three = {name: keys[name] for name in [*NAMES, "server"]}
    run = Background(
        lambda: federated(
            planned(),
            corpora,
            tmp_path,
            policies={**dict.fromkeys(NAMES, OPEN_POLICY), **rules},
            keys=of_three,
        )
    )
    page = tmp_path / "north/pending/0000-2-client-sizes.md"
    until(page.exists)
    decide(page.with_name("study.md"), page.with_name("study.md").read_text(), keys["anna"])
    outcome = run.result()
    waits = outcome.partners["south"].events.of("waits for")
    assert not waits or "north" in waits[0]["clients"]
    assert not page.exists()


def test_plain_aggregation_has_no_exchange_of_files_and_no_approvals(
    tmp_path: Path, corpora: Any, keys: dict[str, Key]
) -> None:
    plan = Study.make(name="air", method={"name": "nmf", "n_components": 2}, aggregation="plain")
    scene = Carried(plan, corpora, tmp_path, keys)
    with pytest.raises(StudyError, match="plain aggregation, whose rounds do not wait for people"):
        scene.turn("north")
    policy = approved_by(keys, "anna", needed=1)
    with pytest.raises(PolicyError, match="requires approvals, but the study has plain"):
        policy.check_aggregation("north", is_secure=False)
