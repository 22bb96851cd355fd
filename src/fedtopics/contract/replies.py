"""The expected form of a reply: types, ranges of numbers, and relations between numbers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import BadReply, Event, Excluded
from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.errors import FederationError
from fedtopics.text.vocabulary import MOST_WORDS
from fedtopics.text.words import is_word

BAD_REPLIES = 3  # after this many a client is excluded
LIMIT = 1e30  # for numbers without a bound: a sum over a million clients is still finite
MOST_COUNT = 1 << 53  # exact in float64; a sum of it over a thousand clients fits into 64 bits
MOST_DOCUMENTS = 10**9  # per client
LONGEST = 1_000_000  # words per document of a client, on average
NATS = 100.0  # maximum loss per word, in nats; an untrained network has a loss of about ten
LONGEST_NAME = 100  # characters of a field's name in a message
FINEST = 2.0**-33  # rounding of the numbers in a masked reply
ROUNDING = 1e-5  # relative tolerance of bounds, for sums in float32


@dataclass(frozen=True)
class UpTo:
    name: str
    most: int


Axis = int | str | UpTo


@dataclass(frozen=True, eq=False)
class Bounds:
    """Numbers of one type, all between two bounds.

    In a `shape`, a name is any length, the same throughout a reply; `()` is one number.
    `per_document` bounds the numbers of a document's contribution, `length` its length as a vector.
    With `adds_up`, the numbers add up to the reply's number of documents. With `squares`, the
    second half sums the squares of the first half's terms; `products` sums products of all pairs.
    """

    shape: tuple[Axis, ...] = ()
    most: float | NDArray[Any] = LIMIT
    least: float | NDArray[Any] = -LIMIT
    per_document: float = np.inf
    length: float = 0.0
    adds_up: bool = False
    squares: bool = False
    products: bool = False
    dtype: str = "float64"
    rows: bool = False


@dataclass(frozen=True)
class Announced:
    """A number of documents, at most what clients announced, perhaps `constant_in_round`.

    A sum is of `fewest` persons of all clients at least, if that is known.
    """

    sizes: Mapping[str, int]
    constant_in_round: bool = False
    fewest: int | None = None


@dataclass(frozen=True)
class WordCountBounds:
    """Counts by word: documents, occurrences, clients, and clients with it among first words."""

    places: int


@dataclass(frozen=True, eq=False)
class Windows:
    """Numbers of windows, and of windows with both words of a pair, at most `most` per word."""

    pairs: NDArray[np.int64]  # (n_pairs, 2)
    most: NDArray[Any]  # (n_words,)
    documents: bool  # whether a window is a whole document
    halved: bool = False  # whether only one half of the documents is counted

    @property
    def fields(self) -> dict[str, Bounds]:
        return {
            "windows": counts(per_document=LONGEST),
            "pairs": counts(len(self.pairs), per_document=LONGEST),
        }


@dataclass(frozen=True)
class AgreeingPairs:
    @property
    def fields(self) -> dict[str, Bounds]:
        return dict.fromkeys(PAIRS_IN, sums(most=float(MOST_DOCUMENTS) ** 2))


def counts(*shape: Axis, per_document: float = np.inf) -> Bounds:
    return Bounds(shape, MOST_COUNT, 0, per_document, dtype="int64")


def sums(*shape: Axis, most: float | NDArray[Any] = LIMIT, per_document: float = np.inf) -> Bounds:
    return Bounds(shape, most, 0, per_document)


def of_groups(*shape: int) -> dict[str, Bounds]:
    """Return the bounds of persons' shares of groups, which a first sum counts."""
    return {"squares": sums(*shape, per_document=1), "fourths": sums(*shape, per_document=1)}


PAIRS_IN = ("together", "first", "second", "chance")
Template = Mapping[str, Any]
"""Expected form of each field: a `Bounds`, `Announced`, `WordCountBounds`, `Windows` or
`AgreeingPairs`, a map for a map, a list with one length for words, or only a shape for float64."""


def find_fault(reply: Any, template: Template, of: Sequence[str] = ("",)) -> str:
    """Return what is wrong with a reply, or a sum of the replies `of` clients; "" if nothing."""
    documents = reply.get("documents") if isinstance(reply, Mapping) else None
    return _Check(documents if type(documents) is int else 0, of).fault(reply, template, "")


