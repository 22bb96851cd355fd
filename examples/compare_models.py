"""Compare the weights of models: python compare_models.py MODEL MODEL [MODEL ...].

Each of the others is held against the first: by how much the weights differ that differ most,
relative to their norm, and by the topics' first words. More than NEAR is a failure.
"""

from __future__ import annotations

import sys

import numpy as np

from fedtopics import TopicModel

NEAR = 0.01  # masks round sums to 2^-40, which hundreds of large steps make more of

first, *others = (TopicModel.from_pretrained(folder) for folder in sys.argv[1:])
for folder, other in zip(sys.argv[2:], others, strict=True):
    if first.vocabulary.words != other.vocabulary.words:
        sys.exit(f"{folder} has other words than {sys.argv[1]}.")
    difference = max(
        float(np.linalg.norm(first.weights[name] - weight) / np.linalg.norm(weight))
        for name, weight in other.weights.items()
    )
    if difference > NEAR:
        sys.exit(f"{folder} has other weights: the largest relative difference is {difference:g}.")
    same = "the same" if first.topics(10) == other.topics(10) else "others"
    near = f"{difference:.0e} apart" if difference else "the same, bit by bit"
    print(f"{folder}: weights {near}; first words of topics {same}")
