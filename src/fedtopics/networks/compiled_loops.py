"""Compiled training loops, which go through memory less often than torch's operations."""

import math
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fedtopics.extras import compiled

LOG2 = np.float32(math.log(2))
SERIES = tuple(np.float32(1 / math.factorial(order)) for order in range(7, -1, -1))  # of exp
LEAST_EXPONENT = np.float32(-87)  # whose exp is a normal number in float32


@intrinsic
def _as_float(context: Any, bits: Any) -> Any:
    def cast(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), cast


@compiled
def _exp32(x: Any) -> Any:
    """Return exp(x) of x <= 0 as 2**k exp(rest), to 1e-7, without a branch, so vectorised."""
    x = max(x, LEAST_EXPONENT)
    k = np.rint(x / LOG2)
    rest = x - k * LOG2
    total = SERIES[0]
    for order in range(1, 8):
        total = total * rest + SERIES[order]
    power = (np.int32(k) + np.int32(127)) << np.int32(23)
    return total * _as_float(power)  # type: ignore[call-arg]


@compiled
def take_rows(ends: Any, words: Any, counts: Any, rows: Any) -> Any:
    """Return words and counts of some rows of a CSR array, and the lengths of the rows."""
    lengths = ends[rows + 1] - ends[rows]
    total = lengths.sum()
    taken_words = np.empty(total, words.dtype)
    taken_counts = np.empty(total, counts.dtype)
    first = 0
    for number in range(len(rows)):
        start = ends[rows[number]]
        for place in range(lengths[number]):
            taken_words[first + place] = words[start + place]
            taken_counts[first + place] = counts[start + place]
        first += lengths[number]
    return taken_words, taken_counts, lengths


@compiled
def reconstruct(
    logits: Any, largest: Any, ends: Any, words: Any, counts: Any, lengths: Any
) -> float:
    """Return the sum of -x' log softmax(logits) over documents x, and its gradient in place."""
    loss = 0.0
    for document in range(len(logits)):
        row = logits[document]
        top = largest[document]
        observed = 0.0
        for place in range(ends[document], ends[document + 1]):
            observed += counts[place] * (row[words[place]] - top)
        total = row[0] * 0
        for word in range(len(row)):
            below = row[word] - top
            row[word] = _exp32(below) if row.itemsize == 4 else math.exp(below)
            total += row[word]
        loss += lengths[document] * math.log(total) - observed
        factor = lengths[document] / total
        for word in range(len(row)):
            row[word] *= factor
        for place in range(ends[document], ends[document + 1]):
            row[words[place]] -= counts[place]
    return loss


@partial(compiled, fastmath=False)
def adam(weight: Any, mean: Any, square: Any, gradient: Any, numbers: Any) -> None:
    """Take a step of Adam, in place, on arrays of one dimension and type."""
    share, beta1, new1, beta2, new2, rate, root, epsilon = numbers
    for place in range(len(weight)):
        change = gradient[place] * share
        mean[place] = beta1 * mean[place] + new1 * change
        square[place] = beta2 * square[place] + new2 * change * change
        weight[place] -= rate * mean[place] / (np.sqrt(square[place]) * root + epsilon)
