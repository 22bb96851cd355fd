"""What leaves in a study, as others see it, and what each of some documents adds to it.

A study is played in this process, and all that leaves is kept. What a document adds to an exchange
finds out who knows it, by a client of his own that has this document alone and is told and asked
what the others were. Masks hide nothing of a total and are left out: where a study has them, others
see totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.engines.local import LocalClients
from fedtopics.errors import FedTopicsError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.federation.study import Study
from fedtopics.methods.aggregation import Named, Rows, RunningSum
from fedtopics.methods.base import Moment
from fedtopics.methods.plan import Site
from fedtopics.methods.secret import Secret
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus

MOST_CALLS = 60  # that are attacked, the first ones
COUNTS = 2  # columns of the vocabulary that documents add to: how many have a word, how often
Numbers = NDArray[np.float64]
Reply = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """What all clients were asked, or told, and the reply of each; none where they were told."""

    function: str
    payload: Reply
    replies: dict[str, Reply] = field(default_factory=dict)


class _Listened:
    """A client's door at which somebody listens."""

    def __init__(self, name: str, door: Door, heard: list[Call]) -> None:
        self._name = name
        self._door = door
        self._heard = heard

    def call(self, function: str, payload: Reply, moment: Moment) -> dict[str, Any]:
        reply = self._door.call(function, payload, moment)
        self._call(function, payload).replies[self._name] = reply
        return reply

    def repeat(self, function: str, payload: Reply, moment: Moment) -> dict[str, Any] | None:
        self._call(function, payload)
        return self._door.repeat(function, payload, moment)

    def _call(self, function: str, payload: Reply) -> Call:
        if not self._heard or self._heard[-1].payload is not payload:  # all clients get the same
            self._heard.append(Call(function, payload))
        return self._heard[-1]


class _Exact:
    """Takes the place of a client's noise: adds none, and keeps how much there would be."""

    def __init__(self) -> None:
        self.asked: list[tuple[Numbers, float]] = []

    def added(self, values: Any, sigma: float, purpose: str, *numbers: int) -> Numbers:
        exact = np.asarray(values, np.float64)
        self.asked.append((exact, sigma))
        return exact


def play(
    study: Study, corpora: Mapping[str, Corpus], policies: Mapping[str, Policy]
) -> tuple[TopicModel, list[Call]]:
    """Train on documents that have what the study needs of them; return also all that left."""
    study, heard = study.with_clients(corpora), list[Call]()
    doors: dict[str, Any] = {}
    for name, corpus in corpora.items():
        site = Site(name, corpus, policies[name], secret=Secret.from_seed(study.seed, name))
        ledger = Ledger(study.registration.name, study.fingerprint)
        door = Door(name, study.client_half(site), policies[name], ledger)
        doors[name] = _Listened(name, door, heard)
    run = RunFolder(None, study.fingerprint)
    return study.server_half().train(LocalClients(doors), run), heard


@dataclass(frozen=True)
class Seen:
    """An exchange as others see it, as vectors, and what each of some documents adds to it.

    Attributes
    ----------
    seen : mapping of client name to array of shape (n,)
        Where they see totals, the same for all clients.
    rest : mapping of client name to array of shape (n,)
        What is seen less what all documents that are there add: noise, and nothing without it.
        Of no client where documents are drawn, so that it is not known which are there.
    sigma : array of shape (n,)
        Standard deviation of the noise that is left if a third of the clients tell theirs.
    each : CSR array of shape (n_documents, n)
    words : array of shape (n,)
        The agreed word, of `n_words`, that a number is of; -1 for none.
    """

    seen: Mapping[str, Numbers]
    rest: Mapping[str, Numbers]
    sigma: Numbers
    each: sparse.csr_array
    words: NDArray[np.int64]
    n_words: int


