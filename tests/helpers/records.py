"""A client's records of a small run, as a participant writes them."""

from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import Corpus, Policy, Study
from fedtopics.contract.interfaces import Call, Position
from fedtopics.federation.audit import Audit
from fedtopics.federation.data_sent import data_sent_in
from fedtopics.federation.ledger import Ledger, Sign
from tests.helpers.keys import key_of

STUDY = Study.make(name="trees", method={"name": "gfedntm"}, clients={"north": {}, "south": {}})
DATA_SENT = [row.plain() for row in data_sent_in(STUDY)]


def signed_by(name: str) -> dict[str, Any]:
    """What the one of this name signs a ledger with."""
    key = key_of(name)
    return {"sign": key.sign, "certificate": key.certificate}


def write_audit(folder: Path, study: str, persons: int = 3200) -> Path:
    path = folder / "audit.json"
    audit = Audit(
        study=study,
        shadows=16,
        documents=3200,
        persons=persons,
        auc=0.512,
        found=0.014,
        allowed=(0.7, 0.2),
    )
    path.write_text(audit.model_dump_json())
    return path


def opened(folder: Path, sign: Sign = lambda content: b"", certificate: bytes = b"") -> Ledger:
    """The ledger of a client that begins, or comes back."""
    (folder / "study.toml").write_text(STUDY.to_toml())
    ledger = Ledger("gfedntm", STUDY.fingerprint, folder / "ledger.jsonl", "f00d", sign=sign)
    policy = Policy().model_dump(mode="json")
    ledger.write_start("north", certificate, policy, Corpus.of(["oak elm", "fir äsp"]), DATA_SENT)
    ledger.write_files(folder, "study.toml")
    return ledger


def answered(ledger: Ledger, turn: int) -> None:
    position = Position(turn)
    reply = {"x": np.arange(turn), "documents": 20}
    ledger.write_reply("north", Call("gradients", {"round": turn}, position, f"{turn:x}"), reply)
    ledger.write_total(position, "gradients", f"{turn:x}", 1000)


def written(folder: Path, sign: Sign = lambda content: b"", certificate: bytes = b"") -> Path:
    """A folder with a run of two rounds and its model; return the ledger."""
    folder.mkdir()
    ledger = opened(folder, sign, certificate)
    for turn in (1, 2):
        answered(ledger, turn)
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    ledger.write_files(folder, "model/config.json")
    ledger.close()
    return folder / "ledger.jsonl"
