"""The method's halves: options, minibatches, stopping, small clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, Study, train
from fedtopics.errors import DataError, FederationError, StudyError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of, exchanges, program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.auto.client import AutoSettings
from fedtopics.methods.core.interfaces import Call, Moment
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import Secret, Site
from fedtopics.methods.gfedntm.gradients import Gradients
from fedtopics.methods.registry import find_method
from fedtopics.protocol.values import dumps
from tests.helpers.federation import DIMENSION, embedded, study, subjects, tokens_of

SIZES = {"a": 120, "b": 60, "c": 20}


def events_of(corpora: Mapping[str, Corpus], **method: Any) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    train(study(**method), corpora, on_event=events.append)
    return events


def documents_a_round(**method: Any) -> list[int]:
    events = events_of(subjects(SIZES), max_rounds=2, **method)
    return [event["documents"] for event in events if event["event"] == "round"]


def test_a_proportional_minibatch_is_shared_by_documents() -> None:
    # 60, 30 and 10 of 100; the policy's ten documents are the least.
    assert documents_a_round(batch_size=100) == [100, 100]
    assert documents_a_round(batch_size=50) == [30 + 15 + 10] * 2


def test_a_fixed_minibatch_is_each_clients_own() -> None:
    assert documents_a_round(batch_size=50, batch_split="fixed") == [50 + 50 + 20] * 2


def minibatches(seed: int, name: str = "a") -> Minibatches:
    return Minibatches(np.arange(10), Secret.from_seed(seed, name), 5)


def test_an_epoch_takes_every_document_once_and_repeats_exactly() -> None:
    draws = minibatches(0)
    first = [draws.draw(number) for number in (1, 2)]
    assert sorted(np.concatenate(first)) == list(range(10))

    np.testing.assert_array_equal(minibatches(0).draw(2), first[1])
    assert not np.array_equal(draws.draw(3), first[0])
    assert not np.array_equal(minibatches(0, "b").draw(1), first[0])
    assert not np.array_equal(minibatches(1).draw(1), first[0])


def test_another_attempt_has_documents_of_its_own() -> None:
    draws = minibatches(0)
    samples = [draws.draw(2, attempt) for attempt in (1, 2, 3)]
    assert len({tuple(sorted(sample)) for sample in samples}) == 3
    assert all(len(set(sample)) == 5 for sample in samples)
    np.testing.assert_array_equal(minibatches(0).draw(2, 3), samples[2])
    assert not np.array_equal(minibatches(0, "b").draw(2, 3), samples[2])


@pytest.mark.parametrize("preset", ["avitm", "paper"])
def test_a_prior_mean_that_batch_norm_makes_needless_stays(preset: str) -> None:
    """Its gradient would be rounding errors, of which Adam makes whole steps."""
    corpora = subjects({"a": 60, "b": 60})
    weights = train(study(preset=preset, max_rounds=5), corpora).weights
    assert not weights["prior_mean"].any()
    moved = train(study(preset=preset, max_rounds=5, posterior_gain=1.0), corpora).weights
    assert moved["prior_mean"].any()


@pytest.mark.parametrize(
    "method",
    [
        {"norm": "server", "optimizer": "fedavg", "local_steps": 5},
        {"norm": "local", "optimizer": "fedadam", "local_steps": 3},
        {"learn_prior": True, "word_bias": False},
        {"preset": "paper"},
        {"preset": "avitm"},
    ],
)
def test_every_option_lowers_the_loss(method: dict[str, Any]) -> None:
    corpora = subjects({"a": 100, "b": 100})
    events = events_of(corpora, max_rounds=40, **{"learning_rate": 0.01, **method})
    losses = [event["loss"] for event in events if event["event"] == "round"]
    assert len(losses) == 40
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.5


def test_cut_passes_agree_with_the_uncut_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's documents through five exchanges, or through one."""
    corpora = subjects({"a": 100})
    plan = study(precision="float64", max_rounds=10)
    uncut = train(plan, corpora)

    monkeypatch.setattr(Gradients, "_client_statistics", Gradients._synchronised_statistics)
    client = client_of(plan, Site("a", corpora["a"], Policy()))
    door = Door("a", client, OPEN_POLICY, Ledger("gfedntm", ""))
    cut = program_of(plan).train(LocalClients({"a": door}), RunFolder(None, ""))
    np.testing.assert_allclose(cut.beta, uncut.beta, rtol=1e-9)


def test_the_tolerance_stops_training() -> None:
    events = events_of(subjects(SIZES), tolerance=1.0)
    stopped = [event for event in events if event["event"] == "stopped"]
    assert stopped[0]["round"] == 1
    assert "less than the tolerance" in stopped[0]["reason"]


def test_a_validation_of_any_loss_is_none_that_ends_the_run() -> None:
    plan = study(max_rounds=4, validation_share=0.25, validate_every=1, learning_rate=1e6)
    events: list[Any] = []
    train(plan, subjects({"a": 60, "b": 60}), on_event=events.append)
    losses = [event["loss"] for event in events if event["event"] == "validation"]
    assert len(losses) == 4
    assert np.isfinite(losses).all()


def test_the_best_weights_on_held_back_documents_are_kept() -> None:
    corpora = subjects({"a": 80, "b": 80})
    method = {"validation_share": 0.25, "validate_every": 5, "patience": 3, "max_rounds": 2000}
    events: list[dict[str, Any]] = []
    kept = train(study(learning_rate=0.02, **method), corpora, on_event=events.append)
    validations = [event for event in events if event["event"] == "validation"]
    stopped = next(event for event in events if event["event"] == "stopped")
    best = int(np.argmin([event["loss"] for event in validations]))
    assert validations[0]["documents"] == 40
    assert stopped["round"] == validations[-1]["round"]
    assert len(validations) - 1 - best == 3

    until_best = study(learning_rate=0.02, **{**method, "max_rounds": validations[best]["round"]})
    np.testing.assert_array_equal(kept.beta, train(until_best, corpora).beta)


