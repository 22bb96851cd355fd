"""Federated training with synchronised normalisation is the training of one process."""

import itertools
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.networks import find_network
from fedtopics.networks.base import Batch, NetworkSettings
from fedtopics.networks.neural import NeuralTopicModel, batch_weights
from fedtopics.networks.passes import run_through
from tests.helpers.federation import (
    NETWORKS,
    assert_same_bits,
    embedded,
    study,
    subjects,
    tokens_of,
    train_until_killed,
)
from tests.helpers.ordinary import (
    ORDINARY,
    SIZES,
    dense,
    difference,
    ordinary,
    record_minibatches,
    united,
)


@pytest.fixture
def minibatches(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Batch]]:
    return record_minibatches(monkeypatch)


@pytest.mark.parametrize(
    ("network", "optimizer", "rate", "split"),
    [
        *((name, "adam", 0.002, "proportional") for name in NETWORKS),
        ("prodlda", "sgd", 0.02, "proportional"),
        ("prodlda", "adam", 0.002, "fixed"),
    ],
)
def test_fifty_rounds_equal_one_process(
    network: str, optimizer: str, rate: float, split: str, minibatches: dict[int, list[Batch]]
) -> None:
    plan = study(
        network=network,
        optimizer=optimizer,
        learning_rate=rate,
        batch_split=split,
        precision="float64",
    )
    model = train(plan, embedded(subjects(SIZES)), at_once=False)
    assert len(minibatches) == 50
    assert {len(batches) for batches in minibatches.values()} == {5}
    weights = ordinary(model, plan, minibatches)
    assert weights.keys() == model.weights.keys()
    assert difference(model.weights, weights) < 1e-6


@pytest.mark.parametrize(
    "method",
    [
        {"encoder_input": "shares", "posterior_gain": 3.0, "alpha": 0.1},
        {"network": "neurallda", "normalise_topics": False, "initialisation": "anchors"},
    ],
)
def test_other_recipes_equal_one_process(
    method: dict[str, Any], minibatches: dict[int, list[Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Tensor]] = []
    start = NeuralTopicModel.start_from

    def remembered(self: NeuralTopicModel, weights: dict[str, Tensor], topics: Any) -> None:
        start(self, weights, topics)
        begun.append({name: weight.clone() for name, weight in weights.items()})

    monkeypatch.setattr(NeuralTopicModel, "start_from", remembered)
    plan = study(precision="float64", **method)
    model = train(plan, subjects(SIZES), at_once=False)
    if begun:
        monkeypatch.setattr(NeuralTopicModel, "initial_weights", lambda *_: begun[0])
    assert difference(model.weights, ordinary(model, plan, minibatches)) < 1e-6


def test_the_papers_normalisation_is_another_one(minibatches: dict[int, list[Batch]]) -> None:
    plan = study(norm="local", precision="float64")
    model = train(plan, subjects(SIZES), at_once=False)
    assert difference(model.weights, ordinary(model, plan, minibatches)) > 0.05


def test_algorithm_1_of_the_paper(minibatches: dict[int, list[Batch]]) -> None:
    """Both stages in plain Python: all words, mean gradients, plain steps, until weights settle."""
    small = {"n_components": 6, "hidden": [16, 12], "precision": "float64", "tolerance": 0.009}
    plan = Study.make(method={"name": "gfedntm", "preset": "paper"} | small)
    assert (plan.is_secure, plan.federation.outliers) == (False, "none")
    corpora = subjects(SIZES)
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY), at_once=False)
    merged = sum((Counter(chain(*tokens_of(corpus))) for corpus in corpora.values()), Counter())
    assert model.vocabulary.words == tuple(sorted(merged, key=lambda word: (-merged[word], word)))
    network = ORDINARY["prodlda"](model.inference, plan.seed)
    weights = dict(network.named_parameters())
    change = 1.0
    rounds = 0
    while change >= 0.009:
        rounds += 1
        losses = [network(*united([batch])) for batch in minibatches[rounds]]
        sizes = [len(batch) for batch in minibatches[rounds]]
        assert sizes == [64, 64, 60, 20, 64]
        client_gradients = [torch.autograd.grad(loss, [*weights.values()]) for loss in losses]
        before = [weight.detach().clone() for weight in weights.values()]
        with torch.no_grad():
            for weight, *gradients in zip(weights.values(), *client_gradients, strict=True):
                terms = (n * g for n, g in zip(sizes, gradients, strict=True))
                weight -= 0.02 * sum(terms) / sum(sizes)
            moved = [after - old for after, old in zip(weights.values(), before, strict=True)]
            change = float(lengths(moved) / lengths(before))
    assert rounds == model.info["rounds"] == max(minibatches)
    assert rounds > 99
    plain = {name: weight.detach() for name, weight in weights.items()}
    assert plain.pop("prior_mean").norm() < 1e-14  # batch normalisation centres what it is held to
    assert not model.weights["prior_mean"].any()
    assert difference(model.weights, plain) < 1e-14


def lengths(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


@pytest.mark.parametrize(("network", "norm"), [("combinedtm", "sync"), ("prodlda", "server")])
def test_a_resumed_run_ends_with_the_same_bits(network: str, norm: str, tmp_path: Path) -> None:
    corpora = embedded(subjects(SIZES))
    plan = study(network=network, norm=norm, max_rounds=30, validation_share=0.25, validate_every=5)
    train_until_killed(23, plan, corpora, out=tmp_path / "killed")
    assert_same_bits(
        train(plan, corpora, out=tmp_path / "killed", resume=True),
        train(plan, corpora, at_once=False),
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_one_batch_agrees_with_autograd_without_cuts(name: str) -> None:
    settings = NetworkSettings(n_components=4, hidden=(8, 8), embedding={"dimension": 5})
    network = find_network(name)(60, settings, torch.float64)
    reference = ORDINARY[name](network, 0)
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.poisson(0.3, (30, 60)).astype(float))
    embedding = rng.normal(size=(30, 5)) if network.sees_embedding else None
    batch: Any = network.batch(counts, network.draw((rng, 30)), embedding)
    loss, _ = run_through(
        network, batch_weights(network, network.initial_weights(0), batch), batch, None
    )
    assert float(loss.detach()) == pytest.approx(
        float((reference(dense(batch), batch.noise, batch.embedding) * 30).detach()), rel=1e-12
    )


if __name__ == "__main__":  # the table of docs/concepts/exactness.md
    for network, (optimizer, rate), precision in itertools.product(
        NETWORKS, (("adam", 0.002), ("sgd", 0.02)), ("float64", "float32")
    ):
        with pytest.MonkeyPatch.context() as patch:
            seen = record_minibatches(patch)
            method = {"optimizer": optimizer, "learning_rate": rate, "precision": precision}
            plan = study(network=network, **method)
            model = train(plan, embedded(subjects(SIZES)), at_once=False)
            error = difference(model.weights, ordinary(model, plan, seen))
        sys.stdout.write(f"{network} {optimizer} {precision} {error:.1e}\n")
