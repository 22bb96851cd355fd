"""LDA, NMF, k-means and discriminative clustering with a bound for each document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.exposure import expose
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import proposal
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, plan_of
from fedtopics.inference.points import Discriminant
from fedtopics.methods.bounded import SHARES
from fedtopics.methods.plan import Site
from fedtopics.methods.private import METHOD, contributions
from fedtopics.privacy import Noise
from fedtopics.privacy.account import Account
from fedtopics.report import find_run, summarise
from fedtopics.text.corpus import Corpus
from tests.helpers.clusters import accuracy, overheard
from tests.helpers.encoders import unit
from tests.helpers.fixed_point import EncodedSums
from tests.helpers.grpc_federation import authority, federated
from tests.helpers.private_topics import (
    DIMENSION,
    MODES,
    PUBLIC,
    WORDS,
    half_of,
    install,
    planned,
    questions,
    themed,
)

METHODS = "lda", "nmf", "kmeans", "discriminative"
BOUND = {"epsilon": 3}
YEARS = {"period": "year", "begin": "2020-01-01", "end": "2022-01-01"}
PUBLIC_FIELDS = {"embedded", "clients", "vectors"}  # whether there are embeddings; words' vectors


def trained(plan: Study, corpora: dict[str, Corpus], **how: Any) -> Any:
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    return train(plan, corpora, policies=policies, at_once=False, **how)


# What a study says


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ({"name": "lda", "learning": "stochastic"}, 'set learning = "batch"'),
        ({"name": "lda", "initialisation": "nmf"}, 'leave initialisation at "anchors"'),
        ({"name": "lda", "coherence": "windows"}, 'set coherence = "nothing"'),
        ({"name": "lda", "max_rounds": 2}, "set max_rounds, 3 to 50, of which 2 are for words"),
        ({"name": "nmf", "max_rounds": 51}, "set max_rounds, 3 to 50"),
        ({"name": "nmf", "tolerance": 0.1}, "leave out stop_when and tolerance"),
        ({"name": "nmf", "stop_when": {"loss": 1.0}}, "leave out stop_when and tolerance"),
        ({"name": "nmf", "over_time": YEARS}, "leave over_time out"),
        ({"name": "kmeans", "algorithm": "k-fed"}, 'set algorithm = "lloyd"'),
        ({"name": "kmeans", "representation": "bow"}, "leave representation out"),
        ({"name": "discriminative", "candidates": [2, 3]}, "leave candidates out"),
        ({"name": "discriminative", "max_rounds": 3}, "set max_rounds, 4 to 50, of which 3"),
        ({"name": "flda"}, "Gibbs sampling .* Others that can: lda, nmf, kmeans, discriminative"),
        ({"name": "mixture"}, "nothing limits what a document adds to its sums"),
        ({"name": "auto"}, "it chooses by exact numbers"),
    ],
)
def test_what_cannot_have_a_bound_says_why(method: dict[str, Any], why: str) -> None:
    with pytest.raises(StudyError, match=f"{method['name']} cannot keep a bound .*{why}"):
        Study.make(method=method, privacy=BOUND)
    Study.make(method=method)


@pytest.mark.parametrize(
    ("clients", "more", "why"),
    [
        (2, {}, "three clients can"),
        (3, {"method": {"name": "lda", "clients_per_round": 3}}, "leave out clients_per_round"),
        (9, {"federation": {"robust": "median"}}, "leave out federation.robust"),
        (1001, {}, "at most 1,000 clients"),
    ],
)
def test_sums_have_all_parts_of_the_noise(clients: int, more: Any, why: str) -> None:
    given = {"method": {"name": "lda"}, "clients": {f"c{n}": {} for n in range(clients)}}
    with pytest.raises(StudyError, match=why):
        Study.make(**given | more, privacy=BOUND)


@pytest.mark.parametrize("name", ["gfedntm", "fstc", "fsccl"])
def test_networks_cannot_have_a_bound(name: str) -> None:
    pytest.importorskip("torch")
    with pytest.raises(StudyError, match=f"{name} cannot keep a bound .*; or leave out privacy"):
        Study.make(method={"name": name}, privacy=BOUND)


def test_settings_with_a_bound() -> None:
    """What a study does not name is what can have a bound; what it names stays."""
    study = Study.make(method={"name": "lda"}, privacy=BOUND)
    assert study.method.model_dump(include={"learning", "coherence", "max_rounds"}) == {
        "learning": "batch", "coherence": "nothing", "max_rounds": 4,
    }  # fmt: skip
    assert Study.make(method={"name": "lda"}).method.max_rounds == 200
    assert Study.make(method={"name": "lda", "max_rounds": 9}, privacy=BOUND).method.max_rounds == 9
    assert Study.of_agreed(study.agreed).fingerprint == study.fingerprint
    assert study.registration is METHOD
    assert study.with_rounds(9).method.recipe.rounds == 7
    least = Study.make(method={"name": "lda", "alpha": 5e-324}, privacy=BOUND).method
    assert least.recipe.alpha == 1e-12, "of less, shares of topics are no numbers"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounds", [1, 2, 48])
def test_a_budget_is_shared_out_however_many_rounds_there_are(mode: Any, rounds: int) -> None:
    shares = SHARES[mode].of(rounds)
    assert sum(shares.values()) + 0.005 == pytest.approx(1)
    assert min(shares.values()) > 0


def test_a_study_with_a_bound_begins_with_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    model = trained(planned(8, name="lda"), corpora)
    with pytest.raises(StudyError, match="begins with public words alone, not with a model"):
        trained(planned(8, name="lda"), corpora, start=model)


# What leaves


@pytest.mark.parametrize("mode", MODES)
def test_all_but_public_fields_have_noise(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where noise hides all that it is added to, documents change nothing of what leaves."""
    install(monkeypatch)
    monkeypatch.setattr(Noise, "added", lambda _, values, *__: np.zeros(np.shape(values)))
    asked = [("extent", {}), *questions(mode, np.random.default_rng(0))]
    found = []
    for corpus in (themed(30), themed(70, 1)):
        half = half_of(corpus, mode=mode)
        given = {"vocabulary": half._fingerprint}
        for name, how in asked:
            reply = getattr(half, name)(**(how if name == "extent" else how | given))
            found.append((name, reply))
    each = len(asked)
    for (name, reply), (_, other) in zip(found[:each], found[each:], strict=True):
        assert reply.keys() == other.keys()
        for field, value in reply.items():
            np.testing.assert_array_equal(value, other[field], err_msg=name)
            assert field in PUBLIC_FIELDS or not np.any(value), f"{field} of {name}"


