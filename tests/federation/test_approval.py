"""Nothing is sent before enough people have approved it, and the ledger shows whether they had."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fedtopics.errors import IdentityError, PolicyError, RunError, StudyError
from fedtopics.federation.approval import VERDICT, Verdict, approved_pages, propose_farewell
from fedtopics.federation.ledger import lines_of
from fedtopics.federation.verify import verify
from fedtopics.protocol.roster import Key
from tests.helpers.airlock import MOST, PAGE, SECRET, SHARES, UPDATE, Airlock, policy_of
from tests.helpers.keys import key_of

Lines = list[dict[str, Any]]


@pytest.fixture
def airlock(tmp_path: Path) -> Airlock:
    return Airlock(tmp_path)


def checked(place: Path) -> list[tuple[bool | None, str]]:
    """Return what `audit verify` says of approvals."""
    return [(check.holds, check.text) for check in verify(place) if check.what == "approvals"]


def put(airlock: Airlock, verdict: Verdict, page: str = PAGE) -> None:
    (airlock.pending / f"{Path(page).stem}.anna{VERDICT}").write_bytes(msgspec.json.encode(verdict))


def test_two_people_let_it_pass_and_one_person_twice_does_not(airlock: Airlock) -> None:
    assert airlock.sends().endswith(" UTC")
    assert "40 documents; thresholds count 30 persons" in airlock.page()
    airlock.says("ben", page=PAGE)
    put(airlock, Verdict.of(airlock.page(), key_of("ben")))
    assert airlock.sends()
    airlock.says("carl", page=PAGE)
    assert airlock.sends() == ""
    assert not [*airlock.pending.glob(f"{Path(PAGE).stem}.*")], "it waits no more"
    ((holds, text),) = checked(airlock.ends())
    assert holds
    assert text.startswith("1 outputs of")
    assert text.endswith("Approvers: ben, carl.")


def of_forged_key(page: str, folder: Path) -> Verdict:
    (folder / "forged").mkdir()
    return Verdict.of(page, Key.create(folder / "forged/anna", "anna"))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda page, _: Verdict.of(f"{page} ", key_of("anna")), id="another page"),
        pytest.param(
            lambda page, _: Verdict.of(page.replace("masked: ", "masked: 0"), key_of("anna")),
            id="other bytes",
        ),
        pytest.param(lambda page, _: Verdict.of(page, key_of("eve")), id="a stranger"),
        pytest.param(
            lambda page, _: msgspec.structs.replace(Verdict.of(page, key_of("eve")), name="anna"),
            id="a stranger by the name of an approver",
        ),
        of_forged_key,
    ],
)
def test_what_does_not_count(made: Callable[[str, Path], Verdict], airlock: Airlock) -> None:
    airlock.sends()
    airlock.says("ben", page=PAGE)
    put(airlock, made(airlock.page(), airlock.folder))
    assert airlock.sends()
    with pytest.raises(IdentityError, match="these may approve: anna, ben, carl"):
        airlock.says("eve")
    put(airlock, Verdict.of(airlock.page(), key_of("anna")))
    (airlock.pending / f"half{VERDICT}").write_bytes(b'{"page": 1')
    assert airlock.sends() == ""


def test_a_refusal_counts_until_the_same_person_approves(airlock: Airlock) -> None:
    airlock.sends()
    airlock.says("anna", "ben", page=PAGE)
    airlock.says("ben", page=PAGE, refused="The words name people")
    with pytest.raises(PolicyError, match=r"^Its approver ben refuses: The words name people\.$"):
        airlock.sends()
    airlock.says("ben", page=PAGE)
    assert airlock.sends() == ""
    with pytest.raises(StudyError, match="A refusal needs a reason"):
        airlock.says("ben", refused=" \n")
    lines = [line.content for line in lines_of(airlock.ends())]
    (refusal, _) = [line["approvals"] for line in lines if line["what"] == "approved"]
    assert [verdict["refused"] for verdict in refusal] == ["", "The words name people"]


def test_an_approval_counts_for_one_run_and_one_member(airlock: Airlock) -> None:
    airlock.says("anna", "ben")
    assert airlock.sends() == ""
    airlock.ends().unlink()
    (airlock.folder / "ledger.head").unlink()
    assert Airlock(airlock.folder, run="another folder").sends()
    (airlock.pending / "approvers.json").write_bytes(
        msgspec.json.encode({"client": "south", "study": "", "number": 0, "people": {}})
    )
    with pytest.raises(RunError, match="are of another member; give each an own folder"):
        Airlock(airlock.folder)


def test_the_study_is_refused_after_it_was_approved(airlock: Airlock) -> None:
    airlock.says("anna", "ben")
    assert airlock.sends() == ""
    airlock.says("anna", refused="No more")
    with pytest.raises(PolicyError, match="anna refuses: No more"):
        airlock.sends("word_pairs", turn=2)
    airlock.says("anna")
    assert airlock.sends("word_pairs", turn=2) == ""


def test_the_page_of_the_study_covers_its_table_and_no_more(airlock: Airlock) -> None:
    airlock.says("anna", "carl")
    assert airlock.sends(size=MOST + 1, turn=1), "a byte more"
    assert airlock.sends(turn=2) == ""
    assert airlock.sends(turn=3), "a call more"
    assert airlock.sends("vocabulary", turn=4), "of a size that nobody knows before"
    assert airlock.sends("theta", turn=5), "not in the table"
    after_counts = [airlock.sends("all_expected_counts", turn=turn) for turn in (6, 7, 8)]
    assert [waits == "" for waits in after_counts] == [True, True, False]
    with pytest.raises(PolicyError, match="No line of the ledger is about 'word_pairs'"):
        airlock.gate.waits("word_pairs", UPDATE, SECRET)


def test_what_may_leave_may_do_so_after_a_restart_but_not_other_bytes(airlock: Airlock) -> None:
    airlock.sends()
    airlock.says("anna", "ben", page=PAGE)
    assert airlock.sends() == ""
    airlock.ends()
    gate = Airlock(airlock.folder).gate
    assert gate.waits(SHARES, UPDATE, SECRET) == ""
    assert gate.waits(SHARES, b"updates", SECRET)
    assert gate.waits(SHARES, UPDATE, b"secret of another step")


def test_a_policy_that_requires_more_people_than_before(airlock: Airlock) -> None:
    airlock.says("anna", "ben")
    assert airlock.sends() == ""
    airlock.ends()
    stricter = Airlock(airlock.folder, policy_of(approvals=3))
    assert stricter.sends("word_pairs", turn=2)
    stricter.says("carl")
    assert stricter.sends("word_pairs", turn=2) == ""


def test_a_client_that_is_not_drawn_adds_zeros_without_approval(airlock: Airlock) -> None:
    assert airlock.gate.waits(SHARES, bytes(16), SECRET) == ""
    airlock.says("anna", "ben")
    assert airlock.sends() == ""
    assert airlock.gate.waits(SHARES, bytes(16), b"secret of the next step") == ""
    airlock.receives(turn=2)
    assert airlock.sends(content=bytes(16), turn=3), "its own update, although it is of zeros"
    assert checked(airlock.ends())[0][0]


def farewell(airlock: Airlock, successor: str, *names: str) -> list[str]:
    """Let ben leave, as people with these names approve; return who may then approve."""
    certificate = airlock.folder / "certificate.pem"
    certificate.write_bytes(key_of(successor or "anna").certificate)
    path = propose_farewell(
        airlock.folder, key_of("anna"), "ben", certificate if successor else None
    )
    airlock.says(*names, page=path.name)
    return [*airlock.gate.people()]


def test_all_others_replace_an_approver(airlock: Airlock) -> None:
    assert farewell(airlock, "dora", "anna", "ben") == ["anna", "ben", "carl"], "not all others"
    assert farewell(airlock, "dora", "carl") == ["anna", "carl", "dora"]
    airlock.sends()
    put(airlock, Verdict.of(airlock.page(), key_of("ben")))
    airlock.says("carl", page=PAGE)
    assert airlock.sends(), "ben has left"
    airlock.says("dora", page=PAGE)
    assert airlock.sends() == ""
    airlock.ends()
    for path in airlock.pending.glob("farewell-*"):
        path.unlink()
    again = Airlock(airlock.folder)
    assert [*again.gate.people()] == ["anna", "carl", "dora"]
    again.receives()
    ledger = again.ends()
    assert checked(ledger)[0][0]
    (_, page) = approved_pages(lines_of(ledger)).values()
    assert [approval.name for approval in page.approved_by] == ["carl", "dora"]


@pytest.mark.parametrize(
    ("before", "successor", "signers", "after"),
    [
        (("anna", "ben"), "", ("anna",), ["anna", "ben"]),  # one person could approve all
        (("anna", "ben", "carl"), "", ("anna", "carl"), ["anna", "carl"]),
        (("anna", "ben", "carl"), "carl", ("anna", "carl"), ["anna", "ben", "carl"]),
    ],
)
def test_how_many_remain(
    before: tuple[str, ...],
    successor: str,
    signers: tuple[str, ...],
    after: list[str],
    tmp_path: Path,
) -> None:
    assert farewell(Airlock(tmp_path, policy_of(before)), successor, *signers) == after


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger with lines started, sent, approved, released, received."""
    airlock = Airlock(tmp_path_factory.mktemp("released"))
    airlock.says("anna", "ben")
    airlock.sends()
    airlock.receives()
    return airlock.ends().read_text("utf-8")


