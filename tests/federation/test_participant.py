"""A client's part in a study: where it keeps what came of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import FederationError, IdentityError, RunError, StudyError
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import proposal, serve
from fedtopics.federation.study import Study
from fedtopics.pki import Identity
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import study, subjects
from tests.helpers.grpc_federation import HOST, KilledError, authority

SIZES = {"north": 12, "south": 12}


def planned(**changes: Any) -> Study:
    return study().model_copy(update=changes).with_clients(SIZES)


def joined(plan: Study, out: Path | None = None) -> Path:
    part = Participation("north", subjects(SIZES)["north"], OPEN_POLICY, out)
    try:
        part.consider(part.look(proposal(plan, None), signed=False), b"run")
    finally:
        part.close()
    return part.out


def test_each_study_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = planned(name="letters"), planned(name="letters", seed=8)
    home = Path("runs/north")
    assert joined(first) == home / "letters"
    assert joined(second) == home / second.fingerprint, "another study has the name"
    assert joined(first) == home / "letters", "the same study goes on where it was"
    assert joined(planned(name="reports", seed=9)) == home / "reports"
    assert Study.read(home / "letters/study.toml").fingerprint == first.fingerprint
    assert Study.read(home / "letters/study.toml").name == "letters"


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
def test_a_study_cannot_choose_another_place(
    name: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert joined(planned(name=name)) == Path("runs/north") / folder


def test_a_named_folder_holds_one_study(tmp_path: Path) -> None:
    plan = planned(name="letters")
    assert joined(plan, tmp_path) == tmp_path
    assert joined(plan, tmp_path) == tmp_path
    with pytest.raises(RunError, match="in another study; name another folder with --out"):
        joined(planned(name="letters", seed=8), tmp_path)


def test_a_look_needs_no_folder(tmp_path: Path) -> None:
    joined(planned(), tmp_path)
    part = Participation("north", subjects(SIZES)["north"], OPEN_POLICY, tmp_path)
    other = planned(seed=8)
    assert part.look(proposal(other, None), signed=False).fingerprint == other.fingerprint


# What is offered


def looking(plan: Study, **change: Any) -> None:
    part = Participation("north", subjects(SIZES)["north"], OPEN_POLICY, None)
    part.look(replace(proposal(plan, None), **change), signed=False)


def test_a_client_computes_the_fingerprint_itself() -> None:
    plan = planned()
    with pytest.raises(FederationError, match=r"The server calls its study beef, what it sent is"):
        looking(plan, fingerprint="beef")
    changed = plan.agreed | {"seed": 7}
    with pytest.raises(FederationError, match="The server calls its study"):
        looking(plan, study=changed)
    for study_, message in (
        (plan.agreed | {"surprise": 1}, "there is no key 'surprise'"),
        ({**plan.agreed, "clients": 3}, "names no clients"),
        ({**plan.agreed, "method": {"max_rounds": -1}}, "'method.max_rounds' is -1"),
    ):
        with pytest.raises(StudyError, match=message):
            looking(plan, study=study_)


def test_roles_cannot_be_exchanged(tmp_path: Path) -> None:
    pki = authority(tmp_path / "pki", "north")
    corpus = subjects(SIZES)["north"]
    with pytest.raises(IdentityError, match="holds the identity of a server; name the folder of"):
        GrpcParticipation("localhost:1", pki / "server", corpus, Policy(), tmp_path / "north")
    with pytest.raises(IdentityError, match="holds the identity of a client; name the folder of"):
        Identity.load(pki / "clients/north", "server")


def test_what_cannot_be_served(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"names no clients; add a table \[clients.NAME\]"):
        serve(study(), None, f"{HOST}:0", tmp_path / "run")
    plan = planned()
    with pytest.raises(FederationError, match="works on this machine alone, not with"):
        serve(plan, None, "0.0.0.0:0", tmp_path / "run")
    with pytest.raises(
        FederationError, match=r"works on this machine alone, not with example\.org"
    ):
        GrpcParticipation(
            "example.org:1", None, Corpus.of([["a"]]), Policy(), tmp_path / "c", "north"
        )
    assert not (tmp_path / "run/events.jsonl").exists()
    busy = threading.Event()

    def begin(event: dict[str, Any]) -> None:
        if event["event"] == "listening":
            with pytest.raises(FederationError) as error:
                serve(plan, None, event["address"], tmp_path / "second")
            assert str(error.value) == (
                f"This machine cannot listen on {event['address']}: the port is in use or the "
                "address is not this machine's; name another with --listen."
            )
            busy.set()
            raise KilledError

    with pytest.raises(KilledError):
        serve(plan, None, f"{HOST}:0", tmp_path / "first", on_event=begin)
    assert busy.is_set()


def test_a_server_does_without_what_splits_texts() -> None:
    """scikit-learn would take it a second and a hundred megabytes."""
    code = "import sys, fedtopics.federation.server; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