@pytest.mark.parametrize("name", METHODS)
def test_a_study_asks_what_it_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So often as it says, in as many rounds as it has, and once more their number at first."""
    install(monkeypatch)
    messages = overheard(monkeypatch)
    plan = planned(8, name=name, max_rounds=6)
    trained(plan, {n: themed(4000, seed) for seed, n in enumerate("abc")})
    asked = [function for client, function, _, _ in messages.calls if client == "a"]
    said = {each.function: each.often for each in plan.registration.exchanges(plan.method)}
    assert set(asked) == set(said)
    often = {"once": 1, "3 times": 3, "4 times": 4}
    assert all(asked.count(function) == often[times] for function, times in said.items())
    assert len(asked) == 6 + 1


def test_what_a_study_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    plan = planned(3, name="nmf").with_clients("abc")
    found = expose(plan, themed(300))
    shown = {each.function: each for each in found.shown}
    assert set(shown) == {"extent", "occurrences", "sketch", "noisy_factors"}
    assert all((each.once or 0) + (each.round or 0) > 0 for each in shown.values())
    assert found.verdicts["whether a document was there"].startswith("hardly: by at most a factor")


# What a document adds


def test_factors_by_hand() -> None:
    """A document on one topic alone, and one between two, add 1 each to X' W."""
    topics = np.eye(3)[:, :2]
    points = contributions.sparse.csr_array(np.array([[1.0, 0, 0], [0.6, 0.6, 0.28**0.5]]))
    sums, products = contributions.factored(points, topics, np.ones(2))
    half = 0.5**0.5
    beside = [[0.6 * half] * 2, [0.6 * half] * 2, [0.28**0.5 * half] * 2]
    by_hand = np.add([[1, 0], [0, 0], [0, 0]], beside)
    np.testing.assert_allclose(sums, by_hand, atol=1e-9)
    shares = 0.6 * half
    np.testing.assert_allclose(
        contributions.unpacked(products, 2), [[1 + shares, shares], [shares, shares]], atol=1e-9
    )


def test_shares_of_clusters_do_not_depend_on_other_documents() -> None:
    """To the last bit, also where a projection makes nearly nothing of points."""
    rng = np.random.default_rng(0)
    points = unit(rng.normal(size=(500, 384))).astype(np.float32)
    projection = 1e-17 * rng.normal(size=(384, 19))
    of = Discriminant(projection, unit(rng.normal(size=(20, 19))), np.zeros(20), 0.15)
    found = contributions.memberships(points, of)
    np.testing.assert_allclose(found.sum(1), 1)
    for n in (1, 2, 33, 499):
        fewer = contributions.memberships(points[-n:], of)
        np.testing.assert_array_equal(fewer, found[-n:])


# Studies


