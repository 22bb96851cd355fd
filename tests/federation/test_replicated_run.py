"""A run's folder between machines: which run it is of, and what is left of another one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from fedtopics import pki
from fedtopics.engines.handshake import Introduction, Proposal
from fedtopics.engines.node import CaughtUpError
from fedtopics.engines.states import digest_of
from fedtopics.protocol.values import dumps, loads
from fedtopics.federation.replicated_run import ReplicatedRun, begin, run_to_resume
from fedtopics.methods.core.interfaces import Checkpoint
from fedtopics.pki import Identity, Signer


class At:
    index, turn = 7, 3
    settled: ClassVar[dict[str, bytes]] = {}
    certificates: ClassVar[dict[str, bytes]] = {}

    @staticmethod
    def digest() -> bytes:
        return b"d" * 32


def opened(folder: Path, resumed: bool = False) -> ReplicatedRun:
    return ReplicatedRun(folder, "s" * 16, 1, resumed)


def test_another_run_leaves_nothing(tmp_path: Path) -> None:
    first = begin(tmp_path)
    (tmp_path / "events.jsonl").touch()
    assert run_to_resume(tmp_path) == first == begin(tmp_path, first)
    assert (tmp_path / "events.jsonl").exists()
    assert begin(tmp_path) != first
    assert not (tmp_path / "events.jsonl").exists()


class Node:
    """Of five members, of whose signatures those count that are right."""

    members = dict.fromkeys("abcde")

    def __init__(self) -> None:
        self.failure: Any = None

    @property
    def introduction(self) -> "Node":
        return self

    def has_signed_state(self, name: str, digest: bytes, signature: bytes) -> bool:
        return name in self.members and signature == b"signed " + digest

    def learn(self, certificates: dict[str, bytes]) -> None:
        """Believe them."""

    def go_on_from(self, failure: Any) -> None:
        self.failure = failure


def signed_run(folder: Path, names: str, **other: bytes) -> ReplicatedRun:
    """A run with a state that these members have signed, or say that they have."""
    begin(folder)
    run = opened(folder)
    run.progress = At()
    list(run.rounds(0, 0))
    run.keep("agreement", {"words": ["tide"]})
    state = Checkpoint(50, {"weights": np.arange(3.0)}, {"loss": 1.0})
    signature = b"signed " + digest_of(state, run.kept(), run.progress.turn)
    run.progress.settled = dict.fromkeys(names, signature) | other
    run.checkpoint(state)
    return run


def test_who_was_away_goes_on_from_a_state_that_most_have_signed(tmp_path: Path) -> None:
    snapshot = signed_run(tmp_path / "server", "abc").snapshot()
    assert snapshot is not None
    assert (snapshot.index, snapshot.digest) == (7, b"d" * 32)
    late, node = opened(tmp_path / "late"), Node()
    assert late.install(snapshot.content, node)
    late.close()
    assert isinstance(node.failure, CaughtUpError)
    again = opened(tmp_path / "late", resumed=True)
    saved = again.restore()
    assert saved is not None
    assert (saved.round, saved.arrays["weights"].tolist()) == (50, [0.0, 1.0, 2.0])
    assert again.position().turn == 3
    assert again.recall("agreement") == {"words": ["tide"]}


@pytest.mark.parametrize(
    ("names", "other"),
    [
        ("ab", {}),  # no majority
        ("ab", {"c": b"signed something else"}),
        ("ab", {"stranger": b"signed"}),
    ],
)
def test_a_state_without_a_majority_is_not_taken(
    names: str, other: dict[str, bytes], tmp_path: Path
) -> None:
    snapshot = signed_run(tmp_path / "server", names, **other).snapshot()
    assert snapshot is not None
    late, node = opened(tmp_path / "late"), Node()
    assert not late.install(snapshot.content, node)
    assert node.failure is None
    assert not list((tmp_path / "late").glob("checkpoints/*"))


def test_a_state_is_taken_at_its_turn_alone(tmp_path: Path) -> None:
    """As if it were of a later one, clients would answer its rounds a second time."""
    snapshot = signed_run(tmp_path / "server", "abc").snapshot()
    assert snapshot is not None
    later = dumps(loads(snapshot.content) | {"index": 1007, "turn": 1003, "digest": b"e" * 32})
    assert not opened(tmp_path / "late").install(later, Node())


@pytest.mark.parametrize("content", [b"", b"x" * 200])
def test_a_damaged_state_is_not_taken(content: bytes, tmp_path: Path) -> None:
    assert not opened(tmp_path).install(content, Node())


def test_who_knows_nobody_takes_a_signed_state_with_its_certificates(tmp_path: Path) -> None:
    """Certificates came with decisions that nobody keeps any more."""
    pki.create(tmp_path / "pki", ["localhost"])
    signers = {n: Signer(Identity.load(pki.issue(tmp_path / "pki", n))) for n in "abc"}
    proposal = Proposal("0", "tiny", 1, {}, "f00d")
    said = {n: Introduction(n, proposal, b"run", signer) for n, signer in signers.items()}
    state = Checkpoint(50, {"weights": np.arange(3.0)}, {"loss": 1.0})
    run = signed_run(tmp_path / "server", "")
    digest = digest_of(state, run.kept(), run.progress.turn)
    run.progress.settled = {n: said[n].sign_state(digest) for n in "ab"}
    run.progress.certificates = {n: signers[n].certificate for n in "ab"}
    run.checkpoint(state)
    snapshot = run.snapshot()
    assert snapshot is not None
    late = SimpleNamespace(members=dict.fromkeys("abc"), introduction=said["c"], failure=None)
    late.go_on_from = lambda failure: setattr(late, "failure", failure)
    assert opened(tmp_path / "late").install(snapshot.content, late)
    assert isinstance(late.failure, CaughtUpError)
