"""What a client computes of its documents in any method, and what of that may leave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.methods.core.aggregation import Named
from fedtopics.methods.core.final import LastSums, document_frequency
from fedtopics.methods.core.groups import Guard, Thetas
from fedtopics.methods.core.interfaces import Exchanges, leaves
from fedtopics.methods.core.plan import Plan, Secret, Site
from fedtopics.methods.core.replies import LONGEST
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.text.vocabulary import WordCounts, count_words, fingerprint, set_aside

Settings = TypeVar("Settings", bound=TopicSettings)
Documents = NDArray[np.int64]
"""Row numbers of documents."""
EVALUATION_BATCH = 1024
Part = TypeVar("Part", bound=Exchanges)


class TopicClient(ABC, Generic[Settings]):
    """A client's documents, and what it computes of them in any method.

    What only some methods compute is in their `exchanges`, of which a client has one each.

    It complies with the site's policy itself, besides the client's door. All that is random follows
    from the client's secret. A repeated round takes new minibatches for its sums; replies that all
    participants see one by one are the same in each repetition.
    """

    def __init__(self, plan: Plan[Settings], site: Site) -> None:
        self.name = site.name
        self.site = site
        self.settings = plan.settings
        self.method = self.settings.method_name
        self.min_documents = site.policy.min_documents
        self.guard = Guard(self.min_documents, site.masked and site.policy.counts_of_all)
        rarest = plan.limits.min_document_frequency, site.policy.min_document_frequency
        self.rarest = max(rarest)
        self.secret = site.secret or Secret.from_seed(plan.seed, site.name)
        self.attempt = 1  # at the present round; the door says which
        self.public_seed = plan.seed  # of what is the same at all clients
        self.corpus = site.corpus
        self.text = plan.text
        self.limits = plan.limits
        self._fingerprint = ""
        self._parts = {kind: kind(self) for kind in (*self.exchanges, LastSums)}
        self.published = _published(self)

    exchanges: ClassVar[tuple[type[Exchanges], ...]] = ()
    continues: ClassVar[bool] = False  # whether it trains models further, with their own words

    together: Callable[[Sequence[Any]], Any] | None = None
    """Join clients of one process: return an object with `functions` that sum over all of them, and
    the numbers of `documents` of each in the last call. None if the method cannot."""

    noisy = False
    """Whether all that leaves has noise; then replies are the same at each attempt at a turn."""

    summed = 0
    """How many documents a reply is of, where it does not say so as their number does not leave."""

    @classmethod
    def functions(cls) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return all functions that can be published, by name; see `leaves`."""
        kinds = LastSums, *cls.exchanges, cls
        found = {name: getattr(kind, name) for kind in kinds for name in dir(kind)}
        return {name: function for name, function in found.items() if hasattr(function, "leaves")}

    def function(self, name: str) -> Callable[..., Any]:
        """Return a function of the client, or of the first of its exchanges that has it."""
        owner = next((of for of in (self, *self._parts.values()) if hasattr(of, name)), self)
        return cast("Callable[..., Any]", getattr(owner, name))

    def part(self, kind: type[Part]) -> Part:
        """Return the client's exchanges of a kind."""
        return cast("Part", self._parts[kind])

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls which function."""
        size = {"size": "once instead of vocabulary, if a model's own words are kept"}
        first = dict.fromkeys(("vocabulary", "counted"), "once")
        calls = first | cls.rounds(settings) | cls.end(settings)
        return (size if cls.continues else {}) | calls

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
        return count_words(self.corpus, self.text)

    def count(self, words: Mapping[str, int]) -> sparse.csr_array:
        """Count these words in the documents, each in its column."""
        return self._counts.columns(words)

    @leaves(
        "The words that enough of the documents have: how many documents have each, how often it "
        "occurs, a 1, by which clients are counted, and whether it is one of the most frequent "
        "here; the number of documents."
    )
    def vocabulary(self, places: int) -> dict[str, Any]:
        """Count the words that enough of the documents have (gFedNTM's GetClientVocab).

        Marked are as many as the client has `places` for, its most frequent ones.
        """
        for part in self._parts.values():
            part.forget()
        rarest = self.limits.min_document_frequency, self.site.policy.min_document_frequency
        words, counted = _named(self._counts, *rarest)
        if counted[:, 1].sum() > LONGEST * len(self.corpus):
            raise DataError(
                f"The documents of client {self.name!r} have more than {LONGEST:,} words on "
                "average; split them."
            )
        ones = np.ones(len(words), np.int64)
        first = np.zeros(len(words), np.int64)
        first[np.argsort(-counted[:, 1], kind="stable")[:places]] = 1
        columns = np.column_stack([counted, ones, first])
        return {"words": Named(words, columns), "documents": len(self.corpus)}

    @leaves("Their number.")
    def size(self) -> dict[str, Any]:
        """Count the documents, where a model's vocabulary is kept."""
        return {"documents": len(self.corpus)}

    def adopt(self, words: list[str], total: int, length: float) -> None:
        """Adopt the agreed vocabulary; there is no reply.

        `total` is the number of documents of a round's clients, on average if they are drawn;
        `length` the mean number of words of all clients' documents. Words in too few of this
        client's documents count as zero, so that no update says that it has them.
        """
        self._fingerprint = fingerprint(words)
        self.columns = {word: i for i, word in enumerate(words)}
        bag = frequent(self.count(self.columns), self.rarest)
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

    def check(self, vocabulary: str) -> None:
        """Refuse a call for another vocabulary than the agreed one."""
        if vocabulary != self._fingerprint:
            raise StudyError(
                f"Client {self.name!r} was called for the vocabulary {vocabulary}, but agreed on "
                f"{self._fingerprint or 'none'}; restart the study."
            )


def _published(client: TopicClient[Any]) -> frozenset[str]:
    """Return the functions of the study's schedule: no other call is answered."""
    names = frozenset(client.schedule(client.settings))
    for name in sorted(names - client.functions().keys()):
        raise StudyError(
            f"The schedule of {client.method!r} names {name!r}, which does not say what leaves "
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
