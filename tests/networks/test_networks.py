"""The register of networks, and networks written from the base class."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from fedtopics.errors import StudyError
from fedtopics.federation.simulation import train
from fedtopics.networks import NETWORKS, find_network, passes, register
from fedtopics.networks.base import Batch, NetworkNoise, NetworkSettings, Tensors, rows_of
from fedtopics.networks.neural import NeuralTopicModel, batch_weights
from fedtopics.networks.topic_networks import ProdLDA, Reconstruction
from tests.helpers.federation import embedded, study, subjects
from tests.helpers.ordinary import dense


@pytest.fixture(autouse=True)
def register_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NETWORKS, "_items", dict(NETWORKS._items))


def test_a_name_that_is_taken_is_refused() -> None:
    class Better(ProdLDA):  # its author forgot the name
        pass

    with pytest.raises(StudyError, match=r"Better has the name 'prodlda', which fedto"):
        register(Better)
    assert find_network("prodlda") is ProdLDA


class Plain(NeuralTopicModel):
    """Written from the class's own docstring: a mixture that uses neither bias nor centres."""

    name = "plain"
    sees_embedding = True

    def loss(self, weights: Tensors, batch: Batch, carried: Tensors, shared: Tensors) -> Tensor:
        sampled = self.sample(weights, batch, carried, shared)
        chances = sampled["theta"] @ torch.softmax(weights["beta_logits"], 1)
        missed = -(dense(batch) * (chances + 1e-10).log()).sum()
        return missed + self.divergence(weights, sampled["mu"], sampled["log_variance"])

    def beta(self, weights: Tensors, shared: Mapping[str, Tensors]) -> Tensor:
        return torch.softmax(weights["beta_logits"].double(), 1)


@pytest.mark.parametrize("norm", ["sync", "local", "server"])
def test_weights_that_a_loss_does_not_use_stay(norm: str) -> None:
    register(Plain)
    model = train(study(network="plain", norm=norm), embedded(subjects({"a": 40, "b": 60})))
    start = model.inference.initial_weights(0)
    for name in ("word_bias", "embedding_centres"):
        assert torch.equal(model.weights[name], start[name]), name
    assert not torch.equal(model.weights["beta_logits"], start["beta_logits"])


TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12}
DOCUMENTS = 7  # not a multiple of what a processor takes at once
WORDS = 101
TOPICS = 3


def inputs(dtype: torch.dtype, spread: float) -> tuple[list[Tensor], Batch]:
    generator = torch.Generator().manual_seed(0)
    shapes = (DOCUMENTS, TOPICS), (TOPICS, WORDS), (WORDS,)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    counts = np.random.default_rng(0).poisson(0.3, (DOCUMENTS, WORDS)).astype(np.float32)
    return [(spread * tensor).to(dtype) for tensor in drawn], Batch.of(
        sparse.csr_array(counts), None, dtype
    )


def both(tensors: list[Tensor], batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """Return the loss and its gradients, of ours and of torch."""
    results = []
    for compiled in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        theta, topics, bias = leaves
        if compiled:
            loss = Reconstruction.apply(
                theta, topics, bias, batch, torch.empty(DOCUMENTS, WORDS, dtype=theta.dtype)
            )
        else:
            loss = -(dense(batch) * torch.log_softmax(theta @ topics + bias, 1)).sum()
        results.append([loss.detach(), *torch.autograd.grad(3 * loss, leaves)])
    return results[0], results[1]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("spread", [1.0, 12.0])  # with 12, exp of most logits is 0 in float32
def test_reconstruction_is_that_of_autograd(dtype: torch.dtype, spread: float) -> None:
    tensors, batch = inputs(dtype, spread)
    ours, theirs = both(tensors, batch)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            mine, other, rtol=0, atol=TOLERANCE[dtype] * float(other.abs().max())
        )


