"""F-LDA between machines, whose files grow."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Columns, Corpus, Policy, Study, train
from fedtopics.federation.serve import lead
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.protocol.link import Service
from fedtopics.text.growing import Follow
from fedtopics.transport.loopback import LoopbackLink
from tests.helpers.federation import tokens_of
from tests.helpers.grpc_federation import PATIENCE, Notes, Partner, keys_of, part_of, signed
from tests.helpers.streams import SIZE, STEADY, flda, stream

pytest.importorskip("tomotopy")

PATIENT = FederationSettings(
    quorum=2, round_timeout=PATIENCE, join_timeout=PATIENCE, quorum_timeout=PATIENCE
)
NAMES = ("east", "north", "south")


def planned(**method: Any) -> Study:
    return flda(**method).model_copy(update={"federation": PATIENT})


def corpora() -> dict[str, Corpus]:
    return dict(zip(NAMES, stream(STEADY).values(), strict=True))


def test_clients_follow_files_that_grow(tmp_path: Path) -> None:
    plan = planned(documents_per_round=None, max_rounds=3).with_clients(NAMES)
    events = Notes()
    partners = {}
    texts = {name: tokens_of(corpus) for name, corpus in corpora().items()}
    whole = {name: [" ".join(text) + "\n" for text in of] for name, of in texts.items()}
    files = {name: tmp_path / f"{name}.csv" for name in NAMES}

    def grow(round_: int) -> None:
        for name, path in files.items():
            with path.open("a") as file:
                file.writelines(whole[name][(round_ - 1) * SIZE : round_ * SIZE])

    keys = keys_of(tmp_path / "keys", *NAMES, "server")
    plan = signed(plan, keys)

    def happen(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "round":
            grow(event["round"] + 1)

    @contextmanager
    def listen(service: Service, notify: Any) -> Iterator[None]:
        for name, path in files.items():
            path.write_text("text\n")
            follow = Follow(path, Columns(), lambda reason: None)
            part, notes = part_of(
                keys[name], follow(), tmp_path / name, Policy(min_persons=10), growing=follow
            )
            partners[name] = Partner(part, plan, LoopbackLink(service, name), notes)
        grow(1)
        yield

    model = lead(plan, tmp_path / "server", listen, happen)
    for partner in partners.values():
        partner.result()
        assert partner.events.of("model")[0]["documents"] == 3 * SIZE
    assert [event["arrived"] for event in events.of("round")] == [dict.fromkeys(NAMES, SIZE)] * 3
    rows = {name: Corpus.of([text.strip() for text in of]) for name, of in whole.items()}
    np.testing.assert_array_equal(
        model.weights["pseudo_counts"], train(planned(max_rounds=3), rows).weights["pseudo_counts"]
    )