@pytest.mark.parametrize("name", METHODS)
def test_with_noise_the_themes_are_found(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    corpora = {client: themed(4000, seed) for seed, client in enumerate("abc")}
    model = trained(planned(3, name=name), corpora)
    assert accuracy(model, corpora) > 0.9
    assert {len({word[:6] for word in topic}) for topic in model.topics(5)} == {1}
    assert model.info["method"] == name
    assert list(model.documents) == ["all"], "nothing is said of a client"
    read = type(model).from_pretrained(model.save_pretrained(tmp_path / name))
    assert read.topics() == model.topics()
    np.testing.assert_array_equal(read.transform(corpora["a"]), model.transform(corpora["a"]))


def test_topics_with_given_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    corpora = {client: themed(4000, seed) for seed, client in enumerate("abc")}
    for theme in range(3):
        words = PUBLIC[theme * WORDS : theme * WORDS + 2]
        model = trained(planned(8, name="nmf", seed_topics=[words]), corpora)
        assert {word[:6] for word in model.topics(8)[0]} == {words[0][:6]}


def test_a_half_without_a_bound_is_the_methods_own() -> None:
    plan = planned(name="nmf")
    site = Site("a", themed(20).with_embeddings(None), OPEN_POLICY)
    assert type(plan.client_half(site)).__name__ == "NMFClient"
    assert type(METHOD.client(plan_of(plan), site)).__name__ == "PrivateClient"
    assert plan.method.recipe.embedding.dimension != DIMENSION


def test_ledger_and_report_of_a_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's own ledger says of how many documents a reply is, which does not leave."""
    install(monkeypatch)
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abc")}
    model = trained(planned(8, name="kmeans", max_rounds=5), corpora, out=tmp_path)
    rows = {row["function"]: row for row in summarise_ledger(tmp_path / "clients/a/ledger.jsonl")}
    documents = len(half_of(corpora["a"], mode="embeddings")._corpus)  # copies count once
    assert rows["cluster_sums"]["replies"] == 2
    assert {row["documents"] for row in rows.values()} == {documents}
    told = summarise(model, find_run(tmp_path)[1])["left"]["functions"]
    meanings = {row["function"]: row["meaning"] for row in told}
    assert all("noise" in meanings[name] for name in rows if name != "word_vectors")


# Between machines


@pytest.mark.parametrize("name", METHODS)
def test_sums_under_masks_come_to_the_same_topics(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    corpora = {client: themed(4000, seed) for seed, client in enumerate("abc")}
    plain = trained(planned(8, name=name), corpora)
    seen = EncodedSums(monkeypatch)
    model = trained(planned(8, name=name), corpora)
    said = planned(8, name=name).registration.exchanges(planned(8, name=name).method)
    assert seen.encoded == {each.function for each in said}
    assert not seen.plain
    assert model.topics() == plain.topics()


def test_a_client_goes_by_its_policy_and_its_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method is the one that the study names, and what it may say is written down first."""
    install(monkeypatch)
    plan = planned(3, name="nmf").with_clients(["east", "north", "west"])
    (tmp_path / "policy.toml").write_text("max_epsilon = 4\n")
    policy = Policy.read(tmp_path / "policy.toml")
    part = Participation("north", themed(100), policy, tmp_path / "out")
    part.consider(part.look(proposal(plan, None), signed=True), b"run")
    part.close()
    assert Account(tmp_path / "policy.account.jsonl").epsilon == 3
    again = planned(3, name="lda").with_clients(["east", "north", "west"])
    with pytest.raises(PolicyError, match=r"1 before had 3, and with this one it would be 4\.42"):
        Participation("north", themed(100), policy, tmp_path / "more").look(
            proposal(again, None), signed=True
        )
    of_sums = Policy(min_documents_in_sum=200)
    with pytest.raises(PolicyError, match="Leave min_documents_in_sum out"):
        Participation("north", themed(100), of_sums, tmp_path / "sums").look(
            proposal(plan, None), signed=True
        )
    alone = Policy(methods=("private",))
    with pytest.raises(PolicyError, match="nmf"):
        Participation("north", themed(100), alone, tmp_path / "other").look(
            proposal(plan, None), signed=True
        )


def test_a_study_between_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All leaves masked, with noise of the clients' own secrets, and is accounted for."""
    install(monkeypatch)
    corpora = {name: themed(4000, seed) for seed, name in enumerate(("east", "north", "west"))}
    policies = {}
    for name in corpora:
        path = tmp_path / f"{name}.toml"
        path.write_text('max_epsilon = 9\nsecure = "required"\n')
        policies[name] = Policy.read(path)
    pki = authority(tmp_path / "pki", *corpora)
    plan = planned(8, name="nmf")
    model = federated(plan, corpora, tmp_path, pki, policies=policies, seeded=False).model
    assert accuracy(model, corpora) > 0.9
    assert model.info["masked"] and model.info["clear"] == []
    assert model.info["privacy"] == plan.privacy.told | {"seeded": False}
    rows = summarise_ledger(tmp_path / "north/ledger.jsonl")
    left = {row["function"] for row in rows if row["masked"]}
    assert left >= {each.function for each in plan.registration.exchanges(plan.method)}
    assert Account(tmp_path / "north.account.jsonl").epsilon == 8
