"""What a study would show of one's documents is what it shows, to whom, in bytes."""

from __future__ import annotations

from typing import Any

import pytest

from fedtopics.engines.local import LocalClients
from fedtopics.federation import exposure
from fedtopics.federation.exposure import expose
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.privacy import Privacy
from tests.helpers.bounded import PUBLIC, install, themed
from tests.helpers.bounded import planned as with_noise
from tests.helpers.federation import DIMENSION, embedded, subjects

SIZES = {"east": 60, "north": 60, "south": 60}
WHOLE = {"batch_size": 60, "max_rounds": 40, "coherence": "nothing"}


def small(name: str, **method: Any) -> Study:
    of_method = {"gfedntm": {"hidden": [16, 12]}}.get(name, {})
    needs = find_method(name).settings.model_fields
    embedding = {"embedding": {"dimension": DIMENSION}} if "embedding" in needs else {}
    settings = {"name": name, "n_components": 3, **of_method, **embedding, **method}
    return Study.make(
        method=settings, secure=False, vocabulary={"min_document_frequency": 1},
        federation={"robust": "none"},
    ).with_clients(SIZES)  # fmt: skip


def test_bytes_are_those_of_the_replies() -> None:
    corpora = subjects(SIZES)
    same = dict.fromkeys(SIZES, corpora["east"])
    plan = small("lda", **WHOLE).model_copy(update={"secure": False})
    found = {each.function: each for each in expose(plan, corpora["east"]).shown}
    model = train(plan, same, policies=dict.fromkeys(same, OPEN_POLICY))
    n_topics, n_words = plan.method.n_components, len(model.vocabulary)
    assert found["word_sums"].once == 8 * n_topics * n_words + len(str(len(corpora["east"])))
    rows = found["expected_counts"].round
    assert rows is not None
    assert 0 < rows <= 8 * (n_topics + 1) * n_words + 30
    assert found["vocabulary"].round == 0


def test_masked_replies_have_a_residue_a_number() -> None:
    corpora = subjects(SIZES)
    plan = small("lda", **WHOLE).model_copy(update={"secure": False})
    plain, masked = (
        {each.function: each for each in expose(one, corpora["east"]).shown}
        for one in (plan, plan.model_copy(update={"secure": True}))
    )
    assert (masked["word_sums"].once or 0) >= (plain["word_sums"].once or 0)
    assert masked["word_sums"].seen == exposure.NOBODY
    assert plain["word_sums"].seen == exposure.ADDER_SEES
    assert masked["shares"].seen == plain["shares"].seen == exposure.ALL_SEE


@pytest.mark.parametrize("name", ["gfedntm", "lda", "nmf", "kmeans", "mixture", "auto"])
def test_who_sees_what_is_what_the_programs_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are seen one by one in no function but those that say so."""
    corpora = embedded(subjects(SIZES))
    called: set[str] = set()
    plain = LocalClients.call

    def listen(self: LocalClients, function: str, *arguments: Any, **payload: Any) -> Any:
        called.add(function)
        return plain(self, function, *arguments, **payload)

    monkeypatch.setattr(LocalClients, "call", listen)
    plan = small(name, max_rounds=2)
    train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    said = plan.registration.exchanges(plan.method)
    assert called == {each.function for each in said if each.seen_by_all} & called
    assert called


def test_every_method_says_who_sees_its_replies() -> None:
    for name in METHODS.names:
        method = find_method(name)
        sentences = {each: method.leaves(each) for each in method.functions}
        for function, sentence in sentences.items():
            by_all = getattr(getattr(method.client, function), "seen_by_all", False)
            assert by_all == ("all participants" in sentence.lower()), (name, function)


def verdicts(**settings: Any) -> dict[str, str]:
    plan = Study.make(**{"method": {"name": "lda"}, **settings}).with_clients(SIZES)
    return expose(plan).verdicts


def test_verdicts() -> None:
    few = verdicts(method={"name": "lda", "batch_size": 52})
    assert few["which words a single document has"].startswith("yes, many documents wholly")
    many = verdicts(method={"name": "lda", "batch_size": 2048}, secure=True)
    assert many["which words a single document has"].startswith("hardly")
    assert many["what one client's documents add up to"].startswith("no")
    assert many["whether a document was there"].startswith("yes")


def test_a_study_with_noise_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few documents would be refused with noise, which adds no byte."""
    install(monkeypatch)
    plan = with_noise("lda", 1).with_clients(SIZES)
    found = expose(plan, themed(300))
    sizes = {each.function: each.once for each in found.shown}
    assert (sizes["occurrences"] or 0) > 8 * len(PUBLIC)
    assert found.bytes is not None
    assert {each.seen for each in found.shown} == {exposure.NOBODY}


def test_a_bound_is_said() -> None:
    plan = Study(method={"name": "lda"}).with_clients(SIZES)
    private = plan.model_copy(update={"privacy": Privacy(epsilon=1), "secure": True})
    said = expose(private).verdicts["whether a document was there"]
    assert said.startswith("hardly: by at most a factor of 2.72")
    of_authors = Privacy(epsilon=1, unit="author", most_documents=1)
    private = private.model_copy(update={"privacy": of_authors})
    said = expose(private).verdicts["whether a document was there"]
    assert "(epsilon 2.12)" in said, "without the document, another of its author is in the sums"
