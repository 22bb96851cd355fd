"""The last exchanges of every method: shares, words and coherence of the topics."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.contract.replies import LONGEST, Bounds, Template, Windows, of_topics, sums
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    OverTime,
    Thetas,
    enough_have,
    sums_by_period,
)
from fedtopics.methods.core.plan import Secret, WarmStart
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model import coherence
from fedtopics.model.shown_words import DEFAULT_RANKING, WORDS_SHOWN
from fedtopics.model.shown_words import choose as choose_reading
from fedtopics.model.topics import TOGETHER, Periods, Topics

CHOOSING, SCORED, ALL = range(3)
"""Parts of the documents for counts of word pairs: to choose words, to score them, or both."""
SURVIVING = 0.7  # least share of words, weighted by documents, that can be counted in halves


class LastSums(SharedFunctions):
    @published(
        "For each topic, the sum of the documents' shares of it; the number of documents. The "
        "model contains each client's numbers: all participants see them.",
        seen_by_all=True,
    )
    def shares(self, vocabulary: str, **model: Any) -> dict[str, Any]:
        self.client.check(vocabulary)
        total = np.zeros(self.client.n_topics(**model))
        for _, theta in self.client.thetas(**model):
            total += theta.sum(0)
        return {"theta": total, "documents": len(self.client.usable)}

    @published(
        "For each topic that enough of the documents have, the occurrences of each word that "
        "enough documents contain, weighted by their shares of the topic; the number of documents. "
        "With secure aggregation, first: for each topic the sums of shares and of squared shares."
    )
    def word_sums(
        self, vocabulary: str, groups: GroupRequest = SEEN, **model: Any
    ) -> dict[str, Any]:
        """Sum the words of all documents, weighted by theta, to rank the words of each topic."""
        # Not part of `shares`, which all participants see, because here the sum is enough.
        self.client.check(vocabulary)
        return sums_of_words(
            self.client,
            groups,
            request=model,
            thetas=self.client.thetas(**model),
            n_topics=self.client.n_topics(**model),
        )

    @published(
        "For each period with enough documents, the sum of their topics' shares, and zeros for the "
        "rest; the number of all documents. With secure aggregation, before that: the number of "
        "documents in each period."
    )
    def period_sums(
        self, vocabulary: str, groups: GroupRequest = SEEN, **model: Any
    ) -> dict[str, Any]:
        self.client.check(vocabulary)
        over_time = cast("OverTime", self.client.settings.over_time)
        reply = sums_by_period(
            self.client.guard,
            places=over_time.places(self.client.corpus),
            thetas=partial(self.client.thetas, **model),
            groups=groups,
            model=model,
            shape=(len(over_time.begins), self.client.n_topics(**model)),
        )
        return reply | {"documents": len(self.client.usable)}

    @published(
        "For each period with enough of the client's documents, the sum of their topics' shares, "
        "and zeros for the rest; the number of all documents. The model contains each client's "
        "numbers: all participants see them.",
        seen_by_all=True,
    )
    def period_shares(
        self, vocabulary: str, groups: GroupRequest = SEEN, **model: Any
    ) -> dict[str, Any]:
        return self.period_sums(vocabulary, groups, **model)

    @published(
        "For each pair of words of a topic that enough of the documents contain, the number of "
        "windows or documents with both words; the numbers of windows and documents. Words are "
        "chosen in one half of the documents and scored in the other, and the client draws the "
        "halves. Words that too few documents of a half contain do not count."
    )
    def pairs(
        self,
        vocabulary: str,
        words: list[str],
        pairs: NDArray[np.int64],
        windows: list[int],
        part: int,
    ) -> dict[str, Any]:
        """Count how often the topics' words occur together, to choose or to score them."""
        self.client.check(vocabulary)
        rows = np.arange(len(self.client.corpus))
        frequency = self.client.frequency
        countable = frequency > 0
        if part != ALL:
            halves = draw_halves(self.client.secret, len(rows), self.client.min_documents)
            in_halves = self.client.in_halves
            in_both = countable & ((in_halves == 0) | (in_halves >= self.client.rarest)).all(0)
            # If too few words remain in halves, no documents choose words, and all score them.
            if frequency[in_both].sum() < SURVIVING * frequency.sum():
                halves = [halves[0][:0], rows]
            else:
                countable = in_both
            rows = halves[part]
        counts = coherence.count_pairs(self.client.counts, words, pairs, windows, rows)
        both = countable[[self.client.columns[word] for word in words]][pairs].all(1)
        for by_pair in counts.values():
            by_pair["pairs"] = by_pair["pairs"] * both
        return counts | {"documents": len(rows)}


def bag_of_part(client: Any, part: int) -> sparse.csr_array:
    """Return the words that enough documents of each half have; none if a half is too small."""
    in_both = (client.in_halves >= client.rarest).all(0)
    bags = []
    for rows in draw_halves(client.secret, client.bag.shape[0], client.min_documents):
        bag = client.bag[rows]
        bag.data = bag.data * in_both[bag.indices]
        bag.eliminate_zeros()
        bags.append(bag)
    fewest = min(np.count_nonzero(np.diff(bag.indptr)) for bag in bags)
    return bags[part] if fewest >= client.min_documents else bags[part][:0]


