"""What was sent is kept for approvers, recorded in a second place, and listed with approvals."""

import hashlib
import json
import socket
from pathlib import Path

import jsonschema
import pytest
from rocrate.rocrate import ROCrate

from fedtopics.errors import RunError
from fedtopics.federation import egress
from fedtopics.federation.egress import Egress, opened
from fedtopics.protocol.roster import certificate_fingerprint
from fedtopics.report.egress_record import EgressRecord, egress_record
from tests.helpers.airlock import MOST, PAGE, PLAN, SECRET, SHARES, UPDATE, Airlock, policy_of
from tests.helpers.command_line import Done, Typed
from tests.helpers.damage import damages
from tests.helpers.keys import key_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member's folder: one output by a page of its own, one by that of the study."""
    folder: Path = tmp_path_factory.mktemp("run")
    airlock = Airlock(folder, keep=folder / "kept", log=str(folder / "log"))
    airlock.sends(size=MOST + 1)
    airlock.says("anna", "ben", page=PAGE)
    airlock.sends(size=MOST + 1)
    airlock.says("ben", "carl")
    assert airlock.sends("word_pairs", turn=2) == ""
    airlock.ends()
    (folder / "model").mkdir()
    (folder / "model/README.md").write_text("# Card\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def record(run: Path) -> EgressRecord:
    return egress_record(run)


def test_the_record_has_outputs_and_pages(record: EgressRecord, run: Path) -> None:
    raw = (run / "ledger.jsonl").read_bytes().splitlines()
    lines = [json.loads(line) for line in raw]
    first, second = record.outputs
    line = lines[first.line - 1]
    assert (line["what"], line["time"], line["content"]) == (
        "released",
        first.time,
        first.keyed_sha256,
    )
    assert first.line_sha256 == hashlib.sha256(raw[first.line - 1]).hexdigest()
    assert first.sha256 == lines[1]["sha256"]
    assert (first.function, first.position, first.bytes) == (SHARES, (1, 1, 1), len(UPDATE))
    assert (second.position, second.documents, second.persons) == ((2, 1, 1), 40, 30)
    assert (record.study, record.client) == (PLAN.fingerprint, "north")
    assert (record.lines, record.last_line) == (len(raw), hashlib.sha256(raw[-1]).hexdigest())
    assert (record.thresholds["approvals"], record.thresholds["min_persons"]) == (2, 10)
    assert [*record.approvals] == [first.page, second.page]
    of_update, of_study = record.approvals.values()
    assert first.keyed_sha256 in of_update.text
    assert of_study.text.startswith("# north would send, in the whole study\n")
    assert [approval.name for approval in of_study.approved_by] == ["ben", "carl"]
    ben = of_study.approved_by[0]
    assert ben.certificate == certificate_fingerprint(key_of("ben").certificate)
    assert ben.time <= second.time


def test_the_record_is_as_its_schema_says(record: EgressRecord) -> None:
    plain = json.loads(record.model_dump_json())
    jsonschema.validate(plain, EgressRecord.model_json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(plain | {"lines": "many"}, EgressRecord.model_json_schema())


def test_without_approvals_the_record_has_all_that_was_sent(tmp_path: Path) -> None:
    airlock = Airlock(tmp_path, policy_of((), approvals=0))
    airlock.sends(size=7)
    ledger = airlock.ends()
    record = egress_record(tmp_path)
    (output,) = record.outputs
    assert (output.bytes, output.page, output.keyed_sha256, record.approvals) == (7, "", "", {})
    ledger.write_bytes(ledger.read_bytes().replace(b'"north"', b'"south"', 1))
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match=r"is missing, or somebody changed it; name the folder"):
            egress_record(place)


def test_the_command_and_its_crate(
    record: EgressRecord, run: Path, tmp_path: Path, typed: Typed, done: Done
) -> None:
    folder = tmp_path / "crate"
    command = "audit", "egress", run, "-o", tmp_path / "egress.json", "--crate", folder
    assert "egress.json has 2 outputs and 2 approved pages." in done(*command)
    assert "has files already; name a new folder" in typed(*command)[2]
    crate = ROCrate(folder)
    files = {"study.toml", "ledger.jsonl", "README.md", "egress.json"}
    assert {entity.id for entity in crate.data_entities} == files
    assert (folder / "ledger.jsonl").read_bytes() == (run / "ledger.jsonl").read_bytes()
    for place in (tmp_path, folder):
        assert EgressRecord.model_validate_json((place / "egress.json").read_bytes()) == record
    assert folder.stat().st_mode & 0o077 == 0
    people = {person.id: person["name"] for person in crate.get_by_type("Person")}
    assert sorted(people.values()) == ["anna", "ben", "carl"]
    of_update, of_study = crate.root_dataset["mentions"]
    assert of_study["@type"] == "AssessAction"
    assert [people[person.id] for person in of_study["agent"]] == ["ben", "carl"]
    first, second = record.approvals.values()
    assert of_study["endTime"] == second.approved_by[1].time
    assert of_update["object"][2]["text"] == first.text


def test_a_kept_file_opens_for_each_approver_of_its_time(run: Path) -> None:
    (path,) = (run / "kept").glob("north-*-0002-1-word_pairs.kept")
    for name in ("anna", "ben", "carl"):
        assert opened(path, key_of(name)) == (SECRET, UPDATE)
    with pytest.raises(RunError, match="was not kept for 'dora'; give the key of an approver"):
        opened(path, key_of("dora"))


def test_damaged_kept_files(tmp_path: Path) -> None:
    Egress(keep=tmp_path).store("a", SECRET, UPDATE, {"anna": key_of("anna").certificate})
    path = tmp_path / "a.kept"
    for damaged in damages(path.read_bytes(), 60):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"a\.kept is damaged, or was not kept for 'anna'; give"):
            opened(path, key_of("anna"))


