"""The topic model that a study yields: read, apply, save and load it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import sparray, spmatrix

from fedtopics.errors import DataError, refuse
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.model import (
    card,
    document_map,
    exports,
    figures,
    labels,
    local_effects,
    merging,
    over_time,
    search,
)
from fedtopics.model.finding import TopicFinder
from fedtopics.model.folder import read_model, write_model
from fedtopics.model.labels import checked_labels, checked_names, tidy
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary

MANY = 1e6  # occurrences of words in a topic of another library, whose shares these words show


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
    effects = local_effects.effects
    document_map = document_map.document_map
    plot_topics = figures.plot_topics
    plot_clients = figures.plot_clients
    plot_map = figures.plot_map
    plot_words = figures.plot_words
    plot_similarity = figures.plot_similarity
    plot_hierarchy = figures.plot_hierarchy
    plot_over_time = figures.plot_over_time
    plot_effects = figures.plot_effects
    plot_groups = figures.plot_groups
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
        return {
            "topics": self.topics(n_words, relevance),
            "topic-word-matrix": np.array(self.beta, np.float64),
            **(
                {}
                if documents is None
                else {"topic-document-matrix": self.transform(documents).T.astype(np.float64)}
            ),
        }

    def save_pretrained(self, path: str | Path) -> Path:
        """Write the model to a folder: safetensors, JSON and a card, without document text.

        Labels are in its ``topics.json``, which people may edit.
        """
        folder = Path(path).expanduser()
        write_model(self, folder, {})
        return folder

    @classmethod
    def from_matrix(cls, matrix: ArrayLike | sparray | spmatrix, words: Iterable[str]) -> Self:
        """Make a model of the topics of any library, to test, compare or show it.

        Topics of documents are found by variational steps of LDA. Texts are split without removing
        stop words; give documents as lists of words, or `Corpus.of_counts`, if the other library
        splits texts otherwise.

        Parameters
        ----------
        matrix : dense or sparse array of shape (n_topics, n_words)
            Weights of words, not negative: scikit-learn's ``components_``, gensim's
            ``get_topics()``, BERTopic's ``c_tf_idf_``. Rows are scaled to sum to 1.
        words : iterable of str
            The word of each column, such as ``vectorizer.get_feature_names_out()``.

        Raises
        ------
        DataError
            If weights are missing, negative or not numbers, or do not fit the words.

        Examples
        --------
        >>> TopicModel.from_matrix([[3, 1], [0, 2]], ["oak", "elm"]).beta.round(2).tolist()
        [[0.75, 0.25], [0.0, 1.0]]
        """
        names = tuple(map(str, words))
        try:
            weights = np.asarray(
                matrix.toarray() if isinstance(matrix, sparray | spmatrix) else matrix, np.float64
            )
        except (TypeError, ValueError):
            raise DataError(
                "The topics are not an array of numbers; give one row per topic."
            ) from None
        are_weights = weights.size > 0 and (weights >= 0).all() and np.isfinite(weights).all()
        refuse(
            {
                f"The topics have shape {weights.shape}, and there are {len(names):,} words, of "
                f"which {len({*names}):,} differ; give one word per column, such as "
                "vectorizer.get_feature_names_out().": (
                    weights.ndim != 2 or not weights.shape[1] == len({*names}) == len(names)
                ),
                "The topics have negative numbers, NaN or infinity, or there are none; give "
                "weights of words, 0 or more.": not are_weights,
            },
            error=DataError,
        )
        zeros = np.zeros(len(names), np.int64)
        return cls(
            inference=VariationalLDA(len(names), LDAPrior(n_components=len(weights))),
            weights={"pseudo_counts": exports.distributions(weights).T * MANY},
            shared={},
            vocabulary=Vocabulary(names, zeros, zeros),
            text=TextRules(
                stop_words="none",
                token_pattern="words-and-digits",  # noqa: S106 - no password
                ngrams=(1, max(len(name.split(" ")) for name in names)),
            ),
            shares={},
            documents={},
            word_sums=np.zeros(weights.shape),
        )

    @classmethod
    def from_pretrained(cls, path: str | Path) -> Self:
        """Read a model that `save_pretrained` wrote, with the labels of its ``topics.json``.

        Raises
        ------
        ModelError
            If there is no model, its format differs, it is damaged, or ``topics.json`` is invalid.
        """
        return cls(**read_model(Path(path).expanduser()))
