"""Where the time of a training step goes, by torch operator.

python benchmarks/profile_step.py [--words 5000] [--batch 64] [--topics 20]
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from documents import bag_of_words
from fedtopics.methods.core.aggregation import Rows, ServerOptimizer
from fedtopics.networks import NetworkSettings, ProdLDA, batch_weights, rows_of
from fedtopics.networks.passes import autograd_leaves, gradients, run_through

STEPS = 100
PARTS = {
    "minibatch": "drawing documents and noise, the bag of words",
    "first layer": "sparse product",
    "forward": "encoder, theta, loss and the logits' gradient",
    "backward": "autograd",
    "first layer's gradient": "sparse product",
    "Adam": "all weights",
}


def step(
    network: ProdLDA, optimizer: ServerOptimizer, batch_size: int, rng: np.random.Generator
) -> None:
    """Take one training step; the parts are marked for the profiler."""
    with record_function("minibatch"):
        rows = rng.choice(bag.shape[0], batch_size, replace=False)
        batch = network.batch(rows_of([(bag, rows)]), network.draw((rng, batch_size)))
    with record_function("first layer"):
        used = autograd_leaves(batch_weights(network, optimizer.weights, batch))
    with record_function("forward"):
        loss, _ = run_through(network, used, batch, None)
    with record_function("backward"):
        found = gradients([loss], None, [used])[0]
    with record_function("first layer's gradient"):
        words = batch.spread(found.pop("encoder_words")).numpy()
    with record_function("Adam"):
        dense = {name: gradient.numpy() for name, gradient in found.items()}
        first = Rows(batch.words, words, network.n_words)
        optimizer.step(dense | {"encoder_words": first}, batch_size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--words", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="see that it runs: 500 words")
    given = parser.parse_args()
    given.words = 500 if given.quick else given.words
    torch.set_num_threads(1)  # as in a study
    bag = bag_of_words(given.batch * 20, given.words)
    net = ProdLDA(given.words, NetworkSettings(n_components=given.topics))
    adam = ServerOptimizer("adam", net.initial_weights(0), 0.002, 0.99)
    random = np.random.default_rng(0)
    for _ in range(10):
        step(net, adam, given.batch, random)
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for _ in range(STEPS):
            step(net, adam, given.batch, random)
    times = {row.key: row.cpu_time_total / STEPS / 1000 for row in record.key_averages()}
    whole = sum(times[part] for part in PARTS)
    lines = ["| part | ms | share |", "| --- | ---: | ---: |"]
    for part, meaning in PARTS.items():
        lines.append(f"| {part}: {meaning} | {times[part]:.2f} | {times[part] / whole:.0%} |")
    sys.stdout.write("\n".join(lines) + "\n")
