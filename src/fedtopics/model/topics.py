"""The topics of a model, readable without documents, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NotRequired

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from fedtopics.errors import check_number
from fedtopics.inference import Inference, Shared, Weights
from fedtopics.model.effects import Effects, GroupTable
from fedtopics.model.nearness import Nearness
from fedtopics.model.shown_words import DEFAULT_RANKING, NAME_WORDS, WORDS_SHOWN, WordRanking
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary

ALIKE = 0.8  # least part of a topic's first words that are those of another
Count = Annotated[int, Field(ge=0, le=1 << 53)]  # exact in float64


class PastTopic(TypedDict):
    """A new or vanished topic, by its first words."""

    id: int
    words: list[str]


class PastRound(TypedDict):
    """The topics after a round, for methods whose topics change; a method may add keys."""

    round: Count
    documents: Count
    topics: list[PastTopic]
    new: list[int]  # ids
    vanished: list[PastTopic]


class Origin(TypedDict):
    """The model with which a training began."""

    model: str  # fingerprint of its words and weights
    method: str
    rounds: Count
    vocabulary: str  # "keep" or "agree"


class MergedModel(TypedDict):
    """One of the separately trained models that were merged."""

    model: str  # fingerprint of its words and weights
    method: str
    topics: Count
    clients: list[str]


class PrivacyGuarantee(TypedDict):
    """The privacy guarantee for all releases of a study."""

    epsilon: Annotated[FiniteFloat, Field(gt=0)]
    delta: Annotated[FiniteFloat, Field(gt=0)]
    unit: str
    most_documents: NotRequired[Count]  # most documents of a person that count
    seeded: bool  # whether the noise was drawn from the study's seed


class TrainingInfo(TypedDict, total=False):
    """`TopicModel.info`: a plain dict. A method may add keys, in a TypedDict that extends this."""

    method: str  # the name of the method
    rounds: Count  # all, including those of earlier trainings
    seed: int
    length: Annotated[FiniteFloat, Field(gt=0)]
    """Words of an average document, where the network's loss depends on it."""
    seen: Count  # documents of this and earlier trainings
    sizes: dict[str, list[Count]]  # by client, the documents of each cluster
    unclear: dict[str, Count]  # by client, documents whose likeliest cluster is below one half
    same: Count  # clusters that equal another one
    numbers: dict[str, FiniteFloat]  # scores of the numbers of topics that were tried
    nearness: Nearness  # of documents to topics, if the study's documents have embeddings
    range: tuple[int, int]  # the least and the largest number of topics about as good
    ids: list[int]  # by topic, its number across rounds, for methods whose topics change
    masked: bool  # whether aggregation was secure
    data_sent: list[dict[str, str]]  # by function: when it was called, what was sent, who saw it
    privacy: PrivacyGuarantee
    history: list[Any]  # of `PastRound`, perhaps with keys of the method
    continued: Origin  # the model with which training began, if any
    merged: list[MergedModel]  # the models that were merged, instead of a training


