"""The computations of a client that all methods share, and which of their results it may send."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.contract.payload import CountsByWord
from fedtopics.contract.replies import LONGEST
from fedtopics.errors import DataError, StudyError
from fedtopics.methods.core.final_model import LastSums, document_frequency, draw_halves
from fedtopics.methods.core.groups import GroupThreshold, Thetas
from fedtopics.methods.core.plan import ClientContext, Plan, Secret
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.text.vocabulary import WordCounts, count_words, fingerprint, set_aside

Settings = TypeVar("Settings", bound=TopicSettings)
Documents = NDArray[np.int64]
"""Row numbers of documents."""
EVALUATION_BATCH = 1024
Part = TypeVar("Part", bound=SharedFunctions)


class ClientWords:
    """The words of a client; an object with a part of its documents knows those of the whole."""

    bag: sparse.csr_array
    whole: NDArray[np.int64] | None = None  # see `hold`

    def __init__(self, plan: Plan[Any], site: ClientContext) -> None:
        self.name = site.name
        self.site = site
        self.min_documents = site.policy.min_documents
        self.rarest = max(plan.limits.min_document_frequency, site.policy.min_document_frequency)
        self.secret = site.secret or Secret.from_seed(plan.seed, site.name)
        self.corpus = site.corpus
        self.text = plan.text
        self.limits = plan.limits

    @cached_property
    def counts(self) -> WordCounts:
        return count_words(self.corpus, self.text)

    def count(self, words: Mapping[str, int]) -> sparse.csr_array:
        return self.counts.columns(words)

    def counted_words(self) -> dict[str, Any]:
        """Count all words; nothing is sent."""
        if not self.counts.words:
            return {"words": CountsByWord.columns(2), "documents": len(self.corpus)}
        names, values = self.counts.named(1)
        return {"words": CountsByWord(names, values), "documents": len(self.corpus)}

    def proposed(self, places: int, counted_words: Mapping[str, Any]) -> dict[str, Any]:
        """Return the words of the whole client that enough of its documents contain."""
        documents = counted_words["documents"]
        names, counted = _frequent_words(
            counted_words["words"],
            documents,
            study=self.limits.min_document_frequency,
            policy=self.site.policy.min_document_frequency,
        )
        if counted[:, 1].sum() > LONGEST * documents:
            raise DataError(
                f"The documents of client {self.name!r} have more than {LONGEST:,} words on "
                "average; split them."
            )
        most_frequent = np.zeros(len(names), np.int64)
        most_frequent[np.argsort(-counted[:, 1], kind="stable")[:places]] = 1
        columns = np.column_stack([counted, np.ones(len(names), np.int64), most_frequent])
        return {"words": CountsByWord(names, columns), "documents": documents}

    @published("The number of documents.")
    def size(self) -> dict[str, Any]:
        return {"documents": len(self.corpus)}

    def frequencies(self, words: list[str]) -> dict[str, Any]:
        """Count the documents with each word, of all documents and of each half; see `hold`."""
        bag = self.count({word: i for i, word in enumerate(words)})
        parts = slice(None), *draw_halves(self.secret, bag.shape[0], self.min_documents)
        return {"counts": np.stack([document_frequency(bag[rows]) for rows in parts])}

    def hold(self, whole: Mapping[str, Any]) -> None:
        """Take the `frequencies` of the whole client, where this object has a part of it."""
        self.whole = whole["counts"]

    @cached_property
    def frequency(self) -> NDArray[np.int64]:
        """The number of the client's documents with each word that enough of them contain."""
        if self.whole is None:
            return document_frequency(self.bag)
        return np.where(self.whole[0] >= self.rarest, self.whole[0], 0)

    @cached_property
    def in_halves(self) -> NDArray[np.int64]:
        """The number of the client's documents with each word in each half, (2, n_words)."""
        if self.whole is not None:
            return self.whole[1:]
        halves = draw_halves(self.secret, self.bag.shape[0], self.min_documents)
        return np.stack([document_frequency(self.bag[rows]) for rows in halves])


