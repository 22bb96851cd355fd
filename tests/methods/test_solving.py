"""What LDA's rounds tell somebody who keeps all replies of a client and solves for its documents.

Each reply adds up to how often a word occurs in the round's minibatch. Who knows which documents
are in it has an equation a round, and solves for the documents when there are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.engines.local import LocalClients
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.base import Moment
from fedtopics.methods.minibatches import Minibatches
from fedtopics.methods.plan import Site
from fedtopics.methods.secret import Secret
from tests.helpers.federation import subjects

DOCUMENTS, SIZE, ROUNDS = 500, 52, 600
Counts = NDArray[np.float64]


class Listening(Door):
    """The door of a client whose replies somebody keeps."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.counts: list[Counts] = []

    def call(self, function: str, payload: Any, moment: Moment) -> dict[str, Any]:
        reply = super().call(function, payload, moment)
        if function == "expected_counts":
            self.counts.append(reply["counts"].dense().sum(1))
        return reply


def heard(key: bytes) -> tuple[Counts, Counts]:
    """The documents of a client as counts of words, and those of its minibatches, as replied."""
    method = {"name": "lda", "n_components": 2, "max_rounds": ROUNDS, "batch_size": SIZE}
    method |= {"coherence": "nothing", "inner_steps": 5}
    study = Study.make(method=method, vocabulary={"min_document_frequency": 1})
    corpus = subjects({"a": DOCUMENTS})["a"]
    secret = Secret.from_seed(study.seed, "a") if key == b"" else Secret(key)
    half: Any = study.client_half(Site("a", corpus, OPEN_POLICY, secret=secret))
    door = Listening("a", half, OPEN_POLICY, Ledger("", ""))
    study.server_half().train(LocalClients({"a": door}), RunFolder(None, ""))
    return half.bag.toarray().astype(float), np.array(door.counts)


def solved(key: bytes) -> tuple[Counts, Counts]:
    """The documents, and what is found of them by the study: its seed, and the client's name."""
    documents, counts = heard(key)
    batches = Minibatches(np.arange(DOCUMENTS), Secret.from_seed(0, "a"), 0.0, 1)
    members = np.zeros((ROUNDS, DOCUMENTS))
    for round_ in range(ROUNDS):
        members[round_, batches.draw(round_ + 1, SIZE)] = 1
    return documents, np.linalg.lstsq(members, counts, rcond=None)[0]


def recall(documents: Counts, scores: Counts) -> float:
    """The share of documents' words among as many as they have of the highest scores."""
    found = total = 0
    for document, score in zip(documents, np.broadcast_to(scores, documents.shape), strict=True):
        words = np.flatnonzero(document)
        found += len(np.intersect1d(words, np.argsort(-score, kind="stable")[: len(words)]))
        total += len(words)
    return found / total


def exactly(documents: Counts, found: Counts) -> int:
    """How many of what was found are documents, whichever."""
    there = {document.tobytes() for document in documents}
    return sum((row + 0.0).tobytes() in there for row in np.round(found))


def test_who_knows_the_minibatches_solves_for_the_documents() -> None:
    """As it was when they followed from the study's seed: so the attack below is a real one."""
    documents, found = solved(b"")
    assert exactly(documents, found) == DOCUMENTS
    assert recall(documents, found) == 1.0


def test_who_knows_the_study_and_all_replies_finds_no_document() -> None:
    documents, found = solved(b"1" * 32)
    assert exactly(documents, found) == 0
    guessed = recall(documents, documents.sum(0))
    assert recall(documents, found) <= guessed
