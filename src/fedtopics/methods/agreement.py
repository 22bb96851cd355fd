"""What the server halves of all methods share that train on an agreed vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.methods.aggregation import Template
from fedtopics.methods.anchors import first_topics
from fedtopics.methods.base import EVERYONE, Clients, Draw, Run, T
from fedtopics.methods.settings import TopicSettings
from fedtopics.methods.warm_start import Start
from fedtopics.model.coherence import federated_coherence
from fedtopics.model.shown_words import SHOWN, USUAL
from fedtopics.model.shown_words import choose as choose_reading
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits, agree

NAMED: Template = {
    "words": ["words"],
    "document_frequency": ("words",),
    "occurrences": ("words",),
    "documents": (),
}
ADOPTED: Template = {"documents": (), "training": (), "without_known_word": ()}


@dataclass(frozen=True)
class Agreement:
    """What all clients work on.

    Parameters
    ----------
    clients : Clients
    vocabulary : Vocabulary
    documents, training : int
        Documents of all clients, and those of them to train with.
    length : float
        Words of an average document.
    draw : Draw
        Who trains in a round.
    """

    clients: Clients
    vocabulary: Vocabulary
    documents: int
    training: int
    length: float
    draw: Draw = EVERYONE

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        """As `Clients.sum`, for this vocabulary; replies have a number of documents."""
        template = {**template, "documents": ()}
        vocabulary = self.vocabulary.fingerprint
        return self.clients.sum(function, template, vocabulary=vocabulary, **payload)

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        """As `Clients.call`, for this vocabulary; replies have a number of documents."""
        template = {**template, "documents": ()}
        vocabulary = self.vocabulary.fingerprint
        return self.clients.call(function, template, vocabulary=vocabulary, **payload)

    def round(self, number: int, work: Callable[[], T]) -> tuple[T, dict[str, Any]]:
        """As `Clients.round`, of those who are drawn; before the first round that is everyone."""
        return self.clients.round(number, work, self.draw if number > 0 else EVERYONE)

    def keep(self, number: int) -> float:
        """Return which share of sums over all documents stays, when a round brings its clients'.

        The rest is replaced by what the clients of the round say: where all of them work, all of
        it; where few do, sums run on, as if each client's were replaced when it is drawn.
        """
        return 1 - self.draw.share(len(self.clients.names)) if number > 0 else 0.0

    def first_topics(self, n_topics: int) -> NDArray[np.float64]:
        """Find first topics from the words beside anchors, shape (n_topics, n_words)."""
        work = partial(first_topics, self.sum, n_topics, len(self.vocabulary), self.documents)
        return self.clients.round(0, work)[0]


def reach_agreement(
    clients: Clients,
    run: Run,
    limits: VocabularyLimits,
    n_topics: int,
    draw: Draw,
    further: TopicModel | None = None,
) -> Agreement:
    """Agree on the words with all clients, or take up what a resumed run agreed on.

    Parameters
    ----------
    clients : Clients
    run : Run
    limits : VocabularyLimits
    n_topics : int
        At least as many words are needed.
    draw : Draw
        Who trains in a round.
    further : TopicModel, optional
        One that is trained further with its own words: none leave the clients then.

    Raises
    ------
    StudyError
        If too few words are left.
    """
    kept = run.recall("agreement")
    if kept is not None:
        _adopt(clients, kept, draw)
    else:
        work = partial(_agree, clients, limits, n_topics, draw, further)
        kept = clients.round(0, work)[0]
    run.keep("agreement", kept)
    vocabulary, counts = Vocabulary.of(kept), kept["counts"]
    run.event("vocabulary", words=len(vocabulary), fingerprint=vocabulary.fingerprint, **counts)
    sizes = kept["total"], counts["training"], kept["length"]
    return Agreement(clients, vocabulary, *sizes, draw)


def _agree(
    clients: Clients,
    limits: VocabularyLimits,
    n_topics: int,
    draw: Draw,
    further: TopicModel | None,
) -> dict[str, Any]:
    named = clients.call("vocabulary", NAMED) if further is None else {}
    vocabulary = agree(named, limits) if further is None else further.vocabulary
    if len(vocabulary) < n_topics:
        raise StudyError(
            f"The agreed vocabulary has {len(vocabulary)} words, fewer than "
            f"n_components = {n_topics}; ask for fewer topics, give more documents, or lower "
            "min_document_frequency."
        )
    sizes = named or clients.call("size", {"documents": ()})
    total = sum(reply["documents"] for reply in sizes.values())
    if further is None:
        length = float(vocabulary.occurrences.sum() / total)
    else:  # what was agreed on stays, as the words do
        told = further.vocabulary.occurrences.sum() / max(sum(further.documents.values()), 1)
        length = float(further.info.get("length", told))
    agreed = vocabulary.plain() | {"total": total, "length": length}
    return agreed | {"counts": _adopt(clients, agreed, draw)}


def _adopt(clients: Clients, agreed: Mapping[str, Any], draw: Draw) -> dict[str, Any]:
    total = max(1, round(agreed["total"] * draw.share(len(clients.names))))
    told = {"words": agreed["words"], "total": total, "length": agreed["length"]}
    return clients.prepare("adopt", ADOPTED, **told)


def describe(
    agreement: Agreement,
    settings: TopicSettings,
    model: Mapping[str, Any],
    make: Callable[..., TopicModel],
    start: Start | None = None,
) -> TopicModel:
    """Ask the clients how much they write about each topic, and choose how topics are read.

    Parameters
    ----------
    agreement : Agreement
    settings : TopicSettings
    model : mapping
        The trained model as the clients' functions take it.
    make : function
        Makes the TopicModel, given the vocabulary and what the clients say.
    start : Start, optional
        What training began with: a model whose documents these are added to, if they come once.
    """
    n_topics, vocabulary = settings.n_components, agreement.vocabulary
    template: Template = {"theta": (n_topics,)}
    words: Template = {"sums": (n_topics, len(vocabulary))}
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
