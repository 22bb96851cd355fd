"""The base of all estimators: train on one corpus or several clients, and apply the model."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fedtopics.contract.events import OnEvent
from fedtopics.errors import DataError, StudyError
from fedtopics.estimators import inputs
from fedtopics.estimators.fitted import FittedTopics
from fedtopics.estimators.inputs import (
    ClientInputs,
    Inputs,
    columns_of,
    corpus_of,
    stop_word_settings,
)
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.progress import ProgressDisplay
from fedtopics.federation.run_folder import has_run
from fedtopics.federation.simulation import corpora_by_name, run_folder, train
from fedtopics.federation.study import Study
from fedtopics.inference import Readout
from fedtopics.methods.core.plan import WarmStart
from fedtopics.methods.registry import DEFAULT_METHOD, METHODS, choose_method, find_method
from fedtopics.model.labels import checked_names
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.languages import language_sentence
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import LISTS

LOST = 0.1  # part of the documents without an agreed word, above which there is a warning
SINGLE = "all"  # the only client of `fit`
NO_SETTINGS = (
    "start",
    "random_state",
    "settings",
    "stop_words",
    "tokenizer",
    "analyzer",
    "text",
    "verbose",
    "callback",
)  # parameters that are not settings of a study
StopWords = str | Sequence[str] | None
Words = Sequence[str] | None  # the words that columns of counts stand for
Splitter = Callable[[str], list[str]]


def _embeds(method: str) -> bool:
    """Whether a method has settings of embeddings, as far as it is known."""
    return method not in METHODS.names or "embedding" in find_method(method).settings.model_fields


def _warn_of_lost_documents(event: Mapping[str, int]) -> None:
    if event["without_known_word"] > LOST * event["documents"]:
        warnings.warn(
            f"The clients agreed on {event['words']:,} words, and "
            f"{event['without_known_word']:,} of {event['documents']:,} documents contain none of "
            "them. A word needs enough persons at a client, and enough clients: give more "
            "documents or larger clients. min_clients_per_word and the clients' policies set the "
            "limits.",
            stacklevel=4,
        )


class TopicEstimator(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    FittedTopics,
):
    """A topic model trained by any method; each other estimator fixes the method.

    It accepts every setting of a study. None means the default of the study or of the preset. The
    chosen method refuses settings that it does not have.

    Parameters
    ----------
    n_components : int, optional
        Number of topics.
    method : str, optional
        The method's name in a study, such as "lda". By default "nmf", or "mixture" if texts have
        fewer than 15 words on average and have embeddings.
    preset : str, optional
        A set of defaults of the method, such as "paper".
    max_rounds : int, optional
    batch_size : int, optional
        Documents in a round, over all clients, for methods that train on minibatches.
    learning_rate : float, optional
        Step size of the optimiser, for methods that train networks.
    min_persons_per_word : int, optional
        A client proposes a word only if documents of at least this many of its persons contain it.
    max_words : int, optional
    stop_words : str, list of str or None, default "english"
        A language (name or code), a list of words, or None. With a language, the setting
        ``own_stop_words`` removes further words.
    tokenizer : function, optional
        Splits a lower-case text into words. Stop words are then removed and n-grams made
        (setting ``ngrams=(1, 2)``).
    analyzer : function, optional
        Turns a text into its final words. Tokenizer and analyzer run where the documents are. They
        are not saved with the model: ``model_`` expects lists of words.
    text : str, optional
        The text column of tables and files, so that a table can enter a Pipeline.
    embedding_model : str, optional
        sentence-transformers model, by name or path, for methods that use embeddings. Documents
        that have embeddings keep them.
    start : TopicModel or (beta, words), optional
        Initial topics: a model of any method, or beta of shape (n_topics, n_words) and its words.
        Each word's weights are transferred to the same word.
    random_state : int, Generator, RandomState or None, default 0
        With an int, results are bit for bit repeatable on the same computer.
    verbose : bool, default False
        Show progress: a bar in a terminal, a line in a notebook, otherwise one line per minute.
    callback : function, optional
        Called with each event of the training, a dict with its kind as "event".
    settings : mapping, optional
        Other settings from the tables [method], [text] and [vocabulary] of a study, and
        ``embedding_dimension``. The reference page of the study file lists them.
    **others
        The same settings as keywords: ``hidden=(50, 50)`` is ``settings={"hidden": (50, 50)}``.

    Attributes
    ----------
    model_ : TopicModel
    topics_ : list of list of str
        Ten words of each topic, as `topics()` returns them.
    beta_, components_ : float array of shape (n_topics, n_words)
        Topics; rows sum to 1.
    vocabulary_ : tuple of str
    clients_ : mapping of client name to key
        After `fit_clients`: the key that you gave for each client.
    run_folder_ : Path or None
        Folder with the records of `fit_clients`.

    Examples
    --------
    >>> texts = ["oak and beech", "beech and fir", "a ketch at sea", "a sloop at sea"] * 20
    >>> model = TopicEstimator(2, method="lda", max_rounds=5, alpha=0.1).fit(texts)
    >>> model.transform(["the fir and the oak"]).shape
    (1, 2)
    """

    _fixed: ClassVar[Mapping[str, Any]] = {}  # settings that define an estimator
    start: Any = None
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
        min_persons_per_word: int | None = None,
        max_words: int | None = None,
        stop_words: StopWords = "english",
        tokenizer: Splitter | None = None,
        analyzer: Splitter | None = None,
        text: str | None = None,
        embedding_model: str | None = None,
        start: Any = None,
        random_state: Any = 0,
        verbose: bool = False,
        callback: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        self._keep(locals())

    def _keep(self, parameters: Mapping[str, Any]) -> None:
        """Store the parameters of `__init__`; those from ``**others`` go into `settings`."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])
        others = parameters["others"]
        if others:  # else no method is loaded before `fit`
            method = str(self._fixed.get("method") or parameters.get("method"))
            # scikit-learn tries "others" as a parameter, which must not fail before `fit`.
            inputs.check_settings(others, method, [*self._get_param_names(), "others"])
        self._add(others)

    def _add(self, others: Mapping[str, Any]) -> None:
        # scikit-learn's clone requires the identical object if there are no others.
        if others and isinstance(self.settings, Mapping | None):
            self.settings = {**(self.settings or {}), **others}

    def __getattr__(self, name: str) -> Any:
        if "model_" not in self.__dict__ and isinstance(getattr(type(self), name, None), property):
            check_is_fitted(self)  # else the property's own error would be about model_
        others = self.__dict__.get("settings")  # missing while a copy is being made
        if isinstance(others, Mapping) and name in others:
            return others[name]
        ours = f"; use {inputs.NAMES_HERE[name]}" if name in inputs.NAMES_HERE else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{ours}.")

    def set_params(self, **params: Any) -> Self:
        """Set parameters; names that are not parameters go into `settings`."""
        names = self._get_param_names()
        others = {key: params.pop(key) for key in [*params] if key not in names and "__" not in key}
        super().set_params(**params)
        self._add(others)
        return self

    def fit(
        self,
        documents: Any,
        y: Any = None,
        *,
        words: Words = None,
        text: str | None = None,
        engine: Any = None,
    ) -> Self:
        """Train on one corpus, of one organisation or pooled from several.

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, path, or counts
            Counts are a sparse array of shape (n_documents, n_words), such as a CountVectorizer's.
        y : ignored
        words : sequence of str, optional
            The word of each column of counts, as ``get_feature_names_out()`` returns them.
        text : str, optional
            The text column of a table or file. It is also used for tables given later.
        engine : distributed.Client, optional
            A Dask cluster to compute on, see docs/how-to/dask.md.
        """
        inputs.check_ignored(y)
        return self._fit(self._read_single(documents, words, text), engine=engine)

    def fit_clients(
        self,
        clients: Any,
        *,
        client: str | None = None,
        names: Mapping[Any, str] | None = None,
        policies: Mapping[Any, Policy] | None = None,
        out: str | Path | None = None,
        words: Words = None,
        text: str | None = None,
        person: str | None = None,
        engine: Any = None,
    ) -> Self:
        """Train on the documents of several clients without pooling them.

        Parameters
        ----------
        clients : mapping of client to documents, list of the clients' documents, or DataFrame
            Clients in a list are named client-1, client-2, ... If a key of a mapping cannot be a
            client's name, the client gets a valid name, and people still see the key.
        client : str, optional
            The column of a DataFrame, Arrow table or file that names each row's client.
        names : mapping of client to str, optional
            Readable names of the clients, for tables, charts and reports.
        policies : mapping of client to Policy, optional
            By default an update of a client is over 10 persons, and a word has 5 persons.
        out : path, optional
            The run's folder, with each client's ledger. A run there with the same settings and
            documents is resumed. Next to a different run, a new one starts: see ``run_folder_``.
        words, text, engine
            As in `fit`, for all clients.
        person : str, optional
            The column that says whose document it is, such as a patient's number. By default each
            document counts as a person.

        Raises
        ------
        InputError
            If a client has no documents, a name is invalid, or a setting cannot be used.
        """
        return self._fit(
            self._read_clients(
                clients,
                client,
                names,
                policies,
                words,
                self._study(seed=0).columns({"text": text or self.text, "person": person}),
                out,
            ),
            engine=engine,
        )

    def transform(
        self,
        documents: Any,
        *,
        refine: bool = False,
        readout: Readout | None = None,
        words: Words = None,
        text: str | None = None,
    ) -> NDArray[np.float32]:
        """Return theta, each document's shares of topics, (n_documents, n_topics); rows sum to 1.

        Parameters
        ----------
        documents, words, text
            As in `fit`.
        refine, readout
            As in `TopicModel.transform`.
        """
        return self._fitted().transform(
            self._corpus(documents, words, text), refine=refine, readout=readout
        )

    def _read_single(self, documents: Any, words: Words, text: str | None = None) -> Inputs:
        text = text or self.text
        if words is None and sparse.issparse(documents):
            warnings.warn(
                "Counts have no words, so topics consist of x0, x1 and so on; give "
                "words=vectorizer.get_feature_names_out().",
                stacklevel=3,
            )
        columns = columns_of(documents, words)
        # With a seed, as only training may draw one from a Generator.
        analyse = self._analyser(self._study(seed=0).text)
        return Inputs(
            corpora={SINGLE: corpus_of(documents, columns, analyse, Columns(text=text))},
            policies={SINGLE: OPEN_POLICY},
            columns=columns,
            keys={SINGLE: SINGLE},
            text=text,
        )

    def _read_clients(
        self,
        clients: Any,
        client: Any,
        names: Any,
        policies: Any,
        words: Any,
        columns: Columns,
        out: Any = None,
    ) -> Inputs:
        """Return what `fit_clients` was given, by valid client names."""
        inputs_by_client = ClientInputs.of(clients, client, columns)
        words_by_client = (
            columns_of(documents, words) for documents in inputs_by_client.documents.values()
        )
        counted = next((names for names in words_by_client if names is not None), None)
        corpora = corpora_by_name(
            inputs_by_client.documents,
            partial(
                corpus_of,
                words=counted,
                analyse=self._analyser(self._study(seed=0).text),
                columns=inputs_by_client.columns,
            ),
        )
        return Inputs(
            corpora=corpora,
            called=checked_names(inputs_by_client.called(names), corpora),
            policies=inputs_by_client.by_name(policies),
            columns=counted,
            keys=inputs_by_client.keys,
            out=None if out is None else Path(out).expanduser(),
            text=columns.text,
        )

    def _fit(self, data: Inputs, start: Any = None, engine: Any = None) -> Self:
        study = self._study(data)
        start = self.start if start is None else start
        start = None if start is None else WarmStart.of(start)
        folder = data.out and run_folder(data.out, study, data.corpora, start)
        agreed: list[Mapping[str, int]] = []
        with ProgressDisplay() if self.verbose else nullcontext(lambda _: None) as show:

            def on_event(event: dict[str, Any]) -> None:
                show(event)
                if event["event"] == "languages" and event["advice"]:
                    warnings.warn(language_sentence(event), stacklevel=6)
                if event["event"] == "vocabulary" and len(data.corpora) > 1:
                    agreed.append(event)
                if self.callback is not None:
                    self.callback(event)

            self.model_ = train(
                study,
                data.corpora,
                policies=data.policies,
                out=folder,
                # `run_folder` avoids other studies' runs: a run in its folder is an earlier part.
                resume=folder is not None and has_run(folder),
                start=start,
                on_event=on_event,
                engine=engine,
            )
        self._warn_of_policies(data)
        for event in agreed[:1]:
            _warn_of_lost_documents(event)
        if repeated := self.model_.repeated:
            warnings.warn(
                f"{len(repeated)} of {self.model_.n_topics} topics have nearly the words of "
                "another; set fewer, or train for more rounds.",
                stacklevel=3,
            )
        earlier = (
            getattr(self, "clients_", {}) if start is not None and start.adds_documents else {}
        )
        self.clients_ = {**earlier, **data.keys}
        self.run_folder_ = folder
        if data.columns is not None:
            self.counted_words_ = tuple(data.columns)
        if data.text is not None:
            self.text_column_ = data.text
        return self

    def _warn_of_policies(self, data: Inputs) -> None:
        """Warn if no client's policy lets words of so few persons leave as the user set."""
        of_clients = (data.policies.get(name, Policy()) for name in data.corpora)
        needed = min(policy.min_persons_per_word for policy in of_clients)
        if self.min_persons_per_word is not None and self.min_persons_per_word < needed:
            warnings.warn(
                f"min_persons_per_word={self.min_persons_per_word} has no effect, because every "
                f"client's policy requires {needed} persons per word; see policies.",
                stacklevel=4,
            )

    def _by_key(self, by_name: Mapping[str, Any]) -> dict[Any, Any]:
        """Replace the client names of a mapping by the clients' original keys."""
        keys = getattr(self, "clients_", {})
        return {keys.get(name, name): value for name, value in by_name.items()}

    def _corpus(self, documents: Any, words: Words = None, text: str | None = None) -> Corpus:
        """Return documents as a corpus, read like those that the model was fitted to."""
        column = getattr(self, "text_column_", None) or self.text
        text = column if text is None and inputs.has_column(documents, column) else text
        columns = columns_of(documents, words)
        if columns is not None and words is None:
            columns = getattr(self, "counted_words_", columns)
            if not {*columns} & {*self._fitted().vocabulary.words}:  # possible after load
                raise DataError(
                    "The model knows no word of these counts; give the columns' words as words=..."
                )
        return corpus_of(
            data=documents,
            words=columns,
            analyse=self._analyser(self._fitted().text),
            columns=Columns(text=text),
        )

    def _analyser(self, rules: TextRules) -> Splitter | None:
        """Return the function that splits texts, if the user gave a tokenizer or analyzer."""
        if self.tokenizer is not None and self.analyzer is not None:
            raise StudyError("tokenizer and analyzer both split texts; give one of them.")
        return self.analyzer if self.tokenizer is None else rules.analyser(self.tokenizer)

    def _study(self, data: Inputs | None = None, seed: int | None = None) -> Study:
        """Sort the settings into the tables of a study, which checks them."""
        method = self._named_settings()
        if "method" in method:
            method["name"] = method.pop("method")
        is_named = "name" in method
        if not is_named:
            method["name"] = choose_method(data.corpora.values())[0] if data else DEFAULT_METHOD

        def table(keys: Iterable[str], prefix: str = "") -> dict[str, Any]:
            return {key: method.pop(prefix + key) for key in keys if prefix + key in method}

        text, vocabulary = table(TextRules.model_fields), table(VocabularyLimits.model_fields)
        embedding = table(EmbeddingSettings.model_fields, "embedding_")
        if embedding and is_named and not _embeds(method["name"]):
            raise StudyError(
                f"The method {method['name']} uses no embeddings; leave embedding_model out, or "
                "use MixtureTM, CombinedTM or ShortTextClustering."
            )
        if embedding and (is_named or method["name"] == "mixture"):  # a choice of nmf needs none
            method["embedding"] = {**method.get("embedding", {}), **embedding}
        counted = data is not None and data.columns is not None
        if counted or text.get("ngrams") not in (None, (1, 1), [1, 1]):
            method.setdefault("coherence", "documents")  # the order of words is lost
        if counted and method["coherence"] == "windows":
            raise StudyError(
                "Counts do not contain the order of words, which coherence windows need; leave out "
                "coherence, or give texts."
            )
        inputs.check_settings(self.settings or {}, method["name"], self._get_param_names())
        return Study.make(
            seed=inputs.seed_of(self.random_state) if seed is None else seed,
            method=method,
            text=text,
            vocabulary=vocabulary,
            clients={key: {"name": name} for key, name in data.called.items()} if data else {},
        )

    def _named_settings(self) -> dict[str, Any]:
        """Return the settings that differ from None, by their names in a study."""
        if not isinstance(self.settings, Mapping | None):
            raise StudyError(
                f"settings={self.settings!r:.80} cannot be used; give a mapping of names to values."
            )
        named = stop_word_settings(self.stop_words)
        if self.tokenizer is not None or self.analyzer is not None:
            named["token_pattern"] = LISTS
        parameters = self.get_params(deep=False)
        for source in (self._fixed, parameters, self.settings or {}):
            for key, value in source.items():
                if value is None or (source is parameters and key in NO_SETTINGS):
                    continue
                if key in named:
                    raise StudyError(
                        f"{key} of {type(self).__name__} is already {named[key]!r:.80}; leave out "
                        f"{value!r:.80}."
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
        tags.transformer_tags.preserves_dtype = []
        return tags
