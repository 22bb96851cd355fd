"""Federated training with synchronised normalisation is the training of one process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from fedtopics.methods import GFedNTMClient
from fedtopics.networks import Batch, NetworkSettings, Noise, ProdLDA
from fedtopics.passes import batch_weights, run_through
from fedtopics.privacy import OPEN_POLICY
from fedtopics.simulation import train
from fedtopics.study import Study
from fedtopics.topics import TopicModel
from tests.federation import study, subjects

SIZES = {"east": 400, "north": 150, "south": 60, "tiny": 20, "west": 90}


class OrdinaryProdLDA(nn.Module):
    """ProdLDA as one would write it for one process, with torch's batch normalisation."""

    def __init__(self, network: ProdLDA, seed: int) -> None:
        super().__init__()
        k, v = network.settings.n_components, network.n_words
        self.prior = network.prior_variance
        for name, tensor in network.initial_weights(seed).items():
            self.register_parameter(name, nn.Parameter(tensor.clone()))
        self.norm_mu, self.norm_log_variance = (
            nn.BatchNorm1d(k, affine=False, dtype=network.dtype) for _ in range(2)
        )
        self.norm_words = nn.BatchNorm1d(v, affine=False, dtype=network.dtype)

    def forward(self, x: Tensor, noise: Noise) -> Tensor:
        hidden = functional.softplus(x @ self.encoder_words + self.encoder_bias)
        hidden = functional.softplus(hidden @ self.hidden + self.hidden_bias) * noise.keep_hidden
        mu, log_variance = (hidden @ self.posterior).chunk(2, 1)
        mu, log_variance = self.norm_mu(mu), self.norm_log_variance(log_variance)
        z = mu + noise.normal * (0.5 * log_variance).exp()
        theta = torch.softmax(z, 1) * noise.keep_theta
        logits = self.norm_words(theta @ self.beta_logits) + self.word_bias
        reconstruction = -(x * torch.log_softmax(logits, 1)).sum()
        ratio = (log_variance.exp() + mu.square()) / self.prior
        divergence = 0.5 * (ratio - 1 + np.log(self.prior) - log_variance).sum()
        return (reconstruction + divergence) / len(x)


def dense(batch: Batch, n_words: int) -> Tensor:
    flat = torch.zeros(len(batch) * n_words, dtype=batch.values.dtype)
    flat[batch.places] = batch.values
    return flat.view(len(batch), n_words)


def united(batches: list[Batch], n_words: int) -> tuple[Tensor, Noise]:
    noises = [batch.noise for batch in batches if batch.noise is not None]
    return torch.cat([dense(batch, n_words) for batch in batches]), Noise(
        torch.cat([noise.normal for noise in noises]),
        torch.cat([noise.keep_hidden for noise in noises]),
        torch.cat([noise.keep_theta for noise in noises]),
    )


@pytest.fixture
def minibatches(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Batch]]:
    return record_minibatches(monkeypatch)


def record_minibatches(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Batch]]:
    """The minibatches that the clients draw, by round."""
    seen: dict[int, list[Batch]] = {}
    draw = GFedNTMClient._minibatch

    def drawn(self: GFedNTMClient, vocabulary: str, number: int) -> Batch:
        batch = draw(self, vocabulary, number)
        seen.setdefault(number, []).append(batch)
        return batch

    monkeypatch.setattr(GFedNTMClient, "_minibatch", drawn)
    return seen


def ordinary(
    model: TopicModel, plan: Study, minibatches: dict[int, list[Batch]]
) -> dict[str, Tensor]:
    """Train in one process on the union of the same minibatches."""
    reference = OrdinaryProdLDA(model.network, plan.seed)
    settings = plan.method
    optimizer: torch.optim.Optimizer
    if settings.optimizer == "adam":
        betas = (settings.beta1, 0.999)
        optimizer = torch.optim.Adam(reference.parameters(), settings.learning_rate, betas)
    else:
        optimizer = torch.optim.SGD(reference.parameters(), settings.learning_rate)
    for number in sorted(minibatches):
        x, noise = united(minibatches[number], model.network.n_words)
        optimizer.zero_grad()
        reference(x, noise).backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in reference.named_parameters()}


def difference(weights: dict[str, Tensor], reference: dict[str, Tensor]) -> float:
    """Largest relative difference of a weight matrix."""
    return max(
        float((weights[name] - tensor).norm() / tensor.norm()) for name, tensor in reference.items()
    )


@pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.002), ("sgd", 0.02)])
@pytest.mark.parametrize("split", ["proportional", "fixed"])
def test_fifty_rounds_equal_one_process(
    optimizer: str, rate: float, split: str, minibatches: dict[int, list[Batch]]
) -> None:
    plan = study(optimizer=optimizer, learning_rate=rate, batch_split=split, precision="float64")
    model = train(plan, subjects(SIZES))

    assert len(minibatches) == 50
    assert {len(batches) for batches in minibatches.values()} == {5}
    assert difference(model.weights, ordinary(model, plan, minibatches)) < 1e-6


def test_float32_stays_near_one_process(minibatches: dict[int, list[Batch]]) -> None:
    plan = study()
    model = train(plan, subjects(SIZES))
    assert difference(model.weights, ordinary(model, plan, minibatches)) < 1e-2


def test_the_papers_normalisation_is_not_that_of_one_process(
    minibatches: dict[int, list[Batch]],
) -> None:
    plan = study(norm="local", precision="float64")
    model = train(plan, subjects(SIZES))
    assert difference(model.weights, ordinary(model, plan, minibatches)) > 0.05


