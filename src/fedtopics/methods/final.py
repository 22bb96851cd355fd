"""The last exchanges of every method: its topics' shares, words and coherence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedtopics.methods.aggregation import Template, Within
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.settings import TopicSettings
from fedtopics.methods.warm_start import WarmStart
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import SHOWN, USUAL
from fedtopics.model.shown_words import choose as choose_reading
from fedtopics.model.topic_model import TopicModel


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
    template: Template = {"theta": Within((n_topics,), agreement.most(agreement.documents))}
    words: Template = {"sums": Within((n_topics, len(vocabulary)), np.inf)}
    replies = agreement.call("shares", template, **model)
    documents = {name: reply["documents"] for name, reply in replies.items()}
    made = make(
        vocabulary=vocabulary,
        shares={name: reply["theta"] / max(documents[name], 1) for name, reply in replies.items()},
        documents=documents,
        word_sums=agreement.sum("word_sums", words, **model)["sums"],
    )
    made = made if start is None else start.added_to(made)
    readings = settings.readings
    if settings.coherence == "nothing":
        return replace(made, reading=readings[0] if len(readings) == 1 else USUAL)
    topics = [made.read(reading, SHOWN) for reading in readings]
    coherence = federated_coherence(partial(agreement.sum, "pairs"), topics, settings.coherence)
    chosen = choose_reading(topics, coherence)
    return replace(made, reading=readings[chosen], coherence=coherence[chosen])
