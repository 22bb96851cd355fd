"""The method's halves: options, minibatches, stopping, small clients."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, train
from fedtopics.errors import FederationError, StudyError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of, program_of
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.core.minibatches import Minibatches
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.methods.gfedntm.method import GFedNTM
from fedtopics.protocol.values import dumps
from tests.helpers.background import Notes
from tests.helpers.clusters import overheard
from tests.helpers.federation import embedded, study, subjects, train_and_note

SIZES = {"a": 120, "b": 60, "c": 20}


def events_of(corpora: Mapping[str, Corpus], least: int = 10, **method: Any) -> Notes:
    return train_and_note(
        study(**method), corpora, policies=dict.fromkeys(corpora, Policy(min_persons=least))
    )[1]


@pytest.mark.parametrize(
    ("batch_size", "split", "least", "expected"),
    [
        (100, "proportional", 10, 60 + 30 + 10),
        (50, "proportional", 10, 30 + 15 + 10),  # the policy's ten documents are the least
        (32, "proportional", 15, 19 + 15 + 20),  # of 20 documents, 15 would leave out 5
        (50, "fixed", 10, 50 + 50 + 20),
    ],
)
def test_a_minibatch_is_shared_by_documents_or_each_clients_own(
    batch_size: int, split: str, least: int, expected: int
) -> None:
    events = events_of(
        subjects(SIZES), least, batch_size=batch_size, batch_split=split, max_rounds=2
    )
    assert [event["documents"] for event in events.of("round")] == [expected] * 2


def minibatches(seed: int, name: str = "a") -> Minibatches:
    return Minibatches(np.arange(10), Secret.from_seed(seed, name), 5)


def test_a_minibatch_is_drawn_by_itself_and_repeats_exactly() -> None:
    """Two of five of ten documents do not divide these: the rest of all would be known."""
    draws = minibatches(0)
    first = [draws.draw(number) for number in (1, 2)]
    assert max(len({*draws.draw(n)} & {*draws.draw(n + 1)}) for n in range(1, 40, 2)) > 2

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
    assert not train(study(preset=preset, max_rounds=5), corpora).weights["prior_mean"].any()
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
    events = events_of(
        subjects({"a": 100, "b": 100}), max_rounds=40, **{"learning_rate": 0.01, **method}
    )
    losses = [event["loss"] for event in events.of("round")]
    assert len(losses) == 40
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.5


def test_cut_passes_agree_with_the_uncut_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's documents through five exchanges, or through one."""
    corpora = subjects({"a": 100})
    plan = study(precision="float64", max_rounds=10)
    uncut = train(plan, corpora)

    monkeypatch.setattr(
        GFedNTM,
        "_in_one_exchange",
        lambda self, agreement, state, round_, stages: self._synchronised_statistics(
            agreement, state, round_
        ),
    )
    client = client_of(plan, ClientContext("a", corpora["a"], Policy()))
    door = Door("a", client, OPEN_POLICY, Ledger("gfedntm", ""))
    np.testing.assert_allclose(
        program_of(plan).train(LocalClients({"a": door}), RunFolder(None, "")).beta,
        uncut.beta,
        rtol=1e-9,
    )


def test_the_tolerance_stops_training() -> None:
    stopped = events_of(subjects(SIZES), tolerance=1.0).of("stopped")[0]
    assert stopped["round"] == 1
    assert "less than the tolerance" in stopped["reason"]


def test_a_validation_of_any_loss_is_none_that_ends_the_run() -> None:
    events = events_of(
        subjects({"a": 60, "b": 60}),
        learning_rate=1e6,
        max_rounds=4,
        validation_share=0.25,
        validate_every=1,
    )
    losses = [event["loss"] for event in events.of("validation")]
    assert len(losses) == 4
    assert np.isfinite(losses).all()


def test_the_best_weights_on_held_back_documents_are_kept() -> None:
    corpora = subjects({"a": 80, "b": 80})
    method = {"validation_share": 0.25, "validate_every": 5, "patience": 3, "max_rounds": 2000}
    model, events = train_and_note(study(learning_rate=0.02, **method), corpora)
    validations = events.of("validation")
    (stopped,) = events.of("stopped")
    best = len(validations) - 1 - 3  # later losses were not lower by a thousandth
    assert validations[0]["documents"] == 40
    assert stopped["round"] == validations[-1]["round"]
    losses = [event["loss"] for event in validations]
    assert losses[best] < 1.001 * min(losses)

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
    assert messages.of("vocabulary", "a")[0]["words"].values.tobytes() in left, (
        "the search finds what left"
    )
    for corpus in corpora.values():
        for row in (*corpus.embeddings, *model.transform(corpus)):
            assert row.tobytes() not in left
            assert row.astype(np.float64).tobytes() not in left
