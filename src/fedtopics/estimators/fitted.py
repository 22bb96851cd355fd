"""Fitted estimators: topics, with the names of scikit-learn and BERTopic, and saving to folders."""

import json
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedtopics.errors import ModelError, check_number
from fedtopics.escaping import as_json
from fedtopics.federation.sweep import held_out_loss
from fedtopics.files import read_text
from fedtopics.inference.vectors import TINY
from fedtopics.model.document_map import DocumentMap
from fedtopics.model.effects import Effects
from fedtopics.model.exports import data_frame, index_at
from fedtopics.model.figures import Figure
from fedtopics.model.finding import BEST
from fedtopics.model.folder import model_folder, write_model
from fedtopics.model.over_time import Grouped, grouped_by_class, grouped_by_time, values_of
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.tables import Columns

P = ParamSpec("P")
T = TypeVar("T")
FILE = "estimator.json"
HIERARCHY = {  # columns of `hierarchical_topics`, and keys of their values
    "Parent_ID": "parent",
    "Parent_Name": "name",
    "Topics": "topics",
    "Child_Left_ID": "left",
    "Child_Left_Name": "left name",
    "Child_Right_ID": "right",
    "Child_Right_Name": "right name",
    "Distance": "distance",
}
NOT_SAVED = ("start", "tokenizer", "analyzer", "callback")  # parameters whose values are not plain