def draw_halves(secret: Secret, n_documents: int, least: int) -> list[NDArray[np.int64]]:
    """Split the documents, always in the same way, into halves to choose and to score words."""
    order = secret.rng("halves of pairs").permutation(n_documents)
    middle = n_documents // 2
    return [np.sort(part) for part in np.split(order, [middle if middle >= least else 0])]


def sums_of_words(
    client: Any, groups: GroupRequest, request: dict[str, Any], thetas: Thetas, n_topics: int
) -> dict[str, Any]:
    """Sum the words of documents by topic, one row per topic with enough documents."""

    def compute() -> Grouped:
        total = np.zeros((n_topics, client.bag.shape[1]))
        shares = np.zeros(n_topics)
        squares = np.zeros(n_topics)
        for rows, theta in thetas:
            total += theta.T @ client.bag[rows]
            shares += theta.sum(0)
            squares += np.square(theta).sum(0)
        counts = {"shares": shares, "squares": squares}
        return counts, lambda enough: {"sums": total * enough[:, None]}

    reply: dict[str, Any] = client.guard.sums(
        groups, {"sums": "by topic", **request}, enough_have, compute
    )
    return reply | {"documents": len(client.usable)}


def document_frequency(bag: sparse.csr_array) -> NDArray[np.int64]:
    return np.bincount(bag.indices, minlength=bag.shape[1])


def assemble_model(
    agreement: Agreement,
    settings: TopicSettings,
    model: Mapping[str, Any],
    make: Callable[..., Topics],
    start: WarmStart | None = None,
) -> Topics:
    """Sum the topics' shares and words over the clients, and choose which words are shown."""
    n_topics = settings.n_components
    vocabulary = agreement.vocabulary
    template: Template = {"theta": Bounds((n_topics,), least=0, adds_up=True)}
    words: Template = {"sums": sums(n_topics, len(vocabulary), per_document=LONGEST)}
    replies = agreement.call("shares", template, **model)
    documents = {name: reply["documents"] for name, reply in replies.items()}
    word_sums = partial(agreement.sum_groups, "word_sums", words, of_topics(n_topics), **model)
    topics = make(
        vocabulary=vocabulary,
        shares={name: reply["theta"] / max(documents[name], 1) for name, reply in replies.items()},
        documents=documents,
        word_sums=agreement.clients.round(0, word_sums)[0]["sums"],
    )
    topics = topics if start is None else start.added_to(topics)
    periods = sum_periods(agreement, settings.over_time, n_topics, model)
    return choose_words(agreement, settings, replace(topics, periods=periods))


def sum_periods(
    agreement: Agreement, over_time: OverTime | None, n_topics: int, model: Mapping[str, Any]
) -> Periods | None:
    if over_time is None:
        return None
    begins = tuple(map(str, over_time.begins))
    template: Template = {"sums": sums(len(begins), n_topics, per_document=1)}
    if over_time.by_client:
        replies = agreement.call("period_shares", template, **model)
        by_client = {name: reply["sums"] for name, reply in replies.items()}
        return Periods(over_time.period, begins, by_client)
    counted: Template = {"counts": sums(len(begins) + 1, per_document=1)}
    work = partial(agreement.sum_groups, "period_sums", template, counted, **model)
    total = agreement.clients.round(0, work)[0]["sums"]
    return Periods(over_time.period, begins, {TOGETHER: total})


def sum_pair_counts(
    agreement: Agreement, words: list[str], pairs: NDArray[np.int64], windows: list[int], part: int
) -> dict[str, Any]:
    template = {}
    vocabulary = agreement.vocabulary
    places = [vocabulary.index[word] for word in words]
    for size in windows:  # each word occurs in at most this many windows
        counted = size * vocabulary.occurrences if size else vocabulary.document_frequency
        bound = agreement.bound_if_announced(counted[places]) if agreement.counted else np.inf
        most = np.broadcast_to(bound, len(words))
        template[str(size)] = Windows(pairs, most, documents=size == 0)
    request = {"words": words, "pairs": pairs, "windows": windows, "part": part}
    return agreement.sum("pairs", template, **request)


def choose_words(agreement: Agreement, settings: TopicSettings, model: Topics) -> Topics:
    """Choose the words shown for each topic; score them in other documents."""
    readings = settings.readings
    within = settings.coherence
    chosen = readings[0] if len(readings) == 1 else DEFAULT_RANKING
    if within == "nothing":
        return replace(model, word_ranking=chosen)
    ask = partial(sum_pair_counts, agreement)
    part = ALL
    if settings.chooses_words:
        columns = [model.columns(reading, settings.n_candidate_words) for reading in readings]
        words = model.vocabulary.words
        topics = [[words[i] for i in topic] for shown in columns for topic in shown]
        npmi = coherence.federated_npmi(partial(ask, part=CHOOSING), topics, within)
        if npmi is not None:
            chosen = choose_reading(readings, columns, np.split(npmi, len(readings)))
        part = SCORED
    model = replace(model, word_ranking=chosen)
    vocabulary = model.vocabulary
    shown = model.topics(WORDS_SHOWN)
    shares = vocabulary.document_frequency / max(agreement.documents, 1)
    expected = shares[[[vocabulary.index[word] for word in topic] for topic in shown]]
    scores = coherence.federated_coherence(
        partial(ask, part=part), shown, within, expected * agreement.counted
    )
    return replace(model, coherence=scores)