def test_a_loss_that_is_no_number_ends_in_one_sentence() -> None:
    plan = study(learning_rate=1e30, optimizer="sgd")
    with pytest.raises(FederationError, match="come apart, lower learning_rate"):
        train(plan, subjects(SIZES), at_once=False)
    with pytest.raises(StudyError, match="not finite; lower learning_rate"):
        train(plan, subjects(SIZES))


@pytest.mark.parametrize("network", ["combinedtm", "zeroshottm"])
def test_no_embedding_and_no_theta_is_in_a_reply(network: str) -> None:
    corpora = embedded(subjects({"a": 40, "b": 30}))
    plan = study(network=network, max_rounds=3)
    left = b""

    class Watched(Door):
        def call(self, call: Call) -> dict[str, Any]:
            nonlocal left
            reply = super().call(call)
            left += dumps(reply)
            return reply

    doors = {
        name: Watched(
            name, client_of(plan, Site(name, corpus, OPEN_POLICY)), OPEN_POLICY, Ledger("", "")
        )
        for name, corpus in corpora.items()
    }
    model = program_of(plan).train(LocalClients(doors), RunFolder(None, ""))
    told = doors["a"].call(Call("vocabulary", {"places": 9}, Moment(99)))["words"].values
    assert told.tobytes() in left, "the search finds what left"
    for corpus in corpora.values():
        for row in (*corpus.embeddings, *model.transform(corpus)):
            assert row.tobytes() not in left
            assert row.astype(np.float64).tobytes() not in left


def test_the_policys_least_documents_hold_in_every_reply() -> None:
    policy = Policy(min_documents=15)
    events: list[dict[str, Any]] = []
    train(
        study(batch_size=32, max_rounds=3),
        subjects(SIZES),
        policies=dict.fromkeys(SIZES, policy),
        on_event=events.append,
    )
    assert [e["documents"] for e in events if e["event"] == "round"] == [19 + 15 + 15] * 3


# The method that a rule chooses by what all clients have: printed, and the same at all of them


TWO = {"north": 60, "south": 40, "west": 30}
OPEN = dict.fromkeys(TWO, OPEN_POLICY)
METHOD = {"n_components": 3, "max_rounds": 4, "coherence": "nothing"}


def auto(**more: Any) -> Study:
    method = {"name": "auto", **METHOD, "embedding": {"dimension": DIMENSION}, **more}
    return Study.make(method=method, vocabulary={"min_document_frequency": 1}, aggregation="plain")


def texts(words: int) -> dict[str, Corpus]:
    """Documents cut to so many words, with embeddings."""
    found = {}
    for name, corpus in embedded(subjects(TWO)).items():
        cut = [(document * 9)[:words] for document in tokens_of(corpus)]
        found[name] = Corpus.of(cut).with_embeddings(corpus.embeddings)
    return found


@pytest.mark.parametrize(
    ("words", "vectors", "method", "why"),
    [
        (150, 10, "nmf", "documents have 15.0 words on average, 15 or more"),
        (149, 10, "mixture", "documents have 14.9 words on average, fewer than 15, and embeddings"),
        (100, 9, "nmf", "and not all have embeddings, which titles need"),
        (0, 10, "mixture", "documents have 0.0 words"),
    ],
)
def test_the_rule(words: int, vectors: int, method: str, why: str) -> None:
    chosen, reason = AutoSettings().choose(documents=10, words=words, embedded=vectors)
    assert chosen["name"] == method
    assert why in reason
    find_method(method).settings(**chosen)  # they are settings of it


def test_long_documents_get_what_nmf_finds() -> None:
    events: list[dict[str, Any]] = []
    corpora = texts(20)
    model = train(auto(), corpora, policies=OPEN, on_event=lambda event: events.append(dict(event)))
    named = Study.make(method={"name": "nmf", **METHOD}, vocabulary={"min_document_frequency": 1})
    expected = train(named, corpora, policies=OPEN)
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "nmf"
    chosen = next(event for event in events if event["event"] == "chosen")
    assert chosen["method"] == "nmf"
    assert chosen["reason"] == "documents have 20.0 words on average, 15 or more"


def test_titles_get_what_the_mixture_finds() -> None:
    method = METHOD | {"name": "mixture", "embedding": {"dimension": DIMENSION}}
    named = Study.make(method=method, vocabulary={"min_document_frequency": 1})
    model, expected = (train(plan, texts(6), policies=OPEN) for plan in (auto(), named))
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "mixture"


def test_the_offer_says_what_each_method_would_send() -> None:
    study = auto()
    calls = {call.function: call for call in exchanges(study)}
    assert {"extent", "vocabulary", "factor_sums", "topic_sums"} <= calls.keys()
    assert all(call.leaves for call in calls.values())
    assert calls["factor_sums"].often == "each round, with nmf"
    assert "with mixture" in calls["topic_sums"].often


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda vectors: np.full_like(vectors, np.nan), "NaN"),
        (lambda vectors: vectors[:, :5], "dimension"),
    ],
)
def test_embeddings_of_a_client_with_long_documents_are_checked_too(spoilt: Any, said: str) -> None:
    """Others' titles can make the average a short one, and theirs part of the mixture."""
    corpora = texts(6)
    long = texts(30)["west"]
    corpora["west"] = long.with_embeddings(spoilt(long.embeddings))
    with pytest.raises(DataError, match=said):
        train(auto(), corpora, policies=OPEN)
