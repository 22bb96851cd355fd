"""What a network has learned, carried over to a training that begins with it.

With its own words, all numbers go on as they are. In words that clients agree on anew, what belongs
to a word goes with the word: a topic stays what it is, and its number stays. A word that is new
says nothing at first: no topic prefers it, and the encoder does not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from fedtopics.errors import StudyError
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.state import NetworkState
from fedtopics.methods.warm_start import WarmStart
from fedtopics.metrics import align_words
from fedtopics.model.topic_model import TopicModel
from fedtopics.networks import NetworkSettings, NeuralTopicModel, Tensors
from fedtopics.text.encoders import same_model

AVERAGES = "averages"  # where a model keeps its running sums, beside what is computed from them
PROBES = 2, 3  # numbers of words: where two networks of so many differ, there are the words
MEANINGS = (
    "hidden", "learn_prior", "word_bias", "encoder_input", "posterior_gain", "normalise_topics",
    "layer_norm",
)  # fmt: skip


def check_fits(model: TopicModel, settings: GFedNTMSettings) -> None:
    """Refuse to train a network further as it is if the study's is another one.

    Raises
    ------
    StudyError
        Naming what differs.
    """
    network = settings.build(len(model.vocabulary))
    what = _differences(model, network)
    if model.inference.dtype != network.dtype:
        names = [
            str(dtype).removeprefix("torch.") for dtype in (model.inference.dtype, network.dtype)
        ]
        what.append(f"precision = {names[0]!r}, the study's {names[1]!r}")
    if what:
        raise StudyError(
            f"The model has {'; '.join(what)}, so it cannot go on as it is; make the study like "
            'it, or set vocabulary to "agree" to begin with its topics.'
        )


def _differences(model: TopicModel, network: NeuralTopicModel) -> list[str]:
    """Say in what a model's network differs from another one, but for words and precision.

    That is what decides which weights there are, and what they mean.
    """
    known = model.inference
    if known.name != network.name:
        return [f"network = {known.name!r}, the study's {network.name!r}"]
    found, wanted = _described(known.settings, network), _described(network.settings, network)
    other = [
        f"{key} = {found[key]!r}, the study's {wanted[key]!r}"
        for key in wanted
        if found[key] != wanted[key]
    ]
    if not other and _axes_of_words(network, len(model.vocabulary), model.weights) is None:
        return ["weights of other shapes"]  # its class is no longer what it was
    return other


def _described(settings: NetworkSettings, network: NeuralTopicModel) -> dict[str, Any]:
    described: dict[str, Any] = {key: getattr(settings, key) for key in MEANINGS}
    if settings.posterior_gain is not None:
        described["posterior_gain"] = "learned"  # wherever it began
    if network.sees_embedding:
        theirs, ours = settings.embedding.model, network.settings.embedding.model
        described["embedding.model"] = ours if same_model(theirs, ours) else theirs
        described["embedding.dimension"] = settings.embedding.dimension
        described["embedding_weight above 0"] = settings.embedding_weight > 0
    return described


def start_network(state: NetworkState, start: WarmStart, words: Sequence[str]) -> None:
    """Begin with a model or with topics, in place.

    Parameters
    ----------
    state : NetworkState
        With first weights.
    start : WarmStart
    words : sequence of str
        That clients agreed on.

    Raises
    ------
    StudyError
        If no word is known, or another network's topics are no beginning for this one.
    """
    network, topics = state.network, start.on(words)
    model = start.model
    if model is None or _differences(model, network):
        if model is not None:  # of no document, a topic has words all the same
            topics = align_words(model.beta, start.words, words)
        totals = topics.sum(1, keepdims=True)
        even = np.full_like(topics, 1 / len(words))
        network.start_from(state.weights, np.divide(topics, totals, out=even, where=totals > 0))
        return
    axes = _axes_of_words(network, len(model.vocabulary), model.weights) or {}
    places = torch.tensor([model.vocabulary.index.get(word, -1) for word in words])
    for name, weight in state.weights.items():
        _carry(weight, model.weights[name], axes[name], places)
    averages = model.shared.get(AVERAGES, {})
    sums = state.shapes.sums
    if {stage: tuple(total.shape) for stage, total in averages.items()} == sums:
        state.averages = {stage: total.clone() for stage, total in averages.items()}


def _axes_of_words(
    network: NeuralTopicModel, n_words: int, weights: Tensors
) -> dict[str, int | None] | None:
    """Return along which axis each of a network's weights has its words, None where it has none.

    None at all if these weights are not a network's like this one, in so many words, or have no
    such axis alone.
    """
    build = partial(type(network), settings=network.settings, dtype=network.dtype)
    small, larger = ({n: t.shape for n, t in build(k).initial_weights(0).items()} for k in PROBES)
    axes: dict[str, int | None] = {}
    expected = {}
    for name, shape in small.items():
        growing = [axis for axis, size in enumerate(shape) if larger[name][axis] != size]
        axes[name] = growing[0] if growing else None
        expected[name] = tuple(n_words if axis in growing else n for axis, n in enumerate(shape))
        if len(growing) > 1:
            return None
    return axes if {n: tuple(t.shape) for n, t in weights.items()} == expected else None


def _carry(
    weight: torch.Tensor, known: torch.Tensor, axis: int | None, places: torch.Tensor
) -> None:
    """Fill a weight with a model's, word by word.

    A matrix has zeros for a word that is new: its logits are the same in all topics, and what the
    encoder makes of a document is what it made of it without the word. One number a word, as a
    bias is, begins at the mean of the known words'.
    """
    if axis is None:
        weight.copy_(known)
        return
    rows, old = weight.movedim(axis, 0), known.movedim(axis, 0)
    there = places >= 0
    rows[there] = old[places[there]].to(weight.dtype)
    rows[~there] = old.mean().to(weight.dtype) if old.ndim == 1 else 0
