"""The client-side code for differential privacy: every sum over documents gets noise."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import published
from fedtopics.errors import DataError, PolicyError
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.privacy import Budget, Noise, Privacy, contributions, estimates
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings
from fedtopics.text.vocabulary import fingerprint

Shape = tuple[int, ...]
Settings = TypeVar("Settings", bound=TopicSettings)
NOISE = "with this client's part of the noise added"


@dataclass(frozen=True)
class PrivatePlan(Plan[Any]):
    """A study with [differential_privacy], as its method sees it."""

    privacy: Privacy | None = None  # the promise for each document; None for no noise
    budget: Budget = field(default_factory=partial(Budget, None, {}))  # of all releases together
    clients: int = 1  # number of clients of the study
    words: tuple[str, ...] = ()  # public words, if the study contains a list
    nearest_words: int = 8  # number of a document's words that describe its cluster


class NoisyClient(TopicClient[Settings]):
    """A client's documents and noise. An embedding must depend only on its document's text."""

    def __init__(self, plan: PrivatePlan, site: ClientContext) -> None:
        super().__init__(plan, site)
        self.noise = Noise(self.secret.derive, plan.clients)
        self.noisy = plan.privacy is not None
        self._budget = plan.budget
        self._n_nearest = plan.nearest_words
        rows, self._weights = contributions.counted_once(site.corpus, plan.privacy)
        if len(rows) < len(site.corpus):
            self.corpus = site.corpus.take(rows)
        self.summed = len(rows)
        self._words: list[str] = []
        self._requests: dict[tuple[str, int], bytes] = {}  # their digests

    def forget(self) -> None:
        self._requests.clear()

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        return {"extent": "once"} | cls.rounds(settings)

    @published(f"The number of documents, {NOISE}.")
    def extent(self) -> dict[str, Any]:
        """Count the documents, or their authors."""
        return {"size": float(self._noisy("documents", self._weights.sum()))}

    def take(self, words: list[str]) -> None:
        """Take the public words; nothing is sent."""
        self._words = words
        self._fingerprint = fingerprint(words)
        self._columns = {word: i for i, word in enumerate(words)}
        self.bag = self.count(self._columns).astype(np.float64)

    def _check_request(
        self,
        function: str,
        vocabulary: str,
        columns: Any,
        *numbers: tuple[Numbers, Shape],
        number: int = 1,
        above: float = -np.inf,
    ) -> None:
        """Refuse invalid numbers, and requests in which a document could count more than once."""
        self.check(vocabulary)
        if not self._words:
            raise self._refusal("it has no public words yet")
        columns = np.asarray(columns)
        valid = (_fits(array, shape) and (array > above).all() for array, shape in numbers)
        if not _are_columns(columns, len(self._words)) or not all(valid):
            raise self._refusal(
                "a document could count more than once, because a word occurs twice or a number is "
                "not valid"
            )
        request = hashlib.sha256(vocabulary.encode())
        for array in (columns, *(array for array, _ in numbers)):
            request.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
        # One request per release: whether two had the same result would be visible despite noise.
        first = self._requests.setdefault((function, number), request.digest())
        if self.noisy and first != request.digest():
            raise self._refusal("the same was requested with other numbers before")

    def _refusal(self, why: str) -> PolicyError:
        return PolicyError(
            f"Client {self.name!r} received a request that does not belong to the study: {why}; "
            "check which software the other participants run."
        )

    def _of(self, columns: NDArray[np.int64]) -> sparse.csr_array:
        """Return the bag of some words, each in its column."""
        bag = sparse.csr_array(self.bag[:, columns])
        bag.sort_indices()
        return bag

    def _noisy(self, release: str, values: Any) -> Numbers:
        if release not in self._budget.shares:
            raise self._refusal(f"{release!r} has no part of the budget")
        return self.noise.added(values, self._budget.sigma(release), release)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        """Infer nothing: these methods never need it."""
        return iter(())


class ByWords(NoisyClient[Settings]):
    """Sums by the words of documents."""

    FIRST = "occurrences", "sketch"

    @published(
        "For each public word, the number of documents with it, as a sum in which a document is a "
        f"vector of length 1, {NOISE}."
    )
    def occurrences(self, vocabulary: str) -> dict[str, Any]:
        """Count the documents with each word."""
        self._check_request("occurrences", vocabulary, ())
        return {
            "words": self._noisy(
                "words", contributions.bounded_occurrences(self.bag, self._weights)
            )
        }

    @published(
        "Random mixtures of the words that occur together, as a sum in which a document is a "
        f"matrix of at most length 1, {NOISE}."
    )
    def sketch(
        self, vocabulary: str, columns: NDArray[np.int64], rarity: Numbers
    ) -> dict[str, Any]:
        """Sum sketches of which words occur together; rare words count more in them."""
        self._check_request("sketch", vocabulary, columns, (rarity, columns.shape))
        projection = estimates.projection(len(columns), self.public_seed)
        bag = self._of(columns)
        sketch = contributions.sketched(bag, relative(rarity), projection, self._weights)
        return {"sketch": self._noisy("sketch", sketch)}


class ByEmbeddings(NoisyClient[Settings]):
    """Sums of the embeddings of documents, and of the words nearest to them."""

    settings: Any  # those of a method that finds clusters of embeddings

    FIRST = "key_words", "word_vectors"

    @published(
        "For each public word, in how many documents it is among the words nearest to the "
        "document's embedding; the sums of embeddings and of their outer products. In each sum, a "
        f"document is a vector of length 1. The sums are sent {NOISE}."
    )
    def key_words(self, vocabulary: str) -> dict[str, Any]:
        """Sum the documents' nearest words, and their embeddings."""
        self._check_request("key_words", vocabulary, ())
        mean, products = contributions.moments(self.embeddings, self._weights)
        return {
            "words": self._noisy("words", self._nearest.sum(0)),
            "mean": self._noisy("mean", mean),
            "products": self._noisy("products", products),
        }

    @published("The embedding model's vectors of public words, which do not depend on documents.")
    def word_vectors(self, vocabulary: str, columns: NDArray[np.int64]) -> dict[str, Any]:
        """Return the words' vectors. All use the clients' mean, so a server needs no model."""
        self.check(vocabulary)
        return {"vectors": self._vectors[columns], "clients": 1}

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """The documents' embeddings; DataError if they have none."""
        embeddings: NDArray[np.float32] | None = self.corpus.embeddings
        if embeddings is None:
            raise DataError("the documents have no embeddings, which clustering needs.")
        return embeddings

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        return _vectors_of(tuple(self._words), self.settings.embedding, self.site.embedding_model)

    @cached_property
    def _nearest(self) -> sparse.csr_array:
        most = self._n_nearest
        rows = contributions.nearest_words(self.bag, self.embeddings, self._vectors, most)
        return contributions.weighted_rows(rows, self._weights)


