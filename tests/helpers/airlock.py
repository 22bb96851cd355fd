"""A member whose policy names approvers: its gate, its ledger, and what people say of pages."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import Corpus, Policy, Study
from fedtopics.contract.interfaces import Call, Position
from fedtopics.federation.approval import PENDING, STUDY, ApprovalGate, decide
from fedtopics.federation.data_sent import data_sent_in
from fedtopics.federation.egress import Egress
from fedtopics.federation.exposure import Exposure
from fedtopics.federation.ledger import Ledger
from tests.helpers.keys import key_of

PLAN = Study.make(
    name="trees",
    method={"name": "lda", "n_components": 2, "max_rounds": 1},
    aggregation="secure",
    clients={"north": {}, "south": {}, "west": {}},
)
ROWS = data_sent_in(PLAN)
SHARES = "topic_shares"  # called once
MOST = next(row.bytes for row in ROWS if row.function == SHARES) or 0
SECRET = b"secret of a step"
UPDATE = b"update"
PAGE = f"0001-1-{SHARES}.md"
THREE = "anna", "ben", "carl"


def policy_of(names: tuple[str, ...] = THREE, approvals: int = 2, **rules: Any) -> Policy:
    return Policy(
        approvals=approvals,
        approvers=tuple(key_of(name).certificate.decode() for name in names),
        **rules,
    )


class Airlock:
    """A member that begins, or begins again, in a folder."""

    def __init__(
        self, folder: Path, policy: Policy | None = None, run: str = "", **egress: Any
    ) -> None:
        policy = policy or policy_of()
        key = key_of("north")
        self.folder = folder
        self.pending = folder / PENDING
        self.ledger = Ledger(
            method="lda",
            study=PLAN.fingerprint,
            path=folder / "ledger.jsonl",
            run=PLAN.fingerprint,
            sign=key.sign,
            is_own=key.has_signed,
            copy=partial(Egress(**egress).copy, "north", PLAN.fingerprint),
        )
        (folder / "study.toml").write_text(PLAN.to_toml(), "utf-8")
        self.ledger.write_start(
            client="north",
            certificate=key.certificate,
            policy=policy.model_dump(mode="json"),
            corpus=Corpus.of(["oak elm", "fir ash"]),
            data_sent=[row.plain() for row in ROWS],
        )
        self.gate = ApprovalGate(
            folder=folder,
            exposure=Exposure(PLAN, ROWS, policy, persons=30, documents=40),
            ledger=self.ledger,
            client="north",
            notify=lambda event: None,
            keep=Egress(**egress).store,
            run=run,
        )

    def sends(
        self, function: str = SHARES, turn: int = 1, size: int = MOST, content: bytes = UPDATE
    ) -> str:
        """Ask the gate about an update of so many bytes; return since when it waits."""
        call = Call(function, {}, Position(turn), hidden=True)
        assert self.ledger.write_reply(
            "north", call, {"x": np.ones(size, "uint8")}, summed=40, persons=30
        )
        return self.gate.waits(function, content, SECRET)

    def receives(self, function: str = SHARES, turn: int = 1) -> None:
        self.ledger.write_total(Position(turn), function, "f00d", 100)

    def says(self, *names: str, page: str = STUDY, refused: str | None = None) -> None:
        """Let people approve a page, or refuse it."""
        for name in names:
            decide(self.pending / page, self.page(page), key_of(name), refused)

    def page(self, name: str = PAGE) -> str:
        return (self.pending / name).read_text("utf-8")

    def ends(self) -> Path:
        self.ledger.close()
        return self.folder / "ledger.jsonl"
