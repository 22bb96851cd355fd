"""Inference of merged topics: each merged topic consists of several topics of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.inference import Inference, Layout, Shared, Weights, find
from fedtopics.networks import NETWORKS
from fedtopics.text.embeddings import Encoder, Vectors

PARTS = "parts"  # name of a weight


class MergedShape(BaseModel, extra="forbid", frozen=True):
    """The topics of another inference in each merged topic."""

    n_components: int = Field(ge=1, description="number of merged topics")
    groups: tuple[int, ...] = Field(description="merged topic of each topic")
    inference: str = Field(description="the inference of the topics before merging")
    precision: str = Field(description="precision of that inference's weights")
    settings: dict[str, Any] = Field(description="settings of that inference")

    @property
    def before(self) -> Any:
        """Settings before merging."""
        return find(self.inference).settings_type(**self.settings)

    @property
    def embedding(self) -> Any:
        """The embedding model, if there is one."""
        return self.before.embedding

    @property
    def theta_prior(self) -> float | None:
        """The mean of the merged topics' priors, each the sum of its members' priors."""
        prior = getattr(self.before, "theta_prior", None)
        return None if prior is None else prior * len(self.groups) / self.n_components


class Merged:
    """An inference with merged topics: theta is a sum, beta a mean weighted by ``parts``."""

    name: ClassVar[str] = "merged"
    settings_type: ClassVar[type[BaseModel]] = MergedShape

    def __init__(self, n_words: int, settings: MergedShape) -> None:
        self.n_words = n_words
        self.settings = settings
        self.before = make(settings.inference, n_words, settings.settings, settings.precision)
        has_all = len(settings.groups) == self.before.settings.n_components
        has_all &= {*settings.groups} == {*range(settings.n_components)}
        if not has_all or isinstance(self.before, Merged):
            raise StudyError("groups must put each topic into a merged topic, none of them empty.")
        self._members = np.equal.outer(np.array(settings.groups), range(settings.n_components))
        self.shows = self.before.shows
        self.readouts = self.before.readouts
        self.precision = self.before.precision
        self.sees_words = self.before.sees_words
        self.sees_embedding = self.before.sees_embedding

    @classmethod
    def of(cls, before: Inference, n_words: int, groups: Sequence[int]) -> Merged:
        """Merge topics of an inference; `groups` has the merged topic of each topic."""
        if isinstance(before, cls):
            groups = [groups[group] for group in before.settings.groups]
            before = before.before
        shape = MergedShape(
            n_components=max(groups) + 1,
            groups=tuple(groups),
            inference=before.name,
            precision=before.precision,
            settings=before.settings.model_dump(
                mode="json", include=set(before.settings_type.model_fields)
            ),
        )
        return cls(n_words, shape)

    def merged(self, topics: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the merged topic of each earlier topic; -1 stays -1."""
        return np.where(topics < 0, -1, np.array(self.settings.groups)[topics])

    def layout(self) -> Layout:
        return {**self.before.layout(), PARTS: ((len(self.settings.groups),), "float64")}

    def beta(self, weights: Weights, shared: Shared) -> NDArray[np.float64]:
        parts = self._members.T * np.asarray(weights[PARTS])
        beta = np.asarray(self.before.beta(_others(weights), shared), dtype=np.float64)
        return np.asarray(parts / parts.sum(1, keepdims=True) @ beta)

    def infer(
        self,
        weights: Weights,
        shared: Shared,
        counts: sparse.csr_array,
        embeddings: Vectors | None,
        **how: Any,
    ) -> NDArray[Any]:
        theta = self.before.infer(_others(weights), shared, counts, embeddings, **how)
        return np.asarray(theta @ self._members.astype(theta.dtype))

    def trained_encoder(self, weights: Weights, model: str) -> Encoder | None:
        return self.before.trained_encoder(_others(weights), model)


def make(name: str, n_words: int, settings: Mapping[str, Any], precision: str) -> Inference:
    """Return an inference from plain values of a model's folder."""
    kind: Any = find(name)
    network_options: dict[str, Any] = {}
    if name in NETWORKS.names:
        import torch

        network_options["dtype"] = getattr(torch, precision)
        if not isinstance(network_options["dtype"], torch.dtype):
            raise TypeError
    inference: Inference = kind(n_words, kind.settings_type(**settings), **network_options)
    if inference.precision != precision:
        raise TypeError
    return inference


def has_tensors(inference: Inference) -> bool:
    """Whether weights are tensors, as those of networks are."""
    return (inference.before if isinstance(inference, Merged) else inference).name in NETWORKS.names


def _others(weights: Weights) -> Weights:
    return {name: array for name, array in weights.items() if name != PARTS}