def _of_model(method: Callable[Concatenate[TopicModel, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of estimators that calls this method of the fitted model."""

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **others: P.kwargs) -> T:
        return method(self._fitted(), *arguments, **others)

    return call


class FittedTopics(BaseEstimator):  # type: ignore[misc]
    """The topics of an estimator's `model_`, with `save` and `load`, without pickle."""

    model_: TopicModel

    @property
    def topics_(self) -> list[list[str]]:
        """Ten words of each topic."""
        return self.model_.topics()

    @property
    def n_components_(self) -> int:
        """The number of topics, which a method may have chosen."""
        return self.model_.n_topics

    @property
    def beta_(self) -> NDArray[np.float64]:
        """Topics, of shape (n_topics, n_words); rows sum to 1."""
        return self.model_.beta

    components_ = beta_  # scikit-learn's name; columns are `vocabulary_`

    @property
    def vocabulary_(self) -> tuple[str, ...]:
        """The vocabulary, the most frequent words first."""
        return self.model_.vocabulary.words

    # What needs no documents is as `TopicModel` has it.
    topics = _of_model(TopicModel.topics)
    get_topics = _of_model(TopicModel.get_topics)
    get_topic = _of_model(TopicModel.get_topic)
    match_terms = _of_model(TopicModel.match_terms)
    plot_topics = _of_model(TopicModel.plot_topics)
    plot_clients = _of_model(TopicModel.plot_clients)
    plot_map = _of_model(TopicModel.plot_map)
    plot_similarity = _of_model(TopicModel.plot_similarity)
    plot_hierarchy = _of_model(TopicModel.plot_hierarchy)
    plot_effects = _of_model(TopicModel.plot_effects)
    plot_groups = _of_model(TopicModel.plot_groups)

    def get_topic_info(self, topic: int | None = None, n_words: int = WORDS_SHOWN) -> Any:
        """Return a DataFrame, one row per topic or only for `topic`: `TopicModel.to_pandas`."""
        info = self._fitted().to_pandas(n_words)
        check_number(0 if topic is None else topic, "topic", 0, len(info) - 1)
        return info if topic is None else info[info["Topic"] == topic].reset_index(drop=True)

    def get_document_info(
        self,
        documents: object,
        n_words: int = WORDS_SHOWN,
        *,
        words: Sequence[str] | None = None,
        text: str | None = None,
    ) -> Any:
        """Return a DataFrame, one row per document: see `TopicModel.get_document_info`."""
        info = self._fitted().get_document_info(self._corpus(documents, words, text), n_words)
        return info.set_axis(index_at(documents, info.index))

    def find_topics(
        self,
        query: str | Sequence[str],
        top_n: int = 5,
        *,
        by: Literal["words", "meaning"] = "words",
        embedding_model: str | None = None,
    ) -> tuple[list[int], list[float]]:
        """Return the topics nearest to a word or a sentence: see `TopicModel.find_topics`."""
        if isinstance(query, str):  # split like documents
            [words] = next(self._corpus([query]).batches())
            query = query if isinstance(words, str) or by == "meaning" else words
        return self._fitted().find_topics(query, top_n, by=by, embedding_model=embedding_model)

    def set_topic_labels(self, labels: Mapping[int, str] | Sequence[str]) -> None:
        """Set labels, by topic or as a list for all topics: see `TopicModel.with_labels`."""
        self.model_ = self._fitted().with_labels(labels)

    def suggest_labels(
        self, documents: object = None, *, text: str | None = None, **how: Any
    ) -> dict[int, str]:
        """Give unlabelled topics suggested labels, in place: see `TopicModel.suggest_labels`."""
        self.model_ = self._fitted().with_suggested_labels(self._corpora(documents, text), **how)
        return {topic: self.model_.labels[topic] for topic in sorted(self.model_.unconfirmed)}

    def score(
        self,
        documents: object,
        y: object = None,
        *,
        words: Sequence[str] | None = None,
        text: str | None = None,
    ) -> float:
        """Return how well topics predict documents, in nats per word; higher is better.

        The score is the mean log-likelihood of the words of one half of each document, given the
        other half: see `fedtopics.federation.sweep.held_out_loss`. `GridSearchCV` uses it by
        default. Without words to predict, it is the lowest, log(1e-12) = -27.6, with a warning.
        """
        loss = held_out_loss(self._fitted(), {"": self._corpus(documents, words, text)}, 0)
        if not math.isnan(loss):
            return -loss
        warnings.warn(
            "These documents contain no words that the model knows and could predict, so the score "
            "is the lowest possible; give more or longer documents.",
            stacklevel=2,
        )
        return math.log(TINY)

    def merge_topics(self, topics_to_merge: Sequence[int] | Sequence[Sequence[int]]) -> Self:
        """Merge topics in place: see `TopicModel.merge_topics`."""
        return self._adopt(self._fitted().merge_topics(topics_to_merge))

    def reduce_topics(self, n_topics: int) -> Self:
        """Merge the nearest topics until this many remain, in place."""
        return self._adopt(self._fitted().reduce_topics(n_topics))

    def _adopt(self, model: TopicModel) -> Self:
        """Replace the model by one with fewer topics, and set their number."""
        self.model_ = model
        for name in {"n_components", "n_clusters"} & {*self._get_param_names()}:
            setattr(self, name, model.n_topics)
        return self

    def hierarchical_topics(self) -> Any:
        """Return the steps of `TopicModel.hierarchy` as a DataFrame with BERTopic's columns."""
        rows = self._fitted().hierarchy()
        names = _names(self._fitted()) | {row["parent"]: row["name"] for row in rows}
        return _table(
            [
                row | {f"{side} name": names[row[side]] for side in ("left", "right")}
                for row in rows
            ],
            HIERARCHY,
        )

    def topics_over_time(
        self,
        documents: object = None,
        timestamps: Any = None,
        *,
        text: str | None = None,
        **how: Any,
    ) -> Any:
        """Return a DataFrame of topics by period, with BERTopic's columns and some more.

        Arguments are those of `TopicModel.topics_over_time`. Without documents, the table shows
        the sums by period that the study collected.

        Returns
        -------
        pandas.DataFrame
            Columns: Topic, Words (five), Frequency (number of documents of the topic in the period,
            as a sum of shares), Timestamp (beginning of the period), Name, Share, Documents and
            Clients (their numbers in the period). Its ``attrs`` count the documents in no row:
            "without" a value, in groups with too "few", or "unknown" (without known words).
        """
        return _grouped(
            self._fitted(),
            "Timestamp",
            "period",
            grouped_by_time(
                self._fitted(),
                self._corpora(documents, text),
                values_of(documents, timestamps),
                **how,
            ),
        )

    def topics_per_class(
        self, documents: object = None, classes: Any = None, *, text: str | None = None, **how: Any
    ) -> Any:
        """Return a DataFrame as in `topics_over_time`, with Class instead of Timestamp.

        Without documents, `classes` is a column of the study, or two such as "funded:year".
        """
        return _grouped(
            self._fitted(),
            "Class",
            "class",
            grouped_by_class(
                self._fitted(),
                self._corpora(documents, text),
                values_of(documents, classes),
                **how,
            ),
        )

    def representative_documents(
        self,
        documents: object,
        topic: int | None = None,
        n_documents: int = BEST,
        *,
        text: str | None = None,
    ) -> Any:
        """Return a DataFrame of your documents to read first, of each topic or of one.

        You must give the documents again: neither model nor estimator keeps them, and none is sent.
        See `TopicModel.representative_documents`.

        Returns
        -------
        pandas.DataFrame
            Columns: Topic, Name, Document (its row, counted from 0), Client (if there are several),
            Share, Text. The index is that of the documents: see `TopicModel.get_document_info`.
        """
        names = _names(self._fitted())
        rows = [
            row | {"name": names[row["topic"]]}
            for row in self.model_.representative_documents(
                self._corpora(documents, text), topic, n_documents
            )
        ]
        columns = {
            "Topic": "topic",
            "Name": "name",
            "Document": "document",
            **({"Client": "client"} if isinstance(documents, Mapping) else {}),
            "Share": "share",
            "Text": "text",
        }
        of_each = documents if isinstance(documents, Mapping) else {None: documents}
        index = [index_at(of_each[row["client"]], [row["document"]])[0] for row in rows]
        return _table(rows, columns, index)

    def document_map(
        self, documents: object, *, text: str | None = None, **how: Any
    ) -> DocumentMap:
        """Return a map of your documents for notebooks: see `TopicModel.document_map`."""
        shown = self._fitted().document_map(self._corpus(documents, text=text), **how)
        return replace(shown, index=index_at(documents, shown.documents))

    def plot_words(
        self, documents: object = None, n_words: int = WORDS_SHOWN, *, text: str | None = None
    ) -> Figure:
        """Draw each topic's words: see `TopicModel.plot_words`."""
        return self._fitted().plot_words(self._corpora(documents, text), n_words)

    def plot_over_time(
        self,
        documents: object = None,
        timestamps: Any = None,
        *,
        text: str | None = None,
        **how: Any,
    ) -> Figure:
        """Draw which topics grew or shrank: see `TopicModel.plot_over_time`."""
        return self._fitted().plot_over_time(
            self._corpora(documents, text), values_of(documents, timestamps), **how
        )

    def effects(
        self, formula: str, documents: object = None, *, text: str | None = None, **how: Any
    ) -> Effects:
        """Return effects of columns on topics' shares: see `TopicModel.effects`."""
        columns = Columns(text=text or getattr(self, "text_column_", None) or self.text)
        return self._fitted().effects(formula, documents, **{"columns": columns} | how)

    def _corpora(self, documents: object, text: str | None = None) -> Any:
        """Return documents, or those of each client, as they are read for `fit`."""
        if isinstance(documents, Mapping):
            return {key: self._corpus(texts, text=text) for key, texts in documents.items()}
        return None if documents is None else self._corpus(documents, text=text)

    def _fitted(self) -> TopicModel:
        """Return the fitted model, or raise scikit-learn's NotFittedError."""
        check_is_fitted(self)
        return self.model_

    def save(self, path: str | Path) -> Path:
        """Write the fitted model and its parameters to a folder: see `TopicModel.save_pretrained`.

        The folder has neither documents nor functions: give `load` the tokenizer or analyzer again.
        """
        model = self._fitted()
        plain = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in NOT_SAVED and _succeeds(json.dumps, value, default=_plain)
        }
        text = as_json(
            {"estimator": type(self).__name__, "parameters": plain}, indent=1, default=_plain
        )
        folder = Path(path).expanduser()
        write_model(model, folder, {FILE: f"{text}\n".encode()})
        return folder

    @classmethod
    def load(cls, path: str | Path, **parameters: Any) -> Self:
        """Read a fitted estimator from the folder of a model, of a run, or of `save`.

        `TopicEstimator.load` accepts every model and returns the class that was saved.

        Parameters
        ----------
        path : path
        **parameters
            Parameters to set, such as an analyzer.

        Raises
        ------
        ModelError
            If the folder has no model, or one that is damaged or belongs to another estimator.
        """
        folder = model_folder(path)
        model = TopicModel.from_pretrained(folder)
        saved = _read(folder / FILE)
        kind = _kind(cls, saved.get("estimator"))
        trained = {"method": model.info.get("method"), "network": model.inference.name}
        accepted = set(kind._get_param_names()) - {*NOT_SAVED, *kind._fixed}
        arguments = saved.get(
            "parameters", trained | {"n_components": model.n_topics, "n_clusters": model.n_topics}
        )
        arguments = {key: arguments[key] for key in accepted & arguments.keys()} | parameters
        fits = all(trained.get(key, value) == value for key, value in kind._fixed.items())
        if not (issubclass(kind, cls) and fits and _succeeds(signature(kind).bind, **arguments)):
            raise ModelError(
                f"The model in {folder} is not a {cls.__name__} but uses {trained['method']}; load "
                "it with TopicEstimator.load."
            )
        estimator: Self = kind(**arguments)
        if parameters.keys() - {*kind._get_param_names()}:
            estimator._study(seed=0)  # refuses unknown settings
        estimator.model_ = model
        return estimator


def _names(model: TopicModel) -> dict[int, str]:
    return {row["topic"]: row["name"] for row in model.get_topic_info()}


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], index: Any = None) -> Any:
    """Return a DataFrame with these columns, each by the key of its values in the rows."""
    return data_frame({name: [row[key] for row in rows] for name, key in columns.items()}, index)


