"""The computations of a client that all methods share, and which of their results it may send."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.payload import CountsByWord, Payload
from fedtopics.contract.published import (
    LAST,
    NEVER,
    ONCE,
    Often,
    Published,
    Reply,
    description_of,
    of_method,
    published,
)
from fedtopics.contract.replies import (
    LONGEST,
    MOST_COUNT,
    Announced,
    Bounds,
    Template,
    WordCountBounds,
    counts,
    sums,
)
from fedtopics.errors import DataError, StudyError
from fedtopics.inference.vectors import batches as batches  # for methods, also those of others
from fedtopics.inference.vectors import with_entries
from fedtopics.methods.core.final_model import LastSums, draw_halves, words_in_halves
from fedtopics.methods.core.group_sums import GroupSums
from fedtopics.methods.core.groups import (
    Enough,
    Grouped,
    GroupRequest,
    GroupThreshold,
    Thetas,
    enough_have,
)
from fedtopics.methods.core.nearness import NearnessSums
from fedtopics.methods.core.plan import ClientContext, Plan, Secret, Settings
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.text.vocabulary import (
    WordCounts,
    count_words,
    fingerprint,
    persons_by_word,
    set_aside,
)

Documents = NDArray[np.int64]
"""Row numbers of documents."""
HALVES = 2  # in which words are chosen and scored
THIRDS = 3  # of the documents, from which a number of topics is chosen
DIVISIONS = 3  # into thirds
MANY = 3  # times min_persons for each topic: so many persons have few small groups
# The number of documents is the same in all steps of the agreement.
SAME_NUMBER = Announced({}, constant_in_round=True)
COUNTED: Template = {
    "documents": SAME_NUMBER,
    "persons": counts(per_document=1),
    "halved": counts(per_document=1),
    "training": counts(per_document=1),
    "without_known_word": counts(per_document=1),
}
FEWEST = Bounds((), MOST_COUNT, 1, dtype="int64")
AT_END = LastSums, NearnessSums, GroupSums
Part = TypeVar("Part", bound=SharedFunctions)


class ClientFacts:
    """What the outbound filter reads of a client, next to its replies."""

    together: Callable[[Sequence[Any]], Any] | None = None
    """Optional: joins the clients of one process. Returns an object whose `functions` sum over all
    of these clients, and whose `documents` are each client's number in the last call."""

    most_rounds: int | None = None
    """The most rounds of drawn minibatches, by a policy that does not say; None for any number."""

    noisy = False
    """Whether all data sent has noise; if so, every attempt at a step sends the same reply."""

    summed = 0
    """Number of documents of a reply that does not contain it, because it is not shared."""

    persons: int | None = None
    """Of the last reply; None if each document is a person."""

    @property
    def released(self) -> float:
        """The share of the privacy budget that sums used which were computed so far."""
        return 0.0


