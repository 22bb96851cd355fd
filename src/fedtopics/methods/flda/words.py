"""The words of F-LDA's topics, counted in all clients' documents: for coherence, and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.core.agreement import Agreement, adopt, counted
from fedtopics.methods.core.final import ALL, count_pairs
from fedtopics.methods.core.interfaces import Clients
from fedtopics.methods.core.replies import LONGEST, counts
from fedtopics.methods.flda.settings import FLDASettings
from fedtopics.methods.flda.state import GlobalTopic
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import WORDS_SHOWN
from fedtopics.text.vocabulary import Vocabulary


def adopt_words(clients: Clients, topics: Sequence[GlobalTopic]) -> Agreement:
    """Let clients adopt the words of topics; return the agreement on them."""
    total: dict[str, float] = {}
    for topic in topics:
        for word, weight in topic.words.items():
            total[word] = total.get(word, 0.0) + weight
    words = sorted(total, key=lambda word: (-total[word], word))
    adopt(clients, {"words": words, "total": 1, "length": 1.0})
    found = counted(clients, words)
    none = np.zeros(len(words), np.int64)
    vocabulary, of_all = Vocabulary(tuple(words), none, none), found["counts"]
    sizes = of_all["documents"], of_all["training"], 1.0
    return Agreement(clients, vocabulary, *sizes, sizes=found["sizes"])


def coherence_of(clients: Clients, topics: Sequence[GlobalTopic], settings: FLDASettings) -> float:
    """Return the mean coherence (C_V) of topics in all clients' documents; -1 of no topics."""
    if not topics:
        return -1.0
    shown = min(WORDS_SHOWN, *(len(topic.words) for topic in topics))
    words = [list(topic.words)[:shown] for topic in topics]
    ask = partial(count_pairs, adopt_words(clients, topics), part=ALL)
    within = cast(Literal["windows", "documents"], settings.coherence)
    return float(federated_coherence(ask, words, within)["c_v"].mean())


def count_topic_words(
    clients: Clients, topics: Sequence[GlobalTopic], eta: float
) -> tuple[Agreement, NDArray[np.float64]]:
    """Count the topics' words at the clients; return them, and the topics as pseudo-counts.

    Words of earlier documents, or of an absent client, count as in the topics: lift divides by
    their number.
    """
    agreement = adopt_words(clients, topics)
    n_words, index = len(agreement.vocabulary), agreement.vocabulary.index
    template = {"containing": counts(n_words, each=1), "occurrences": counts(n_words, each=LONGEST)}
    counted = agreement.sum("word_counts", template)
    pseudo_counts = np.full((n_words, len(topics)), eta)
    remembered = np.ones(n_words)
    for number, topic in enumerate(topics):
        rows = [index[word] for word in topic.words]
        weights = np.array(list(topic.words.values()))
        pseudo_counts[rows, number] += max(topic.occurrences, 1.0) * weights / weights.sum()
        remembered[rows] += topic.occurrences * weights
    occurrences = np.maximum(counted["occurrences"], remembered.astype(np.int64))
    vocabulary = Vocabulary(agreement.vocabulary.words, counted["containing"], occurrences)
    return replace(agreement, vocabulary=vocabulary), pseudo_counts
