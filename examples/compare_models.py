"""Compare the weights of two models: python compare_models.py MODEL MODEL.

Prints the largest difference of a weight matrix, relative to its norm; 1e-6 or more is a failure.
"""

from __future__ import annotations

import sys

from fedtopics import TopicModel

one, other = (TopicModel.from_pretrained(folder) for folder in sys.argv[1:3])
if one.vocabulary.words != other.vocabulary.words:
    sys.exit("The models have different words.")
difference = max(
    float((weight - other.weights[name]).norm() / other.weights[name].norm())
    for name, weight in one.weights.items()
)
same = all(bool(weight.equal(other.weights[name])) for name, weight in one.weights.items())
print(f"largest relative difference of the weights: {difference:g}{', the same bits' * same}")
sys.exit(difference >= 1e-6)
