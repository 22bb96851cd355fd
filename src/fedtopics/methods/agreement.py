"""The agreement on words: what all clients of a study work on, and exchanges about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.methods.aggregation import Template
from fedtopics.methods.anchors import first_topics
from fedtopics.methods.base import EVERYONE, Clients, Draw, Run, T
from fedtopics.methods.events import RoundReport, VocabularyAgreed
from fedtopics.methods.plan import Plan
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

    def round(self, number: int, work: Callable[[], T]) -> tuple[T, RoundReport]:
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


def reach_agreement(clients: Clients, run: Run, plan: Plan[Any], least_words: int) -> Agreement:
    """Agree on the words with all clients, or take up what a resumed run agreed on.

    Parameters
    ----------
    clients : Clients
    run : Run
    plan : Plan
        No words leave the clients if it has a model that is trained further with its own.
    least_words : int
        At least as many are needed.

    Raises
    ------
    StudyError
        If too few words are left.
    """
    draw = plan.settings.draw(plan.seed)
    agreed = run.recall("agreement")
    if agreed is not None:
        _adopt(clients, agreed, draw)
    else:
        continued = None if plan.start is None else plan.start.continued
        if continued is None:
            work = partial(_agree, clients, plan.limits, least_words, draw)
        else:
            work = partial(_keep_words, clients, continued, draw)
        agreed = clients.round(0, work)[0]
    run.keep("agreement", agreed)
    vocabulary, counts = Vocabulary.of(agreed), agreed["counts"]
    run.event(VocabularyAgreed(len(vocabulary), vocabulary.fingerprint, **counts))
    sizes = agreed["total"], counts["training"], agreed["length"]
    return Agreement(clients, vocabulary, *sizes, draw)


def _agree(
    clients: Clients, limits: VocabularyLimits, least_words: int, draw: Draw
) -> dict[str, Any]:
    replies = clients.call("vocabulary", NAMED)
    vocabulary = agree(replies, limits)
    if len(vocabulary) < least_words:
        raise StudyError(
            f"The agreed vocabulary has {len(vocabulary)} words, fewer than "
            f"n_components = {least_words}; ask for fewer topics, give more documents, or lower "
            "min_document_frequency."
        )
    total = sum(reply["documents"] for reply in replies.values())
    length = float(vocabulary.occurrences.sum() / total)
    agreed = vocabulary.plain() | {"total": total, "length": length}
    return agreed | {"counts": _adopt(clients, agreed, draw)}


def _keep_words(clients: Clients, model: TopicModel, draw: Draw) -> dict[str, Any]:
    """Agree on the words of a model that is trained further: none leave the clients."""
    replies = clients.call("size", {"documents": ()})
    total = sum(reply["documents"] for reply in replies.values())
    usual = model.vocabulary.occurrences.sum() / max(sum(model.documents.values()), 1)
    length = float(model.info.get("length", usual))
    agreed = model.vocabulary.plain() | {"total": total, "length": length}
    return agreed | {"counts": _adopt(clients, agreed, draw)}


def _adopt(clients: Clients, agreed: Mapping[str, Any], draw: Draw) -> dict[str, Any]:
    total = max(1, round(agreed["total"] * draw.share(len(clients.names))))
    payload = {"words": agreed["words"], "total": total, "length": agreed["length"]}
    return clients.prepare("adopt", ADOPTED, **payload)