class Replay:
    """What documents add to what was asked in a study."""

    def __init__(self, study: Study, calls: Sequence[Call]) -> None:
        limits = study.vocabulary.model_copy(update={"min_document_frequency": 1})
        self._study = study.model_copy(update={"vocabulary": limits})
        self._calls = calls[:MOST_CALLS]
        told = (call.payload for call in calls if not call.replies)
        self.words: list[str] = next(each["words"] for each in told if "words" in each)

    def exchanges(self, corpora: Mapping[str, Corpus], some: Corpus) -> Iterator[Seen]:
        """Yield what was seen of clients' documents, and what some documents add to each."""
        private = self._study.privacy is not None
        whole = {name: self._added(own) for name, own in corpora.items() if private}
        each = [self._added(some.take([row])) for row in range(len(some))]
        for number, call in enumerate(self._calls):
            clean = {name: replies[number] for name, replies in whole.items()}
            if len(call.replies) < len(corpora) or (private and not next(iter(clean.values()))[1]):
                continue  # told, not asked of all, or without a document's part
            total = _total(call.replies.values())
            if total is None:
                continue  # no sum, as of F-LDA's lists of words
            layout = _Layout.of(total, self._words(call))
            if private:
                layout = layout.of_noise(*next(iter(clean.values())))
            rows = [layout.row(replies[number][0]) for replies in each]
            seen = {name: layout.dense(reply) for name, reply in call.replies.items()}
            rest = self._rest(call, layout, seen, {name: of[0] for name, of in clean.items()})
            if self._study.masked and not self._by_all(call):
                seen = dict.fromkeys(seen, np.sum(list(seen.values()), axis=0))
            added = _stacked(rows, layout.size)
            yield Seen(seen, rest, layout.sigma, added, layout.words, len(self.words))

    def _rest(
        self, call: Call, layout: _Layout, seen: Mapping[str, Numbers], clean: Mapping[str, Reply]
    ) -> dict[str, Numbers]:
        """Return what is left of what is seen for who knows all documents but one."""
        if not clean:
            drawn = hasattr(getattr(self._study.registration.client, call.function), "noise")
            return {} if drawn else dict.fromkeys(seen, np.zeros(layout.size))
        honest = list(seen)[len(seen) // 3 :]
        left = [seen[name] - layout.dense(clean[name]) for name in honest]
        return dict.fromkeys(seen, np.sum(left, axis=0))

    def _by_all(self, call: Call) -> bool:
        return bool(getattr(self._study.registration.client, call.function).seen_by_all)

    def _added(self, own: Corpus) -> list[tuple[Reply, list[tuple[Numbers, float]]]]:
        """Return by call what documents add to it; what has noise, without it, and how much."""
        half = self._study.client_half(Site("own", own, OPEN_POLICY))
        found: list[tuple[Reply, list[tuple[Numbers, float]]]] = []
        for call in self._calls:
            half.noise = exact = _Exact()  # type: ignore[assignment]
            try:
                reply = getattr(half, call.function)(**call.payload)
            except FedTopicsError:  # a document without an agreed word
                break
            found.append((reply or {}, exact.asked))
        return found + [({}, [])] * (len(self._calls) - len(found))

    def _words(self, call: Call) -> dict[int | str, int]:
        """Return the number of each agreed word, by the word and by its row in replies."""
        columns = call.payload.get("columns", np.arange(len(self.words)))
        rows: dict[int | str, int] = {row: int(word) for row, word in enumerate(columns)}
        return rows | self._numbers

    @cached_property
    def _numbers(self) -> dict[int | str, int]:
        return {word: number for number, word in enumerate(self.words)}


@dataclass(frozen=True)
class _Layout:
    """Where in a vector the numbers of a reply are."""

    parts: Mapping[str, Any]  # by field: where it begins, its columns, the places of its names
    size: int
    words: NDArray[np.int64]
    sigma: Numbers

    @classmethod
    def of(cls, total: Reply, numbers: Mapping[int | str, int]) -> _Layout:
        parts, words, size = {}, [np.zeros(0, np.int64)], 0
        n_rows = sum(isinstance(key, int) for key in numbers)
        for name, value in _fields(total):
            names: dict[str, int] = {}
            if isinstance(value, Named):
                names, columns = {word: i for i, word in enumerate(value.names)}, COUNTS
                of_rows = [numbers.get(word, -1) for word in names]
            else:
                shape = np.shape(value.values if isinstance(value, Rows) else value)
                n = value.n_rows if isinstance(value, Rows) else (*shape, 1)[0]
                columns = int(np.prod(shape[1:]))
                of_rows = [numbers[i] if n == n_rows else -1 for i in range(n)]
            parts[name] = (size, columns, names)
            words.append(np.repeat(np.array(of_rows, np.int64), columns))
            size += len(words[-1])
        return cls(parts, size, np.concatenate(words), np.zeros(size))

    def of_noise(self, reply: Reply, asked: Sequence[tuple[Numbers, float]]) -> _Layout:
        """Return it with the noise of each field, and without those that have none."""
        parts, sigma = {}, self.sigma.copy()
        for name, value in _fields(reply):
            for exact, deviation in asked:
                if np.array_equal(exact, value):
                    parts[name] = self.parts[name]
                    start = parts[name][0]
                    sigma[start : start + exact.size] = deviation
        return _Layout(parts, self.size, self.words, sigma)

    def row(self, reply: Reply) -> tuple[NDArray[np.int64], Numbers]:
        """Return the places and values of a reply's numbers that are not 0."""
        places, values = [np.zeros(0, np.int64)], [np.zeros(0)]
        for name, value in _fields(reply):
            if name in self.parts:
                start, columns, names = self.parts[name]
                index, numbers = _rows(value, names)
                place = (start + index[:, None] * columns + np.arange(columns)).ravel()
                there = numbers.ravel() != 0
                places.append(place[there])
                values.append(numbers.ravel()[there])
        return np.concatenate(places), np.concatenate(values)

    def dense(self, reply: Reply) -> Numbers:
        """Return a reply's numbers."""
        vector = np.zeros(self.size)
        places, values = self.row(reply)
        vector[places] = values
        return vector


def _rows(value: Any, names: Mapping[str, int]) -> tuple[NDArray[np.int64], Numbers]:
    """Return which rows a field has, and their numbers (n_rows, n_columns)."""
    if isinstance(value, Named):
        known = [place for place, word in enumerate(value.names) if word in names]
        rows = np.array([names[value.names[place]] for place in known], np.int64)
        return rows, value.values[known, :COUNTS].astype(np.float64)
    numbers = np.asarray(value.values if isinstance(value, Rows) else value, np.float64)
    numbers = numbers.reshape(len(numbers) if numbers.ndim else 1, -1)
    return value.index if isinstance(value, Rows) else np.arange(len(numbers)), numbers


def _fields(reply: Reply, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a reply sums, by name: no numbers of documents or clients."""
    for name, value in reply.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        elif isinstance(value, (Rows, Named, np.ndarray, float)):
            yield prefix + name, value


def _total(replies: Iterable[Reply]) -> Reply | None:
    """Return the sum of replies; None if they do not add up."""
    running = RunningSum()
    try:
        for reply in replies:
            running.add(dict(_fields(reply)))
    except FedTopicsError:
        return None
    return running.total()


def _stacked(rows: Sequence[tuple[Any, Any]], n: int) -> sparse.csr_array:
    ends = np.cumsum([0, *(len(places) for places, _ in rows)])
    columns, values = (np.concatenate(each) for each in zip(*rows, strict=True))
    return sparse.csr_array((values, columns, ends), (len(rows), n))
