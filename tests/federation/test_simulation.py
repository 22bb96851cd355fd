"""A study with all its clients in this process: its folder, and trying again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from fedtopics import Policy, ProdLDA, train
from fedtopics.contract.interfaces import Call
from fedtopics.errors import InputError, PolicyError, RunError
from fedtopics.federation.door import Door
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_status import read_run
from fedtopics.federation.sweep import sweep
from fedtopics.federation.verify import verify
from fedtopics.methods.core.minibatches import Minibatches
from tests.helpers.clusters import blobs, planned, spread
from tests.helpers.federation import ANY_WORDS, assert_same_bits, embedded, study, subjects

SIZES = {"north": 40, "south": 30}
SMALL = {"hidden": [16, 12], "dropout": 0.2, "learning_rate": 0.002, "batch_size": 64}


@pytest.mark.parametrize(
    "method",
    [
        {"norm": "sync"},
        {"norm": "server", "network": "combinedtm"},
        {"norm": "sync", "network": "neurallda", "clients_per_round": 2},
        {"norm": "local"},  # whose sums take each client's reply
    ],
)
def test_sums_at_once_are_those_of_the_replies(method: dict[str, Any]) -> None:
    corpora = embedded(subjects(SIZES | {"west": 20}))
    plan = study(max_rounds=8, precision="float64", validation_share=0.2, **method)
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    one_by_one = train(plan, corpora, policies=policies, at_once=False)
    events = []
    once = train(plan, corpora, policies=policies, at_once=True, on_event=events.append)
    for name, weight in one_by_one.weights.items():
        np.testing.assert_allclose(once.weights[name], weight, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(once.beta, one_by_one.beta, rtol=1e-6)
    assert once.documents == one_by_one.documents
    rounds = [event for event in events if event["event"] == "round"]
    assert {len(event["clients"]) for event in rounds} == {method.get("clients_per_round", 3)}


def test_sums_are_taken_at_once_where_no_folder_is_asked_for(tmp_path: Path) -> None:
    plan = study(max_rounds=3)
    corpora = subjects(SIZES)
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    once = train(plan, corpora, policies=policies, at_once=True)
    one_by_one = train(plan, corpora, policies=policies, at_once=False)
    assert_same_bits(train(plan, corpora, policies=policies), once)
    assert_same_bits(train(plan, corpora, policies=policies, out=tmp_path), one_by_one)
    estimator = ProdLDA(6, max_rounds=3, **ANY_WORDS, settings=SMALL)
    assert_same_bits(estimator.fit_clients(corpora, policies=policies).model_, once)
    # Else this test could not tell the two.
    assert any(not torch.equal(w, one_by_one.weights[name]) for name, w in once.weights.items())


def test_each_clients_policy_holds_for_sums_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    corpora = subjects(SIZES)
    rules = dict.fromkeys(corpora, OPEN_POLICY) | {"south": Policy(min_persons=12)}
    plan = study(max_rounds=2)

    monkeypatch.setattr(
        Minibatches, "of", lambda client, *_: Minibatches(client.usable, client.secret, 11)
    )
    with pytest.raises(PolicyError, match="'south' sums over documents of 11 persons, but"):
        train(plan, corpora, policies=rules, at_once=True)


@pytest.mark.parametrize(
    "policy", [Policy(max_rounds=1), Policy(min_persons=31), Policy(methods=("lda",))]
)
def test_a_policy_is_held_against_the_study_before_all_else(policy: Policy, tmp_path: Path) -> None:
    rules = {"south": policy}
    with pytest.raises(PolicyError, match="client 'south'"):
        train(study(max_rounds=2), subjects(SIZES), out=tmp_path / "run", policies=rules)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ({1: ["a b"] * 20}, "^1 cannot name a client; use at most 64 letters of English, digits"),
        ({"a/b": ["a b"] * 20}, "^'a/b' cannot name a client"),
        ({"a": ["a b"] * 20, "b": []}, "^Client 'b': The corpus is empty; give at least one"),
        (["a b"] * 20, "^The documents are not those of several clients; give a map"),
        ([], "^There are no clients; give at least one"),
    ],
)
def test_clients_that_cannot_be_used(clients: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(study(max_rounds=1), clients)


def test_a_simulation_does_not_go_on_without_a_ledger(tmp_path: Path) -> None:
    train(study(max_rounds=1), subjects(SIZES), out=tmp_path)
    for name in ("ledger.jsonl", "ledger.head"):
        (tmp_path / "clients/south" / name).unlink()
    with pytest.raises(RunError, match=r"south/ledger.jsonl is not as this client left it: it is"):
        train(study(max_rounds=1), subjects(SIZES), out=tmp_path, resume=True)
    (missing,) = [check for check in verify(tmp_path) if check.what == "lines" and not check.holds]
    assert missing.text.startswith(f"{tmp_path / 'clients/south/ledger.jsonl'} is missing")


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_has_one_run_at_a_time(resume: bool, tmp_path: Path) -> None:
    """The one that comes second is refused, and the first one's folder stays whole."""
    plan = study(max_rounds=3)
    corpora = subjects({"north": 40, "south": 40})
    folder = tmp_path / "run"

    def second(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            with pytest.raises(RunError, match="Another process uses"):
                train(plan, corpora, out=folder, resume=resume)
            with pytest.raises(RunError, match="Another process uses"):
                sweep(plan, [2], 1, folder, corpora=corpora)

    train(plan, corpora, out=folder, on_event=second)
    assert all(check.holds is not False for check in verify(folder))
    assert read_run(folder).round == 3


def test_a_run_goes_on_with_its_own_documents_only(tmp_path: Path) -> None:
    corpora = subjects(SIZES)
    plan = study(max_rounds=2)
    model = train(plan, corpora, out=tmp_path)
    south = corpora["south"]
    rounds = pa.chunked_array([range(len(south))])
    vectors = np.zeros((len(south), 2))
    for other in (
        subjects(SIZES, seed=1)["south"],
        south.take(range(29)),
        south.take(range(29, -1, -1)),
        replace(south, rounds=rounds),
        south.with_embeddings(vectors),
    ):
        with pytest.raises(RunError, match="of client 'south' are not those that the run"):
            train(plan, corpora | {"south": other}, out=tmp_path, resume=True)
    chunks = pa.chunked_array([south.documents.chunk(0)[:7], south.documents.chunk(0)[7:]])
    same = corpora | {"south": replace(south, documents=chunks)}
    assert train(plan, same, out=tmp_path, resume=True).beta.tobytes() == model.beta.tobytes()


@pytest.mark.parametrize(
    ("method", "rounds"),
    [("gfedntm", 2), ("kmeans", 1), ("kmeans", 3), ("discriminative", 1), ("fstc", 1)],
)
def test_a_policy_for_the_studys_rounds_is_enough_to_the_end(method: str, rounds: int) -> None:
    """What is before and after the rounds, exchanges of a start among it, counts for nothing."""
    corpora = spread(blobs(120), 2)
    policy = Policy(min_persons_per_word=1, max_rounds=rounds)
    plan = planned(method, n_components=4, max_rounds=rounds)
    assert train(plan, corpora, policies=dict.fromkeys(corpora, policy)).info["rounds"] <= rounds


def test_who_replies_what_cannot_be_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between machines: an event each time, and after three it is excluded."""
    corpora = subjects({"a": 40, "b": 40, "c": 40})
    plan = study(max_rounds=5)
    honest = Door.call

    def bent(self: Door, call: Call) -> dict[str, Any]:
        reply = honest(self, call)
        false = self.client == "b" and call.function in ("topic_gradients", "gradients")
        return reply | {"documents": -5} if false else reply

    monkeypatch.setattr(Door, "call", bent)
    events: list[dict[str, Any]] = []
    how: dict[str, Any] = {"policies": dict.fromkeys("abc", OPEN_POLICY), "at_once": False}
    model = train(plan, corpora, on_event=events.append, **how)
    reason = "sent a bad reply: its field 'documents' contains numbers outside the agreed bounds"
    bad = [event for event in events if event["event"] == "bad reply"]
    assert [(event["client"], event["round"]) for event in bad] == [("b", 1), ("b", 2), ("b", 3)]
    assert all(event["reason"].startswith(reason) for event in bad)
    assert [event["client"] for event in events if event["event"] == "excluded"] == ["b"]
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["clients"] for event in rounds] == [["a", "c"]] * 5
    assert rounds[-1]["missing"]["b"].startswith("excluded: 3 bad replies")
    assert sorted(model.documents) == ["a", "c"]
