"""What all methods that find topics or clusters by embeddings promise, whatever they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.registry import find_method
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    ODD,
    accuracy,
    assert_nothing_else_leaves,
    assert_same_result,
    assert_sound,
    blobs,
    corpus_of,
    empty,
    gone_on,
    planned,
    spread,
    trained,
)

FSCCL = {"hidden": 8, "deletion": 0, "max_rounds": 2, "local_steps": 10, "batch_size": 30}
CASES: dict[str, dict[str, Any]] = {
    "lloyd": {"name": "kmeans", "algorithm": "lloyd"},
    "lloyd of tfidf": {"name": "kmeans", "algorithm": "lloyd", "representation": "tfidf"},
    "k-fed": {"name": "kmeans", "algorithm": "k-fed"},
    "fbow": {"name": "kmeans", "preset": "fbow"},
    "ftfidf": {"name": "kmeans", "preset": "ftfidf"},
    "discriminative": {"name": "discriminative", "starts": 2, "max_rounds": 20},
    "discriminative, free": {"name": "discriminative", "starts": 2, "sizes": "free"},
    "mixture": {"name": "mixture", "starts": 2, "max_rounds": 5},
    "fstc": {"name": "fstc", "max_rounds": 2},
    "fstc, paper": {"name": "fstc", "preset": "paper", "average_every": 1, "max_rounds": 2},
    "fsccl": {"name": "fsccl", "embedding": {"model": "x", "dimension": DIMENSION}, **FSCCL},
}
OF_WORDS = ("lloyd of tfidf", "fbow", "ftfidf")
every = pytest.mark.parametrize("case", CASES)


def plan_of(case: str, **method: Any) -> Study:
    return planned(**CASES[case] | method)


@every
def test_permuted_clients_change_no_bit(case: str) -> None:
    """tests/federation/test_same_bits.py says the same of gRPC."""
    corpora, plan = spread(blobs(150), 3), plan_of(case)
    forth, back = (trained(plan, c) for c in (corpora, dict(reversed(corpora.items()))))
    assert_same_result(back, forth)
    assert back.topics() == forth.topics()


@pytest.mark.parametrize(
    ("case", "stop", "method"),
    [
        ("lloyd", 1, {}),
        ("lloyd", 12, {"max_rounds": 15}),
        ("discriminative", 24, {"max_rounds": 26}),
        ("mixture", 4, {"max_rounds": 6, "tolerance": 0}),
        ("fstc", 3, {"max_rounds": 4, "average_every": 2, "mixture_from": 0.3}),
        ("fsccl", 2, {"max_rounds": 3}),
    ],
)
def test_an_interrupted_run_goes_on_with_the_same_bits(
    case: str, stop: int, method: dict[str, Any], tmp_path: Path
) -> None:
    corpora = spread(blobs(300, 12, spread=2.0), 2)
    plan = plan_of(case, n_components=12, **method).model_copy(update={"checkpoint_every": 2})
    whole = trained(plan, corpora)
    assert whole.info["rounds"] >= stop
    assert_same_result(gone_on(plan, corpora, tmp_path, stop), whole)
    again = trained(plan, corpora, out=tmp_path, resume=True)
    assert_same_result(again, whole)


@pytest.mark.parametrize("case", [*CASES, "discriminative, candidates"])
def test_no_embedding_and_no_rare_word_leaves(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a study announces is what it asks for."""
    of, more = case.removesuffix(", candidates"), dict[str, Any]()
    if of != case:
        more = {"candidates": (4, 5), "starts": 1, "tolerance": 0.05}
    plan = plan_of(of, **more)
    messages = assert_nothing_else_leaves(plan, tmp_path, monkeypatch)
    asked = {function for _, function, _, _ in messages.calls}
    announced = find_method(plan.method.name).client.schedule(plan.method).keys()
    assert asked ^ announced <= {"size"}, "which is asked where a model's words are kept"
    for function in ("cluster_sums", "own_centres", "first_centres", "train_locally"):
        for reply in messages.of(function, "client-1"):
            if "counts" in reply:
                assert ((reply["counts"] == 0) | (reply["counts"] >= 10)).all()
    for reply in messages.of("class_sums", "client-1"):
        enough = reply["weights"] >= 10
        np.testing.assert_array_equal(reply["sums"].any(2), enough)
        np.testing.assert_array_equal(reply["sent"], reply["weights"] * enough)


