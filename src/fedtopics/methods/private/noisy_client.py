"""What a client's half has where all that leaves of documents has noise."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import PolicyError, StudyError
from fedtopics.inference.points import Numbers
from fedtopics.methods.bounded import COUNT, Mode
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.plan import Plan, Site
from fedtopics.methods.private.units import counted_once
from fedtopics.methods.settings import TopicSettings
from fedtopics.privacy import Budget
from fedtopics.text.vocabulary import fingerprint

Shape = tuple[int, ...]
NOISE = "with this client's part of the noise"


class NoisyClient(TopicClient[TopicSettings]):
    """A client's documents, and its part of the noise.

    Embeddings that come with documents are taken as they are; each has to be of its text alone.
    """

    def __init__(self, plan: Plan[TopicSettings], site: Site) -> None:
        self.recipe = plan.settings.recipe
        super().__init__(plan, site)
        self._privacy = plan.privacy
        rows, self._weights = counted_once(site.corpus, plan.privacy)
        if len(rows) < len(site.corpus):
            self._corpus = site.corpus.take(rows)
        self.summed = len(rows)
        self._mode: Mode | None = None
        self._asked: dict[tuple[str, int], bytes] = {}  # digests of questions

    def forget(self) -> None:
        self._asked.clear()

    @classmethod
    def schedule(cls, settings: TopicSettings) -> dict[str, str]:
        return {"extent": "once"} | cls.rounds(settings)

    @staticmethod
    def rounds(settings: TopicSettings) -> dict[str, str]:
        mode, of = settings.recipe.mode, settings.recipe.rounds_of
        if mode != "auto":
            return _calls(mode, _times(of(mode)))
        calls = _calls("both", _times(of("both"))) | _calls("words", "")
        alone = dict.fromkeys(("occurrences", "sketch"), "once, with words alone")
        return calls | alone | {"topic_words": "at most twice, with words alone once"}

    @leaves(f"Whether all documents have embeddings, and their number {NOISE}.")
    def extent(self) -> dict[str, Any]:
        """Count what the mode is chosen by; as much of the budget goes to it in each mode."""
        budget = Budget(self._privacy, {"documents": COUNT})
        number = self.noise.added(self._weights.sum(), budget.sigma("documents"), "documents")
        has = self._corpus.embeddings is not None
        return {"embedded": int(has), "clients": 1, "size": float(number)}

    def take(self, mode: Mode, words: list[str]) -> None:
        """Take up the mode and the public words; told, nothing leaves.

        StudyError if it is another mode than before: each has the whole of the budget.
        """
        if self._mode not in (None, mode):
            raise StudyError(
                f"Client {self.name!r} was to see documents by {self._mode} and is to see them by "
                f"{mode} now; begin a new run."
            )
        self._mode = mode
        self._budget = Budget(self._privacy, self.recipe.shares(mode))
        self._words = words
        self._fingerprint = fingerprint(words)
        self._columns = {word: i for i, word in enumerate(words)}
        self.bag = self.count(self._columns).astype(np.float64)

    def _look(
        self, function: str, vocabulary: str, columns: Any, *numbers: tuple[Numbers, Shape],
        number: int = 1, above: float = -np.inf,
    ) -> None:  # fmt: skip
        """Refuse what a document could count more than once in, or could make no number.

        Numbers have a shape, so that nothing fails by what documents have. And
        each release is of one question: whether another has the same answer would have no noise.
        """
        self.check(vocabulary)
        if self._mode is None or function not in _calls(self._mode, ""):
            raise self._refusal(f"documents are not seen by what {function!r} sums")
        columns = np.asarray(columns)
        usual = (_fits(each, shape) and (each > above).all() for each, shape in numbers)
        if not _are_columns(columns, len(self._words)) or not all(usual):
            raise self._refusal(
                "a document could count more than once, as a word is named twice or numbers are "
                "none"
            )
        asked = hashlib.sha256(vocabulary.encode())
        for array in (columns, *(each for each, _ in numbers)):
            asked.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
        first = self._asked.setdefault((function, number), asked.digest())
        if self._privacy is not None and first != asked.digest():
            raise self._refusal("it was asked for the same with other numbers before")

    def _refusal(self, why: str) -> PolicyError:
        return PolicyError(
            f"Client {self.name!r} was asked for sums that the study does not have: {why}; look "
            "into what the others run."
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
        """Infer nothing: no exchange of this method asks for it."""
        return iter(())


def _fits(numbers: Any, shape: Shape) -> bool:
    """Whether these are finite numbers of a shape."""
    array = np.asarray(numbers)
    return array.shape == shape and array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _are_columns(columns: NDArray[Any], n_words: int) -> bool:
    """Whether each is the column of another word; -1 would name the last one a second time."""
    if columns.size == 0:
        return True
    whole = columns.ndim == 1 and columns.dtype.kind == "i"
    known = whole and columns.min() >= 0 and columns.max() < n_words
    return bool(known and len(np.unique(columns)) == len(columns))


def _calls(mode: Mode, times: str) -> dict[str, str]:
    """Return how often which function is called in a mode."""
    begun = dict.fromkeys(("key_words", "word_vectors"), "once")
    clusters = begun | {"cluster_sums": times, "cluster_words": "once"}
    words = dict.fromkeys(("occurrences", "sketch"), "once")
    of_mode: dict[Mode, dict[str, str]] = {
        "embeddings": clusters,
        "both": clusters | {"topic_words": times},
        "words": words | {"topic_words": times},
        "factors": words | {"noisy_factors": times},
        "classes": begun | {"class_sums": times, "class_words": "once"},
    }
    return of_mode[mode]


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
