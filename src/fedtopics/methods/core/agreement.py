"""The vocabulary that the clients of a study agree on, and exchanges for that vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedtopics.errors import StudyError
from fedtopics.methods.core.events import RoundReport, VocabularyAgreed
from fedtopics.methods.core.interfaces import EVERYONE, Clients, Draw, Run, T
from fedtopics.methods.core.plan import Plan
from fedtopics.methods.core.replies import (
    MOST_COUNT,
    NATS,
    Announced,
    Field,
    Template,
    WordCounts,
    counts,
)
from fedtopics.model.topics import Topics
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits, agree, fingerprint

SAME_NUMBER = Announced({}, same=True)  # in all exchanges of the agreement
COUNTED: dict[str, Any] = {
    "documents": SAME_NUMBER, "training": counts(each=1), "without_known_word": counts(each=1),
}  # fmt: skip
LEAST_DOCUMENTS = Field((), MOST_COUNT, 1, dtype="int64")


class NoDocumentsError(StudyError):
    """The clients of a round have no document that counts in it."""


@dataclass(frozen=True)
class Agreement:
    """The clients, the vocabulary they agreed on, and calls that refer to it."""

    clients: Clients
    vocabulary: Vocabulary
    documents: int  # of all clients
    training: int  # of these, to train with
    length: float  # mean number of words of a document
    draw: Draw = EVERYONE  # which clients train in a round
    sizes: Mapping[str, int] = field(default_factory=dict)  # documents of each that was there
    counted: bool = False  # whether the words were counted in these documents
    least: int = 1  # documents of all clients that a group has, where masks hide replies

    def upper_bound(self, announced: T) -> T | float:
        """Return the bound of a total: what all clients announced; infinite if some did not."""
        return announced if self.sizes.keys() >= set(self.clients.names) else np.inf

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        """As `Clients.sum`, for this vocabulary; replies have a number of documents."""
        payload["vocabulary"] = self.vocabulary.fingerprint
        total = self.clients.sum(function, self._counted(template), **payload)
        if payload.get("round") and not total["documents"]:
            raise NoDocumentsError(
                f"None of {', '.join(self.clients.names)} has a document that counts in round "
                f"{payload['round']}; look into their data."
            )
        return total

    def sum_groups(
        self, function: str, template: Template, counted: Template, **payload: Any
    ) -> dict[str, Any]:
        """As `sum`, by groups of documents (topics, clusters, periods), without those of too few.

        With secure aggregation a first sum counts each group over all clients, by the template
        `counted`.
        """
        if self.least == 1:
            return self.sum(function, template, **payload)
        groups: dict[str, Any] = {"least": self.least}
        found = self.sum(function, counted, groups=groups, **payload)
        groups = groups | {"counted": {name: found[name] for name in counted}}
        return self.sum(function, template, groups=groups, **payload)

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        """As `Clients.call`, for this vocabulary; replies have a number of documents."""
        payload["vocabulary"] = self.vocabulary.fingerprint
        return self.clients.call(function, self._counted(template), **payload)

    def _counted(self, template: Template) -> Template:
        """Add the number of documents: at most what was announced."""
        return {"documents": Announced(self.sizes), **template}

    def loss(self, passes: int = 1) -> Field:
        """Return the template of a summed loss: a bound for each counted word and pass."""
        words = self.upper_bound(self.vocabulary.occurrences.sum()) if self.counted else np.inf
        most = NATS * passes * words
        return Field((), most, -most)

    def round(self, number: int, work: Callable[[], T]) -> tuple[T, RoundReport]:
        """As `Clients.round`, with the clients drawn; before the first round with all.

        Where none of those has a usable document, the next ones of the draw are tried.
        """
        draw = self.draw if number > 0 else EVERYONE
        n_clients = len(self.clients.names)
        *earlier, last = range(0, n_clients, draw.size or n_clients)
        for skipped in earlier:
            with suppress(NoDocumentsError):
                return self.clients.round(number, work, replace(draw, skipped=skipped))
        return self.clients.round(number, work, replace(draw, skipped=last))

    def share_kept(self, number: int) -> float:
        """Return the weight of earlier sums in a round, 0 if all clients take part.

        The rest is replaced by the sums of the round's clients, as if each client's part were
        replaced when it is drawn: where all clients take part, nothing is kept.
        """
        return 1 - self.draw.share(len(self.clients.names)) if number > 0 else 0.0


def reach_agreement(clients: Clients, run: Run, plan: Plan[Any], least_words: int) -> Agreement:
    """Agree with all clients on a vocabulary, or reuse that of a resumed run.

    No words leave the clients where a model is trained further with its vocabulary. Raise
    StudyError if the vocabulary has fewer words than `least_words`.
    """
    draw = plan.settings.draw(plan.seed)
    agreed = run.recall("agreement")
    continued = None if plan.start is None else plan.start.continued

    def work() -> dict[str, Any]:
        if continued is None:
            found = _agree(clients, plan.limits, least_words)
        else:
            found = _agree_on_model(clients, continued)
        adopt(clients, found, draw)
        return found | counted(clients, found["words"])

    if agreed is not None:
        adopt(clients, agreed, draw)
    else:
        agreed = clients.round(0, work)[0]
        run.keep("agreement", {**agreed, **plan.kept})
    vocabulary, numbers = Vocabulary.of(agreed), agreed["counts"]
    run.event(VocabularyAgreed(len(vocabulary), vocabulary.fingerprint, **numbers))
    of_all = agreed["total"], numbers["training"], agreed["length"]
    known = agreed.get("sizes", {}), continued is None, agreed.get("least", 1)
    return Agreement(clients, vocabulary, *of_all, draw, *known)


def _agree(clients: Clients, limits: VocabularyLimits, least_words: int) -> dict[str, Any]:
    # So many words of each client, its most frequent ones, are kept whatever the others name.
    places = limits.max_words // len(clients.names)
    template = {"words": WordCounts(places), "documents": SAME_NUMBER}
    reply = clients.sum("vocabulary", template, places=places)
    words, total = reply["words"], reply["documents"]
    _check_number(len(words.names), least_words)
    vocabulary = agree(words.names, words.values, total, limits)
    _check_number(len(vocabulary), least_words)
    length = float(vocabulary.occurrences.sum() / total)
    return vocabulary.plain() | {"total": total, "length": length}


def _check_number(words: int, least: int) -> None:
    if words < max(least, 2):
        fewer = f"n_components = {least}; ask for fewer topics," if least > 2 else "2;"
        raise StudyError(
            f"The agreed vocabulary has {words} words, fewer than {fewer} give more documents, or "
            "lower min_document_frequency of the study, and of policies that have a larger one."
        )


def _agree_on_model(clients: Clients, model: Topics) -> dict[str, Any]:
    """Agree on the vocabulary of a model that is trained further: no words leave the clients."""
    total = clients.sum("size", {"documents": SAME_NUMBER})["documents"]
    usual = model.vocabulary.occurrences.sum() / max(sum(model.documents.values()), 1)
    length = float(model.info.get("length", usual))
    return model.vocabulary.plain() | {"total": total, "length": length}


def adopt(clients: Clients, agreed: Mapping[str, Any], draw: Draw = EVERYONE) -> None:
    """Send the clients the agreed words, the number of documents in a round, and their length."""
    total = max(1, round(agreed["total"] * draw.share(len(clients.names))))
    clients.tell("adopt", words=agreed["words"], total=total, length=agreed["length"])


def counted(clients: Clients, words: Sequence[str]) -> dict[str, Any]:
    """Return how many documents there are of all ("counts") and of each client ("sizes").

    Counted are all documents, those to train with, and those without any of these words. Where
    masks hide replies, "least" is the fewest documents that a group has for all clients' policies.
    """
    least = {"least": LEAST_DOCUMENTS} if clients.hidden else {}
    replies = clients.call("counted", COUNTED | least, vocabulary=fingerprint(words))
    total = {name: sum(reply[name] for reply in replies.values()) for name in COUNTED}
    found = {"counts": total, "sizes": {n: reply["documents"] for n, reply in replies.items()}}
    return found | {name: max(reply[name] for reply in replies.values()) for name in least}
