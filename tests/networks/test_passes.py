"""Passes cut where documents need each other: shapes of what crosses, and sums over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from fedtopics.networks.base import Batch, NetworkSettings, Noise, Tensors
from fedtopics.networks.neural import batch_weights
from fedtopics.networks.passes import (
    ClientPass,
    ServerPass,
    autograd_leaves,
    gradients,
    run_through,
)
from fedtopics.networks.topic_networks import ProdLDA

SETTINGS = {"n_components": 3, "hidden": (5, 4)}


def network(**settings: object) -> ProdLDA:
    return ProdLDA(7, NetworkSettings(**(SETTINGS | settings)), torch.float64)


def batches(cut: int) -> tuple[Batch, Batch, Batch]:
    """Twelve documents, and the same dealt out to two clients."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.8, (12, 7)).astype(float)
    noise = network().draw((rng, 12))

    def part(rows: slice) -> Batch:
        some = Noise(noise.normal[rows], noise.keep_hidden[rows], noise.keep_theta[rows])
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

    used = autograd_leaves(batch_weights(model, weights, union))
    loss, sums = run_through(model, used, union, None)
    (expected,) = gradients([loss], None, [used])

    server = ServerPass(model, weights)
    mine = {n: w for n, w in weights.items() if n not in model.finish_weights}
    clients = [ClientPass(model, mine, part) for part in parts]
    shared: Tensors = {}
    for number, stage in enumerate(model.stages):
        total = sum((client.forward(number, shared) for client in clients), torch.zeros(()))
        torch.testing.assert_close(total, sums[stage.name], rtol=1e-12, atol=1e-12)
        shared = server.finish(number, total, 12.0)
    losses, backs = zip(*(client.loss(shared) for client in clients), strict=True)
    assert sum(losses) == pytest.approx(float(loss.detach()), rel=1e-12)
    for number in reversed(range(len(model.stages))):
        upstream = {name: backs[0][name] + backs[1][name] for name in backs[0]}
        of_totals = server.backward(number, upstream)
        backs = tuple(client.backward(number, of_totals) for client in clients)

    found = dict(server.weight_gradients)
    for name in clients[0].weight_gradients:
        both = [client.weight_gradients[name] for client in clients]
        # Of row weights it is the gradient of their product with the bag: a row a document.
        found[name] = torch.cat(both) if name in model.row_weights else both[0] + both[1]
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11)
