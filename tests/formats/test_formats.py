"""What earlier versions wrote is read, or refused with a sentence that names the version."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedtopics import Study, TopicModel
from fedtopics.errors import ModelError, RunError
from fedtopics.federation.serve import software_of
from fedtopics.federation.verify import verify
from fedtopics.model.folder import content_digest
from fedtopics.protocol import messages
from fedtopics.protocol.record import Folder, Record
from tests.formats.write import HERE, MESSAGES, OPENED, RECORDED, RUN, fields, ledger, train_again


def test_a_field_changes_only_with_the_number_of_its_format() -> None:
    """If this fails: raise the number in versions.py, then python -m tests.formats.write."""
    recorded = json.loads((HERE / "fields.json").read_text())
    now = fields()
    for name, of in recorded.items():
        lost = set(of["fields"]) - set(now[name]["fields"])
        assert not lost or now[name]["number"] > of["number"], (name, lost)
    assert now == recorded, "python -m tests.formats.write"


def test_a_model_is_read(tmp_path: Path) -> None:
    model = TopicModel.from_pretrained(RUN)
    assert model.topics() == train_again(tmp_path).topics()
    assert model.transform(["north words"]).shape == (1, 2)
    assert np.allclose(model.beta.sum(1), 1)


def test_a_ledger_is_read_and_verified() -> None:
    checks = list(verify(RUN))
    assert {check.what for check in checks if check.holds} >= {"lines", "end", "study", "data sent"}
    assert not [check for check in checks if check.holds is False]


def test_a_record_is_read(tmp_path: Path) -> None:
    shutil.copytree(HERE / "record", tmp_path / "record")
    folder = Folder(tmp_path / "record")
    record, content, totals = folder.load()
    folder.close()
    assert (record.step, record.part, content) == (RECORDED.step, RECORDED.part, b"content")
    assert totals == [OPENED]
    (tmp_path / "record/record").write_bytes(messages.encode(Record(step=3)))
    with pytest.raises(RunError, match=r"has format 0, and this one 2\. Resume with the version"):
        Folder(tmp_path / "record").load()


def test_messages_are_read() -> None:
    for (name, content), message in zip(
        json.loads((HERE / "wire.json").read_text()), MESSAGES, strict=True
    ):
        assert name == type(message).__name__
        assert messages.decode(bytes.fromhex(content), type(message)) == message


def test_versions_with_one_number_of_the_wire_work_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They agree on a study by this text, which has no version of the program."""
    study = Study.make(method={"name": "nmf"}).with_clients("abc")
    software = software_of(study, None)
    monkeypatch.setattr("fedtopics.versions.VERSION", "0.2.7")
    assert software_of(study, None) == software
    monkeypatch.setattr("fedtopics.federation.serve.WIRE", 5)
    assert software_of(study, None) != software


def test_a_model_of_another_state_is_not_called_damaged(tmp_path: Path) -> None:
    """Its digest fits, so nothing of it was lost: a key was renamed."""
    shutil.copytree(RUN / "model", tmp_path / "model")
    path = tmp_path / "model/config.json"
    words = json.loads((tmp_path / "model/vocabulary.json").read_text())
    for changes in (
        {"reading": {"lambda_": 0.6}},
        {"vocabulary": "88765bd0a21f4436"},
        {"format": 3},
    ):
        config = json.loads((RUN / "model/config.json").read_text()) | changes
        del config["digest"]
        path.write_text(json.dumps(config | {"digest": content_digest(config, words)}))
        with pytest.raises(ModelError, match="train it again, or install the version that wrote"):
            TopicModel.from_pretrained(tmp_path)
    path.write_text(
        (RUN / "model/config.json").read_text().replace('"precision": "', '"precision": "x')
    )
    with pytest.raises(ModelError, match="copy it again"):
        TopicModel.from_pretrained(tmp_path)


def test_a_ledger_of_another_format_is_refused(tmp_path: Path) -> None:
    text = ledger().read_text()
    for of_before in (text.replace('"format": 2, ', ""), text.replace('"started"', '"began"')):
        (tmp_path / "ledger.jsonl").write_text(of_before)
        with pytest.raises(RunError, match=r"written by fedtopics .*; read it with that version"):
            list(verify(tmp_path / "ledger.jsonl"))