def of_another_update(lines: Lines) -> Lines:
    verdicts = [Verdict.of("# A page\n", key_of(name)) for name in ("anna", "ben")]
    approvals = {"page": "# A page\n", "approvals": [*map(msgspec.to_builtins, verdicts)]}
    return [*lines[:2], lines[2] | approvals, lines[3] | {"page": verdicts[0].page}]


def with_approvals(change: Callable[[Lines], Lines]) -> Callable[[Lines], Lines]:
    return lambda lines: [
        line | ({"approvals": change(line["approvals"])} if "approvals" in line else {})
        for line in lines
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(lambda lines: lines[:2] + lines[3:], "released", id="no page"),
        pytest.param(lambda lines: [*lines[:2], lines[3], lines[2]], "released", id="too late"),
        pytest.param(of_another_update, "released", id="another update"),
        pytest.param(with_approvals(lambda two: two[:1]), "released", id="a verdict removed"),
        pytest.param(with_approvals(lambda two: two[:1] * 2), "released", id="one person twice"),
        pytest.param(
            with_approvals(lambda two: [two[0], two[1] | {"name": "carl"}]), "released", id="forged"
        ),
        pytest.param(lambda lines: lines[:3] + lines[4:], "received", id="a total without release"),
        pytest.param(
            lambda lines: [*lines[:3], lines[4] | {"position": [0, 1, 1]}],
            "received",
            id="by a later process",
        ),
    ],
)
def test_verify_finds(
    change: Callable[[Lines], Lines], what: str, released: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = [json.loads(line) for line in released.splitlines()]
    path.write_text("\n".join(map(json.dumps, change(lines))), "utf-8")
    ((holds, text),) = checked(path)
    assert holds is False
    assert f"records that {SHARES} was {what}, but no line before it" in text


def test_verify_reads_damaged_lines_and_ledgers_without_approvals(
    released: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(released.replace('"approvals": [{', '"approvals": [7, {'), "utf-8")
    assert ("outputs", False, f"A line of {path} is damaged.") in [*verify(path)]
    path.write_text(released.replace('"approvals": 2', '"approvals": 0'), "utf-8")
    assert checked(path) == []
