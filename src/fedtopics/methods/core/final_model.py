"""The last exchanges of every method: shares, words and coherence of the topics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import LAST, NEVER, Over, Reply, of_method, published
from fedtopics.contract.replies import LONGEST, Bounds, Template, Windows, of_groups, sums
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.group_sums import compare_groups
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    PersonShares,
    Thetas,
)
from fedtopics.methods.core.nearness import measure_nearness
from fedtopics.methods.core.plan import WarmStart
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model import coherence
from fedtopics.model.shown_words import DEFAULT_RANKING, WORDS_SHOWN
from fedtopics.model.shown_words import choose as choose_reading
from fedtopics.model.topics import Topics
from fedtopics.text.rounding import at_least, at_most, rounded_by_word

CHOOSING, SCORED, ALL = range(3)
"""Parts of the documents for counts of word pairs: to choose words, to score them, or both."""
SURVIVING = 0.7  # least share of words, weighted by documents, that can be counted in halves


def pair_bounds(
    agreement: Agreement,
    words: list[str],
    pairs: NDArray[np.int64],
    windows: list[int],
    parts: list[int],
) -> Template:
    places = [agreement.vocabulary.index[word] for word in words]
    template: dict[str, Any] = {}
    for size in windows:  # each word occurs in at most this many windows
        counts = at_most(
            agreement.vocabulary.occurrences if size else agreement.vocabulary.document_frequency
        )
        in_part = Windows(
            pairs,
            np.broadcast_to(agreement.bound_if_counted(counts[places] * (size or 1)), len(words)),
            documents=size == 0,
            halved=len(parts) > 1,
        )
        template |= {f"{part}/{size}": in_part for part in parts}
    return template


def largest_pairs(settings: TopicSettings, n_words: int) -> Reply:
    """Return a request for the pairs of all words that can be among the shown ones."""
    n_shown = settings.n_candidate_words
    n_topics = settings.most_topics * len(settings.readings)
    return {
        "words": [str(number) for number in range(min(n_topics * n_shown, n_words))],
        "pairs": np.zeros((n_topics * n_shown * (n_shown + 1) // 2, 2), np.int64),
        "windows": coherence.window_sizes("windows"),
        "parts": [CHOOSING, SCORED] if settings.chooses_words else [ALL],
    }


class LastSums(SharedFunctions):
    """What clients of every method send at the end, to describe the model."""

    @published(
        "For each topic, the sum of the documents' shares of it; the number of documents. The "
        "model contains each client's numbers: all participants see them.",
        "shares of topics",
        often=LAST,
        reply=lambda settings: {"theta": Bounds((settings.n_components,), least=0, adds_up=True)},
        seen_by_all=True,
    )
    def topic_shares(self, /, **model: Any) -> Reply:
        total = sum(
            (theta.sum(0) for _, theta in self.client.thetas(**model)),
            np.zeros(self.client.n_topics(**model)),
        )
        return {"theta": total, "documents": self.client.over(self.client.usable)}

    @published(
        "For each topic that documents of enough persons have, the occurrences of each word that "
        "enough documents contain, weighted by their shares of the topic; the number of documents. "
        "With secure aggregation, first: for each topic the sums of squares and of fourth powers "
        "of persons' largest shares.",
        "words by topic",
        often=LAST,
        reply=lambda agreement, settings: {
            "sums": sums(settings.n_components, len(agreement.vocabulary), per_document=LONGEST)
        },
        counts_first=lambda settings: of_groups(settings.n_components),
    )
    def word_sums(self, /, groups: GroupRequest = SEEN, **model: Any) -> Reply:
        """Sum the words of all documents, weighted by theta, to rank the words of each topic."""
        # Not part of `shares`, which all participants see, because here the sum is enough.
        return sums_of_words(
            self.client,
            groups,
            request=model,
            thetas=self.client.thetas(**model),
            n_topics=self.client.n_topics(**model),
        )

    @published(
        "For each pair of words of a topic that documents of enough persons contain, the number of "
        "windows or documents with both words; the numbers of windows and documents. Words are "
        "chosen in one half of the documents and scored in the other, so there are counts of each; "
        "the client draws the halves. Words that too few documents of a half contain do not count.",
        "counts of pairs of words of a topic",
        often=of_method(
            TopicSettings,
            lambda s: NEVER if s.coherence == "nothing" else LAST + s.scoring,
        ),
        reply=pair_bounds,
        largest=largest_pairs,
        over=Over(
            "all documents, or each half of them",
            lambda agreement, request: (
                agreement.n_persons(1) if request["parts"] == [ALL] else agreement.halved
            ),
        ),
    )
    def word_pairs(
        self,
        words: list[str],
        pairs: NDArray[np.int64],
        windows: list[int],
        parts: list[int],
    ) -> Reply:
        """Count how often the topics' words occur together, to choose and to score them."""
        halves = draw_halves(self.client)
        countable = self.client.frequency > 0
        if ALL not in parts:
            in_both = words_in_halves(self.client)
            # If too few words remain in halves, no documents choose words, and all score them.
            if in_both.any():
                countable = in_both
            else:
                halves = [halves[0][:0], np.arange(len(self.client.corpus))]
        both = countable[[self.client.columns[word] for word in words]][pairs].all(1)
        rows = [*halves, np.arange(len(self.client.corpus))]
        reply: dict[str, Any] = {}
        for part in parts:
            counts = coherence.count_pairs(self.client.counts, words, pairs, windows, rows[part])
            for size, by_pair in counts.items():
                reply[f"{part}/{size}"] = {**by_pair, "pairs": by_pair["pairs"] * both}
        return reply | {"documents": sum(self.client.over(rows[part]) for part in parts)}