class TopicClient(ClientWords, ABC, Generic[Settings]):
    """A client's documents and computations; base class of each method's client side.

    A subclass defines `rounds`, `thetas` and published functions (see `published`). This class also
    enforces the site's policy, in addition to the outbound filter. All random choices follow from
    the client's secret.
    """

    def __init__(self, plan: Plan[Settings], site: ClientContext) -> None:
        super().__init__(plan, site)
        self.settings = plan.settings
        self.method = self.settings.method_name
        # Groups are then counted over all clients, or over all parts of this client's documents.
        counts_together = site.is_part or (site.masked and site.policy.counts_of_all)
        self.guard = GroupThreshold(self.min_documents, of_all=counts_together)
        self.attempt = 1  # number of the attempt at the present round, set by the outbound filter
        self.public_seed = plan.seed  # for random choices that all clients share
        self._fingerprint = ""
        self._parts = {kind: kind(self) for kind in (*self.exchanges, LastSums)}
        self.published = _published(self)

    exchanges: ClassVar[tuple[type[SharedFunctions], ...]] = ()
    remembers: ClassVar[bool] = False  # whether replies depend on replies of earlier rounds
    continues: ClassVar[bool] = False  # whether the method trains models further, with their words

    together: Callable[[Sequence[Any]], Any] | None = None
    """Optional: joins the clients of one process. Returns an object whose `functions` sum over all
    of these clients, and whose `documents` are each client's number in the last call."""

    noisy = False
    """Whether all data sent has noise; if so, every attempt at a step sends the same reply."""

    summed = 0
    """Number of documents of a reply that does not contain it, because it is not shared."""

    @classmethod
    def functions(cls) -> dict[str, Callable[..., dict[str, Any]]]:
        kinds = LastSums, *cls.exchanges, cls
        members = {name: getattr(kind, name) for kind in kinds for name in dir(kind)}
        return {name: member for name, member in members.items() if hasattr(member, "data_sent")}

    def function(self, name: str) -> Callable[..., Any]:
        owner = next((part for part in (self, *self._parts.values()) if hasattr(part, name)), self)
        return cast("Callable[..., Any]", getattr(owner, name))

    def part(self, kind: type[Part]) -> Part:
        return cast("Part", self._parts[kind])

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls each function."""
        size = {"size": "once instead of vocabulary, if a model keeps its own words"}
        first = dict.fromkeys(("vocabulary", "counted"), "once")
        calls = first | cls.rounds(settings) | cls.end(settings)
        return (size if cls.continues else {}) | calls

    @staticmethod
    def end(settings: TopicSettings) -> dict[str, str]:
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
        """Return how often a study with these settings calls each function before its end."""

    def n_topics(self, **model: Any) -> int:
        return int(self.settings.n_components)

    @abstractmethod
    def thetas(self, **model: Any) -> Thetas:
        """Infer theta of all usable documents, in batches."""

    def find_usable(self) -> Documents:
        """Return the rows of documents with at least one word, for which topics can be inferred."""
        return np.flatnonzero(np.diff(self.bag.indptr))

    def split(self, documents: int, total: int) -> int:
        return len(self.usable)

    @published(
        "For each word that enough of the documents contain: the number of documents with it, its "
        "number of occurrences, a 1 (the sum is the number of clients), and whether the word is "
        "one of the client's most frequent words. The number of documents."
    )
    def vocabulary(self, places: int) -> dict[str, Any]:
        """Count words that enough documents contain; mark the most frequent (GetClientVocab)."""
        for part in self._parts.values():
            part.forget()
        return self.proposed(places, self.counted_words())

    def adopt(self, words: list[str], total: int, length: float) -> None:
        """Adopt the words, a round's mean number of documents, and the documents' mean length."""
        self._fingerprint = fingerprint(words)
        self.columns = {word: i for i, word in enumerate(words)}
        bag = self.count(self.columns)
        frequency = document_frequency(bag) if self.whole is None else self.whole[0]
        bag = frequent(bag, self.rarest, frequency)
        self.bag = set_aside(bag.astype(np.float32))
        for name in ("frequency", "in_halves"):  # cached for the words before
            self.__dict__.pop(name, None)
        self.usable = self.find_usable()
        self._training = self.split(self.bag.shape[0], total)

    @published(
        "The numbers of all documents, of documents for training, and of documents without a known "
        "word. They limit the number of documents in later replies, and all participants see each "
        "client's numbers. With secure aggregation also the policy's min_documents, which then "
        "applies to groups of documents of all clients together.",
        seen_by_all=True,
    )
    def counted(self, vocabulary: str) -> dict[str, Any]:
        self.check(vocabulary)
        documents = self.bag.shape[0]
        numbers = {
            "documents": documents,
            "training": self._training,
            "without_known_word": documents - len(self.usable),
        }
        least = self.guard.least if self.guard.of_all else 1
        return numbers | ({"least": least} if self.site.masked else {})

    def check(self, vocabulary: str) -> None:
        if vocabulary != self._fingerprint:
            raise StudyError(
                f"Client {self.name!r} was called for the vocabulary {vocabulary}, but agreed on "
                f"{self._fingerprint or 'none'}; restart the study."
            )


def _published(client: TopicClient[Any]) -> frozenset[str]:
    """Return the functions of the study's schedule; other calls are refused."""
    names = frozenset(client.schedule(client.settings))
    for name in sorted(names - client.functions().keys()):
        raise StudyError(
            f"The schedule of {client.method!r} lists {name!r}, which does not describe the data "
            "it sends; decorate it with @published."
        )
    return names


def _frequent_words(
    words: CountsByWord, documents: int, study: int, policy: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the words that enough documents contain, by the stricter limit of study and policy."""
    if not words.names:
        raise DataError(
            "No document has a word: the documents are empty, or contain only stop words, numbers "
            'and signs; give other texts, or keep them with stop_words = "none" and token_pattern '
            '= "words-and-digits" in [text].'
        )
    frequency = words.values[:, 0]
    most = frequency.max()
    limits = {"the study": study, "the client's policy": policy}
    if names := " and of ".join(name for name, least in limits.items() if least > most):
        raise DataError(
            f"No word occurs in {max(study, policy)} or more of the {documents} "
            "documents; give more documents or, if rarer words may be shared, lower "
            f"min_document_frequency of {names}."
        )
    rows = np.flatnonzero(frequency >= max(study, policy))
    return [words.names[row] for row in rows], words.values[rows]


def frequent(bag: sparse.csr_array, least: int, frequency: NDArray[np.int64]) -> sparse.csr_array:
    """Return the bag without words that fewer than `least` documents have by `frequency`."""
    smaller = bag.copy()
    smaller.data[frequency[smaller.indices] < least] = 0
    smaller.eliminate_zeros()
    return smaller


def batches(rows: Documents) -> Iterator[Documents]:
    for start in range(0, len(rows), EVALUATION_BATCH):
        yield rows[start : start + EVALUATION_BATCH]
