"""Every method with a server and three members, against the same in one process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import Policy, Study, TopicModel, train
from fedtopics.federation.finished_model import privacy_summary
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.protocol.outliers import Rule
from tests.helpers.clusters import blobs, spread
from tests.helpers.clusters import planned as clustered
from tests.helpers.federation import (
    ANY_WORDS,
    assert_same,
    assert_same_bits,
    embedded,
    study,
    subjects,
)
from tests.helpers.grpc_federation import Notes, federated
from tests.helpers.ledgers import left
from tests.helpers.streams import DRIFT, flda, stream

SIZES = {"east": 60, "north": 40, "south": 25}
NETWORK = {"hidden": 8, "deletion": 0, "local_steps": 5, "batch_size": 30}
CLUSTERED: dict[str, tuple[str, dict[str, Any]]] = {
    "mixture": ("mixture", {"max_rounds": 4}),
    "kmeans": ("kmeans", {"max_rounds": 4}),
    "kmeans, fbow": ("kmeans", {"preset": "fbow"}),
    "kmeans, ftfidf": ("kmeans", {"preset": "ftfidf"}),
    "discriminative": ("discriminative", {"max_rounds": 4}),
    "fstc": ("fstc", {"max_rounds": 2}),
    "fsccl": ("fsccl", {"n_components": 3, "network": NETWORK, "max_rounds": 2}),
}
GFEDNTM: dict[str, dict[str, Any]] = {
    "sync": {"norm": "sync"},
    "sync, validated": {"norm": "sync", "validation_share": 0.25, "validate_every": 2},
    "server": {"norm": "server"},
    "local": {"norm": "local"},
    "local steps": {"norm": "server", "optimizer": "fedadam", "local_steps": 3},
    "neurallda": {"network": "neurallda"},
    "zeroshottm": {"network": "zeroshottm", "coherence": "nothing"},
    "some clients a round": {"norm": "server", "clients_per_round": 2},
}
LDA: dict[str, dict[str, Any]] = {
    "stochastic": {"learning": "stochastic", "initialisation": "random", "batch_size": 20},
    "anchors": {"learning": "stochastic", "initialisation": "anchors"},
}


def check(plan: Study, corpora: Any, folder: Path, outliers: Rule = "clip") -> None:
    """Compare a plain study with one process to the bit, a secure one but for rounding."""
    plan = plan.model_copy(
        update={"federation": FederationSettings(outliers=outliers), "aggregation": "plain"}
    )
    check_plain(plan, corpora, folder)
    if plan.method.adds_up and outliers == "clip":
        update = {"federation": FederationSettings(), "aggregation": "secure"}
        check_secure(plan.model_copy(update=update), corpora, folder)


def check_secure(plan: Study, corpora: Any, folder: Path, policy: Policy = OPEN_POLICY) -> None:
    here = train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), at_once=False)
    secure = federated(plan, corpora, folder / "secure", policy).model
    assert secure.vocabulary.words == here.vocabulary.words
    np.testing.assert_allclose(
        secure.beta, here.beta, rtol=1e-3, atol=1e-5 * np.abs(here.beta).max()
    )
    assert secure.info["masked"] is True


def check_plain(plan: Study, corpora: Any, folder: Path) -> None:
    before = Notes()
    policies = dict.fromkeys(corpora, OPEN_POLICY)
    here = train(plan, corpora, out=folder / "local", policies=policies, on_event=before.append)
    outcome = federated(plan, corpora, folder)
    assert_same_bits(outcome.model, here)
    assert outcome.model.topics() == here.topics()
    assert outcome.model.info == {
        **here.info,
        **privacy_summary(plan.with_clients(corpora)),
        "masked": False,
    }
    assert_same(dict(outcome.model.shares), dict(here.shares))
    rounds = outcome.events.of("round")
    assert [event.get("loss") for event in rounds] == [
        event.get("loss") for event in before.of("round")
    ]
    assert all(event["missing"] == {} and event["attempts"] == 1 for event in rounds)
    for name in corpora:
        assert_same_bits(TopicModel.from_pretrained(folder / name / "model"), here)
        path = folder / name / "ledger.jsonl"
        assert left(path) == left(folder / "local/clients" / name / "ledger.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        asked = [tuple(line["position"]) for line in lines if line["what"] == "sent"]
        came = [tuple(line["position"]) for line in lines if line["what"] == "received"]
        assert set(asked) <= set(came)
        assert came == sorted(set(came))


@pytest.mark.parametrize("case", GFEDNTM)
def test_gfedntm(case: str, tmp_path: Path) -> None:
    check(study(max_rounds=5, **GFEDNTM[case]), embedded(subjects(SIZES)), tmp_path)


@pytest.mark.parametrize("case", LDA)
def test_lda(case: str, tmp_path: Path) -> None:
    method = {"name": "lda", "n_components": 4, "max_rounds": 4, **LDA[case]}
    check(
        Study.make(method=method, vocabulary=ANY_WORDS, aggregation="plain"),
        subjects(SIZES),
        tmp_path,
    )


@pytest.mark.parametrize("rule", ["none", "median"])
def test_rules_of_sums(rule: Rule, tmp_path: Path) -> None:
    method = {"name": "lda", "n_components": 4, "max_rounds": 3, "learning": "batch"}
    check(
        Study.make(method=method, vocabulary=ANY_WORDS, aggregation="plain"),
        subjects(SIZES),
        tmp_path,
        outliers=rule,
    )


def test_two_clients_whose_policies_accept_secure_aggregation(tmp_path: Path) -> None:
    method = {"name": "lda", "n_components": 2, "max_rounds": 2}
    plan = Study.make(method=method, vocabulary=ANY_WORDS, aggregation="secure")
    two = Policy(min_persons_per_word=1, min_clients_in_sum=2)
    check_secure(plan, subjects({"north": 40, "south": 50}), tmp_path, two)


def test_flda(tmp_path: Path) -> None:
    pytest.importorskip("tomotopy")
    check(flda(), dict(zip(SIZES, stream(DRIFT).values(), strict=True)), tmp_path)


@pytest.mark.parametrize("case", CLUSTERED)
def test_methods_of_embeddings(case: str, tmp_path: Path) -> None:
    name, method = CLUSTERED[case]
    corpora = spread(blobs(120, n_clusters=3, spread=0.3), 3, alpha=5.0)
    plan = clustered(name, **{"n_components": 3} | method)
    if name == "fsccl":
        plan = clustered(name, **method, embedding={"model": "x", "dimension": 16})
    check(plan, corpora, tmp_path)