def relative(rarity: Numbers) -> Numbers:
    """Return the rarity of words relative to the rarest word, as large numbers could overflow."""
    return np.asarray(rarity / max(np.abs(rarity).max(initial=0), TINY))


def calls(
    first: Sequence[str], settings: TopicSettings, repeated: str, *last: str
) -> dict[str, str]:
    """Return how often a study calls each function; `repeated` is for rounds of no other one."""
    repeats = settings.max_rounds - len(first) - len(last)
    often = {1: "once", 2: "twice"}.get(repeats, f"{repeats} times")
    return dict.fromkeys(first, "once") | {repeated: often} | dict.fromkeys(last, "once")


def _fits(numbers: Any, shape: Shape) -> bool:
    """Whether these are finite numbers of this shape."""
    array = np.asarray(numbers)
    return array.shape == shape and array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _are_columns(columns: NDArray[Any], n_words: int) -> bool:
    """Whether columns are different ones; -1 would mean the last column a second time."""
    if columns.size == 0:
        return True
    whole = columns.ndim == 1 and columns.dtype.kind == "i"
    in_range = whole and columns.min() >= 0 and columns.max() < n_words
    return bool(in_range and len(np.unique(columns)) == len(columns))


@lru_cache(maxsize=1)  # public, and the same for all clients of a process
def _vectors_of(
    words: tuple[str, ...], embedding: EmbeddingSettings, model: str | None
) -> NDArray[np.float32]:
    # Not in the documents' cache, where a document of one word can have slightly other numbers.
    folder = cache_folder()
    return document_embeddings(
        Corpus.of(list(words)), embedding, embedding_model=model, cache=folder and folder / "words"
    )
