"""What all estimators do: train a study on one corpus or on several clients, and apply it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import corpora_by_name, train
from fedtopics.federation.study import Study
from fedtopics.inference import Readout
from fedtopics.methods.warm_start import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.vocabulary import TextRules, VocabularyLimits

ALONE = "all"  # the one client of `fit`
NO_SETTINGS = ("start", "random_state", "settings")  # parameters that are none


class TopicEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """A topic model of any method; the other estimators fix the method.

    Every setting of a study can be given, and is declared there alone: what is None has the study's
    default, or the value of the preset. A method refuses settings that it does not have.

    Parameters
    ----------
    n_components : int, optional
        Number of topics.
    method : str, optional
        The method's name in a study, such as "gfedntm", which is the default, or "lda".
    preset : str, optional
        A set of defaults of the method, such as "paper".
    max_rounds : int, optional
    batch_size : int, optional
        Documents of a round, over all clients, for methods that train by minibatches.
    learning_rate : float, optional
        Of networks.
    min_document_frequency : int, optional
        A client names a word only if this many of its documents have it.
    max_words : int, optional
    stop_words : str, optional
        A language, or "none".
    embedding_model : str, optional
        sentence-transformers model, by name or path, of methods that see embeddings. Documents
        with embeddings of their own keep them.
    start : TopicModel or (beta, words), optional
        Topics to begin with: those of a model of any method, or beta of shape
        (n_topics, n_words) and its words. They are carried over word by word.
    random_state : int, Generator, RandomState or None, default 0
        An int makes the result repeatable to the bit on the same computer.
    settings : mapping, optional
        Any other setting by name: those of a study's [method], [text] and [vocabulary], and
        ``embedding_dimension``: the reference of studies lists them.
    **others
        The same as keywords: ``hidden=(50, 50)`` is ``settings={"hidden": (50, 50)}``.

    Attributes
    ----------
    model_ : TopicModel
    topics_ : list of list of str
        Ten words of each topic.
    beta_ : float array of shape (n_topics, n_words)
        Topics; rows sum to 1.
    vocabulary_ : tuple of str

    Examples
    --------
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> model = TopicEstimator(2, method="lda", max_rounds=5, alpha=0.1).fit(texts)
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _fixed: ClassVar[Mapping[str, Any]] = {}  # settings that make an estimator what it is
    start: Any = None
    random_state: Any
    settings: Mapping[str, Any] | None

    def __init__(
        self,
        n_components: int | None = None,
        *,
        method: str | None = None,
        preset: str | None = None,
        max_rounds: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        min_document_frequency: int | None = None,
        max_words: int | None = None,
        stop_words: str | None = None,
        embedding_model: str | None = None,
        start: Any = None,
        random_state: Any = 0,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def _keep(self, parameters: Mapping[str, Any]) -> None:
        """Keep the parameters of `__init__`; those without a name there are further settings."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])
        self._add(parameters["others"])

    def _add(self, others: Mapping[str, Any]) -> None:
        # Without others, scikit-learn's clone wants the very object back; fit refuses wrong ones.
        if others and isinstance(self.settings, Mapping | None):
            self.settings = {**(self.settings or {}), **others}

    def __getattr__(self, name: str) -> Any:
        """Return one of the further settings."""
        others = self.__dict__.get("settings")  # not there yet in a copy that is being made
        if isinstance(others, Mapping) and name in others:
            return others[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")

    def set_params(self, **params: Any) -> Self:
        """Set parameters; other settings of the study are put into `settings`."""
        names = self._get_param_names()
        others = {key: params.pop(key) for key in [*params] if key not in names and "__" not in key}
        super().set_params(**params)
        self._add(others)
        return self

    def fit(self, documents: Any, y: Any = None) -> Self:
        """Train on one corpus, where it is: the scenarios "alone" and "centralised".

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, or path
        y : ignored
        """
        return self._fit({ALONE: Corpus.of(documents)}, {ALONE: OPEN_POLICY})

    def fit_clients(
        self,
        clients: Any,
        *,
        policies: Mapping[str, Policy] | None = None,
        out: str | Path | None = None,
    ) -> Self:
        """Train on the documents of several clients without pooling them.

        Parameters
        ----------
        clients : mapping of client name to documents, or list of the clients' documents
            In a list they are named client-1, client-2 and so on.
        policies : mapping of client name to Policy, optional
            By default each client asks for 10 documents a reply and 5 documents a word.
        out : path, optional
            The run's folder, with each client's ledger.

        Raises
        ------
        InputError
            If a client has no documents, a name cannot be one, or a setting cannot be used.
        """
        return self._fit(corpora_by_name(clients), policies or {}, out)

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
        corpora: Mapping[str, Corpus],
        policies: Mapping[str, Policy],
        out: str | Path | None = None,
        start: Any = None,
    ) -> Self:
        start = self.start if start is None else start
        model = train(self._study(), corpora, policies=policies, out=out, start=start)
        self.model_: TopicModel = model
        self.topics_ = model.topics()
        self.beta_ = model.beta
        self.vocabulary_ = model.vocabulary.words
        return self

    def _study(self) -> Study:
        """Sort the settings into the tables of a study, which checks them."""
        method = self._named_settings()
        if "method" in method:
            method["name"] = method.pop("method")

        def table(keys: Iterable[str], prefix: str = "") -> dict[str, Any]:
            return {key: method.pop(prefix + key) for key in keys if prefix + key in method}

        text, vocabulary = table(TextRules.model_fields), table(VocabularyLimits.model_fields)
        if embedding := table(EmbeddingSettings.model_fields, "embedding_"):
            method["embedding"] = {**method.get("embedding", {}), **embedding}
        seed = _seed(self.random_state)
        return Study.make(seed=seed, method=method, text=text, vocabulary=vocabulary)

    def _named_settings(self) -> dict[str, Any]:
        """Return what is not left to the study, by the names that its settings have there."""
        if not isinstance(self.settings, Mapping | None):
            raise StudyError(
                f"settings={self.settings!r:.80} cannot be used; give a mapping of names to values."
            )
        named: dict[str, Any] = {}
        for source in (self._fixed, self.get_params(deep=False), self.settings or {}):
            for key, value in source.items():
                if value is None or key in NO_SETTINGS:
                    continue
                if key in named:
                    raise StudyError(
                        f"The {key} of {type(self).__name__} is {named[key]!r:.80} already; leave "
                        f"out {value!r:.80}."
                    )
                named[key] = value
        return named

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
        """Train on new documents of one corpus, as `partial_fit_clients` does."""
        return self._fit_further({ALONE: Corpus.of(documents)}, {ALONE: OPEN_POLICY})

    def partial_fit_clients(
        self, clients: Any, *, policies: Mapping[str, Policy] | None = None
    ) -> Self:
        """Train on new documents of clients, of the same or of others, each once.

        Parameters are those of `fit_clients`, which it is the first time. `LDA` keeps the
        vocabulary there is: no words leave the clients, and a document counts as much as one of
        those before. The model's documents, shares and word sums become those of all documents,
        each by the model that was trained with it; the coherence is of the new ones.
        """
        return self._fit_further(corpora_by_name(clients), policies or {})

    def _fit_further(self, corpora: Mapping[str, Corpus], policies: Mapping[str, Policy]) -> Self:
        start = WarmStart.of(self.model_, "keep", once=True) if hasattr(self, "model_") else None
        return self._fit(corpora, policies, start=start)


def _seed(random_state: Any) -> int:
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    return int(check_random_state(random_state).randint(2**31))
