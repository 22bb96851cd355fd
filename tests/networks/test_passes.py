"""Passes cut where documents need each other: shapes of what crosses, and sums over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from fedtopics.networks import (
    Batch,
    NetworkSettings,
    Noise,
    ProdLDA,
    Tensors,
    batch_weights,
    find_network,
)
from fedtopics.networks.passes import (
    ClientPass,
    ServerPass,
    autograd_leaves,
    gradients,
    run_through,
    shapes_of,
)

SETTINGS = {"n_components": 3, "hidden": (5, 4)}
WEIGHTS = {
    "encoder_words": (7, 5),
    "encoder_bias": (5,),
    "hidden": (5, 4),
    "hidden_bias": (4,),
    "posterior": (4, 6),
    "beta_logits": (3, 7),
    "word_bias": (7,),
}


def network(**settings: object) -> ProdLDA:
    return ProdLDA(7, NetworkSettings(**(SETTINGS | settings)), torch.float64)


def test_shapes() -> None:
    shapes = shapes_of(network())
    assert shapes.weights == WEIGHTS
    assert shapes.client_weights == {n: s for n, s in WEIGHTS.items() if n != "beta_logits"}
    assert shapes.sums == {"posterior": (4 * 3,), "decoder": (3 + 3 * 3,)}
    assert shapes.shared == {
        "posterior": {"mean": (6,), "scale": (6,)},
        "decoder": {"topics": (3, 7), "theta_mean": (3,)},
    }


def test_shapes_with_layer_normalisation_and_a_learned_prior() -> None:
    shapes = shapes_of(network(layer_norm=True, learn_prior=True, word_bias=False))
    more = {"posterior_bias": (6,), "prior_mean": (3,), "prior_log_variance": (3,)}
    assert shapes.weights == {n: s for n, s in WEIGHTS.items() if n != "word_bias"} | more
    assert shapes.sums == {"decoder": (12,)}
    assert shapes.shared == {"decoder": {"topics": (3, 7), "theta_mean": (3,)}}


@pytest.mark.parametrize(
    ("name", "seen", "stages"),
    [
        ("neurallda", {"encoder_words": (7, 5)}, ["posterior"]),
        (
            "combinedtm",
            {"encoder_words": (7, 5), "encoder_embedding": (9, 5), "embedding_centres": (3, 9)},
            ["posterior", "decoder"],
        ),
        (
            "zeroshottm",
            {"encoder_embedding": (9, 5), "embedding_centres": (3, 9)},
            ["posterior", "decoder"],
        ),
    ],
)
def test_shapes_of_other_networks(
    name: str, seen: dict[str, tuple[int, int]], stages: list[str]
) -> None:
    settings = NetworkSettings(**SETTINGS, embedding={"dimension": 9})
    model = find_network(name)(7, settings, torch.float64)
    shapes = shapes_of(model)
    assert shapes.weights == {n: s for n, s in WEIGHTS.items() if n != "encoder_words"} | seen
    hidden = {"beta_logits"} if "decoder" in stages else set()
    assert shapes.client_weights.keys() == shapes.weights.keys() - hidden
    assert list(shapes.sums) == list(shapes.shared) == stages
    assert model.row_weights == seen.keys() & {"encoder_words"}


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
