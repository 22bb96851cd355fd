"""What all estimators do: train a study on one corpus or on several clients, and apply it."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.inference.theta import Readout
from fedtopics.methods.warm_start import Start
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

ALONE = "all"  # the one client of `fit`


class TopicEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
    ABC,
):
    """An estimator whose parameters are those of a study.

    Attributes
    ----------
    model_ : TopicModel
    topics_ : list of list of str
        Ten words of each topic.
    beta_ : float array of shape (n_topics, n_words)
        Topics; rows sum to 1.
    vocabulary_ : tuple of str
    """

    start: Any = None  # topics to begin with; a parameter of those that can

    @abstractmethod
    def _method(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a study's [method] for the parameters that are the method's."""

    def fit(self, documents: Any, y: Any = None) -> Self:
        """Train on one corpus, where it is: the scenarios "alone" and "centralised".

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, or path
        y : ignored
        """
        return self._fit({ALONE: documents}, {ALONE: OPEN_POLICY})

    def fit_clients(
        self,
        clients: Mapping[str, Any],
        *,
        policies: Mapping[str, Policy] | None = None,
        out: str | Path | None = None,
    ) -> Self:
        """Train on the documents of several clients without pooling them.

        Parameters
        ----------
        clients : mapping of client name to documents
        policies : mapping of client name to Policy, optional
            By default each client asks for 10 documents a reply and 5 documents a word.
        out : path, optional
            The run's folder, with each client's ledger.
        """
        return self._fit(clients, policies or {}, out)

    def transform(
        self, documents: Any, *, refine: bool = False, readout: Readout | None = None
    ) -> NDArray[np.float32]:
        """Find the topics of documents: theta, shape (n_documents, n_topics), rows sum to 1.

        Parameters
        ----------
        documents : as for `fit`
        refine, readout
            As of `TopicModel.transform`.
        """
        check_is_fitted(self)
        theta: NDArray[np.float32] = self.model_.transform(
            documents, refine=refine, readout=readout
        )
        return theta

    def _fit(
        self,
        clients: Mapping[str, Any],
        policies: Mapping[str, Policy],
        out: str | Path | None = None,
        start: Any = None,
    ) -> Self:
        corpora = {name: Corpus.of(documents) for name, documents in clients.items()}
        study = self._study()
        begun = self.start if start is None else start
        self.model_: TopicModel = train(study, corpora, policies=policies, out=out, start=begun)
        self.topics_ = self.model_.topics()
        self.beta_ = self.model_.beta
        self.vocabulary_ = self.model_.vocabulary.words
        return self

    def _study(self) -> Study:
        given = self.get_params()
        given.pop("start", None)
        seed = given.pop("random_state")
        text = {"stop_words": given.pop("stop_words")}
        limits = ("min_document_frequency", "max_words", "max_document_share")
        vocabulary = {key: given.pop(key) for key in limits}
        return Study.make(
            seed=_seed(seed), method=self._method(known(given)), text=text, vocabulary=vocabulary
        )

    @property
    def _n_features_out(self) -> int:
        return self.model_.n_topics

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        tags.transformer_tags.preserves_dtype = []
        return tags


class GrowingEstimator(TopicEstimator):
    """An estimator that can be trained further on new documents."""

    def partial_fit(self, documents: Any, y: Any = None) -> Self:
        """Train on new documents besides those seen, each once; the first time it is `fit`.

        Parameters
        ----------
        documents : as for `fit`
        y : ignored
        """
        return self.partial_fit_clients({ALONE: documents}, policies={ALONE: OPEN_POLICY})

    def partial_fit_clients(
        self, clients: Mapping[str, Any], *, policies: Mapping[str, Policy] | None = None
    ) -> Self:
        """Train on new documents of clients, of the same or of others, each once.

        The first time it is `fit_clients`. `LDA` keeps the vocabulary there is: no words leave the
        clients, and a document counts as much as one of those before.

        Parameters
        ----------
        clients, policies
            As for `fit_clients`.
        """
        if not hasattr(self, "model_"):
            return self.fit_clients(clients, policies=policies)
        start = Start.of(self.model_, "keep", once=True)
        return self._fit(clients, policies or {}, start=start)


def known(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not given: the study has its own defaults."""
    return {key: value for key, value in given.items() if value is not None}


def _seed(random_state: Any) -> int:
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
