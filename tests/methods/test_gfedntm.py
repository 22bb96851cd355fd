"""The method's halves: options, minibatches, stopping, small clients."""

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
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.methods.gfedntm.method import Gradients
from fedtopics.methods.registry import find_method
from fedtopics.protocol.values import dumps
from tests.helpers.background import Notes
from tests.helpers.clusters import overheard
from tests.helpers.federation import DIMENSION, embedded, study, subjects, tokens_of

SIZES = {"a": 120, "b": 60, "c": 20}


def events_of(corpora: Mapping[str, Corpus], least: int = 10, **method: Any) -> Notes:
    events = Notes()
    policies = dict.fromkeys(corpora, Policy(min_documents=least))
    train(study(**method), corpora, policies=policies, on_event=events.append)
    return events


@pytest.mark.parametrize(
    ("batch_size", "split", "least", "expected"),
    [
        (100, "proportional", 10, 60 + 30 + 10),
        (50, "proportional", 10, 30 + 15 + 10),  # the policy's ten documents are the least
        (32, "proportional", 15, 19 + 15 + 15),
        (50, "fixed", 10, 50 + 50 + 20),
    ],
)
def test_a_minibatch_is_shared_by_documents_or_each_clients_own(
    batch_size: int, split: str, least: int, expected: int
) -> None:
    method = {"batch_size": batch_size, "batch_split": split, "max_rounds": 2}
    events = events_of(subjects(SIZES), least, **method)
    assert [event["documents"] for event in events.of("round")] == [expected] * 2


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
    losses = [event["loss"] for event in events.of("round")]
    assert len(losses) == 40
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.5


def test_cut_passes_agree_with_the_uncut_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's documents through five exchanges, or through one."""
    corpora = subjects({"a": 100})
    plan = study(precision="float64", max_rounds=10)
    uncut = train(plan, corpora)

    synchronised = lambda self, _: self._synchronised_statistics()  # noqa: E731
    monkeypatch.setattr(Gradients, "_in_one_exchange", synchronised)
    client = client_of(plan, ClientContext("a", corpora["a"], Policy()))
    door = Door("a", client, OPEN_POLICY, Ledger("gfedntm", ""))
    cut = program_of(plan).train(LocalClients({"a": door}), RunFolder(None, ""))
    np.testing.assert_allclose(cut.beta, uncut.beta, rtol=1e-9)


def test_the_tolerance_stops_training() -> None:
    events = events_of(subjects(SIZES), tolerance=1.0)
    stopped = events.of("stopped")[0]
    assert stopped["round"] == 1
    assert "less than the tolerance" in stopped["reason"]


def test_a_validation_of_any_loss_is_none_that_ends_the_run() -> None:
    method: Any = {"max_rounds": 4, "validation_share": 0.25, "validate_every": 1}
    events = events_of(subjects({"a": 60, "b": 60}), learning_rate=1e6, **method)
    losses = [event["loss"] for event in events.of("validation")]
    assert len(losses) == 4
    assert np.isfinite(losses).all()


def test_the_best_weights_on_held_back_documents_are_kept() -> None:
    corpora = subjects({"a": 80, "b": 80})
    method = {"validation_share": 0.25, "validate_every": 5, "patience": 3, "max_rounds": 2000}
    events = Notes()
    model = train(study(learning_rate=0.02, **method), corpora, on_event=events.append)
    validations = events.of("validation")
    (stopped,) = events.of("stopped")
    best = int(np.argmin([event["loss"] for event in validations]))
    assert validations[0]["documents"] == 40
    assert stopped["round"] == validations[-1]["round"]
    assert len(validations) - 1 - best == 3

    until_best = study(learning_rate=0.02, **{**method, "max_rounds": validations[best]["round"]})
    np.testing.assert_array_equal(model.beta, train(until_best, corpora).beta)


def test_a_loss_that_is_no_number_ends_in_one_sentence() -> None:
    plan = study(learning_rate=1e30, optimizer="sgd")
    with pytest.raises(FederationError, match="diverged, lower learning_rate"):
        train(plan, subjects(SIZES), at_once=False)
    with pytest.raises(StudyError, match="not finite; lower learning_rate"):
        train(plan, subjects(SIZES))