def _grouped(model: TopicModel, title: str, group: str, grouped: Grouped) -> Any:
    """Return a DataFrame of topics in groups of documents."""
    names = _names(model)
    words = [", ".join(topic) for topic in model.topics(5)]
    frame = _table(
        [row | {"name": names[row["topic"]], "words": words[row["topic"]]} for row in grouped.rows],
        {
            "Topic": "topic",
            "Words": "words",
            "Frequency": "count",
            title: group,
            "Name": "name",
            "Share": "share",
            "Documents": "documents",
            "Clients": "clients",
        },
    )
    frame.attrs |= {"without": grouped.without, "few": grouped.few, "unknown": grouped.unknown}
    return frame


def _kind(default: type[FittedTopics], name: Any) -> Any:
    """Return the estimator class of this name, or the default."""
    ours = import_module("fedtopics.estimators")
    return getattr(ours, name) if name in ours.__all__ and name != default.__name__ else default


def _succeeds(function: Callable[..., Any], *arguments: Any, **others: Any) -> bool:
    """Whether a function takes these arguments, and none of them has a wrong type or value."""
    with suppress(TypeError, ValueError):
        function(*arguments, **others)
        return True
    return False


def _plain(value: Any) -> Any:
    """Convert numpy values and paths for JSON; raise TypeError for other values."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else os.fspath(value)


def _read(path: Path) -> dict[str, Any]:
    """Return the parameters saved next to a model, or {} if there are none."""
    try:
        content = json.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and isinstance(content.get("parameters"), dict):
        return content
    raise ModelError(f"{path} is damaged; copy it again, or delete it: only parameters are lost.")
