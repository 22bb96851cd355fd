"""No reply says anything of a word that a client did not name itself, whoever made it agreed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedtopics.federation.door import Door
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.interfaces import Moment
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import assert_same, embedded, subjects, tokens_of
from tests.helpers.methods import METHODS

RARE = "quetzalcoatl"
CASES = METHODS | {
    "gfedntm, own statistics": {"norm": "local", "max_rounds": 3},
    "gfedntm, from anchors": {"initialisation": "anchors", "max_rounds": 3},
    "gfedntm, from a mixture": {
        "initialisation": "mixture", "network": "combinedtm", "max_rounds": 3,
    },
    "gfedntm, validated": {"validation_share": 0.2, "validate_every": 1, "max_rounds": 3},
    "k-fed": {
        "name": "kmeans", "n_components": 3, "algorithm": "k-fed", "representation": "tfidf",
    },
    "kmeans of words": {
        "name": "kmeans", "n_components": 3, "representation": "bow", "max_rounds": 4,
    },
    "flda": {"name": "flda", "n_components": 4, "max_rounds": 1, "min_new_documents": 10},
}  # fmt: skip


def study(case: str) -> Study:
    method = {"name": "gfedntm", "n_components": 4, "hidden": [8, 8], "embedding": {"dimension": 7}}
    if "name" in CASES[case]:
        method = {"n_components": 4}
    method |= CASES[case] | {"coherence": "documents"}
    if method["name"] in ("gfedntm", "lda"):
        method["batch_size"] = 300  # all documents are in each
    return Study.make(method=method, vocabulary={"min_document_frequency": 1})


def corpora_of(documents_with_it: int) -> dict[str, Corpus]:
    """Three clients; two have the word often, and the first one in so many documents."""
    corpora = embedded(subjects(dict.fromkeys("abc", 90)))
    for name, number in {"a": documents_with_it, "b": 40, "c": 40}.items():
        texts = [[*text, RARE] if row < number else text
                 for row, text in enumerate(tokens_of(corpora[name]))]  # fmt: skip
        corpora[name] = replace(corpora[name], documents=Corpus.of(texts).documents)
    return corpora


def said(case: str, documents_with_it: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What the first client says, and the model."""
    replies, call = [], Door.call

    def listening(self: Door, function: str, payload: Any, moment: Moment) -> Any:
        reply = call(self, function, payload, moment)
        if self.client == "a":
            replies.append((function, reply))
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(Door, "call", listening)
        model = train(study(case), corpora_of(documents_with_it))
    return replies, model


@pytest.mark.parametrize("case", CASES)
def test_a_rare_word_of_a_document_changes_no_bit_of_a_reply(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the word in none, one or four of its documents; in five it may speak of it."""
    if case == "flda":
        pytest.importorskip("tomotopy")
    without, model = said(case, 0, monkeypatch)
    assert RARE in model.vocabulary.words, "the others made it agreed"
    for number in (1, 4):
        replies, _ = said(case, number, monkeypatch)
        assert [function for function, _ in replies] == [function for function, _ in without]
        for (_, reply), (_, expected) in zip(replies, without, strict=True):
            assert_same(reply, expected)
    aloud, _ = said(case, 5, monkeypatch)
    assert repr(aloud) != repr(without)
