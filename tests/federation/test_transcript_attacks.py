"""What attacks on all that leaves find: what is there without noise, what the bound allows with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.federation import audit as audits
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.study import Study
from fedtopics.federation.transcript import Call, Replay, Seen, play
from fedtopics.federation.transcript_attacks import Read, TranscriptAttack
from fedtopics.privacy import Noise
from fedtopics.text.corpus import Corpus
from tests.helpers.bounded import planned, themed

NAMES = ["east", "north", "west"]
OWNERS = np.array(["a", "a", "b"])


def played(study: Study, n: int = 300) -> tuple[dict[str, Corpus], list[Call]]:
    corpora = {name: themed(n // 3, seed) for seed, name in enumerate(NAMES)}
    return corpora, play(study, corpora, dict.fromkeys(NAMES, OPEN_POLICY))[1]


def test_what_is_seen_is_what_documents_add() -> None:
    method = {"name": "lda", "n_components": 3, "learning": "batch", "max_rounds": 2}
    all_words = {"min_document_frequency": 1}
    study = Study.make(method=method | {"coherence": "nothing"}, vocabulary=all_words, secure=True)
    study = study.with_clients(NAMES)
    corpora, calls = played(study)
    pooled = Corpus.pool(corpora.values())
    seen = list(Replay(study, calls).exchanges(corpora, pooled))
    vocabulary, _, _, first, last, shares, _ = seen
    for each in (vocabulary, first, last):
        assert each.seen["north"] is each.seen["west"]
        assert not each.rest["north"].any()
        assert each.each.sum(0) == pytest.approx(each.seen["north"])
    assert shares.seen["north"] is not shares.seen["west"], "all see them one by one"


def test_what_is_left_of_private_sums_is_noise_of_the_size_that_was_agreed() -> None:
    study = planned("lda", 8, max_rounds=3).with_clients(NAMES)
    corpora, calls = played(study)
    for each in Replay(study, calls).exchanges(corpora, corpora["east"].take(range(5))):
        assert (each.sigma > 0).all()
        assert sparse.linalg.norm(each.each, axis=1).max() <= 1 + 1e-9
        if len(each.sigma) > 40:
            assert (each.rest["east"] / each.sigma).std() == pytest.approx(1, abs=0.25)


def test_ratios_by_hand() -> None:
    """Noise of 2 and a document that adds 4 there: (4 + 1) 4 / 4 - 16 / 8 with it."""
    rest = dict.fromkeys("ab", np.array([1.0, 0.0]))
    each = sparse.csr_array(np.array([[4.0, 0], [4.0, 0], [0, 0]]))
    attack = TranscriptAttack(OWNERS, np.array([True, False, True]), 2)
    attack.look(Seen(rest, rest, np.array([2.0, 1.0]), each, np.array([0, 1]), 2))
    assert attack.known.tolist() == [3, -1, 0]


def test_words_by_hand() -> None:
    """Of what is left, word 1 is there, and word 0, that is more frequent, is not."""
    rest = dict.fromkeys("ab", np.zeros(3))
    each = sparse.csr_array(np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    attack = TranscriptAttack(OWNERS, np.array([True, True, False]), 2)
    sure, unsure = np.full(3, 0.1), np.full(3, 100.0)
    counts, frequency = sparse.csr_array(each), np.array([2, 1, 1])
    for sigma, wholly in ((unsure, 0), (sure, 2)):
        attack.look(Seen(rest, rest, sigma, each, np.arange(3), 3))
        read = attack.read(counts, frequency)
        assert (read.wholly, read.guessing, read.documents) == (wholly, 0, 2)
    assert Read.of([read, Read(0, 0.5, 1, 6)]) == Read(0.25, 0.375, 3, 8)


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_a_bound_holds_against_who_knows_all_other_documents(
    part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with too little noise the attack finds more than the bound allows."""
    added = Noise.added

    def smaller(self: Noise, values: Any, sigma: float, *asked: Any) -> Any:
        return added(self, values, sigma * part, *asked)

    monkeypatch.setattr(Noise, "added", smaller)
    monkeypatch.setattr(audits, "ASKED", 100)
    study = planned("lda", 12, max_rounds=3).with_clients(NAMES)
    found = audits.audit(study, themed(600), 4).members["all but one known"]
    most = audits.allowed(study.privacy)
    assert most is not None
    assert found.documents == 400
    if part == 1:
        assert found.auc == pytest.approx(most.auc, abs=0.05)
        assert found.auc < most.auc + 0.02
    else:
        assert found.auc > most.auc + 0.05