@dataclass
class ReplyValidator:
    """Checks the replies of a study's clients, and excludes those that send too many bad ones."""

    _clients: int
    _notify: Callable[[Event], None]
    excluded: dict[str, str] = field(default_factory=dict)  # reasons by client
    _bad: Counter[str] = field(default_factory=Counter)
    _documents: dict[str, int] = field(default_factory=dict)  # of this attempt at a round

    def begin(self) -> None:
        """Begin a round, or an attempt at it."""
        self._documents.clear()

    def fault(self, client: str, reply: Any, template: Template) -> str:
        if fault := find_fault(reply, template, [client]):
            return fault
        announced = template.get("documents")
        if (
            isinstance(announced, Announced)
            and announced.constant_in_round
            and self._documents.setdefault(client, reply["documents"]) != reply["documents"]
        ):
            return "its field 'documents' differs from the earlier one in this round"
        return ""

    def blame(self, faults: Mapping[str, str], of: Sequence[str], round_: int) -> dict[str, str]:
        """Return why clients `of` a round are left out; FederationError if most are at fault."""
        # Then the model is bad, and not the clients.
        if len(faults) > len(of) / 2 and (len(of) > 1 or self._clients == 1):
            raise FederationError(
                f"Most clients sent bad replies ({len(faults)} of {len(of)}; the first: "
                f"{next(iter(faults.values()))}). If the training diverged, lower learning_rate; "
                "otherwise check which version and study the clients run."
            )
        reasons = {name: f"sent a bad reply: {fault}" for name, fault in faults.items()}
        for name, reason in reasons.items():
            self._bad[name] += 1
            self._notify(BadReply(name, round_, reason))
            if self._bad[name] == BAD_REPLIES:
                self.excluded[name] = f"{BAD_REPLIES} bad replies, the last: {reason}"
                self._notify(Excluded(name, round_, self.excluded[name]))
        return reasons


