"""The topic model that a study yields: read, apply, save and load it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedtopics.model import card, document_map, exports, figures, labels, merging, over_time, search
from fedtopics.model.finding import TopicFinder
from fedtopics.model.folder import read_model, write_model
from fedtopics.model.labels import checked_labels, checked_names, tidy
from fedtopics.model.shown_words import WORDS_SHOWN


class TopicModel(TopicFinder):
    """Topics, and methods that find them in documents; its fields are those of `Topics`."""

    def with_labels(self, labels: Mapping[int, str] | Sequence[str]) -> Self:
        """Return the model with labels for these topics; others keep theirs, "" removes one.

        Raises
        ------
        StudyError
            If there is no such topic, or a label is not one line of at most 100 characters.
        """
        new = checked_labels(labels, self.n_topics)
        return replace(
            self,
            labels=tidy({**self.labels, **new}),
            unconfirmed=self.unconfirmed - new.keys(),
        )

    def with_suggested_labels(self, documents: Any = None, **how: Any) -> Self:
        """Return the model with rule-based labels for unlabelled topics; see `suggest_labels`.

        They are marked as suggested until a label is given with `with_labels` or in
        ``topics.json``.
        """
        suggested = self.suggest_labels(documents, **how)
        return replace(self.with_labels(suggested), unconfirmed=frozenset(suggested))

    def with_client_names(self, names: Mapping[str, str]) -> Self:
        """Return the model with names for these clients as people call them; "" removes one.

        Raises
        ------
        StudyError
            If there is no such client, two have the same name, or a name is not one line of at most
            100 characters.
        """
        return replace(
            self, client_names=checked_names({**self.client_names, **names}, self.documents)
        )

    # Methods with docstrings in their own modules.
    __repr__ = card.summary
    _repr_html_ = card.table
    find_topics = search.find_topics
    suggest_labels = labels.suggest_labels
    match_terms = search.match_terms
    hierarchy = merging.hierarchy
    merge_topics = merging.merge_topics
    reduce_topics = merging.reduce_topics
    topics_over_time = over_time.topics_over_time
    topics_per_class = over_time.topics_per_class
    document_map = document_map.document_map
    plot_topics = figures.plot_topics
    plot_clients = figures.plot_clients
    plot_map = figures.plot_map
    plot_over_time = figures.plot_over_time
    get_document_info = exports.document_info
    get_topics = exports.get_topics
    get_topic = exports.get_topic
    to_pandas = exports.to_pandas
    to_pyldavis = exports.to_pyldavis
    to_gensim = exports.to_gensim

    def to_octis(
        self, documents: Any = None, n_words: int = WORDS_SHOWN, relevance: float | None = None
    ) -> dict[str, Any]:
        """Return a dict as OCTIS' metrics expect a model's output.

        It has ``topics``, lists of `n_words` words; ``topic-word-matrix``, float64 beta of shape
        (n_topics, n_words); with documents, ``topic-document-matrix``, float64 (n_topics,
        n_documents).
        """
        output: dict[str, Any] = {
            "topics": self.topics(n_words, relevance),
            "topic-word-matrix": np.array(self.beta, np.float64),
        }
        if documents is not None:
            output["topic-document-matrix"] = self.transform(documents).T.astype(np.float64)
        return output

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model to a folder: safetensors, JSON and a card, without document text.

        Labels are in its ``topics.json``, which people may edit.
        """
        folder = Path(path).expanduser()
        write_model(self, folder, {})
        return folder

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Self:
        """Read a model that `save_pretrained` wrote, with the labels of its ``topics.json``.

        Raises
        ------
        ModelError
            If there is no model, its format differs, it is damaged, or ``topics.json`` is invalid.
        """
        return cls(**read_model(Path(path).expanduser()))