def test_moving_documents_between_clients_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same 60 documents and their noise a round, dealt out to the clients in two ways."""
    corpora = subjects(dict.fromkeys("abc", 40))
    plan = study(precision="float64")

    def trained(owner_of: Callable[[int], np.ndarray[Any, Any]]) -> dict[str, Tensor]:
        clients: list[GFedNTMClient] = []
        monkeypatch.setattr(
            GFedNTMClient, "_minibatch", lambda self, _, number: dealt(self, clients, number)
        )

        def dealt(client: GFedNTMClient, everyone: list[GFedNTMClient], number: int) -> Batch:
            bags = [c._documents._bag for c in sorted(everyone, key=lambda c: c.name)]
            rng = np.random.default_rng(number)
            rows = [rng.choice(bag.shape[0], 20, replace=False) for bag in bags]
            union = [bag[index] for bag, index in zip(bags, rows, strict=True)]
            noise = client._network.draw(rng, 60)
            mine = np.flatnonzero(owner_of(number) == "abc".index(client.name))
            x = np.concatenate([part.toarray() for part in union])[mine]
            part = Noise(noise.normal[mine], noise.keep_hidden[mine], noise.keep_theta[mine])
            return Batch.of(type(bags[0])(x), part, client._network.dtype)

        build = GFedNTMClient.__init__

        def remembered(self: GFedNTMClient, *given: Any) -> None:
            build(self, *given)
            clients.append(self)

        with monkeypatch.context() as patch:
            patch.setattr(GFedNTMClient, "__init__", remembered)
            policies = dict.fromkeys("abc", OPEN_POLICY)
            return train(plan, corpora, policies=policies).weights

    home = trained(lambda _: np.repeat([0, 1, 2], 20))
    moved = trained(lambda number: np.random.default_rng(number).choice([0, 0, 0, 1, 2], 60))
    assert difference(moved, home) < 1e-11


def test_permuting_the_clients_changes_no_bit() -> None:
    corpora = subjects(SIZES)
    forth = train(study(), corpora)
    back = train(study(), dict(reversed(corpora.items())))
    assert_same_bits(forth, back)


def assert_same_bits(one: TopicModel, other: TopicModel) -> None:
    for name, tensor in one.weights.items():
        assert torch.equal(tensor, other.weights[name]), name
    np.testing.assert_array_equal(one.beta, other.beta)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("norm", ["sync", "server"])
def test_a_resumed_run_ends_with_the_same_bits(norm: str, tmp_path: Path) -> None:
    corpora = subjects(SIZES)
    plan = study(norm=norm, validation_share=0.25, validate_every=5)

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 23:
            raise KilledError

    with pytest.raises(KilledError):
        train(plan, corpora, out=tmp_path / "killed", on_event=kill)
    resumed = train(plan, corpora, out=tmp_path / "killed", resume=True)
    assert_same_bits(resumed, train(plan, corpora))


def rounds(events: Path) -> Iterator[int]:
    for line in events.read_text().splitlines() if events.exists() else ():
        event = json.loads(line) if line.endswith("}") else {}
        if event.get("event") == "round":
            yield event["round"]


def test_a_killed_process_resumes_with_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        words = np.array([f"{name}{chr(97 + i)}" for i in range(26)])
        lines = [" ".join(rng.choice(words, 8)) for _ in range(60)]
        (tmp_path / f"{name}.csv").write_text("text\n" + "\n".join(lines) + "\n")
    (tmp_path / "study.toml").write_text(
        "checkpoint_every = 20\n[method]\nn_components = 3\nmax_rounds = 300\n"
        '[clients.north]\ndata = "north.csv"\n[clients.south]\ndata = "south.csv"\n'
    )
    command = [sys.executable, "-c", "from fedtopics.cli import main; main()", "run", "study.toml"]

    killed = subprocess.Popen([*command, "--out", "killed"], cwd=tmp_path, stdout=subprocess.PIPE)
    while max(rounds(tmp_path / "killed/events.jsonl"), default=0) <= 20:
        assert killed.poll() is None, "the run ended before it could be killed"
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    for folder in (["--out", "killed", "--resume"], ["--out", "whole"]):
        subprocess.run([*command, *folder], cwd=tmp_path, check=True, capture_output=True)

    models = [TopicModel.from_pretrained(tmp_path / f / "model") for f in ("killed", "whole")]
    assert_same_bits(*models)


def test_one_batch_agrees_with_autograd_without_cuts() -> None:
    network = ProdLDA(60, NetworkSettings(n_components=4, hidden=(8, 8)), torch.float64)
    reference = OrdinaryProdLDA(network, 0)
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.poisson(0.3, (30, 60)).astype(float))
    batch = Batch.of(counts, network.draw(rng, 30), torch.float64)
    weights = batch_weights(network, network.initial_weights(0), batch)
    loss, _ = run_through(network, weights, batch, None)
    assert batch.noise is not None
    expected = reference(dense(batch, 60), batch.noise) * 30
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)


if __name__ == "__main__":  # the table of docs/exactness.md
    for optimizer, rate in (("adam", 0.002), ("sgd", 0.02)):
        for precision in ("float64", "float32"):
            with pytest.MonkeyPatch.context() as patch:
                seen = record_minibatches(patch)
                plan = study(optimizer=optimizer, learning_rate=rate, precision=precision)
                model = train(plan, subjects(SIZES))
                error = difference(model.weights, ordinary(model, plan, seen))
            sys.stdout.write(f"{optimizer} {precision} {error:.1e}\n")
