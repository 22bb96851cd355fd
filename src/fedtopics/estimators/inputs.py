"""Inputs of estimators: documents and clients in any form, by client names valid in a study."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from fedtopics.errors import DataError, InputError, StudyError, check_keys
from fedtopics.escaping import CLIENT_NAME, plain_name
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import by_client
from fedtopics.federation.study_tables import USUAL_NAMES
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.text.columns import is_missing
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.readers import read_table
from fedtopics.text.rules import TextRules
from fedtopics.text.tables import Columns, Table, is_table
from fedtopics.text.vocabulary import VocabularyLimits

CLIENT_NAMES = ("client", "clients")  # columns that name a row's client


@dataclass(frozen=True)
class ClientInputs:
    """Several clients' documents by valid client names, and what people call the clients."""

    documents: dict[str, Any]
    keys: dict[str, Hashable]  # original keys by name
    columns: Columns  # of documents that are not yet read

    @classmethod
    def of(cls, clients: Any, column: str | None, columns: Columns) -> ClientInputs:
        """Take a mapping with any keys, a list, or a table with a column of clients."""
        if column is not None or is_table(clients):
            clients = _split(clients, column, columns)
            columns = Columns()
        clients = by_client(clients)
        if unnamed := sum(map(is_missing, clients)):
            raise DataError(
                f"{unnamed} of {len(clients)} clients have no name (None, NaN or an empty text); "
                "name them, or leave their documents out."
            )
        names = _names([*clients])
        documents = {names[key]: of_client for key, of_client in clients.items()}
        return cls(documents, {name: key for key, name in names.items()}, columns)

    def by_name(self, values: Mapping[Any, Any] | None) -> dict[str, Any]:
        """Return values by client name, given by name or original key; refuse other keys."""
        names: dict[Any, str] = {
            **{name: name for name in self.keys},
            **{key: name for name, key in self.keys.items()},
        }
        check_keys(values or {}, names, "client")
        return {names[key]: value for key, value in (values or {}).items()}

    def called(self, names: Mapping[Any, str] | None) -> dict[str, str]:
        """Return readable names of clients: given ones, or keys that differ from the valid name."""
        keys = {name: str(key) for name, key in self.keys.items() if str(key) != name}
        return keys | self.by_name(names)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a training."""

    corpora: Mapping[str, Corpus]
    policies: Mapping[str, Policy]
    columns: Sequence[str] | None  # the words of counts
    keys: Mapping[str, Hashable] = field(default_factory=dict)  # see `ClientInputs`
    called: Mapping[str, str] = field(default_factory=dict)  # by name, what people call clients
    out: Path | None = None
    text: str | None = None  # text column of tables


def columns_of(data: Any, words: Sequence[str] | None) -> Sequence[str] | None:
    """Return the words of counts, by default x0, x1, ...; None if the data are not counts."""
    if words is not None:
        return words
    is_counts = sparse.issparse(data) or (
        isinstance(data, np.ndarray) and data.ndim == 2 and data.dtype.kind in "iuf"
    )
    return [f"x{number}" for number in range(data.shape[1])] if is_counts else None


def corpus_of(
    data: Any,
    words: Sequence[str] | None,
    analyse: Callable[[str], list[str]] | None,
    columns: Columns,
) -> Corpus:
    """Return documents as a corpus: counts by their words, texts split by `analyse`."""
    for what, name in (("text", columns.text), ("person", columns.person)):
        if name is not None and not is_table(data) and not isinstance(data, (str, Path)):
            raise DataError(
                f"{what}={name!r} names a column, but the documents are neither a table nor a "
                f"file; leave {what} out, or give a table or a file."
            )
    if words is not None:
        return Corpus.of_counts(data, words)
    corpus = Corpus.of(data, columns)
    if analyse is None or corpus.is_tokenised:
        return corpus
    try:
        return corpus.split_by(lambda text: _words(analyse(text)))
    except InputError:
        raise
    except Exception as error:  # a user's function may raise anything, and may quote the text
        raise DataError(
            f"The tokenizer or analyzer raised {type(error).__name__} on a document; it must take "
            "a text and return its words, a list of str."
        ) from None


def has_column(data: Any, name: str | None) -> bool:
    """Whether documents are a table with this column, or a file, which may have it."""
    return (
        name in Table.of(data).names
        if is_table(data)
        else name is not None and isinstance(data, (str, Path))
    )


def _words(words: Iterable[object]) -> list[str]:
    if isinstance(words, str):
        raise TypeError  # else each letter would become a word
    return [*map(str, words)]


def _split(data: Any, column: str | None, columns: Columns) -> dict[Hashable, Corpus]:
    """Return the rows of each client, in order of first appearance."""
    if isinstance(data, (str, Path)):
        data = read_table(Path(data))
    if not is_table(data):
        raise DataError(
            "client= names a column, but the data are not a table; give a DataFrame, an Arrow "
            "table or the path of a file."
        )
    table = Table.of(data)
    name = table.find(column, CLIENT_NAMES)
    if name is None:
        raise DataError(
            "It is not clear which column of the table contains the clients; name it with "
            f"client=... ({table.listed})."
        )
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(table.column(name).plain()):
        if not isinstance(key, Hashable):
            raise DataError(f"Row {row + 1} of column {name!r} is a list; give strings or numbers.")
        rows.setdefault(key, []).append(row)
    if None in rows:
        raise DataError(
            f"{len(rows[None])} of {table.n_rows} rows have no client, the first of them row "
            f"{rows[None][0] + 1}: {name!r} is empty there; fill it in, or leave these rows out."
        )
    documents = Corpus.of(table.without(name), columns)
    return {key: documents.take(of_client) for key, of_client in rows.items()}


def _names(keys: Sequence[Hashable]) -> dict[Hashable, str]:
    """Return a valid client name for each key: the key itself, or the nearest free name."""
    names: dict[Hashable, str] = {
        key: key for key in keys if isinstance(key, str) and CLIENT_NAME.fullmatch(key)
    }
    taken = set(names.values())
    for number, key in enumerate(keys, 1):
        if key not in names:
            plain = plain_name(key) or f"client-{number}"
            others = (f"{plain}-{again}" for again in count(2))
            names[key] = plain if plain not in taken else next(n for n in others if n not in taken)
            taken.add(names[key])
    return names


def stop_word_settings(value: Any) -> dict[str, Any]:
    """Return the text settings for a language, a list of words, or None."""
    if value is None:
        return {"stop_words": "none"}
    if isinstance(value, str):
        return {} if value == TextRules().stop_words else {"stop_words": value}
    try:
        words = tuple(value)
    except TypeError:
        words = (None,)
    if not all(isinstance(word, str) for word in words):
        raise StudyError(
            f"stop_words={value!r:.80} cannot be used; give a language such as 'english' or 'de', "
            "a list of words, or None for no stop words."
        )
    return {"stop_words": "none", "own_stop_words": words}


FEWEST_DIMENSIONS = 32  # of embeddings; fewer columns may be labels
OF_POLICIES = {"memory", "min_persons", "min_persons_in_sum"}  # no estimator has these settings
# What BERTopic or scikit-learn calls by another name, and ours for the same purpose.
NAMES_HERE = {
    "approximate_distribution": "transform",
    "delete_topics": "merge_topics, with the topic it is nearest to",
    "generate_topic_labels": "suggest_labels",
    "get_representative_docs": "representative_documents",
    "get_topic_tree": "hierarchical_topics or plot_hierarchy",
    "hdbscan_model": "n_components, as topics are not found with UMAP and HDBSCAN",
    "min_topic_size": "n_components, as topics are not found with UMAP and HDBSCAN",
    "probabilities_": "transform",
    "reduce_outliers": "transform, which gives each document all topics",
    "representation_model": "suggest_labels, or topics with another relevance",
    "top_n_words": "topics, which takes n_words",
    "umap_model": "n_components, as topics are not found with UMAP and HDBSCAN",
    "zeroshot_topic_list": "seed_topics, with NMF or GuidedLDA",
    "get_topic_freq": "get_topic_info",
    "topic_labels_": "get_topic_info",
    "update_topics": "topics",
    "visualize_barchart": "plot_words",
    "visualize_distribution": "transform",
    "visualize_document_datamap": "document_map",
    "visualize_documents": "document_map",
    "visualize_heatmap": "plot_similarity",
    "visualize_hierarchy": "plot_hierarchy",
    "visualize_term_rank": "plot_words",
    "visualize_topics": "plot_map",
    "visualize_topics_over_time": "plot_over_time",
    "visualize_topics_per_class": "plot_groups, or topics_per_class for your own documents",
    "seed": "random_state",
    "seed_topic_list": "seed_topics, with NMF or GuidedLDA",
    "vectorizer_model": "tokenizer or analyzer",
    **{name: key.split(".")[-1] for name, key in USUAL_NAMES.items() if key not in OF_POLICIES},
}


def check_settings(settings: Mapping[str, Any], method: str, parameters: list[str]) -> None:
    """Raise StudyError for a setting that neither estimator, method nor study has."""
    if method in METHODS.names:  # else the study refuses it
        names = [
            *find_method(method).settings.model_fields,
            *TextRules.model_fields,
            *VocabularyLimits.model_fields,
            *parameters,
            *(f"embedding_{key}" for key in EmbeddingSettings.model_fields),
        ]
        if theirs := [key for key in settings if key in NAMES_HERE and key not in names]:
            raise StudyError(f"There is no setting {theirs[0]!r}; use {NAMES_HERE[theirs[0]]}.")
        check_keys(settings, names, "setting")


def check_ignored(y: object) -> None:
    """Refuse embeddings in the place of labels, where BERTopic takes them."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "f" and y.shape[1:] >= (FEWEST_DIMENSIONS,):
        raise DataError(
            "The second argument is for labels, which are not used, and these are embeddings; give "
            "Corpus.of(documents).with_embeddings(embeddings) as the documents."
        )


def seed_of(random_state: Any) -> int:
    """Return a study's seed from scikit-learn's random_state."""
    match random_state:
        case None:
            return secrets.randbits(31)
        case int() | np.integer():
            return int(random_state)
        case np.random.Generator():
            return int(random_state.integers(2**31))
    return int(check_random_state(random_state).randint(2**31))
