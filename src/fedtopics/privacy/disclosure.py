"""What a topic model discloses about the persons whose documents it was trained on (`disclosure`).

References
----------
Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
Statistics in Medicine 2006: method 5 is the interval of an AUC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy  # whose parts are loaded when they are used
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import sparray, spmatrix
from scipy.special import ndtri

from fedtopics.errors import DataError
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.model.card import promise
from fedtopics.model.comparison import compare
from fedtopics.model.folder import weight_arrays
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import count_words, persons_by_word

FALSE_POSITIVES = 0.01  # share of other documents that may be taken for members
UNKNOWN = 1e-6  # probability of a word that a model does not know
CONFIDENCE = 0.95  # of intervals


@dataclass(frozen=True)
class Attack:
    """How well the likelihood of documents separates persons of the training from others."""

    auc: float
    """How often a person of the training has a higher likelihood than another; .5 by chance."""
    auc_interval: tuple[float, float]
    recognised: float
    """Share of the persons of the training that is recognised, at `FALSE_POSITIVES`."""
    recognised_interval: tuple[float, float]
    members: int
    others: int


@dataclass(frozen=True)
class Difference:
    """What a reader of two models can subtract."""

    words: Sequence[str] = field(repr=False)
    """Words that only one of the models has; for the owner of the documents."""
    fewest_persons: int | None
    """Persons, in the documents given, with the rarest of `words`."""
    topics: int
    """How many topics only one of the models has."""
    changed_words: int
    """Words of both models whose numbers of documents differ."""
    fewest_documents: int
    """Smallest such difference; the numbers of a model may be rounded. 0 without any."""


@dataclass(frozen=True)
class Disclosure:
    """What an output checker must know of a model."""

    contents: Mapping[str, tuple[int, ...]]
    """Shape of each array."""
    least: int
    unit: str
    """What counts as a person, in the plural: patients, persons, or documents."""
    unread: int
    """Documents that contain nothing the model knows."""
    word_persons: Mapping[str, int] = field(repr=False)
    """Persons with each word; for the owner of the documents. Empty without documents."""
    topic_persons: Sequence[int]
    """Persons with each topic as the largest of their documents. Empty without documents."""
    attack: Attack | None
    differences: Sequence[Difference]
    noise: dict[str, bool]
    """A sentence about differential privacy, and whether an approver should look at it."""

    @property
    def rare_words(self) -> list[str]:
        """Words of fewer than `least` persons, rarest first; for the owner of the documents."""
        persons = self.word_persons
        return sorted((w for w in persons if 0 < persons[w] < self.least), key=persons.__getitem__)

    @property
    def remarks(self) -> dict[str, dict[str, bool]]:
        """Sentences by subject, and whether an approver should look at each."""
        return {
            "persons": _on_persons(self) if self.word_persons else NO_DOCUMENTS,
            "attack": NO_ATTACK if self.attack is None else _on_attack(self.attack, self.unit),
            "differences": {
                sentence: concerning
                for number, difference in enumerate(self.differences, 1)
                for sentence, concerning in _on_difference(number, difference, self.unit).items()
            }
            or {"No earlier model was given to compare.": False},
            "noise": self.noise,
        }

    @property
    def to_check(self) -> list[str]:
        """The sentences that an approver should look at."""
        return [
            sentence
            for remarks in self.remarks.values()
            for sentence, concerning in remarks.items()
            if concerning
        ]


NO_NOISE = "Epsilon is none, because there is no differential privacy"
NO_DOCUMENTS = {
    "The documents of the training were not given, so it is not known of how few persons the words "
    "and topics are.": True
}
NO_ATTACK = {
    "No attack on this model was tried, because it needs documents of the training and documents "
    "of others that were not used.": True
}


def disclosure(
    model: TopicModel | ArrayLike | sparray | spmatrix,
    documents: object = None,
    *,
    words: Sequence[str] = (),
    others: object = None,
    earlier: Sequence[TopicModel] = (),
    least: int = 10,
) -> Disclosure:
    """Find what a topic model discloses about the persons whose documents it was trained on.

    Parameters
    ----------
    model : TopicModel, or array of shape (n_topics, n_words)
        A matrix may be of any library, as for `TopicModel.from_matrix`.
    documents : whatever `Corpus.of` takes, optional
        The documents of the training. A corpus may have persons; else each document is a person.
    words : sequence of str
        The word of each column of a matrix.
    others : whatever `Corpus.of` takes, optional
        Documents of other persons, not used for training and drawn like the `documents`: an attack
        also notices any other way in which they differ.
    earlier : sequence of TopicModel
        Models that the same readers have.
    least : int
        Words of fewer persons count as rare.

    Raises
    ------
    DataError
        If the matrix does not fit the words, no document has a word of the model, or `others` has
        fewer than two persons or some of the same.

    Examples
    --------
    >>> topics = [[3, 1, 0], [0, 0, 5]]
    >>> shown = disclosure(topics, [["oak", "elm"], ["oak"], ["flu"]], words=["oak", "elm", "flu"])
    >>> shown.word_persons, shown.topic_persons
    ({'oak': 2, 'elm': 1, 'flu': 1}, [2, 1])
    """
    if not isinstance(model, TopicModel):
        model = TopicModel.from_matrix(model, words)
    corpus = None if documents is None else model.embedded(Corpus.of(documents))
    persons, topics, unread = ({}, [], 0) if corpus is None else _persons(model, corpus)
    privacy = model.info.get("privacy")
    # Arrays of zeros, as in a model of another library's topics, disclose nothing.
    arrays = {
        **weight_arrays(model),
        "words": np.array(model.vocabulary.words, object),
        "documents with each word": model.vocabulary.document_frequency,
        "occurrences of each word": model.vocabulary.occurrences,
        "topics' shares, by client": np.array([*model.shares.values()]),
        "documents, by client": np.array([*model.documents.values()]),
        **{f"coherence of topics, {name}": scores for name, scores in model.coherence.items()},
        **{f"topics by {table.name}": table.shares for table in model.groups},
        **{f"effects of {of.formula}": of.coefficients for of in model.estimates},
    }
    return Disclosure(
        contents={name: tuple(array.shape) for name, array in arrays.items() if array.any()},
        least=least,
        unit="documents" if corpus is None else corpus.unit,
        unread=unread,
        word_persons=persons,
        topic_persons=topics,
        attack=None if corpus is None or others is None else _attack(model, corpus, others),
        differences=[_difference(model, before, corpus) for before in earlier],
        noise={f"{promise(model) or NO_NOISE}.": privacy is None or privacy["seeded"]},
    )


def _persons(model: TopicModel, corpus: Corpus) -> tuple[dict[str, int], list[int], int]:
    """Return the persons with each word and each topic, and how many documents have neither."""
    persons = persons_by_word(model.count_words(corpus), corpus.owners).tolist()
    if not any(persons):
        raise DataError(
            "No document contains a word of the model; give the documents of its training, as "
            "lists of words if the model's library splits texts otherwise."
        )
    _, theta, seen = model.read(corpus)
    shares = np.zeros((corpus.n_persons(), model.n_topics))
    np.add.at(shares, corpus.person_numbers[seen], theta[seen])
    return (
        dict(zip(model.vocabulary.words, persons, strict=True)),
        np.bincount(shares[shares.any(1)].argmax(1), minlength=model.n_topics).tolist(),
        int((~seen).sum()),
    )


def _attack(model: TopicModel, documents: Corpus, others: object) -> Attack:
    """Take persons whose documents are likelier, by the model, for those of the training."""
    corpora = [documents, model.embedded(Corpus.of(others))]
    names = [{""} if side.persons is None else {*side.persons.to_pylist()} for side in corpora]
    if shared := names[0] & names[1] - {""}:
        raise DataError(
            f"{len(shared):,} persons have documents in others and in those of the training; "
            "leave their documents out of others."
        )
    members, strangers = (_likelihood_of_persons(model, side) for side in corpora)
    if min(len(members), len(strangers)) < 2:
        raise DataError(
            "An attack needs documents of two or more persons of the training and of two or more "
            "others; give more documents."
        )
    auc, recognised = rates(
        np.concatenate([members, strangers]),
        np.arange(len(members) + len(strangers)) < len(members),
    )
    n_recognised = round(recognised * len(members))
    interval = scipy.stats.binomtest(n_recognised, len(members)).proportion_ci(
        CONFIDENCE, method="wilson"
    )
    return Attack(
        auc=auc,
        auc_interval=auc_interval(auc, len(members), len(strangers)),
        recognised=recognised,
        recognised_interval=(float(interval.low), float(interval.high)),
        members=len(members),
        others=len(strangers),
    )


def _likelihood_of_persons(model: TopicModel, corpus: Corpus) -> Numbers:
    """Return the mean log-likelihood of each person's documents that are not empty."""
    scores = likelihoods(model, corpus)
    rows = np.flatnonzero(scores)  # an empty document has 0
    _, person = np.unique(corpus.person_numbers[rows], return_inverse=True)
    return np.asarray(np.bincount(person, scores[rows]) / np.bincount(person))