# Corpora that are none, or hardly any


@pytest.mark.parametrize("corpora", ODD)
@every
def test_odd_corpora(case: str, corpora: str) -> None:
    plan, clients = plan_of(case), ODD[corpora]()
    if (case, corpora) == ("k-fed", "two texts"):
        with pytest.raises(StudyError, match="have 4 clusters of enough documents together"):
            trained(plan, clients)
    else:
        assert_sound(trained(plan, clients), clients)


@every
def test_two_clusters(case: str) -> None:
    corpora = spread(blobs(60, 2), 2)
    model = trained(plan_of(case, n_components=2), corpora)
    assert_sound(model, corpora)
    assert accuracy(model, corpora) > 0.95


@pytest.mark.parametrize("case", ["lloyd", "discriminative", "discriminative, free", "fstc"])
def test_more_clusters_than_documents_of_a_client(case: str) -> None:
    corpora = spread(blobs(300), 3)
    assert_sound(trained(plan_of(case, n_components=200, starts=2), corpora), corpora)


@pytest.mark.parametrize("policy", [OPEN_POLICY, Policy()], ids=["open", "usual"])
@every
def test_more_clusters_than_documents(case: str, policy: Policy) -> None:
    corpora = spread(blobs(120), 2)
    with pytest.raises(StudyError, match=r"fewer than n_components = 200; ask for fewer"):
        policies = dict.fromkeys(corpora, policy)
        train(plan_of(case, n_components=200), corpora, policies=policies)


@pytest.mark.parametrize("case", ["lloyd", "discriminative", "fstc"])
def test_clusters_of_which_no_client_has_enough_documents(case: str) -> None:
    corpora = spread(blobs(60, spread=5.0), 2)
    policies = dict.fromkeys(corpora, Policy(min_documents=25))
    with pytest.raises(StudyError, match="No cluster has as many documents as a policy asks for"):
        train(plan_of(case, n_components=50, starts=2), corpora, policies=policies)


@every
def test_documents_that_are_all_the_same_or_empty(case: str) -> None:
    texts = [["a", "b"]] * 40
    one = corpus_of(np.tile(np.arange(DIMENSION), (40, 1)), texts=texts)
    # Another computer's embedding of the same text has other last bits.
    other = corpus_of(np.tile(np.arange(DIMENSION) + 1e-6, (40, 1)), texts=texts)
    for corpora in ({"a": one, "b": one}, {"a": one, "b": other}):
        with pytest.raises(StudyError, match=r"differ|more documents|are empty, or the same"):
            trained(plan_of(case), corpora)
    with pytest.raises(DataError, match=r"Client 'a': No document has a word: they are empty"):
        trained(plan_of(case), {"a": empty(20), "b": empty(20)})


@pytest.mark.parametrize("case", [case for case in CASES if case not in OF_WORDS])
def test_a_client_without_embeddings(case: str) -> None:
    nothing, plan = corpus_of(np.zeros((20, DIMENSION))), plan_of(case)
    if case.startswith("fstc"):
        with pytest.raises(DataError, match="Client 'a': no document has an embedding"):
            trained(plan, {"a": nothing, "b": blobs(80)})
        return
    model = trained(plan, {"a": nothing, "b": blobs(80)})
    assert model.n_topics == CLUSTERS
    assert_sound(model, {"b": blobs(80)})
    if case != "mixture":  # for which words are enough
        assert model.documents == {"a": 0, "b": 80}
        assert model.main_topics(nothing).tolist() == [-1] * 20
