"""Studies that cap repeats: what counts at a client, and when it is what pooled documents say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.estimators import LDA
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, example_study
from fedtopics.methods.base import Moment
from fedtopics.methods.plan import Site
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import assert_same, assert_same_bits, embedded, subjects, tokens_of
from tests.helpers.grpc_federation import federated
from tests.helpers.methods import METHODS
from tests.helpers.models import edit_config

SIGNATURE = [f"common{i}" for i in (7, 3, 11, 5, 2, 13, 19, 17, 0)]
RARE = "quetzalcoatl"
SIZES = {"a": 30, "b": 40}


def planned(repeats: str = "cap", **method: Any) -> Study:
    method = {"name": "lda", "n_components": 4, "max_rounds": 5, "learning": "batch"} | method
    limits = {"min_document_frequency": 1, "max_document_share": 1.0}
    return Study.make(method=method, text={"repeats": repeats}, vocabulary=limits)


def signed(sizes: dict[str, int], every: int = 3) -> dict[str, Corpus]:
    """Documents of clients, of which some end with the same nine words."""
    return {
        name: Corpus.of(
            [
                words + SIGNATURE if row % every == 0 else words
                for row, words in enumerate(tokens_of(corpus))
            ]
        )
        for name, corpus in subjects(sizes).items()
    }


def pool(corpora: dict[str, Corpus]) -> dict[str, Corpus]:
    return {"all": Corpus.pool(corpora.values())}


def learnt(plan: Study, corpora: dict[str, Corpus]) -> TopicModel:
    return train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY))


def bag_of(plan: Study, corpus: Corpus, words: list[str], policy: Policy = OPEN_POLICY) -> Any:
    half = plan.client_half(Site("a", corpus, policy))
    half.adopt(words, len(corpus), 10.0)
    return half.bag.toarray()


def test_without_a_cap_whose_documents_they_are_makes_no_difference() -> None:
    corpora = signed(SIZES)
    apart, together = learnt(planned("keep"), corpora), learnt(planned("keep"), pool(corpora))
    assert apart.vocabulary.words == together.vocabulary.words
    expected = together.weights["pseudo_counts"]
    np.testing.assert_allclose(apart.weights["pseudo_counts"], expected, rtol=1e-9)


def test_a_cap_is_each_clients_own() -> None:
    """Two clients count a passage in two documents each, who pools them in two of all."""
    corpora = signed(SIZES)
    apart, together = learnt(planned(), corpora), learnt(planned(), pool(corpora))
    assert apart.vocabulary.words == together.vocabulary.words
    counted = [model.weights["pseudo_counts"].sum(1) for model in (apart, together)]
    more = dict(zip(apart.vocabulary.words, counted[0] - counted[1], strict=True))
    expected = {word: 2.0 * (word in SIGNATURE) for word in more}
    assert more == pytest.approx(expected, abs=1e-6)


def test_what_a_client_counts() -> None:
    corpus, words = signed(SIZES)["a"], [f"a{i}" for i in range(40)] + sorted(SIGNATURE)
    plain, capped = (bag_of(planned(repeats), corpus, words) for repeats in ("keep", "cap"))
    left_out = [1 if word in SIGNATURE else 0 for word in words]
    copies = [row for row in range(len(corpus)) if row % 3 == 0][2:]
    expected = plain.copy()
    expected[copies] -= left_out
    np.testing.assert_array_equal(capped, expected)
    assert capped.dtype == plain.dtype == np.float32


def test_words_that_are_too_rare_without_copies_do_not_count() -> None:
    corpus = Corpus.of([["oak", *SIGNATURE]] * 9 + [["oak"]] * 3)
    policy = Policy(min_documents=1, min_document_frequency=3, min_clients_in_sum=1)
    counted = bag_of(planned(), corpus, ["oak", *SIGNATURE], policy)
    assert counted.sum(0).tolist() == [5, *[0] * 9]  # the oak of later copies is a part of them


def test_words_of_the_vocabulary_are_counted_with_all_copies() -> None:
    plain, capped = (learnt(planned(repeats), signed(SIZES)) for repeats in ("keep", "cap"))
    assert plain.vocabulary.plain() == capped.vocabulary.plain()


def test_new_documents_are_not_capped(tmp_path: Path) -> None:
    model = learnt(planned(), signed(SIZES))
    model.save_pretrained(tmp_path)
    again = TopicModel.from_pretrained(tmp_path)
    assert again.text.repeats == "cap"
    assert again.count([SIGNATURE] * 5).sum(1).tolist() == [9.0] * 5
    assert np.ptp(again.transform([SIGNATURE] * 5), axis=0).max() == 0


def test_a_folder_of_before_counts_all(tmp_path: Path) -> None:
    learnt(planned(), signed(SIZES)).save_pretrained(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text"]
    del text["repeats"]
    edit_config(tmp_path, text=text)
    assert TopicModel.from_pretrained(tmp_path).text.repeats == "keep"


CASES = METHODS | {
    "flda": {"name": "flda", "n_components": 4, "max_rounds": 1, "min_new_documents": 10}
}


@pytest.mark.parametrize("case", CASES)
def test_every_method_caps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if case == "flda":
        pytest.importorskip("tomotopy")
    method = CASES[case] | {"coherence": "nothing"}
    if "name" not in method:
        method |= {"name": "gfedntm", "n_components": 4, "hidden": [8, 8]}
    limits = {"min_document_frequency": 1, "max_document_share": 1.0}
    plan = Study.make(method=method, text={"repeats": "cap"}, vocabulary=limits)
    half = plan.client_half(Site("a", embedded(signed(SIZES))["a"], OPEN_POLICY))
    if case == "flda":
        words, counts = half._usual_words(half._corpus)
    else:
        words = half._counts.words
        half.adopt(words, 30, 10.0)
        counts = half.bag
    plain = half._counts.columns({word: column for column, word in enumerate(words)})
    fewer = dict(zip(words, (plain - counts).sum(0).tolist(), strict=True))
    assert fewer == {word: 8 * (word in SIGNATURE) for word in words}


def test_another_engine_has_the_same_bits(tmp_path: Path) -> None:
    corpora = signed(SIZES)
    assert_same_bits(federated(planned(), corpora, tmp_path).model, learnt(planned(), corpora))


def replies(corpora: dict[str, Corpus], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the first client says."""
    said, call = [], Door.call

    def listening(self: Door, function: str, payload: Any, moment: Moment) -> Any:
        reply = call(self, function, payload, moment)
        if self.client == "a":
            said.append((function, reply))
        return reply

    with monkeypatch.context() as patch:
        patch.setattr(Door, "call", listening)
        model = train(planned(coherence="documents"), corpora)
    assert RARE in model.vocabulary.words
    return said


