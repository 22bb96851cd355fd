"""A client that starts again in a private study: the same noise, on the same documents alone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Policy, Study
from fedtopics.contract.interfaces import Call, Position
from fedtopics.errors import PolicyError, RunError
from fedtopics.federation.participant import Participation
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.keys import key_of
from tests.helpers.recipes import PUBLIC, planned, themed

DOCUMENTS = themed(100)
PLAN = planned("lda", 3).with_clients(["east", "north", "west"])


@contextmanager
def started(folder: Path, corpus: Corpus = DOCUMENTS, plan: Study = PLAN) -> Iterator[Any]:
    """Start a client's process; give the door of its documents."""
    part = Participation(key_of("north"), corpus, Policy(max_epsilon=4), folder / "out")
    try:
        part.review(plan)
        yield part.consider(plan, part.state_folder(plan))
    finally:
        part.close()


def test_the_same_noise_is_not_given_for_other_documents(tmp_path: Path) -> None:
    """The difference of two replies with the same noise would be the documents'."""
    with started(tmp_path) as door:
        first = door.call(Call("noisy_document_count", {}, Position(1)))
    with started(tmp_path) as door:
        assert door.call(Call("noisy_document_count", {}, Position(1, 2))) == first, (
            "in another attempt"
        )
    with pytest.raises(RunError, match="needs the same documents"), started(tmp_path, themed(101)):
        pass
    # Documents without words are in no release of the memory, but count here.
    more = Corpus.of([*DOCUMENTS.documents.to_pylist(), []])
    with pytest.raises(RunError, match="their order have changed"), started(tmp_path, more):
        pass
    next(tmp_path.rglob("state/documents")).unlink()
    with (
        started(tmp_path, more) as door,
        pytest.raises(PolicyError, match="the documents or the client's secret have changed"),
    ):
        door.call(Call("noisy_document_count", {}, Position(1, 3)))


def sketched(door: Any, position: Position, masked: bool = False, **other: Any) -> Any:
    door._client.take(PUBLIC)
    how = {"vocabulary": fingerprint(PUBLIC), "columns": np.arange(10), "rarity": np.ones(10)}
    return door.call(Call("noisy_word_products", how | other, position, hidden=masked))["sketch"]


def test_a_sum_is_asked_for_in_one_way_also_after_a_restart(tmp_path: Path) -> None:
    """It is refused as a question, though the answer would be the same, or as there are none."""
    with started(tmp_path) as door:
        first = sketched(door, Position(2))
    with started(tmp_path) as door:
        assert (sketched(door, Position(2, 2)) == first).all()
        with pytest.raises(PolicyError, match="than before in this run"):
            sketched(door, Position(3), rarity=2 * np.ones(10))


def test_a_masked_sum_is_of_one_turn(tmp_path: Path) -> None:
    """In another one it could be over others: the difference had a part of the noise alone."""
    with started(tmp_path) as door:
        sketched(door, Position(2), masked=True)
    with started(tmp_path) as door:
        sketched(door, Position(2, 2), masked=True)
        with pytest.raises(PolicyError, match="than before in this run"):
            sketched(door, Position(3), masked=True)


def test_a_run_whose_folder_is_gone_is_a_new_one(tmp_path: Path) -> None:
    """Whoever says that it is the same would get other noise on the same sums."""
    for _ in range(2):
        with started(tmp_path) as door:
            door.call(Call("noisy_document_count", {}, Position(1)))
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(PolicyError, match=r"runs \(1\) used 3"), started(tmp_path):
        pass
