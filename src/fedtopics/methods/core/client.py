"""What the client halves of all methods have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.methods.core.aggregation import Named
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    Groups,
    Guard,
    OverTime,
    Thetas,
    enough_have,
    own_sums,
)
from fedtopics.methods.core.plan import Plan, Secret, Site
from fedtopics.methods.core.replies import LONGEST
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.coherence import count_pairs
from fedtopics.privacy import Noise
from fedtopics.text.vocabulary import WordCounts, count_words, fingerprint, set_aside

Settings = TypeVar("Settings", bound=TopicSettings)
Documents = NDArray[np.int64]
"""Row numbers of documents."""
CHOOSING, SCORED, ALL = range(3)
"""Of the documents that pairs of words are counted in: those that choose which words are shown,
those that these are scored on, or both halves."""
EVALUATION_BATCH = 1024
Function = TypeVar("Function", bound=Callable[..., dict[str, Any]])


def leaves(
    what: str, seen_by_all: bool = False, noise: bool | None = None
) -> Callable[[Function], Function]:
    """Publish a function of a client's half: its replies may leave, if the schedule has it.

    `what` says for people what leaves the client with a reply. Some are `seen_by_all`, one by one,
    as they are no part of a sum. Where `noise` is not None, documents are others at each attempt at
    a round, and so are replies if it is True.
    """

    def publish(function: Function) -> Function:
        function.leaves = what  # type: ignore[attr-defined]
        function.seen_by_all = seen_by_all  # type: ignore[attr-defined]
        function.noise = noise  # type: ignore[attr-defined]
        return function

    return publish


class TopicClient(ABC, Generic[Settings]):
    """A client's documents, and what its program computes of them in any method.

    It complies with the site's policy itself, besides the client's door. What it draws it draws
    from the client's secret. Sums of drawn documents are drawn anew at each attempt at a round;
    what all see one by one is the same at each.
    """

    def __init__(self, plan: Plan[Settings], site: Site) -> None:
        self.name = site.name
        self.site = site
        self.settings = plan.settings
        self.method = self.settings.method_name
        self.min_documents = site.policy.min_documents
        self.guard = Guard(self.min_documents, site.masked and site.policy.counts_of_all)
        rarest = plan.limits.min_document_frequency, site.policy.min_document_frequency
        self._rarest = max(rarest)
        self.secret = site.secret or Secret.from_seed(plan.seed, site.name)
        self.noise = Noise(self.secret.derive, plan.clients)
        self.noisy = plan.privacy is not None  # in a turn replies are the same at each attempt
        self.attempt = 1  # at the present round; the door says which
        self._public_seed = plan.seed  # of what is the same at all clients
        self._corpus = site.corpus
        self._text = plan.text
        self._limits = plan.limits
        self._fingerprint = ""
        self.published = _published(self)

    together: Callable[[Sequence[Any]], Any] | None = None
    """Of halves in one process, return what computes sums of them at once: it has the names of its
    `functions`, and the numbers of `documents` of the last one, in the halves' order. Or None."""

    summed = 0
    """How many documents a reply is of, where it does not say so as their number does not leave."""

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls which function."""
        first = dict.fromkeys(("vocabulary", "counted"), "once")
        return first | cls.rounds(settings) | cls.end(settings)

    @staticmethod
    def end(settings: TopicSettings) -> dict[str, str]:
        """Return which functions a study calls at its end."""
        calls = dict.fromkeys(("shares", "word_sums"), "once, at the end")
        if settings.coherence != "nothing":
            calls["pairs"] = f"{'twice' if settings.chooses_words else 'once'}, at the end"
        if settings.over_time is not None:
            by_client = settings.over_time.by_client
            calls["period_shares" if by_client else "period_sums"] = "once, at the end"
        return calls

    @staticmethod
    @abstractmethod
    def rounds(settings: Any) -> dict[str, str]:
        """Return how often a study with these settings calls which function before its end."""

    def n_topics(self, **model: Any) -> int:
        """Return the number of topics of the trained model."""
        return int(self.settings.n_components)

    @abstractmethod
    def thetas(self, **model: Any) -> Thetas:
        """Infer theta of all usable documents, in batches, by the trained model."""

    def find_usable(self) -> Documents:
        """Return the rows of the documents that topics can be inferred for: those with a word."""
        return np.flatnonzero(np.diff(self.bag.indptr))

    def split(self, documents: int, total: int) -> int:
        """Choose the documents to train with among the usable ones; return their number."""
        return len(self.usable)

    @cached_property
    def _counts(self) -> WordCounts:
        return count_words(self._corpus, self._text)

    def count(self, words: Mapping[str, int]) -> sparse.csr_array:
        """Count these words in the documents, each in its column."""
        return self._counts.columns(words)

    def forget(self) -> None:
        """Start a new study: earlier replies belonged to another one."""

    @leaves(
        "The words that enough of the documents have: how many documents have each, how often it "
        "occurs, a 1, by which clients are counted, and whether it is one of the most frequent "
        "here; the number of documents."
    )
    def vocabulary(self, places: int) -> dict[str, Any]:
        """Count the words that enough of the documents have (gFedNTM's GetClientVocab).

        Marked are as many as the client has `places` for, its most frequent ones.
        """
        self.forget()
        rarest = self._limits.min_document_frequency, self.site.policy.min_document_frequency
        words, counted = _named(self._counts, *rarest)
        if counted[:, 1].sum() > LONGEST * len(self._corpus):
            raise DataError(
                f"The documents of client {self.name!r} have more than {LONGEST:,} words on "
                "average; split them."
            )
        ones = np.ones(len(words), np.int64)
        first = np.zeros(len(words), np.int64)
        first[np.argsort(-counted[:, 1], kind="stable")[:places]] = 1
        columns = np.column_stack([counted, ones, first])
        return {"words": Named(words, columns), "documents": len(self._corpus)}

    def adopt(self, words: list[str], total: int, length: float) -> None:
        """Adopt the agreed vocabulary; told, nothing leaves.

        `total` is the number of documents of a round's clients, on average if they are drawn;
        `length` the mean number of words of all clients' documents. Words that too few of its own
        documents have do not count, though other clients named them: no reply says who has them.
        """
        self._fingerprint = fingerprint(words)
        self._columns = {word: i for i, word in enumerate(words)}
        bag = frequent(self.count(self._columns), self._rarest)
        self.bag = set_aside(bag.astype(np.float32))
        self.__dict__.pop("_counts", None)  # as large as the bag, and not needed any more
        self.usable = self.find_usable()
        self._training = self.split(self.bag.shape[0], total)

    @leaves(
        "Numbers of documents: all, those to train with, those without a known word. They are the "
        "most that later replies can be of: all participants see those of each client. Where sums "
        "are masked also the policy's min_documents, which is then that of all clients' groups.",
        seen_by_all=True,
    )
    def counted(self, vocabulary: str) -> dict[str, Any]:
        """Count the documents."""
        self.check(vocabulary)
        documents = self.bag.shape[0]
        unknown = documents - len(self.usable)
        found = {"documents": documents, "training": self._training, "without_known_word": unknown}
        return found | ({"least": self.guard.stated} if self.site.masked else {})

    @leaves(
        "A number for each topic and the number of documents, which the model says of each "
        "client: all participants see them.",
        seen_by_all=True,
    )
    def shares(self, vocabulary: str, **model: Any) -> dict[str, Any]:
        """Sum theta over all usable documents."""
        self.check(vocabulary)
        total = np.zeros(self.n_topics(**model))
        for _, theta in self.thetas(**model):
            total += theta.sum(0)
        return {"theta": total, "documents": len(self.usable)}

    @leaves(
        "For each topic that enough of the documents have, a number for each word that enough of "
        "them have, zeros for the rest; the number of documents. Where sums are masked, before "
        "that: for each topic the sums of the documents' shares and of their squares."
    )
    def word_sums(self, vocabulary: str, groups: Groups = SEEN, **model: Any) -> dict[str, Any]:
        """Sum the words of all documents, weighted by theta, to read the topics by."""
        # Apart from `shares`, which all see one by one: of these the sum alone is needed.
        self.check(vocabulary)
        return sums_of_words(self, groups, model, self.thetas(**model), self.n_topics(**model))

    @leaves(
        "For each period with enough documents, the sum of their topics' shares, zeros for the "
        "rest; the number of all documents. Where sums are masked, before that: how many documents "
        "each period has."
    )
    def period_sums(self, vocabulary: str, groups: Groups = SEEN, **model: Any) -> dict[str, Any]:
        """Sum theta over the documents of each period; see `core.groups`."""
        self.check(vocabulary)
        over_time = cast("OverTime", self.settings.over_time)
        places, n_topics = over_time.places(self._corpus), self.n_topics(**model)
        of_each = partial(self.thetas, **model)
        shape = len(over_time.begins), n_topics
        reply = own_sums(self.guard, places, of_each, groups, model, shape)
        return reply | {"documents": len(self.usable)}

    @leaves(
        "For each period with enough of the client's documents, the sum of their topics' shares, "
        "zeros for the rest; the number of all documents. The model says them of each client: all "
        "participants see them.",
        seen_by_all=True,
    )
    def period_shares(self, vocabulary: str, **model: Any) -> dict[str, Any]:
        """Sum theta over the documents of each period, which all see."""
        return self.period_sums(vocabulary, **model)

    @leaves(
        "For each pair of words of a topic that enough of the documents have, the number of "
        "windows or documents that hold both; the numbers of windows and documents. Words are "
        "chosen in one half of the documents and scored in the other, which the client draws; "
        "words that too few documents of a half have do not count."
    )
    def pairs(
        self, vocabulary: str, words: list[str], pairs: NDArray[np.int64], windows: list[int],
        half: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Count how often the topics' words occur together, to choose them or to score them."""
        self.check(vocabulary)
        corpus, bags = self._corpus, [self.bag]
        if half != ALL:
            parts = draw_halves(self.secret, len(corpus), self.min_documents)
            corpus, bags = corpus.take(parts[half]), [self.bag[part] for part in parts]
        counts = count_pairs(corpus, self._text, words, pairs, windows)
        usual = document_frequency(self.bag) > 0
        for frequency in map(document_frequency, bags):
            usual &= (frequency == 0) | (frequency >= self._rarest)
        both = usual[[self._columns[word] for word in words]][pairs].all(1)
        for counted in counts.values():
            counted["pairs"] = counted["pairs"] * both
        return counts | {"documents": len(corpus)}

    def check(self, vocabulary: str) -> None:
        """Refuse a call for another vocabulary than the agreed one."""
        if vocabulary != self._fingerprint:
            raise StudyError(
                f"Client {self.name!r} was called for the vocabulary {vocabulary}, but agreed on "
                f"{self._fingerprint or 'none'}; restart the study."
            )


class ContinuedClient(TopicClient[Settings]):
    """A client of a method that trains models further, with their own words."""

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls which function."""
        calls = {"size": "once instead of vocabulary, if a model's own words are kept"}
        return calls | super().schedule(settings)

    @leaves("Their number.")
    def size(self) -> dict[str, Any]:
        """Count the documents, where a model's vocabulary is kept."""
        return {"documents": len(self._corpus)}


def _published(half: TopicClient[Any]) -> frozenset[str]:
    """Return the functions of the study's schedule: no other call is answered."""
    names = frozenset(half.schedule(half.settings))
    for name in sorted(names):
        if not hasattr(getattr(half, name, None), "leaves"):
            raise StudyError(
                f"The schedule of {half.method!r} names {name!r}, which does not say what leaves "
                "the client; decorate it with @leaves."
            )
    return names


def _named(counts: WordCounts, study: int, policy: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return the words that enough documents have; DataError, with what helps, if there is none.

    How many are enough is the larger number of the study and of the client's policy.
    """
    if not counts.words:
        raise DataError(
            "No document has a word: they are empty, or have stop words, numbers and signs alone; "
            'give other texts, or keep these with stop_words = "none" and token_pattern = '
            '"words-and-digits" in [text].'
        )
    most = np.bincount(counts.counts.indices).max()
    asking = {"the study": study, "the client's policy": policy}
    names = " and of ".join(name for name, least in asking.items() if least > most)
    if names:
        raise DataError(
            f"No word occurs in {max(study, policy)} or more of the {counts.counts.shape[0]} "
            "documents; give more documents, or, if such words may leave, lower "
            f"min_document_frequency of {names}."
        )
    return counts.named(max(study, policy))


def draw_halves(secret: Secret, n_documents: int, least: int) -> list[Documents]:
    """Draw the documents that choose which words are shown, and those that score the words.

    It is the same draw each time. Where a half has fewer than `least`, none choose and all score.
    """
    order = secret.rng("halves of pairs").permutation(n_documents)
    half = n_documents // 2
    return [np.sort(part) for part in np.split(order, [half if half >= least else 0])]


def sums_of_words(
    half: TopicClient[Any], groups: Groups, given: dict[str, Any], thetas: Thetas, n_topics: int
) -> dict[str, Any]:
    """Sum the words of documents by topic, a row a topic, of what `enough_have`."""

    def compute() -> Grouped:
        total = np.zeros((n_topics, half.bag.shape[1]))
        shares, squares = np.zeros(n_topics), np.zeros(n_topics)
        for rows, theta in thetas:
            total += theta.T @ half.bag[rows]
            shares += theta.sum(0)
            squares += np.square(theta).sum(0)
        own = {"shares": shares, "squares": squares}
        return own, lambda enough: {"sums": total * enough[:, None]}

    reply = half.guard.sums(groups, {"sums": "by topic", **given}, enough_have, compute)
    return reply | {"documents": len(half.usable)}


def document_frequency(bag: sparse.csr_array) -> NDArray[np.int64]:
    """Return the number of documents with each word."""
    return np.bincount(bag.indices, minlength=bag.shape[1])


def frequent(bag: sparse.csr_array, least: int) -> sparse.csr_array:
    """Return the bag without the words of fewer documents than `least`."""
    kept = bag.copy()
    kept.data[document_frequency(bag)[kept.indices] < least] = 0
    kept.eliminate_zeros()
    return kept


def batches(rows: Documents) -> Iterator[Documents]:
    """Yield documents in batches."""
    for start in range(0, len(rows), EVALUATION_BATCH):
        yield rows[start : start + EVALUATION_BATCH]
