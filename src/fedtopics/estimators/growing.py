"""Estimators whose models live on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from fedtopics.estimators.base import TopicEstimator
from fedtopics.estimators.inputs import Given
from fedtopics.federation.policy import Policy
from fedtopics.methods.warm_start import WarmStart


class GrowingEstimator(TopicEstimator):
    """An estimator that can be trained further on new documents."""

    def partial_fit(
        self, documents: Any, y: Any = None, *, words: Sequence[str] | None = None
    ) -> Self:
        """Train on new documents of one corpus, as `partial_fit_clients` does."""
        return self._fit_further(self._alone(documents, words))

    def partial_fit_clients(
        self,
        clients: Any,
        *,
        client: str | None = None,
        names: Mapping[Any, str] | None = None,
        policies: Mapping[Any, Policy] | None = None,
        words: Sequence[str] | None = None,
    ) -> Self:
        """Train on new documents of clients, of the same or of others, each once.

        Parameters are those of `fit_clients`, which it is the first time. `LDA` keeps the
        vocabulary there is: no words leave the clients, and a document counts as much as one of
        those before. The model's documents, shares and word sums become those of all documents,
        each by the model that was trained with it; the coherence is of the new ones.
        """
        return self._fit_further(self._given(clients, client, names, policies, words=words))

    def _fit_further(self, given: Given) -> Self:
        start = WarmStart.of(self.model_, "keep", once=True) if hasattr(self, "model_") else None
        return self._fit(given, start)