@pytest.mark.parametrize("network", ["combinedtm", "zeroshottm"])
def test_no_embedding_and_no_theta_is_in_a_reply(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpora = embedded(subjects({"a": 40, "b": 30}))
    plan = study(network=network, max_rounds=3)
    messages = overheard(monkeypatch)
    model = train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), at_once=False)
    left = b"".join(dumps(reply) for *_, reply in messages.calls)
    told = messages.of("vocabulary", "a")[0]["words"].values
    assert told.tobytes() in left, "the search finds what left"
    for corpus in corpora.values():
        for row in (*corpus.embeddings, *model.transform(corpus)):
            assert row.tobytes() not in left
            assert row.astype(np.float64).tobytes() not in left


TWO = {"north": 60, "south": 40, "west": 30}
OPEN = dict.fromkeys(TWO, OPEN_POLICY)
METHOD = {"n_components": 3, "max_rounds": 4, "coherence": "nothing"}


def auto(**more: Any) -> Study:
    method = {"name": "auto", **METHOD, "embedding": {"dimension": DIMENSION}, **more}
    return Study.make(method=method, vocabulary={"min_document_frequency": 1}, aggregation="plain")


def texts(words: int) -> dict[str, Corpus]:
    """Documents cut to so many words, with embeddings."""
    shortened = {}
    for name, corpus in embedded(subjects(TWO)).items():
        cut = [(document * 9)[:words] for document in tokens_of(corpus)]
        shortened[name] = Corpus.of(cut).with_embeddings(corpus.embeddings)
    return shortened


@pytest.mark.parametrize(
    ("words", "vectors", "method", "why"),
    [
        (150, 10, "nmf", "documents have 15.0 words on average, 15 or more"),
        (
            149,
            10,
            "mixture",
            "documents have 14.9 words on average, fewer than 15, and have embeddings",
        ),
        (100, 9, "nmf", "and some have no embedding, which titles need"),
        (0, 10, "mixture", "documents have 0.0 words"),
    ],
)
def test_the_rule(words: int, vectors: int, method: str, why: str) -> None:
    chosen, reason = AutoSettings().choose(documents=10, words=words, embedded=vectors)
    assert chosen["name"] == method
    assert why in reason
    find_method(method).settings(**chosen)  # they are settings of it


def test_long_documents_get_what_nmf_finds() -> None:
    events = Notes()
    corpora = texts(20)
    model = train(auto(), corpora, policies=OPEN, on_event=events.append)
    named = Study.make(method={"name": "nmf", **METHOD}, vocabulary={"min_document_frequency": 1})
    expected = train(named, corpora, policies=OPEN)
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "nmf"
    (chosen,) = events.of("chosen")
    assert chosen["method"] == "nmf"
    assert chosen["reason"] == "documents have 20.0 words on average, 15 or more"


def test_titles_get_what_the_mixture_finds() -> None:
    method = METHOD | {"name": "mixture", "embedding": {"dimension": DIMENSION}}
    named = Study.make(method=method, vocabulary={"min_document_frequency": 1})
    model, expected = (train(plan, texts(6), policies=OPEN) for plan in (auto(), named))
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "mixture"


def test_the_offer_says_what_each_method_would_send() -> None:
    calls = {call.function: call for call in exchanges(auto())}
    assert {"extent", "vocabulary", "factor_sums", "topic_sums"} <= calls.keys()
    assert all(call.data_sent for call in calls.values())
    assert calls["factor_sums"].often == "each round, with nmf"
    assert "with mixture" in calls["topic_sums"].often


def test_embeddings_of_a_client_with_long_documents_are_checked_too() -> None:
    """Others' titles can make the average a short one, and theirs part of the mixture."""
    long = texts(30)["west"]
    vectors = np.asarray(long.embeddings)
    for spoilt, said in (np.full_like(vectors, np.nan), "NaN"), (vectors[:, :5], "dimension"):
        with pytest.raises(DataError, match=said):
            train(auto(), texts(6) | {"west": long.with_embeddings(spoilt)}, policies=OPEN)
