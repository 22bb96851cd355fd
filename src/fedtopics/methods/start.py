"""Topics that a training begins with, instead of random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.metrics import align_words
from fedtopics.topics import TopicModel


@dataclass(frozen=True)
class Start:
    """Topics to begin with.

    Parameters
    ----------
    words : sequence of str
    topics : float array of shape (n_topics, n_words)
        p(topic, word); not negative.
    further : TopicModel or None
        A model of this method that is trained further, on new documents besides those it has
        seen: its vocabulary stays, so that no words leave the clients.
    """

    words: Sequence[str]
    topics: NDArray[np.float64]
    further: TopicModel | None = None

    @classmethod
    def of(cls, given: Any) -> Start:
        """Begin with the topics of a TopicModel of any method, or with a pair (beta, words).

        Raises
        ------
        StudyError
            If it is neither, or beta and words do not fit together.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, TopicModel):
            return cls(given.vocabulary.words, given.share[:, None] * given.beta)
        try:
            beta, words = given
            topics = np.asarray(beta, np.float64)
            usable = np.isfinite(topics).all() and (topics >= 0).all() and topics.sum() > 0
            if topics.ndim != 2 or topics.shape[1] != len(words) or not usable:
                raise ValueError
        except (TypeError, ValueError):
            raise StudyError(
                "To begin with topics, give a TopicModel, or a pair of beta, not negative and not "
                "all zero, of shape (n_topics, n_words), and its words."
            ) from None
        return cls(list(words), topics / topics.sum())

    @property
    def fingerprint(self) -> str:
        """Digest of all of it: a run that is resumed has to begin with the same."""
        known = self.topics if self.further is None else self.further.beta
        digest = hashlib.sha256("\n".join(self.words).encode())
        digest.update(np.ascontiguousarray(known).tobytes())
        return digest.hexdigest()[:16]

    def lists(self, n_words: int) -> list[dict[str, float]]:
        """Return each topic as its first words with their weights in it."""
        found = []
        for topic in self.topics / np.maximum(self.topics.sum(1, keepdims=True), 1e-300):
            order = np.argsort(-topic, kind="stable")[:n_words]
            found.append({self.words[i]: float(topic[i]) for i in order if topic[i] > 0})
        return found

    def on(self, words: Sequence[str]) -> NDArray[np.float64]:
        """Return p(topic, word) of these words; a word that is new has none."""
        return align_words(self.topics, self.words, words)
