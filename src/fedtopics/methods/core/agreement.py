"""The vocabulary that a study's clients agree on, and the exchanges that use that vocabulary."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedtopics.contract.events import RoundReport, VocabularyAgreed
from fedtopics.contract.interfaces import EVERYONE, Clients, Draw, Run, T
from fedtopics.contract.replies import (
    MOST_COUNT,
    NATS,
    Announced,
    Bounds,
    Template,
    WordCountBounds,
    counts,
)
from fedtopics.errors import StudyError
from fedtopics.methods.core.plan import Plan
from fedtopics.model.topics import Topics
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits, agree, fingerprint

# The number of documents is the same in all exchanges of the agreement.
SAME_NUMBER = Announced({}, constant_in_round=True)
COUNTED: dict[str, Any] = {
    "documents": SAME_NUMBER,
    "training": counts(per_document=1),
    "without_known_word": counts(per_document=1),
}
LEAST_DOCUMENTS = Bounds((), MOST_COUNT, 1, dtype="int64")


class NoDocumentsError(StudyError): ...


@dataclass(frozen=True)
class Agreement:
    """The vocabulary and the numbers of documents that a study's clients agreed on.

    A method asks the clients through it, in exchanges that refer to this vocabulary.
    """

    clients: Clients
    vocabulary: Vocabulary
    documents: int  # number of documents of all clients
    training: int  # number of documents for training
    length: float  # mean number of words per document
    draw: Draw = EVERYONE  # which clients train in a round
    sizes: Mapping[str, int] = field(default_factory=dict)  # documents of each client
    counted: bool = False  # whether the words were counted in the clients' present documents
    least: int = 1  # with secure aggregation, the minimum size of a group over all clients

    def bound_if_announced(self, announced: T) -> T | float:
        """Return `announced`, or infinity if some clients have not announced their documents."""
        return announced if self.sizes.keys() >= set(self.clients.names) else np.inf

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        """Call `Clients.sum` for this vocabulary; replies contain a number of documents."""
        payload["vocabulary"] = self.vocabulary.fingerprint
        total = self.clients.sum(function, self._with_documents(template), **payload)
        if payload.get("round") and not total["documents"]:
            raise NoDocumentsError(
                f"None of {', '.join(self.clients.names)} has a document that counts in round "
                f"{payload['round']}; check their data."
            )
        return total

    def sum_groups(
        self, function: str, template: Template, counted: Template, **payload: Any
    ) -> dict[str, Any]:
        """Sum by groups, without small groups; secure aggregation first counts over all clients."""
        if self.least == 1:
            return self.sum(function, template, **payload)
        groups: dict[str, Any] = {"least": self.least}
        totals = self.sum(function, counted, groups=groups, **payload)
        groups = groups | {"counted": {name: totals[name] for name in counted}}
        return self.sum(function, template, groups=groups, **payload)

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        payload["vocabulary"] = self.vocabulary.fingerprint
        return self.clients.call(function, self._with_documents(template), **payload)

    def _with_documents(self, template: Template) -> Template:
        return {"documents": Announced(self.sizes), **template}

    def loss(self, passes: int = 1) -> Bounds:
        """Return the template of a summed loss, bounded by the number of words and passes."""
        words = (
            self.bound_if_announced(self.vocabulary.occurrences.sum()) if self.counted else np.inf
        )
        most = NATS * passes * words
        return Bounds((), most, -most)

    def round(self, number: int, work: Callable[[], T]) -> tuple[T, RoundReport]:
        """Run `Clients.round`; if no client has a usable document, try the next ones in order."""
        draw = self.draw if number > 0 else EVERYONE
        n_clients = len(self.clients.names)
        *earlier, last = range(0, n_clients, draw.size or n_clients)
        for skipped in earlier:
            with suppress(NoDocumentsError):
                return self.clients.round(number, work, replace(draw, skipped=skipped))
        return self.clients.round(number, work, replace(draw, skipped=last))

    def weight_of_earlier_sums(self, number: int) -> float:
        """Return the weight of earlier sums in a round; it is 0 if all clients take part."""
        return 1 - self.draw.fraction_drawn(len(self.clients.names)) if number > 0 else 0.0


def reach_agreement(clients: Clients, run: Run, plan: Plan[Any], least_words: int) -> Agreement:
    """Agree on a vocabulary, or reuse that of a resumed run, or of a model to train further."""
    draw = plan.settings.draw(plan.seed)
    agreed = run.recall("agreement")
    continued = None if plan.start is None else plan.start.continued

    def work() -> dict[str, Any]:
        words_and_total = (
            _agree(clients, plan.limits, least_words)
            if continued is None
            else _agree_on_model(clients, continued)
        )
        # Only clients that have adopted the words know how many documents have none of them.
        adopt(clients, words_and_total, draw)
        return words_and_total | count_documents(clients, words_and_total["words"])

    if agreed is not None:
        adopt(clients, agreed, draw)
    else:
        agreed = clients.round(0, work)[0]
        run.keep("agreement", {**agreed, **plan.stored_with_agreement})
    vocabulary = Vocabulary.of(agreed)
    numbers = agreed["counts"]
    run.event(VocabularyAgreed(len(vocabulary), vocabulary.fingerprint, **numbers))
    return Agreement(
        clients=clients,
        vocabulary=vocabulary,
        documents=agreed["total"],
        training=numbers["training"],
        length=agreed["length"],
        draw=draw,
        sizes=agreed.get("sizes", {}),
        counted=continued is None,
        least=agreed.get("least", 1),
    )


def _agree(clients: Clients, limits: VocabularyLimits, least_words: int) -> dict[str, Any]:
    # Each client keeps this many of its most frequent words, whatever the others send.
    places = limits.max_words // len(clients.names)
    template = {"words": WordCountBounds(places), "documents": SAME_NUMBER}
    reply = clients.sum("vocabulary", template, places=places)
    words = reply["words"]
    total = reply["documents"]
    _check_number(len(words.names), least_words)
    vocabulary = agree(words.names, words.values, total, limits)
    _check_number(len(vocabulary), least_words)
    length = float(vocabulary.occurrences.sum() / total)
    return vocabulary.plain() | {"total": total, "length": length}


def _check_number(n_words: int, least: int) -> None:
    if n_words < max(least, 2):
        fewer = f"n_components = {least}; lower n_components," if least > 2 else "2;"
        raise StudyError(
            f"The agreed vocabulary has {n_words} words, fewer than {fewer} give more documents, "
            "or lower min_document_frequency in the study and in policies with a larger value."
        )


def _agree_on_model(clients: Clients, model: Topics) -> dict[str, Any]:
    """Reuse the vocabulary of a model that is trained further; clients send no words."""
    total = clients.sum("size", {"documents": SAME_NUMBER})["documents"]
    mean_length = model.vocabulary.occurrences.sum() / max(sum(model.documents.values()), 1)
    length = float(model.info.get("length", mean_length))
    return model.vocabulary.plain() | {"total": total, "length": length}


def adopt(clients: Clients, agreed: Mapping[str, Any], draw: Draw = EVERYONE) -> None:
    total = max(1, round(agreed["total"] * draw.fraction_drawn(len(clients.names))))
    clients.tell("adopt", words=agreed["words"], total=total, length=agreed["length"])


def count_documents(clients: Clients, words: Sequence[str]) -> dict[str, Any]:
    """Return numbers of documents: the total ("counts"), by client ("sizes"), "least" in groups."""
    least = {"least": LEAST_DOCUMENTS} if clients.hidden else {}
    replies = clients.call("counted", COUNTED | least, vocabulary=fingerprint(words))
    total = {name: sum(reply[name] for reply in replies.values()) for name in COUNTED}
    sizes = {name: reply["documents"] for name, reply in replies.items()}
    greatest = {name: max(reply[name] for reply in replies.values()) for name in least}
    return {"counts": total, "sizes": sizes, **greatest}
