"""The last exchanges of every method: its topics' shares, words and coherence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import OverTime
from fedtopics.methods.core.last_sums import ALL, CHOOSING, SCORED
from fedtopics.methods.core.plan import WarmStart
from fedtopics.methods.core.replies import LONGEST, Field, Template, Windows, of_topics, sums
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.coherence import federated_coherence, federated_npmi
from fedtopics.model.shown_words import SHOWN, USUAL
from fedtopics.model.shown_words import choose as choose_reading
from fedtopics.model.topic_model import TopicModel
from fedtopics.model.topics import TOGETHER, Periods


def describe(
    agreement: Agreement, settings: TopicSettings, model: Mapping[str, Any],
    make: Callable[..., TopicModel], start: WarmStart | None = None,
) -> TopicModel:  # fmt: skip
    """Sum the topics' shares and words over the clients, and choose how topics are read.

    `model` is the trained model as the clients' functions take it, and `make` makes the TopicModel
    of it with vocabulary, shares, documents and word_sums. If the documents are new ones, those of
    the model in `start` are added.
    """
    n_topics, vocabulary = settings.n_components, agreement.vocabulary
    template: Template = {"theta": Field((n_topics,), least=0, adds_up=True)}
    words: Template = {"sums": sums(n_topics, len(vocabulary), each=LONGEST)}
    replies = agreement.call("shares", template, **model)
    documents = {name: reply["documents"] for name, reply in replies.items()}
    word_sums = partial(agreement.sum_groups, "word_sums", words, of_topics(n_topics), **model)
    made = make(
        vocabulary=vocabulary,
        shares={name: reply["theta"] / max(documents[name], 1) for name, reply in replies.items()},
        documents=documents,
        word_sums=agreement.clients.round(0, word_sums)[0]["sums"],
    )
    made = made if start is None else start.added_to(made)
    periods = sum_periods(agreement, settings.over_time, n_topics, model)
    made = replace(made, periods=periods)
    return choose_words(agreement, settings, made)


def sum_periods(
    agreement: Agreement, over_time: OverTime | None, n_topics: int, model: Mapping[str, Any]
) -> Periods | None:
    """Sum the topics of all clients' documents by period, if the study asks for it."""
    if over_time is None:
        return None
    begins = tuple(map(str, over_time.begins))
    template: Template = {"sums": sums(len(begins), n_topics, each=1)}
    if over_time.by_client:
        replies = agreement.call("period_shares", template, **model)
        found = {name: reply["sums"] for name, reply in replies.items()}
        return Periods(over_time.period, begins, found)
    counted: Template = {"counts": sums(len(begins) + 1, each=1)}
    work = partial(agreement.sum_groups, "period_sums", template, counted, **model)
    total = agreement.clients.round(0, work)[0]["sums"]
    return Periods(over_time.period, begins, {TOGETHER: total})


def count_pairs(
    agreement: Agreement, words: list[str], pairs: NDArray[np.int64], windows: list[int], half: int
) -> dict[str, Any]:
    """Count pairs of words in all clients' documents; see `TopicClient.pairs`."""
    template, vocabulary = {}, agreement.vocabulary
    places = [vocabulary.index[word] for word in words]
    for size in windows:  # each place of a word is in so many
        counted = size * vocabulary.occurrences if size else vocabulary.document_frequency
        most = agreement.most(counted[places]) if agreement.counted else np.inf
        most = np.broadcast_to(most, len(words))
        template[str(size)] = Windows(pairs, most, documents=size == 0)
    asked = {"words": words, "pairs": pairs, "windows": windows, "half": half}
    return agreement.sum("pairs", template, **asked)


def choose_words(agreement: Agreement, settings: TopicSettings, model: TopicModel) -> TopicModel:
    """Choose how topics are read, and score the words in documents that did not choose them."""
    readings, within = settings.readings, settings.coherence
    chosen = readings[0] if len(readings) == 1 else USUAL
    if within == "nothing":
        return replace(model, reading=chosen)
    ask, half = partial(count_pairs, agreement), ALL
    if settings.chooses_words:
        columns = [model.columns(reading, settings.n_candidate_words) for reading in readings]
        words = model.vocabulary.words
        topics = [[words[i] for i in topic] for shown in columns for topic in shown]
        npmi = federated_npmi(partial(ask, half=CHOOSING), topics, within)
        if npmi is not None:
            chosen = choose_reading(readings, columns, np.split(npmi, len(readings)))
        half = SCORED
    model = replace(model, reading=chosen)
    scored = partial(ask, half=half)
    scores = federated_coherence(scored, model.topics(SHOWN), within, known_alone=True)
    return replace(model, coherence=scores)