class ClientWords(ClientFacts):
    """The words of a client; an object with a part of its documents knows those of the whole."""

    bag: sparse.csr_array
    whole: NDArray[np.int64] | None = None  # see `hold`

    def __init__(self, plan: Plan[Any], site: ClientContext) -> None:
        self.name = site.name
        self.site = site
        self.min_persons = site.policy.min_persons
        self.rarest = max(plan.limits.min_persons_per_word, site.policy.min_persons_per_word)
        self.secret = site.secret or Secret.from_seed(plan.seed, site.name)
        self.corpus = site.corpus
        self.text = plan.text
        self.names = site.policy.names_in(plan.text)
        self.limits = plan.limits

    @cached_property
    def counts(self) -> WordCounts:
        return count_words(self.corpus, self.text, names=self.names)

    def count(self, words: Mapping[str, int]) -> sparse.csr_array:
        return self.counts.columns(words)

    def counted_words(self) -> Reply:
        """Count all words; nothing is sent."""
        if not self.counts.words:
            return {"words": CountsByWord.columns(3), "documents": len(self.corpus)}
        names, values = self.counts.named(1, self.corpus.owners)
        return {"words": CountsByWord(names, values), "documents": len(self.corpus)}

    def proposed(self, places: int, most: int, counted_words: Mapping[str, Any]) -> Reply:
        """Return the words of the whole client that enough of its persons have."""
        documents = counted_words["documents"]
        names, counted = _frequent_words(
            counted_words["words"],
            study=self.limits.min_persons_per_word,
            policy=self.site.policy.min_persons_per_word,
        )
        if counted[:, 1].sum() > LONGEST * documents:
            raise DataError(
                f"The documents of client {self.name!r} have more than {LONGEST:,} words on "
                "average; split them."
            )
        by_frequency = np.argsort(-counted[:, 1], kind="stable")[:most]
        most_frequent = np.zeros(len(names), np.int64)
        most_frequent[by_frequency[:places]] = 1
        columns = np.column_stack([counted, np.ones(len(names), np.int64), most_frequent])
        rows = np.sort(by_frequency)
        return {
            "words": CountsByWord([names[row] for row in rows], columns[rows]),
            "documents": documents,
        }

    @published(
        "For each word of a model that is trained further: 1 if documents of enough persons "
        "contain it. The number of documents.",
        "which words of a model are known",
        often=Often(times=1, instead="instead of vocabulary, if a model keeps its own words"),
        reply=lambda agreement, words: {
            "documents": SAME_NUMBER,
            "clients": sums(len(words), most=len(agreement.clients.names)),
        },
        largest=lambda s, n_words: {"words": [""] * n_words},
        has_words=False,
    )
    def known_words(self, words: list[str]) -> Reply:
        bag = self.count({word: i for i, word in enumerate(words)})
        return {
            "documents": self.over(np.arange(len(self.corpus))),
            "clients": (persons_by_word(bag, self.corpus.owners) >= self.rarest).astype(np.float64),
        }

    def over(self, rows: Documents) -> int:
        """Note which documents a reply is over, for the outbound filter; return their number."""
        if self.corpus.owners is not None:
            self.persons = self.corpus.n_persons(rows)
        return len(rows)

    def with_words(self, bag: sparse.csr_array, rows: Documents) -> NDArray[np.int64]:
        """Return how many persons have each word in these rows of the bag, (n_words,)."""
        return persons_by_word(bag[rows], self.corpus.owners_of(rows))

    def frequencies(self, words: list[str]) -> Reply:
        """Count the persons with each word, in all documents and in parts of them; see `hold`."""
        bag = self.count({word: i for i, word in enumerate(words)})
        parts = np.arange(bag.shape[0]), *draw_halves(self), *self._rows_of_thirds()
        return {"counts": np.stack([self.with_words(bag, rows) for rows in parts])}

    def hold(self, whole: Mapping[str, Any]) -> None:
        """Take the `frequencies` of the whole client, where this object has a part of it."""
        self.whole = whole["counts"]

    @cached_property
    def in_halves(self) -> NDArray[np.int64]:
        """The number of the client's persons with each word in each half, (2, n_words)."""
        return (
            self.whole[1 : 1 + HALVES]
            if self.whole is not None
            else np.stack([self.with_words(self.bag, rows) for rows in draw_halves(self)])
        )

    @cached_property
    def thirds(self) -> NDArray[np.int64]:
        """The third of each document in three divisions, (3, n); -1 for too few persons.

        Persons are divided: into 27 groups of nearly the same size, so that each third of each
        division has nine of them. A combination of sums of thirds has different weights in at least
        nine groups, whatever it is: one that is over anyone is over `min_persons`.
        """
        n_persons = self.corpus.n_persons()
        places = self.secret.rng("thirds").permutation(n_persons)
        thirds = places // THIRDS ** np.arange(DIVISIONS)[:, None] % THIRDS
        if n_persons // THIRDS**DIVISIONS * THIRDS ** (DIVISIONS - 1) < self.min_persons:
            thirds[:] = -1
        return thirds[:, self.corpus.person_numbers]

    @cached_property
    def in_thirds(self) -> NDArray[np.int64]:
        """The number of the client's persons with each word, (3, 3, n_words); see `thirds`."""
        persons = (
            self.whole[1 + HALVES :]
            if self.whole is not None
            else np.stack([self.with_words(self.bag, rows) for rows in self._rows_of_thirds()])
        )
        return persons.reshape(DIVISIONS, THIRDS, -1)

    def _rows_of_thirds(self) -> list[Documents]:
        return [np.flatnonzero(of == third) for of in self.thirds for third in range(THIRDS)]