def auc_interval(auc: float, n_members: int, n_others: int) -> tuple[float, float]:
    """Return the interval of an `auc` that was measured on `n_members` and `n_others`."""
    inside = min(max(auc, TINY), 1 - TINY)
    mean = (n_members + n_others) / 2 - 1

    def excess(true: float) -> float:
        """By how much a true AUC is farther from the measured one than chance explains."""
        spread = 1 + mean * ((1 - true) / (2 - true) + true / (1 + true))
        variance = true * (1 - true) * spread / (n_members * n_others)
        return float((inside - true) ** 2 - ndtri((1 + CONFIDENCE) / 2) ** 2 * variance)

    root = scipy.optimize.brentq
    return root(excess, 0, inside), root(excess, inside, 1)


def _difference(later: TopicModel, before: TopicModel, corpus: Corpus | None) -> Difference:
    compared = compare(before, later)
    counts = [
        dict(zip(model.vocabulary.words, model.vocabulary.document_frequency.tolist(), strict=True))
        for model in (before, later)
    ]
    changes = [abs(counts[1][word] - n) for word, n in counts[0].items() if word in counts[1]]
    words = sorted(counts[0].keys() ^ counts[1].keys())
    index = {word: number for number, word in enumerate(words)}
    persons = (
        np.zeros(0)
        if corpus is None
        else persons_by_word(count_words(corpus, later.text, index).counts, corpus.owners)
    )
    return Difference(
        words=words,
        fewest_persons=min(filter(None, persons.tolist()), default=None),
        topics=len([*compared.new, *compared.removed]),
        changed_words=len([*filter(None, changes)]),
        fewest_documents=min(filter(None, changes), default=0),
    )