@dataclass(frozen=True, repr=False)
class Topics:
    """The numbers of a `TopicModel`, and its topics as words."""

    inference: Inference  # a network, or LDA, or clusters
    weights: Weights
    shared: Shared  # by stage: values common to all documents, such as running statistics
    vocabulary: Vocabulary
    text: TextRules
    shares: Mapping[str, NDArray[np.float64]]  # by client: mean theta of its documents, (n_topics,)
    documents: Mapping[str, int]  # by client
    # Word counts of all clients' documents, weighted by theta, (n_topics, n_words), without words
    # that are rarer at a client than its policy allows.
    word_sums: NDArray[np.float64]
    word_ranking: WordRanking = DEFAULT_RANKING  # how topics are read, see `topics`
    # By measure, (n_topics,): of each topic's ten first words, in the clients' documents except
    # those that helped to choose the words.
    coherence: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    info: TrainingInfo = field(default_factory=TrainingInfo)
    labels: Mapping[int, str] = field(default_factory=dict)  # by topic
    client_names: Mapping[str, str] = field(default_factory=dict)  # what people call clients
    unconfirmed: frozenset[int] = frozenset()  # topics whose label nobody has confirmed
    groups: tuple[GroupTable, ...] = ()  # shares by group, if the study compares documents
    estimates: tuple[Effects, ...] = ()  # differences between groups, see `TopicModel.effects`

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return int(self.inference.settings.n_components)

    @property
    def shows_clusters(self) -> bool:
        """Whether the model has clusters of documents instead of topics of words."""
        return self.inference.shows == "clusters"

    @cached_property
    def beta(self) -> NDArray[np.float64]:
        """Topics as the decoder uses them, shape (n_topics, n_words); rows sum to 1."""
        return np.asarray(self.inference.beta(self.weights, self.shared))

    @property
    def share(self) -> NDArray[np.float64]:
        """Mean theta over all documents, shape (n_topics,)."""
        total = max(sum(self.documents.values()), 1)
        return sum(
            (self.shares[name] * n / total for name, n in self.documents.items()),
            np.zeros(self.n_topics),
        )

    def client_name(self, client: str) -> str:
        """Return what people call a client."""
        return self.client_names.get(client, client)

    def topics(self, n_words: int = WORDS_SHOWN, relevance: float | None = None) -> list[list[str]]:
        """Return the words of each topic, the most relevant first.

        By default words are ranked as in `word_ranking`; its `first` words come before all others.
        `relevance` ranks only by relevance: 1 by probability, 0 by lift.

        Raises
        ------
        StudyError
            If `n_words` is less than 1, or `relevance` is not between 0 and 1.
        """
        return self.words_by(self._ranking(relevance), n_words)

    @property
    def repeated(self) -> list[int]:
        """Topics of whose ten first words an earlier topic has at least eight, of fifty or more."""
        if len(self.vocabulary) < 5 * WORDS_SHOWN:  # any two topics have many in common
            return []
        first = [{*words} for words in self.topics(WORDS_SHOWN)]
        least = ALIKE * WORDS_SHOWN
        return [
            topic
            for topic, words in enumerate(first)
            if any(len(words & earlier) >= least for earlier in first[:topic])
        ]

    def _ranking(self, relevance: float | None) -> WordRanking:
        return (
            self.word_ranking
            if relevance is None
            else WordRanking(relevance, self.word_ranking.by_sums)
        )

    @property
    def word_shares(self) -> NDArray[np.float64]:
        """The p(word | topic) that rank words, shape (n_topics, n_words); see `WordRanking`."""
        return self._shares(self.word_ranking)

    def _shares(self, ranking: WordRanking) -> NDArray[np.float64]:
        return (
            np.asarray(self.word_sums / np.maximum(self.word_sums.sum(1, keepdims=True), 1))
            if ranking.by_sums
            else self.beta
        )

    def words_by(self, ranking: WordRanking, n_words: int = WORDS_SHOWN) -> list[list[str]]:
        """Return the words of each topic under a ranking."""
        check_number(n_words, "n_words")
        return [[self.vocabulary.words[i] for i in row] for row in self.columns(ranking, n_words)]

    def columns(self, ranking: WordRanking, n_words: int) -> NDArray[np.int64]:
        """Return the words of each topic under a ranking as columns, (n_topics, n_words)."""
        return ranking.order(self._shares(ranking), self.vocabulary.frequency, n_words)

    def get_topic_info(
        self, n_words: int = WORDS_SHOWN, relevance: float | None = None
    ) -> list[dict[str, Any]]:
        """Return one row per topic, largest first; `to_pandas` names the columns as BERTopic does.

        Returns
        -------
        list of dict
            ``topic``, its number; ``label``, or ""; ``suggested``, the label if it is a suggestion
            that nobody has confirmed, else ""; ``share`` of all documents, and the same as a
            ``count`` of documents; ``name``, the number and four words; ``words``; ``coherence`` of
            its ten first words by measure (empty if `relevance` selects other words); ``clients``,
            its share of each client's documents, by the clients' names.
        """
        words = self.topics(max(n_words, NAME_WORDS), relevance)
        scores = self.coherence if self._ranking(relevance) == self.word_ranking else {}
        shares = self.share
        total = sum(self.documents.values())
        return [
            {
                "topic": int(k),
                "label": self.labels.get(int(k), ""),
                "suggested": self.labels.get(int(k), "") if k in self.unconfirmed else "",
                "share": float(shares[k]),
                "count": round(float(shares[k]) * total),
                "name": "_".join([str(k), *words[k][:NAME_WORDS]]),
                "words": words[k][:n_words],
                "coherence": {name: float(score[k]) for name, score in scores.items()},
                "clients": {self.client_name(name): float(s[k]) for name, s in self.shares.items()},
            }
            for k in np.argsort(-shares, kind="stable")
        ]
