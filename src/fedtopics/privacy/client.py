"""The client-side code for differential privacy: every sum over documents gets noise."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.published import (
    ALL_DOCUMENTS,
    ONCE,
    Often,
    Published,
    Reply,
    of_method,
    published,
    unknown,
)
from fedtopics.contract.replies import Bounds, Template
from fedtopics.errors import PolicyError, StudyError, refuse
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.plan import ClientContext, Plan, Settings
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.privacy import BOUND, Budget, Noise, PrivacySettings, contributions, estimates
from fedtopics.text.vocabulary import fingerprint

LEAST_PER_TOPIC = 10  # least number of words per topic
Shape = tuple[int, ...]
COUNTED = replace(ALL_DOCUMENTS, text="the documents that count")  # of a person, not all
WHOSE = "a document, or all documents of a person, are"
NOISE = "with this client's part of the noise added"


def noisy(**shapes: tuple[int, ...]) -> Template:
    """Return the bounds of sums with noise, in a format that does not depend on the numbers."""
    return {name: Bounds(shape, BOUND, -BOUND) for name, shape in shapes.items()}


def n_pairs(n: int) -> int:
    """Return the number of different products of n numbers."""
    return n * (n + 1) // 2


def repeated(others: int) -> Callable[[TopicSettings], Often]:
    """Return how often rounds happen that are left after so many others."""
    return of_method(
        TopicSettings, lambda settings: Often(times=max(settings.max_rounds - others, 0))
    )


def why_too_few(n_words: int, n_topics: int) -> str:
    """Return why topics cannot come from so few words; "" if they can."""
    return (
        ""
        if n_words >= LEAST_PER_TOPIC * n_topics
        else f"fewer than {LEAST_PER_TOPIC} words for each of {n_topics} topics"
    )


@dataclass(frozen=True, kw_only=True)
class PrivatePlan(Plan[Any]):
    """A study with [differential_privacy], as its method sees it."""

    privacy: PrivacySettings  # the promise for each document, and public words
    budget: Budget  # of all releases together
    clients: int  # number of clients of the study
    number: int = 1  # which repetition of a stage it is

    def known_words(self, counts: Numbers) -> NDArray[np.int64]:
        """Return the columns of words that surely occur; StudyError if they are too few."""
        columns = estimates.surely_there(counts, self.budget.sigma("words"), self.limits.max_words)
        if why := why_too_few(len(columns), self.settings.n_components):
            raise self.refusal(f"only {len(columns)} words surely occur, {why}")
        return columns

    def refusal(self, what: str) -> StudyError:
        """Return the error for results hidden by noise."""
        return StudyError(
            f"{what[0].upper()}{what[1:]}; at epsilon {self.budget.privacy.epsilon:g} noise "
            "hides the rest. Ask for fewer topics or give more documents. A larger epsilon also "
            "helps, but protects less."
        )


class NoisyClient(TopicClient[Settings]):
    """A client's documents and noise. An embedding must depend only on its document's text."""

    noisy = True

    def __init__(self, plan: PrivatePlan, site: ClientContext) -> None:
        super().__init__(plan, site)
        self.noise = Noise(self.secret.derive, plan.clients)
        self._plan = plan
        rows, self._weights = contributions.counted_once(site.corpus, plan.privacy)
        if len(rows) < len(site.corpus):
            self.corpus = site.corpus.take(rows)
        self.summed = len(rows)
        self._words: list[str] = []
        self._requests: dict[tuple[str, int], bytes] = {}  # their digests

    @property
    def released(self) -> float:
        return sum(self._plan.budget.shares[name] for name in self.noise.answers)

    @classmethod
    def functions(cls) -> dict[str, Published]:
        """Return only functions with noise: none of those that all methods have."""
        without = TopicClient.functions().keys()
        return {
            name: replace(of, over=COUNTED) if of.over is ALL_DOCUMENTS else of
            for name, of in super().functions().items()
            if name not in without
        }

    @published(
        f"The number of documents, or of persons if the bound is for persons, {NOISE}.",
        "number of documents or persons",
        often=ONCE,
        reply=lambda: noisy(size=()),
        has_words=False,
        has_documents=False,
    )
    def noisy_document_count(self) -> Reply:
        """Count the documents, or their persons."""
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
        columns: Any,
        *numbers: tuple[Numbers, Shape],
        number: int = 1,
        above: float = -np.inf,
    ) -> None:
        """Refuse invalid numbers, and requests in which a document could count more than once."""
        columns = np.asarray(columns)
        valid = (_fits(array, shape) and (array > above).all() for array, shape in numbers)
        refuse(
            {
                "it has no public words yet": not self._words,
                "a document could count more than once, because a word occurs twice or a number is "
                "not valid": not _are_columns(columns, len(self._words)) or not all(valid),
            },
            error=self._refusal,
        )
        request = hashlib.sha256(self._fingerprint.encode())
        for array in (columns, *(array for array, _ in numbers)):
            request.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
        # One request per release: whether two had the same result would be visible despite noise.
        if self._requests.setdefault((function, number), request.digest()) != request.digest():
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
        if release not in self._plan.budget.shares:
            raise self._refusal(f"{release!r} has no part of the budget")
        self.over(np.arange(len(self.corpus)))
        return self.noise.added(values, self._plan.budget.sigma(release), release)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        """Infer nothing: these methods never need it."""
        return iter(())


class ByWords(NoisyClient[Settings]):
    """Sums by the words of documents."""

    @published(
        f"For each public word, the number of documents with it, as a sum in which {WHOSE} a "
        f"vector of length 1, {NOISE}.",
        "counts of words",
        often=ONCE,
        reply=lambda agreement: noisy(words=(len(agreement.vocabulary),)),
        has_documents=False,
    )
    def noisy_word_counts(self) -> Reply:
        """Count the documents with each word."""
        self._check_request("noisy_word_counts", ())
        return {
            "words": self._noisy(
                "words", contributions.bounded_occurrences(self.bag, self._weights)
            )
        }

    @published(
        f"Random mixtures of the words that occur together, as a sum in which {WHOSE} a "
        f"matrix of at most length 1, {NOISE}.",
        "random mixtures of words that occur together",
        often=ONCE,
        reply=lambda columns: noisy(sketch=(len(columns), estimates.WIDTH)),
        largest=lambda s, n_words: {"columns": unknown(n_words)},
        has_documents=False,
    )
    def noisy_word_products(self, columns: NDArray[np.int64], rarity: Numbers) -> Reply:
        """Sum sketches of which words occur together; rare words count more in them."""
        self._check_request("noisy_word_products", columns, (rarity, columns.shape))
        sketch = contributions.sketched(
            self._of(columns),
            relative(rarity),
            estimates.projection(len(columns), self.public_seed),
            self._weights,
        )
        return {"sketch": self._noisy("sketch", sketch)}


def relative(rarity: Numbers) -> Numbers:
    """Return the rarity of words relative to the rarest word, as large numbers could overflow."""
    return np.asarray(rarity / max(np.abs(rarity).max(initial=0), TINY))


def _fits(numbers: Any, shape: Shape) -> bool:
    """Whether these are finite numbers of this shape."""
    array = np.asarray(numbers)
    return array.shape == shape and array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _are_columns(columns: NDArray[Any], n_words: int) -> bool:
    """Whether columns are different ones; -1 would mean the last column a second time."""
    return columns.size == 0 or bool(
        columns.ndim == 1
        and columns.dtype.kind == "i"
        and columns.min() >= 0
        and columns.max() < n_words
        and len(np.unique(columns)) == len(columns)
    )
