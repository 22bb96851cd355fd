"""Clients that differ: documents dealt out by what they are about, and who finds what of it.

A subject is a topic of NMF of all texts, another method than those that are compared, with a seed
that is in no table; a document is of its largest one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.metrics import cosines
from fedtopics.metrics.similarity import Topic
from fedtopics.model.shown_words import WordRanking
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

SEED = 50
OWN = 0.9  # of a subject's documents that a client must have for the subject to be its own
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Subjects:
    """Topics that documents are sorted by: their first words, and each document's number."""

    topics: list[Topic]
    of: Numbers  # (n_documents,)


def find_subjects(corpus: Corpus, n_subjects: int, n_words: int) -> Subjects:
    """Find what documents are about."""
    study = Study.make(seed=SEED, method={"name": "nmf", "n_components": n_subjects})
    model = train(study, {"all": corpus})
    return Subjects(first_words(model, n_words), model.transform(corpus).argmax(1))


def first_words(model: TopicModel, n_words: int) -> list[Topic]:
    """Return a model's topics as their first words by weight, with the weights."""
    index = model.vocabulary.index
    return [
        {word: float(row[index[word]]) for word in words}
        for words, row in zip(model.words_by(WordRanking(1.0), n_words), model.beta, strict=True)
    ]


def deal_by_subject(of: Numbers, n_clients: int, documents: int, seed: int) -> list[Numbers]:
    """Deal documents out so that a subject is one client's, or two neighbours' where it is cut.

    Documents are drawn at random, sorted by subject, subjects being in random order, and cut into
    equal parts; the order in a part is random.
    """
    rng = np.random.default_rng([seed, 7])
    drawn = rng.permutation(len(of))[: n_clients * documents]
    place = rng.permutation(of.max() + 1)
    drawn = drawn[np.argsort(place[of[drawn]], kind="stable")]
    return [rng.permutation(drawn[n * documents : (n + 1) * documents]) for n in range(n_clients)]


def own_subjects(dealt: Mapping[str, Numbers]) -> dict[str, list[int]]:
    """Return the subjects that a client has nearly all documents of, by the subjects of each's."""
    n_subjects = 1 + max(int(labels.max()) for labels in dealt.values())
    counts = {name: np.bincount(labels, minlength=n_subjects) for name, labels in dealt.items()}
    total = np.maximum(sum(counts.values()), 1)
    return {name: np.flatnonzero(count >= OWN * total).tolist() for name, count in counts.items()}


def found(subjects: Sequence[Topic], topics: Sequence[Topic]) -> NDArray[np.float64]:
    """Return how well each subject is found: its cosine with the topic that is most like it."""
    if not topics:
        return np.zeros(len(subjects))
    best: NDArray[np.float64] = cosines(subjects, topics).max(1)
    return best


def found_own(
    subjects: Sequence[Topic],
    by_client: Mapping[str, Iterable[int]],
    topics: Mapping[str, Sequence[Topic]],
) -> float:
    """Return how well clients' own subjects are found in the topics that each of them has."""
    scores = (found(subjects, topics[name])[[*numbers]] for name, numbers in by_client.items())
    return float(np.mean([*chain.from_iterable(scores)]))