class TopicClient(ClientWords, ABC, Generic[Settings]):
    """A client's documents and computations; base class of each method's client side.

    A subclass defines `thetas` and published functions (see `published`). This class also enforces
    the site's policy, in addition to the outbound filter. All random choices follow from the
    client's secret.
    """

    def __init__(self, plan: Plan[Settings], site: ClientContext) -> None:
        super().__init__(plan, site)
        self.settings = plan.settings
        self.method = self.settings.method_name
        fewest_clients = site.policy.min_clients_per_group if site.masked else 1
        # A client with many persons leaves out its own small groups: this is stricter, it costs few
        # sums, and no step before them. Other groups are counted over all clients first, or over
        # all parts of this client's documents.
        many = MANY * self.min_persons * self.settings.most_topics
        counts_first = site.policy.counts_of_all and self.corpus.n_persons() < many
        counts_together = site.is_part or fewest_clients > 1 or (site.masked and counts_first)
        self.guard = GroupThreshold(
            self.min_persons, counts_together, fewest_clients, masked=site.masked
        )
        self.attempt = 1  # number of the attempt at the present round, set by the outbound filter
        self.public_seed = plan.seed  # for random choices that all clients share
        self._fingerprint = ""
        self._parts = {kind: kind(self) for kind in (*self.exchanges, *AT_END)}
        self.about = self.functions()
        self.allowed = frozenset(self.in_study(self.settings))

    exchanges: ClassVar[tuple[type[SharedFunctions], ...]] = ()
    remembers: ClassVar[bool] = False  # whether replies depend on replies of earlier rounds
    continues: ClassVar[bool] = False  # whether the method trains models further, with their words

    @classmethod
    def functions(cls) -> dict[str, Published]:
        """Return the descriptions of all published functions of the method, by name."""
        kinds = (base for kind in (cls, *cls.exchanges, *AT_END) for base in kind.__mro__[::-1])
        members = {name: getattr(kind, name) for kind in kinds for name in vars(kind)}
        every = [description_of(f) for f in members.values() if hasattr(f, "published")]
        return {of.name: of for of in every}

    @classmethod
    def in_study(cls, settings: Settings) -> dict[str, Often]:
        """Return how often a study calls each function; it may call no other one."""
        often = (
            (name, of.in_study(settings))
            for name, of in cls.functions().items()
            if cls.continues or name != "known_words"
        )
        called = [(name, calls) for name, calls in often if calls]
        return dict(sorted(called, key=lambda item: _place(item[1])))

    def function(self, name: str) -> Callable[..., Any]:
        owner = next((part for part in (self, *self._parts.values()) if hasattr(part, name)), self)
        return cast("Callable[..., Any]", getattr(owner, name))

    def execute(self, function: str, payload: Mapping[str, Any]) -> Reply:
        """Execute a function by its name; StudyError if the call is for other words."""
        self.persons = None if self.corpus.owners is None else 0  # until it says; see `over`
        return cast("Reply", self.function(function)(**self.checked(function, payload)))

    def checked(self, function: str, payload: Mapping[str, Any]) -> Reply:
        """Return the arguments of a call; StudyError if it is not for the agreed words."""
        about = self.about.get(function)
        needs_words = "vocabulary" in payload if about is None else about.has_words
        if needs_words and payload.get("vocabulary") != self._fingerprint:
            raise StudyError(
                f"Client {self.name!r} was called for the vocabulary {payload.get('vocabulary')}, "
                f"but agreed on {self._fingerprint or 'none'}; restart the study."
            )
        return {name: value for name, value in payload.items() if name != "vocabulary"}

    def sums_by_group(
        self,
        groups: GroupRequest,
        request: Payload,
        compute: Callable[[], Grouped],
        rows: Documents,
        rule: Callable[..., Enough] = enough_have,
        guards_rest: bool = False,
    ) -> Reply:
        """Return sums of groups of enough persons, see `GroupThreshold.sums`, over these rows."""
        sums = self.guard.sums(groups, request, rule, compute, guards_rest)
        return sums | {"documents": self.over(rows)}

    def part(self, kind: type[Part]) -> Part:
        return cast("Part", self._parts[kind])

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
        "For each word that documents of enough persons contain: the number of documents with it, "
        "its number of occurrences, a 1 (the sum is the number of clients), and whether the word "
        "is one of the client's most frequent words. The number of documents.",
        "words with their counts",
        often=of_method(TopicSettings, lambda s: ONCE if s.agrees_first else NEVER),
        reply=lambda places, most: {"words": WordCountBounds(places), "documents": SAME_NUMBER},
        has_words=False,
    )
    def vocabulary(self, places: int, most: int) -> Reply:
        """Count words of documents of enough persons (GetClientVocab), and mark frequent ones."""
        for part in self._parts.values():
            part.forget()
        self.over(np.arange(len(self.corpus)))
        return self.proposed(places, most, self.counted_words())

    def adopt(
        self, words: list[str], total: int, length: float, few_have: Sequence[bool] = ()
    ) -> None:
        """Adopt the words, a round's mean number of documents, and the documents' mean length.

        Words that only few clients have now, in `few_have`, do not count.
        """
        self._fingerprint = fingerprint(words)
        self.columns = {word: i for i, word in enumerate(words)}
        bag = self.count(self.columns)
        persons = persons_by_word(bag, self.corpus.owners) if self.whole is None else self.whole[0]
        if len(few_have):
            persons = np.where(few_have, 0, persons)
        bag = frequent(bag, self.rarest, persons)
        self.bag = set_aside(bag.astype(np.float32))
        # The number of the client's persons with each word that those of enough persons have.
        self.frequency = np.where(persons >= self.rarest, persons, 0)
        for cached in ("in_halves", "in_thirds"):  # for the words before
            self.__dict__.pop(cached, None)
        self.usable = self.find_usable()
        self._training = self.split(self.bag.shape[0], total)
        self.limit_rounds(0 if self.site.masked else self.corpus.n_persons(self.usable))

    def limit_rounds(self, persons: int) -> None:
        """Draw at most half as many minibatches as the persons that a total is over, if known."""
        if self.settings.draws and self.site.apart and persons:
            self.most_rounds = persons // 2

    @published(
        "The numbers of all documents, of their persons, of persons of a half of the documents, of "
        "documents for training, and of documents without a known word. They limit the numbers of "
        "documents in later replies, and all participants see each client's numbers. With secure "
        "aggregation also the policy's min_persons and min_clients_per_group, and whether groups "
        "are counted over all clients before they are summed, because this client has few persons "
        "for each group.",
        "numbers of documents",
        often=of_method(TopicSettings, lambda s: ONCE if s.agrees_first else LAST + s.scoring),
        reply=lambda agreement: (
            {**COUNTED, "least": FEWEST, "least_clients": FEWEST, "counts_first": counts()}
            if agreement.clients.hidden
            else COUNTED
        ),
        seen_by_all=True,
    )
    def document_counts(self) -> Reply:
        documents = self.over(np.arange(self.bag.shape[0]))
        numbers = {
            "documents": documents,
            "persons": self.corpus.n_persons(self.usable),
            "halved": int(words_in_halves(self).any()) * (self.corpus.n_persons() // 2),
            "training": self._training,
            "without_known_word": documents - len(self.usable),
        }
        if not self.site.masked:
            return numbers
        guard = self.guard
        return numbers | {
            "least": guard.least,
            "least_clients": guard.clients,
            "counts_first": int(guard.of_all and (guard.least > 1 or guard.clients > 1)),
        }


def _place(often: Often) -> int:
    """Return what sorts functions by when they are called: before, in or after the rounds."""
    return 0 if often.times else 2 if often.per_round else 1 if often.before else 3


def _frequent_words(
    words: CountsByWord, study: int, policy: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the words that enough persons have, by the stricter limit of study and policy."""
    if not words.names:
        raise DataError(
            "No document has a word: the documents are empty, or contain only stop words, numbers "
            'and signs; give other texts, or keep them with stop_words = "none" and token_pattern '
            '= "words-and-digits" in [text].'
        )
    persons = words.values[:, 2]
    most = persons.max()
    limits = {"the study": study, "the client's policy": policy}
    if names := " and of ".join(name for name, least in limits.items() if least > most):
        raise DataError(
            f"No word is in the documents of {max(study, policy)} or more persons; give more "
            "documents or, if rarer words may be shared, lower "
            f"min_persons_per_word of {names}."
        )
    rows = np.flatnonzero(persons >= max(study, policy))
    return [words.names[row] for row in rows], words.values[rows, :2]


def frequent(bag: sparse.csr_array, least: int, persons: NDArray[np.int64]) -> sparse.csr_array:
    """Return the bag without the words of fewer than `least` persons; `persons` is by word."""
    return with_entries(bag, persons[bag.indices] >= least)
