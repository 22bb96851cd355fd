"""What all estimators do: train a study on one corpus or on several clients, and apply it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from fedtopics.errors import DataError, StudyError
from fedtopics.estimators import inputs
from fedtopics.estimators.fitted import SavedEstimator
from fedtopics.estimators.inputs import Clients, Inputs, columns_of, corpus_of, stop_word_settings
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.progress import Progress
from fedtopics.federation.run_folder import has_run
from fedtopics.federation.simulation import corpora_by_name, run_folder, train
from fedtopics.federation.study import Study
from fedtopics.inference import Readout
from fedtopics.methods.core.events import OnEvent
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.labels import checked_names
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.languages import language_sentence
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import LISTS

SINGLE = "all"  # the one client of `fit`
NO_SETTINGS = (
    "start", "random_state", "settings", "stop_words", "tokenizer", "analyzer", "verbose",
    "callback",
)  # parameters that are none  # fmt: skip
USUAL_STOP_WORDS = TextRules().stop_words
StopWords = str | Sequence[str] | None
Words = Sequence[str] | None  # of counts: what their columns count
Splitter = Callable[[str], list[str]]


class TopicEstimator(
    SavedEstimator,
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
        The method's name in a study, such as "lda"; by default "auto", chosen by the documents.
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
    stop_words : str, list of str or None, default "english"
        A language, by name or code, the words themselves, or None. With a language,
        ``own_stop_words`` among the settings are left out besides.
    tokenizer : function, optional
        From a text, in lower case, to its words, of which stop words are left out afterwards, and
        n-grams made (``ngrams=(1, 2)`` among the settings).
    analyzer : function, optional
        From a text to its words, as they are counted. Both are called where the documents are;
        neither is saved with a model, which takes lists of words then.
    embedding_model : str, optional
        sentence-transformers model, by name or path, of methods that see embeddings. Documents
        with embeddings of their own keep them.
    start : TopicModel or (beta, words), optional
        Topics to begin with: those of a model of any method, or beta of shape
        (n_topics, n_words) and its words. They are carried over word by word.
    random_state : int, Generator, RandomState or None, default 0
        An int makes the result repeatable to the bit on the same computer.
    verbose : bool, default False
        Show how far the training is: a bar on a terminal, in a notebook a line below the cell,
        elsewhere a line a minute.
    callback : function, optional
        Called with each event of the training, a dict with its kind as ``event``.
    settings : mapping, optional
        Any other setting by name: those of a study's [method], [text] and [vocabulary], and
        ``embedding_dimension``: the reference of studies lists them.
    **others
        The same as keywords: ``hidden=(50, 50)`` is ``settings={"hidden": (50, 50)}``.

    Attributes
    ----------
    model_ : TopicModel
    topics_ : list of list of str
        Ten words of each topic, as of `topics()`.
    beta_, components_ : float array of shape (n_topics, n_words)
        Topics; rows sum to 1.
    vocabulary_ : tuple of str
    clients_ : mapping of client name to key
        Of `fit_clients`: what each client was given under.
    run_folder_ : Path or None
        Where the records of `fit_clients` are.

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
    stop_words: StopWords
    tokenizer: Splitter | None
    analyzer: Splitter | None
    verbose: bool
    callback: OnEvent | None

    def __init__(
        self, n_components: int | None = None, *, method: str | None = None,
        preset: str | None = None, max_rounds: int | None = None, batch_size: int | None = None,
        learning_rate: float | None = None, min_document_frequency: int | None = None,
        max_words: int | None = None, stop_words: StopWords = "english",
        tokenizer: Splitter | None = None, analyzer: Splitter | None = None,
        embedding_model: str | None = None, start: Any = None, random_state: Any = 0,
        verbose: bool = False, callback: OnEvent | None = None,
        settings: Mapping[str, Any] | None = None, **others: Any,
    ) -> None:  # fmt: skip
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
        ours = f"; use {inputs.OURS[name]}" if name in inputs.OURS else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{ours}.")

    def set_params(self, **params: Any) -> Self:
        """Set parameters; other settings of the study are put into `settings`."""
        names = self._get_param_names()
        others = {key: params.pop(key) for key in [*params] if key not in names and "__" not in key}
        super().set_params(**params)
        self._add(others)
        return self

    def fit(
        self, documents: Any, y: Any = None, *, words: Words = None, text: str | None = None
    ) -> Self:
        """Train on one corpus, where it is: the scenarios "alone" and "centralised".

        Parameters
        ----------
        documents : list of str, list of token lists, column of a DataFrame, Corpus, path, or counts
            Counts are a sparse array of shape (n_documents, n_words), such as a CountVectorizer's.
        y : ignored
        words : sequence of str, optional
            Of counts: what each column counts, as of ``get_feature_names_out()``.
        text : str, optional
            Of a table or a file: the column of the text. Later tables are read by it as well.
        """
        return self._fit(self._alone(documents, words, text))

    def fit_clients(
        self, clients: Any, *, client: str | None = None, names: Mapping[Any, str] | None = None,
        policies: Mapping[Any, Policy] | None = None, out: str | Path | None = None,
        words: Words = None, text: str | None = None,
    ) -> Self:  # fmt: skip
        """Train on the documents of several clients without pooling them.

        Parameters
        ----------
        clients : mapping of client to documents, list of the clients' documents, or DataFrame
            In a list they are named client-1, client-2 and so on. Keys of a mapping may be
            anything; one that cannot name a client is what people see, beside a name that can.
        client : str, optional
            Of a DataFrame, an Arrow table or a file: the column that says whose a row is.
        names : mapping of client to str, optional
            What people call the clients, in tables, charts and reports.
        policies : mapping of client to Policy, optional
            By default each client asks for 10 documents a reply and 5 documents a word.
        out : path, optional
            The run's folder, with each client's ledger. If it has a run of the same settings and
            documents, this one goes on with it; one of others stays, and this one is beside it:
            see ``run_folder_``.
        words, text
            As of `fit`, for all clients.

        Raises
        ------
        InputError
            If a client has no documents, a name cannot be one, or a setting cannot be used.
        """
        return self._fit(self._read_clients(clients, client, names, policies, words, text, out))

    def transform(
        self, documents: Any, *, refine: bool = False, readout: Readout | None = None,
        words: Words = None, text: str | None = None,
    ) -> NDArray[np.float32]:  # fmt: skip
        """Find the topics of documents: theta, shape (n_documents, n_topics), rows sum to 1.

        Parameters
        ----------
        documents, words, text
            As for `fit`.
        refine, readout
            As of `TopicModel.transform`.
        """
        model = self._fitted()
        theta: NDArray[np.float32] = model.transform(
            self._corpus(documents, words, text), refine=refine, readout=readout
        )
        return theta

    def _alone(self, documents: Any, words: Words, text: str | None = None) -> Inputs:
        columns = columns_of(documents, words)
        corpus = corpus_of(documents, columns, self._analyser(self._as_study(0).text), text)
        return Inputs({SINGLE: corpus}, {SINGLE: OPEN_POLICY}, columns, {SINGLE: SINGLE}, text=text)

    def _read_clients(
        self, clients: Any, client: Any, names: Any, policies: Any, words: Any, text: Any,
        out: Any = None,
    ) -> Inputs:  # fmt: skip
        """Return what `fit_clients` was given, by names that a study can have."""
        found = Clients.of(clients, client, text)
        columns_of_each = (columns_of(each, words) for each in found.documents.values())
        columns = next((each for each in columns_of_each if each is not None), None)
        analyse = self._analyser(self._as_study(0).text)
        read = partial(corpus_of, columns=columns, analyse=analyse, text=found.text)
        corpora = corpora_by_name(found.documents, read)
        called = checked_names(found.called(names), corpora)
        folder = None if out is None else Path(out).expanduser()
        fields = corpora, found.by_name(policies), columns, found.keys, called, folder
        return Inputs(*fields, text=text)

    def _fit(self, data: Inputs, start: Any = None) -> Self:
        study = self._study(data)
        start = self.start if start is None else start
        start = None if start is None else WarmStart.of(start)
        folder = data.out and run_folder(data.out, study, data.corpora, start)
        with Progress() if self.verbose else nullcontext(lambda _: None) as show:

            def on_event(event: dict[str, Any]) -> None:
                show(event)
                if event["event"] == "languages" and event["advice"]:
                    warnings.warn(language_sentence(event), stacklevel=6)
                if self.callback is not None:
                    self.callback(event)

            resume = folder is not None and has_run(folder)
            self.model_ = train(
                study, data.corpora, policies=data.policies, out=folder, resume=resume,
                start=start, on_event=on_event,
            )  # fmt: skip
        earlier = getattr(self, "clients_", {}) if start is not None and start.once else {}
        self.clients_ = {**earlier, **data.keys}
        self.run_folder_ = folder
        if data.columns is not None:
            self.counted_words_ = tuple(data.columns)
        if data.text is not None:
            self.text_column_ = data.text
        return self

    def _by_key(self, by_name: Mapping[str, Any]) -> dict[Any, Any]:
        """Return what there is by a client's name, by what the client was given under."""
        keys = getattr(self, "clients_", {})
        return {keys.get(name, name): each for name, each in by_name.items()}

    def _corpus(self, documents: Any, words: Words = None, text: str | None = None) -> Corpus:
        """Return documents as those that the model was fitted to."""
        usual = getattr(self, "text_column_", None)
        text = usual if text is None and inputs.has_column(documents, usual) else text
        columns = columns_of(documents, words)
        if columns is not None and words is None:
            columns = getattr(self, "counted_words_", columns)
            if not {*columns} & {*self._fitted().vocabulary.words}:  # as after load
                raise DataError(
                    "The model knows none of the words of these counts; give them as words=..."
                )
        return corpus_of(documents, columns, self._analyser(self._fitted().text), text)

    def _analyser(self, rules: TextRules) -> Splitter | None:
        """Return what finds words in texts, where a function is given."""
        if self.tokenizer is not None and self.analyzer is not None:
            raise StudyError("tokenizer and analyzer both split texts; give one of them.")
        return self.analyzer if self.tokenizer is None else rules.analyser(self.tokenizer)

    def _study(self, data: Inputs | None = None) -> Study:
        return self._as_study(inputs.seed_of(self.random_state), data)

    def _as_study(self, seed: int, data: Inputs | None = None) -> Study:
        """Sort the settings into the tables of a study, which checks them."""
        method = self._named_settings()
        if "method" in method:
            method["name"] = method.pop("method")

        def table(keys: Iterable[str], prefix: str = "") -> dict[str, Any]:
            return {key: method.pop(prefix + key) for key in keys if prefix + key in method}

        text, vocabulary = table(TextRules.model_fields), table(VocabularyLimits.model_fields)
        if embedding := table(EmbeddingSettings.model_fields, "embedding_"):
            method["embedding"] = {**method.get("embedding", {}), **embedding}
        counted = data is not None and data.columns is not None
        if counted or text.get("ngrams") not in (None, (1, 1), [1, 1]):
            method.setdefault("coherence", "documents")  # words are not in their order
        if counted and method["coherence"] == "windows":
            raise StudyError(
                "Counts do not say which words are near each other: leave out coherence, or give "
                "texts."
            )
        inputs.check_settings(self.settings or {}, method.get("name"), self._get_param_names())
        called = data.called if data else {}
        clients = {client: {"name": name} for client, name in called.items()}
        return Study.make(
            seed=seed, method=method, text=text, vocabulary=vocabulary, clients=clients
        )

    def _named_settings(self) -> dict[str, Any]:
        """Return what is not left to the study, by the names that its settings have there."""
        if not isinstance(self.settings, Mapping | None):
            raise StudyError(
                f"settings={self.settings!r:.80} cannot be used; give a mapping of names to values."
            )
        named = stop_word_settings(self.stop_words, USUAL_STOP_WORDS)
        if self.tokenizer is not None or self.analyzer is not None:
            named["token_pattern"] = LISTS
        parameters = self.get_params(deep=False)
        for source in (self._fixed, parameters, self.settings or {}):
            for key, value in source.items():
                if value is None or (source is parameters and key in NO_SETTINGS):
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
