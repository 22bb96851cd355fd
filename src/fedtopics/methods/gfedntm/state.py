"""The state of gFedNTM's program between rounds, and its start from a model or topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtopics.contract.payload import Payload
from fedtopics.errors import StudyError
from fedtopics.inference.mixture import topics_of
from fedtopics.inference.vectors import unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.plan import Plan, WarmStart
from fedtopics.methods.core.training import with_prefix, without_prefix
from fedtopics.methods.gfedntm.optimizer import ServerOptimizer
from fedtopics.methods.gfedntm.settings import GFedNTMSettings
from fedtopics.methods.gfedntm.sizes import PROBES, Sizes
from fedtopics.methods.lda.first_topics import find_first_topics
from fedtopics.methods.mixture.method import find_mixture
from fedtopics.metrics import align_words
from fedtopics.model.topics import Topics
from fedtopics.networks.base import NetworkSettings, Shapes, Tensors, tensor_shapes, to_arrays
from fedtopics.networks.neural import NeuralTopicModel
from fedtopics.text.embeddings import same_model

AVERAGE_MOMENTUM = 0.1  # momentum of running statistics, as in torch's batch normalisation


@dataclass
class NetworkState:
    network: NeuralTopicModel
    weights: Tensors
    optimizer: ServerOptimizer  # changes the weights in place
    sums: Shapes  # shapes of what clients send, by stage
    averages: Tensors = field(default_factory=dict)  # running statistics by stage, in float64

    @classmethod
    def initial(cls, settings: GFedNTMSettings, agreement: Agreement, seed: int) -> NetworkState:
        network = settings.build(len(agreement.vocabulary))
        weights = network.initial_weights(seed)
        rate = 1.0 if settings.optimizer == "fedavg" else settings.learning_rate
        optimizer = ServerOptimizer(settings.optimizer, weights, rate, settings.beta1)
        return cls(network, weights, optimizer, Sizes.of(settings, network.n_words).sums)

    def model_arrays(self) -> dict[str, NDArray[Any]]:
        tensors = with_prefix("weights", self.weights) | with_prefix("averages", self.averages)
        return to_arrays({name: tensor.clone() for name, tensor in tensors.items()})

    def restore_model(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name, tensor in tensors_of("weights", arrays).items():
            self.weights[name].copy_(tensor)
        self.averages = {n: t.clone() for n, t in tensors_of("averages", arrays).items()}

    def average(self, sums: Payload, n: float) -> None:
        """Update the running statistics by the sums over this round's n documents."""
        for stage, total in sums.items():
            mean = torch.from_numpy(total) / n
            self.averages.setdefault(stage, mean).lerp_(mean, AVERAGE_MOMENTUM)