def _on_persons(about: Disclosure) -> dict[str, bool]:
    place = "in" if about.unit == "documents" else "in documents of"
    numbers = [*about.word_persons.values()]
    rarest = min(filter(None, numbers))
    smallest = min(filter(None, about.topic_persons), default=0)
    return {
        f"Of {len(numbers):,} words, the number of those {place} fewer than {about.least} "
        f"{about.unit} is {len(about.rare_words):,}; the rarest is {place} {rarest:,}.": (
            rarest < about.least
        ),
        f"The smallest group of {about.unit} with the same largest topic has {smallest:,}; the "
        f"number of topics without a group is {[*about.topic_persons].count(0):,}.": (
            smallest < about.least
        ),
        f"The number of words that are in none of these documents is {numbers.count(0):,}; such a "
        "word is another member's, or the documents are not those of the training.": 0 in numbers,
        f"The number of documents that contain nothing the model knows is {about.unread:,}.": False,
        "The documents have no column of persons, so each counts as a person."
        if place == "in"
        else f"These numbers count {about.unit}, not documents.": place == "in",
    }


def _on_attack(attack: Attack, unit: str) -> dict[str, bool]:
    low, high = attack.auc_interval
    least, most = attack.recognised_interval
    return {
        f"By the likelihood of their documents, an attacker separates {attack.members:,} {unit} of "
        f"the training from {attack.others:,} others with an AUC of {attack.auc:.3f} "
        f"({CONFIDENCE:.0%} interval {low:.3f} to {high:.3f}; .500 by chance). At "
        f"{FALSE_POSITIVES:.0%} false positives, the attacker recognises {attack.recognised:.1%} "
        f"of those of the training (interval {least:.1%} to {most:.1%}). Any other difference "
        "between these documents and those of the others counts, too.": low > 1 / 2
    }


def _on_difference(number: int, difference: Difference, unit: str) -> dict[str, bool]:
    return {
        f"Compared with the earlier model {number}, the number of words that only one of both has "
        f"is {len(difference.words):,}; the fewest {unit} with such a word are "
        f"{difference.fewest_persons or 'not known'}. The number of topics that only one has is "
        f"{difference.topics:,}. The number of common words whose counts of documents differ is "
        f"{difference.changed_words:,}; the smallest difference is "
        f"{difference.fewest_documents:,}.": any(
            [difference.words, difference.topics, difference.changed_words]
        )
    }


def likelihoods(model: TopicModel, corpus: Corpus) -> Numbers:
    """Return, by a `model`, the mean log-likelihood of the words of each document of a `corpus`.

    An empty document has 0.
    """
    counts = model.count_words(corpus).astype(np.float64).tocoo()
    rows, columns = counts.coords
    shares = np.einsum(
        "nk,kn->n",
        model.transform(corpus)[rows].astype(np.float64),
        model.beta[:, columns],
    )
    of_known_words = np.bincount(
        rows, counts.data * np.log(np.maximum(shares, UNKNOWN)), len(corpus)
    )
    lengths = count_words(corpus, model.text).counts.sum(1)
    n_unknown = lengths - np.bincount(rows, counts.data, len(corpus))
    return np.asarray((of_known_words + n_unknown * math.log(UNKNOWN)) / np.maximum(lengths, 1))


def rates(scores: Numbers, members: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the AUC of `scores`, and the share of `members` found at `FALSE_POSITIVES`."""
    from sklearn.metrics import roc_auc_score

    return (
        float(roc_auc_score(members.ravel(), scores.ravel())),
        float((scores[members] > np.quantile(scores[~members], 1 - FALSE_POSITIVES)).mean()),
    )