def test_rows_of_several_bags_are_those_below_each_other() -> None:
    rng = np.random.default_rng(0)
    bags = [sparse.csr_array(rng.poisson(0.4, (n, WORDS)).astype(np.float32)) for n in (5, 9)]
    rows = [np.array([4, 0, 4]), np.array([8, 2])]
    stacked = rows_of(list(zip(bags, rows, strict=True)))
    expected = np.vstack([bag.toarray()[picked] for bag, picked in zip(bags, rows, strict=True)])
    np.testing.assert_array_equal(stacked.toarray(), expected)
    assert stacked.dtype == np.float32


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_noise_of_several_is_what_each_draws(dropout: float) -> None:
    network = ProdLDA(
        WORDS, NetworkSettings(n_components=TOPICS, dropout=dropout, dropout_theta=0.1)
    )
    both = network.draw((np.random.default_rng(1), 2), (np.random.default_rng(2), 3))
    alone = [network.draw((np.random.default_rng(seed), n)) for seed, n in ((1, 2), (2, 3))]
    for name, drawn in vars(both).items():
        assert torch.equal(drawn, torch.cat([getattr(noise, name) for noise in alone]))
    assert both.keep_hidden.unique().tolist() == pytest.approx(
        [1.0] if dropout == 0 else [0.0, 1 / 0.7]
    )


# Passes cut where documents need each other: shapes of what crosses, and sums over clients


SETTINGS = {"n_components": 3, "hidden": (5, 4)}


def network(**settings: object) -> ProdLDA:
    return ProdLDA(7, NetworkSettings(**(SETTINGS | settings)), torch.float64)


def batches(cut: int) -> tuple[Batch, Batch, Batch]:
    """Twelve documents, and the same dealt out to two clients."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.8, (12, 7)).astype(float)
    noise = network().draw((rng, 12))

    def part(rows: slice) -> Batch:
        some = NetworkNoise(noise.normal[rows], noise.keep_hidden[rows], noise.keep_theta[rows])
        return Batch.of(sparse.csr_array(counts[rows]), some, torch.float64)

    return part(slice(None)), part(slice(cut)), part(slice(cut, None))


@pytest.mark.parametrize("settings", [{}, {"layer_norm": True, "learn_prior": True}])
@pytest.mark.parametrize("cut", [1, 6, 11])
def test_two_clients_passes_add_up_to_that_of_the_union(
    cut: int, settings: dict[str, object]
) -> None:
    model = network(**settings)
    weights = model.initial_weights(0)
    union, *parts = batches(cut)

    used = passes.autograd_leaves(batch_weights(model, weights, union))
    loss, sums = passes.run_through(model, used, union, None)
    (expected,) = passes.gradients([loss], None, [used])

    server = passes.ServerPass(model, weights)
    mine = {n: w for n, w in weights.items() if n not in model.finish_weights}
    clients = [passes.ClientPass(model, mine, part) for part in parts]
    shared: Tensors = {}
    for number, stage in enumerate(model.stages):
        total = sum((client.forward(number, shared) for client in clients), torch.zeros(()))
        torch.testing.assert_close(total, sums[stage.name], rtol=1e-12, atol=1e-12)
        shared = server.finish(number, total, 12.0)
    losses, backs = zip(*(client.loss(shared) for client in clients), strict=True)
    assert sum(losses) == pytest.approx(float(loss.detach()), rel=1e-12)
    for number in reversed(range(len(model.stages))):
        of_totals = server.backward(
            number, {name: backs[0][name] + backs[1][name] for name in backs[0]}
        )
        backs = tuple(client.backward(number, of_totals) for client in clients)

    gradients = dict(server.weight_gradients)
    for name in clients[0].weight_gradients:
        both = [client.weight_gradients[name] for client in clients]
        # Of row weights it is the gradient of their product with the bag: a row a document.
        gradients[name] = torch.cat(both) if name in model.row_weights else both[0] + both[1]
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-9, atol=1e-11)