def test_a_rare_word_within_a_passage_changes_no_bit_of_a_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others made it agreed; a document with it in the passage is a copy like all others."""
    corpora = signed({"a": 30, "b": 40, "c": 40}, every=2)
    for name in "bc":
        corpora[name] = Corpus.of([[*words, RARE] for words in tokens_of(corpora[name])])
    documents = tokens_of(corpora["a"])
    without = replies(corpora, monkeypatch)
    documents[10].insert(-4, RARE)
    assert documents[10][-5] == RARE
    corpora["a"] = Corpus.of(documents)
    for one, other in zip(replies(corpora, monkeypatch), without, strict=True):
        assert one[0] == other[0]
        assert_same(one[1], other[1])


def test_the_setting_is_one_of_a_study() -> None:
    study = planned()
    assert study.agreed["text"]["repeats"] == "cap"
    assert study.described["settings"]["text.repeats"] == "cap"
    assert study.fingerprint != planned("keep").fingerprint
    assert Study.of_agreed(study.agreed).text == study.text
    assert '# repeats = "keep"  # "cap" counts eight agreed words in a row' in example_study()
    estimator = LDA(
        n_components=2,
        repeats="cap",
        max_document_share=1.0,
        settings={"min_document_frequency": 1},
    )
    assert estimator.fit([["oak", *SIGNATURE]] * 20).model_.text.repeats == "cap"
    with pytest.raises(StudyError, match=r"text.repeats' is 'drop'"):
        Study.make(text={"repeats": "drop"})
