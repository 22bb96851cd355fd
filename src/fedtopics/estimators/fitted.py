"""What a fitted estimator says of its topics, by the names of scikit-learn and BERTopic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedtopics.federation.sweep import held_out_loss
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus


class FittedTopics:
    """The topics of an estimator: those of its `model_`, whatever was done to it."""

    model_: TopicModel
    _corpus: Callable[..., Corpus]  # documents in any form, as a corpus

    @property
    def topics_(self) -> list[list[str]]:
        """Ten words of each topic."""
        return self.model_.topics()

    @property
    def beta_(self) -> NDArray[np.float64]:
        """Topics, of shape (n_topics, n_words); rows sum to 1."""
        return self.model_.beta

    @property
    def components_(self) -> NDArray[np.float64]:
        """The same as `beta_`, by scikit-learn's name; its columns are `vocabulary_`."""
        return self.model_.beta

    @property
    def vocabulary_(self) -> tuple[str, ...]:
        """Words, the most frequent first."""
        return self.model_.vocabulary.words

    def topics(self, n_words: int = 10, lambda_: float | None = None) -> list[list[str]]:
        """Return words of each topic, as `TopicModel.topics` does; ten of them are `topics_`."""
        return self._fitted().topics(n_words, lambda_)

    def get_topics(self, n_words: int = 10) -> dict[int, list[tuple[str, float]]]:
        """Return words of each topic with their p(word | topic), by its number."""
        return self._fitted().get_topics(n_words)

    def get_topic(self, topic: int, n_words: int = 10) -> list[tuple[str, float]]:
        """Return words of a topic with their p(word | topic)."""
        return self._fitted().get_topic(topic, n_words)

    def get_topic_info(self, topic: int | None = None, n_words: int = 10) -> Any:
        """Return a DataFrame, a row a topic, largest first: see `TopicModel.to_pandas`.

        With `topic`, the row of that one alone.
        """
        info = self._fitted().to_pandas(n_words)
        return info if topic is None else info[info["Topic"] == topic].reset_index(drop=True)

    def get_document_info(
        self, documents: Any, n_words: int = 10, *, words: Sequence[str] | None = None
    ) -> Any:
        """Return a DataFrame, a row a document: see `TopicModel.get_document_info`."""
        info = self._fitted().get_document_info(self._corpus(documents, words), n_words)
        return info.set_axis(documents.index) if _has_rows(documents) else info

    def find_topics(
        self,
        query: str | Sequence[str],
        top_n: int = 5,
        *,
        by: Literal["words", "meaning"] = "words",
        embedding_model: str | None = None,
    ) -> tuple[list[int], list[float]]:
        """Return the topics that a word or a sentence is about: see `TopicModel.find_topics`."""
        if isinstance(query, str):  # whose words are found as those of documents
            [words] = next(self._corpus([query]).batches())
            query = query if isinstance(words, str) or by == "meaning" else words
        how: dict[str, Any] = {"by": by, "embedding_model": embedding_model}
        return self._fitted().find_topics(query, top_n, **how)

    def set_topic_labels(self, labels: Mapping[int, str]) -> None:
        """Call topics by names of your own, "" for none: see `TopicModel.with_labels`."""
        self.model_ = self._fitted().with_labels(labels)

    def suggest_labels(self, documents: Any = None, **how: Any) -> dict[int, str]:
        """Call topics that nobody has named as rules suggest, in place; return these labels.

        They are marked as suggested wherever they are shown: see `TopicModel.suggest_labels`.
        """
        corpus = None if documents is None else self._corpus(documents)
        self.model_ = self._fitted().with_suggested_labels(corpus, **how)
        return {topic: self.model_.labels[topic] for topic in sorted(self.model_.suggested)}

    def score(self, documents: Any, y: Any = None, *, words: Sequence[str] | None = None) -> float:
        """Return how well topics predict documents, in nats a word; more is better.

        It is the mean log-likelihood of the words of one half of each document, given the other
        half: see `fedtopics.federation.sweep.held_out_loss`. `GridSearchCV` takes it by itself.
        """
        return -held_out_loss(self._fitted(), {"": self._corpus(documents, words)}, 0)

    def _by_key(self, by_name: Mapping[str, Any]) -> dict[Any, Any]:
        """Return what there is by a client's name, by what the client was given under."""
        keys = getattr(self, "clients_", {})
        return {keys.get(name, name): each for name, each in by_name.items()}

    def _fitted(self) -> TopicModel:
        """The fitted model; scikit-learn's NotFittedError where there is none."""
        check_is_fitted(self)
        return self.model_


def _has_rows(documents: Any) -> bool:
    """Whether documents are pandas', whose rows have an index."""
    return hasattr(documents, "iloc")