@dataclass(frozen=True)
class _Check:
    _documents: int
    _of: Sequence[str]
    _lengths: dict[str, int] = field(default_factory=dict)

    def fault(self, value: Any, template: Any, name: str) -> str:
        where = f"its field {name[:LONGEST_NAME]!r}" if name else "the reply"
        match template:
            case Mapping():
                return self._fault_of_map(value, template, name, where)
            case list():
                if not isinstance(value, list) or not all(
                    isinstance(word, str) and is_word(word) for word in value
                ):
                    return f"{where} is not a list of words"
                return self._misfit((len(value),), tuple(template), where)
            case WordCountBounds():
                return self._fault_of_words(value, template, where)
            case Windows():
                return self._fault_of_windows(value, template, name, where)
            case AgreeingPairs():
                return self._fault_of_pairs(value, name, where)
            case Announced():
                largest = max(template.sizes.values(), default=MOST_DOCUMENTS)
                most = sum(template.sizes.get(client, largest) for client in self._of)
                template = Bounds((), most, 0, dtype="int64")
        bounds = template if isinstance(template, Bounds) else Bounds(tuple(template))
        return self._fault_of_field(value, bounds, where)

    def _fault_of_map(self, value: Any, template: Template, name: str, where: str) -> str:
        if not isinstance(value, Mapping) or value.keys() != template.keys():
            return f"{where} does not have the fields {sorted(template)}"  # and no others
        inner = (
            self.fault(value[key], template[key], f"{name}.{key}".lstrip(".")) for key in template
        )
        return next((fault for fault in inner if fault), "")

    def _fault_of_field(self, value: Any, field: Bounds, where: str) -> str:
        if fault := self._misfit(_size(value), field.shape, where):
            return fault
        kind = _kind(value)
        wanted = f"rows of {field.dtype}" if field.rows else field.dtype
        if kind != wanted:
            return f"{where} contains {kind} instead of {wanted}"
        numbers = value.values if isinstance(value, SparseRows) else np.asarray(value)
        if field.dtype != "int64" and not np.isfinite(numbers).all():
            return f"{where} contains NaN or infinite numbers"
        bound = np.inf if np.isinf(field.per_document) else field.per_document * self._documents
        most = np.asarray(field.most)
        least = np.asarray(field.least)
        if isinstance(value, SparseRows) and most.ndim:
            most = most[value.index]
        most = np.minimum(most, bound)
        least = np.maximum(least, -bound)
        if field.dtype != "int64":
            most = most + ROUNDING * np.abs(most)
            least = least - ROUNDING * np.abs(least)
        if np.less(numbers, least).any() or np.greater(numbers, most).any():
            return f"{where} contains numbers outside the agreed bounds"
        if field.adds_up and abs(numbers.sum() - self._documents) > ROUNDING * self._documents:
            return f"{where} does not add up to the number of documents"
        return (
            ""
            if self._fits_together(numbers, field)
            else f"{where} contains impossible squares or products"
        )

    def _fits_together(self, numbers: NDArray[Any], field: Bounds) -> bool:
        """Whether squares and products satisfy the Cauchy-Schwarz inequality."""
        if field.squares:
            first, squares = np.split(numbers, 2)
            fine = FINEST * len(self._of) * (self._documents + 2 * np.abs(first))
            return bool((squares * self._documents >= first**2 * (1 - ROUNDING) - fine).all())
        if field.products:
            # A square that vanishes in rounding, of an axis that hardly varies, is not 0.
            diagonal = numbers.diagonal() + FINEST * len(self._of)
            most = np.sqrt(np.outer(diagonal, diagonal).clip(0)) * (1 + ROUNDING)
            return bool((diagonal >= 0).all() and (np.abs(numbers) <= most + ROUNDING).all())
        return True

    def _fault_of_words(self, value: Any, template: WordCountBounds, where: str) -> str:
        if not isinstance(value, CountsByWord) or value.values.shape[1:] != (4,):
            return f"{where} does not contain counts by word"
        if not all(map(is_word, value.names)) or sorted(set(value.names)) != value.names:
            return f"{where} contains invalid words, or they are not sorted"
        n = len(self._of)
        documents, occurrences, clients, first = value.values.T
        fits = (
            (documents >= 1).all()
            and (documents <= np.minimum(occurrences, self._documents)).all()
            and (occurrences <= MOST_COUNT).all()
            and occurrences.sum(dtype=np.float64) <= LONGEST * self._documents
            and (clients >= 1).all()
            and (clients <= n).all()
            and (first >= 0).all()
            and (first <= clients).all()
            and first.sum() <= n * template.places
            and len(value.names) <= n * MOST_WORDS
        )
        return "" if fits else f"{where} contains impossible counts of words"

    def _fault_of_windows(self, value: Any, template: Windows, name: str, where: str) -> str:
        (left, right) = template.pairs.T
        most = self._documents * (1 if template.documents else LONGEST)
        numbers = {
            "windows": Bounds((), most, 0 if template.halved else self._documents, dtype="int64"),
            "pairs": counts(len(template.pairs)),
        }
        if fault := self._fault_of_map(value, numbers, name, where):
            return fault
        in_pairs = value["pairs"]
        alone = left == right
        words = np.minimum(template.most, value["windows"])
        of_word = np.zeros(len(words), np.int64)
        of_word[left[alone]] = in_pairs[alone]
        together = np.minimum(of_word[left], of_word[right])
        fits = (of_word <= words).all() and (in_pairs <= together).all()
        return "" if fits else f"{where} contains impossible numbers of windows"

    def _fault_of_pairs(self, value: Any, name: str, where: str) -> str:
        n = self._documents
        number = Bounds((), n * (n - 1) / 2, 0)
        if fault := self._fault_of_map(value, dict.fromkeys(PAIRS_IN, number), name, where):
            return fault
        together, first, second, chance = (value[key] for key in PAIRS_IN)
        fits = max(together, chance) <= min(first, second) * (1 + ROUNDING)
        if len(self._of) == 1:
            expected = first * second / max(n * (n - 1) / 2, 1.0)
            fits &= abs(chance - expected) <= ROUNDING * expected
        return "" if fits else f"{where} contains impossible numbers of pairs"

    def _misfit(self, shape: tuple[int, ...] | None, wanted: tuple[Axis, ...], where: str) -> str:
        fits = shape is not None and len(shape) == len(wanted)
        for length, want in zip(shape or (), wanted, strict=False):
            if isinstance(want, UpTo):
                fits &= length <= want.most
                want = want.name
            expected = self._lengths.setdefault(want, length) if isinstance(want, str) else want
            fits &= length == expected
        if fits:
            return ""
        axes = tuple(f"up to {a.most} {a.name}" if isinstance(a, UpTo) else a for a in wanted)
        return f"{where} has the shape {shape} instead of {axes}"


def _size(value: Any) -> tuple[int, ...] | None:
    match value:
        case SparseRows():
            return value.n_rows, *value.values.shape[1:]
        case np.ndarray():
            return tuple(value.shape)
    return () if type(value) in (int, float) else None


def _kind(value: Any) -> str:
    return (
        f"rows of {value.values.dtype.name}"
        if isinstance(value, SparseRows)
        else {int: "int64", float: "float64"}.get(type(value)) or str(value.dtype.name)
    )