def tensors_of(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
    return {name: torch.from_numpy(a) for name, a in without_prefix(prefix, arrays).items()}


AVERAGES = "averages"  # name of the running sums in a model, next to the values computed from them
MEANINGS = (
    "hidden",
    "learn_prior",
    "word_bias",
    "encoder_input",
    "posterior_gain",
    "normalise_topics",
    "layer_norm",
)


def check_fits(model: Topics, settings: GFedNTMSettings) -> None:
    """Raise StudyError if a model's network differs from the study's."""
    network = settings.build(len(model.vocabulary))
    differences = _differences(model, network)
    if model.inference.precision != network.precision:
        differences.append(
            f"precision = {model.inference.precision!r}, the study's {network.precision!r}"
        )
    if differences:
        raise StudyError(
            f"The model has {'; '.join(differences)}, so it cannot be trained further; change "
            'the study\'s settings to these, or set vocabulary to "agree" to begin with the '
            "model's topics."
        )


def _differences(model: Topics, network: NeuralTopicModel) -> list[str]:
    trained = model.inference
    if trained.name != network.name:
        return [f"network = {trained.name!r}, the study's {network.name!r}"]
    theirs = _described(trained.settings, network)
    ours = _described(network.settings, network)
    different = [key for key in ours if theirs[key] != ours[key]]
    if not different and _axes_of_words(network, len(model.vocabulary), model.weights) is None:
        return ["weights of other shapes"]  # the network's class has changed
    return [f"{key} = {theirs[key]!r}, the study's {ours[key]!r}" for key in different]


def _described(settings: NetworkSettings, network: NeuralTopicModel) -> dict[str, Any]:
    described: dict[str, Any] = {key: getattr(settings, key) for key in MEANINGS}
    if settings.posterior_gain is not None:
        described["posterior_gain"] = "learned"  # its first value does not matter
    if network.sees_embedding:
        theirs = settings.embedding.model
        ours = network.settings.embedding.model
        described |= {
            "embedding.model": ours if same_model(theirs, ours) else theirs,
            "embedding.dimension": settings.embedding.dimension,
            "embedding_weight above 0": settings.embedding_weight > 0,
        }
    return described


def start_network(state: NetworkState, start: WarmStart, words: Sequence[str]) -> None:
    """Replace a state's first weights by those of a model or of topics, in place."""
    network = state.network
    topics = start.on(words)
    model = start.model
    if model is None or _differences(model, network):
        if model is not None:  # a topic without documents still has words
            topics = align_words(model.beta, start.words, words)
        totals = topics.sum(1, keepdims=True)
        even = np.full_like(topics, 1 / len(words))
        network.start_from(state.weights, np.divide(topics, totals, out=even, where=totals > 0))
        return
    axes = _axes_of_words(network, len(model.vocabulary), model.weights) or {}
    places = torch.tensor([model.vocabulary.index.get(word, -1) for word in words])
    for name, weight in state.weights.items():
        _copy_words(weight, model.weights[name], axes[name], places)
    averages = model.shared.get(AVERAGES, {})
    if tensor_shapes(averages) == state.sums:
        state.averages = {stage: total.clone() for stage, total in averages.items()}


def _axes_of_words(
    network: NeuralTopicModel, n_words: int, weights: Tensors
) -> dict[str, int | None] | None:
    """Return which axis of each weight is words, if any; None if several are, or shapes differ."""
    build = partial(type(network), settings=network.settings, dtype=network.dtype)
    small, larger, whole = (
        {name: shape for name, (shape, _) in build(n).layout().items()} for n in (*PROBES, n_words)
    )
    growing = {
        name: np.flatnonzero(np.not_equal(shape, larger[name])).tolist()
        for name, shape in small.items()
    }
    if tensor_shapes(weights) != whole or any(len(axes) > 1 for axes in growing.values()):
        return None
    return {name: axes[0] if axes else None for name, axes in growing.items()}


def _copy_words(
    weight: torch.Tensor, trained: torch.Tensor, axis: int | None, places: torch.Tensor
) -> None:
    """Copy a trained weight word by word; new words get zeros in a matrix, the mean in a vector."""
    if axis is None:
        weight.copy_(trained)
        return
    rows = weight.movedim(axis, 0)
    old = trained.movedim(axis, 0)
    in_model = places >= 0
    rows[in_model] = old[places[in_model]].to(weight.dtype)
    rows[~in_model] = old.mean().to(weight.dtype) if old.ndim == 1 else 0


def set_weights(state: NetworkState, agreement: Agreement, plan: Plan[GFedNTMSettings]) -> None:
    """Replace a state's first weights by those that training begins with, in place."""
    settings = plan.settings
    if plan.start is not None:
        start_network(state, plan.start, agreement.vocabulary.words)
    elif settings.initialisation == "mixture":
        mixture = settings.mixture
        sums = find_mixture(agreement, mixture, plan.seed)
        # Networks do not centre embeddings, so the topics' directions are not centred either.
        directions = unit_rows(unit_rows(sums["directions"]) + sums["origin"])
        state.network.start_from(
            state.weights, topics_of(sums["words"], mixture.smoothing), directions
        )
    elif settings.initialisation != "random":
        state.network.start_from(state.weights, find_first_topics(agreement, settings, plan.seed))
