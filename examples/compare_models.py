"""Compare the weights of models: python compare_models.py MODEL MODEL [MODEL ...].

Each of the others is held against the first. Weights that are not the same bits are a failure.
"""

from __future__ import annotations

import sys

from fedtopics import TopicModel

first, *others = (TopicModel.from_pretrained(folder) for folder in sys.argv[1:])
for folder, other in zip(sys.argv[2:], others, strict=True):
    if first.vocabulary.words != other.vocabulary.words:
        sys.exit(f"{folder} has other words than {sys.argv[1]}.")
    difference = max(
        float((weight - other.weights[name]).norm() / other.weights[name].norm())
        for name, weight in first.weights.items()
    )
    if not all(bool(weight.equal(other.weights[name])) for name, weight in first.weights.items()):
        sys.exit(f"{folder} has other weights: the largest relative difference is {difference:g}.")
    print(f"{folder}: the same weights, bit by bit")