def words_in_halves(client: Any) -> NDArray[np.bool_]:
    """Return which words enough persons of each half have or nobody; none if these are too few."""
    frequency = client.frequency
    in_halves = client.in_halves
    in_both = (frequency > 0) & ((in_halves == 0) | (in_halves >= client.rarest)).all(0)
    return np.asarray(in_both & (frequency[in_both].sum() >= SURVIVING * frequency.sum()))


def draw_halves(client: Any) -> list[NDArray[np.int64]]:
    """Split the persons, always in the same way, into halves to choose and to score words.

    Returns the rows of the documents of each half; the first is empty if it would be too small.
    """
    n_persons = client.corpus.n_persons()
    middle = n_persons // 2
    halves = np.split(
        client.secret.rng("halves of pairs").permutation(n_persons),
        [middle if middle >= client.min_persons else 0],
    )
    owners = client.corpus.owners
    return (
        [np.sort(persons) for persons in halves]
        if owners is None
        else [np.flatnonzero(np.isin(owners, persons)) for persons in halves]
    )


def sums_of_words(
    client: Any, groups: GroupRequest, request: dict[str, Any], thetas: Thetas, n_topics: int
) -> Reply:
    """Sum the words of documents by topic, one row per topic with enough documents."""

    def compute() -> Grouped:
        total = np.zeros((n_topics, client.bag.shape[1]))
        of_persons = PersonShares(client.corpus.owners, n_topics)
        for rows, theta in thetas:
            total += theta.T @ client.bag[rows]
            of_persons.add(rows, theta)
        return of_persons.powers(), lambda enough: {"sums": total * enough[:, None]}

    return cast(
        "Reply",
        client.sums_by_group(groups, {"sums": "by topic", **request}, compute, client.usable),
    )


def assemble_model(
    agreement: Agreement,
    settings: TopicSettings,
    model: Mapping[str, Any],
    make: Callable[..., Topics],
    start: WarmStart | None = None,
) -> Topics:
    """Sum the topics' shares and words over the clients, and choose which words are shown."""
    described = replace(agreement, settings=settings)  # with the number of topics of this model
    replies = described.ask(LastSums.topic_shares, **model)
    documents = {name: reply["documents"] for name, reply in replies.items()}
    word_sums = described.ask_once(LastSums.word_sums, **model)["sums"]
    if not agreement.is_example:  # before words are chosen, so that those shown are those scored
        word_sums = rounded_by_word(word_sums, agreement.vocabulary.occurrences)
    topics = make(
        vocabulary=agreement.vocabulary,
        shares={name: reply["theta"] / max(documents[name], 1) for name, reply in replies.items()},
        documents=documents,
        word_sums=word_sums,
    )
    topics = topics if start is None else start.added_to(topics)
    if nearness := measure_nearness(described, settings, model):
        topics = replace(topics, info={**topics.info, "nearness": nearness})
    tables, estimates = compare_groups(described, settings, model)
    return choose_words(
        described,
        settings,
        replace(topics, groups=tables, estimates=estimates),
    )


def choose_words(agreement: Agreement, settings: TopicSettings, model: Topics) -> Topics:
    """Choose the words shown for each topic; score them in other documents."""
    readings = settings.readings
    within = settings.coherence
    chosen = readings[0] if len(readings) == 1 else DEFAULT_RANKING
    if within == "nothing":
        return replace(model, word_ranking=chosen)
    columns = [model.columns(reading, settings.n_candidate_words) for reading in readings]
    candidates = [
        [model.vocabulary.words[i] for i in topic] for shown in columns for topic in shown
    ]
    parts = [CHOOSING, SCORED] if settings.chooses_words else [ALL]
    counts = count_together(agreement, candidates, within, parts)
    if settings.chooses_words:
        npmi = coherence.federated_npmi(counts[CHOOSING], candidates, within)
        if npmi is not None:
            chosen = choose_reading(readings, columns, np.split(npmi, len(readings)))
    model = replace(model, word_ranking=chosen)
    shown = model.topics(WORDS_SHOWN)
    exact = model.vocabulary.document_frequency
    frequency = exact if agreement.is_example else at_least(exact)
    shares = np.minimum(frequency / max(agreement.documents, 1), 1)
    expected = shares[[[model.vocabulary.index[word] for word in topic] for topic in shown]]
    return replace(
        model,
        coherence=coherence.federated_coherence(
            counts[parts[-1]], shown, within, expected * agreement.has_counts
        ),
    )


def count_together(
    agreement: Agreement,
    topics: Sequence[Sequence[str]],
    within: Literal["windows", "documents"],
    parts: list[int],
) -> dict[int, coherence.Ask]:
    """Count the pairs of the topics' words in parts of the documents; return lookups by part."""
    words, pairs, _ = coherence.pairs_of(topics)
    windows = coherence.window_sizes(within)
    reply = agreement.ask(
        LastSums.word_pairs, words=words, pairs=pairs, windows=windows, parts=parts
    )
    return {
        part: coherence.looked_up(
            {str(size): reply[f"{part}/{size}"] for size in windows}, words, pairs
        )
        for part in parts
    }