def test_the_second_folder_has_each_line(run: Path) -> None:
    (copy,) = (run / "log").iterdir()
    assert copy.name == f"north-{PLAN.fingerprint[:16]}.jsonl"
    assert copy.read_bytes() == (run / "ledger.jsonl").read_bytes()


def test_the_log_of_the_system_has_digests_of_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "SYSLOG_SOCKET", str(tmp_path / "socket"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        log.bind(egress.SYSLOG_SOCKET)
        log.settimeout(9)
        airlock = Airlock(tmp_path, log="syslog")
        airlock.says("anna", "ben")
        assert airlock.sends() == ""
        lines = airlock.ends().read_bytes().splitlines()
        messages = [log.recv(1 << 16) for _ in lines]
    for message, line in zip(messages, lines, strict=True):
        assert message.startswith(b"<109>fedtopics: {"), "an audit log's notice"
        row = json.loads(message.partition(b": ")[2])
        assert row["sha256"] == hashlib.sha256(line).hexdigest()
        assert row["what"] == json.loads(line)["what"]


def test_nothing_is_sent_without_a_copy_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "SYSLOG_SOCKET", str(tmp_path / "no socket"))
    airlock = Airlock(tmp_path)
    airlock.says("anna", "ben")
    airlock.ledger._copy = lambda line: egress.to_syslog(line) if b'"released"' in line else None
    with pytest.raises(RunError, match=r"no socket takes no message .* so nothing was sent; start"):
        airlock.sends()
    airlock.ends()
    with pytest.raises(RunError, match="so nothing was sent"):
        Airlock(tmp_path, log="syslog")
    assert Airlock(tmp_path, log=str(tmp_path / "log")).gate.waits(SHARES, UPDATE, SECRET) == ""
    (copy,) = (tmp_path / "log").iterdir()
    assert b'"released"' in copy.read_bytes(), "the next process writes the line again"
