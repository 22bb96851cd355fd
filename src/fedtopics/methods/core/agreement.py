"""The vocabulary that a study's clients agreed on, and how a method asks the clients."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import numpy as np

from fedtopics.contract.events import RoundReport
from fedtopics.contract.interfaces import EVERYONE, Clients, Draw, T
from fedtopics.contract.published import Published, Reply, arguments_of, description_of
from fedtopics.contract.replies import NATS, Announced, Bounds, Template, sums
from fedtopics.errors import StudyError
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.text.rounding import at_most, is_example
from fedtopics.text.vocabulary import Vocabulary

NO_WORDS = Vocabulary((), np.zeros(0, np.int64), np.zeros(0, np.int64))
P = ParamSpec("P")


class NoDocumentsError(StudyError):
    """No client of a round has a document that counts."""


@dataclass(frozen=True)
class Agreement:
    """The vocabulary and the numbers of documents that a study's clients agreed on.

    A method asks the clients through it. Before the agreement, there are no words and documents.
    """

    clients: Clients
    settings: TopicSettings
    vocabulary: Vocabulary = NO_WORDS
    documents: int = 0  # number of documents of all clients
    training: int = 0  # number of documents for training
    length: float = 1.0  # mean number of words per document
    draw: Draw = EVERYONE  # which clients train in a round
    sizes: Mapping[str, int] = field(default_factory=dict)  # documents of each client
    persons: Mapping[str, int] = field(default_factory=dict)  # persons of each client, if known
    halved: int = 0  # persons of all clients in a half of the documents, if known
    has_counts: bool = False  # whether the words were counted in the clients' present documents
    counts_first: bool = False  # whether groups are counted over all clients before their sums
    least: int = 1  # with secure aggregation, the fewest persons of a group over all clients
    least_clients: int = 1  # with secure aggregation, the fewest clients of a group
    coins: str = "0"  # seed of the coins that round numbers of groups; see `text.rounding`

    @property
    def is_example(self) -> bool:
        """Whether counts of words stay exact; see `is_example`."""
        return is_example(self.documents, len(self.clients.names))

    def n_persons(self, parts: int) -> int:
        """Return of how many persons a total of one of so many parts of the documents is."""
        return sum(n // parts for n in self.persons.values() if n // parts >= self.least)

    def bound_if_announced(self, announced: T) -> T | float:
        """Return `announced`, or infinity if some clients have not announced their documents."""
        return announced if self.sizes.keys() >= set(self.clients.names) else np.inf

    def bound_if_counted(self, most: T) -> T | float:
        """Return `most`, which depends on the words' counts, or infinity if it is no bound."""
        return self.bound_if_announced(most) if self.has_counts else np.inf

    def ask(
        self, function: Callable[Concatenate[Any, P], Any], *args: P.args, **payload: P.kwargs
    ) -> Reply:
        """Call a published function of all clients, as it says.

        Returns the total of the replies, or each client's reply by name if all may see it. With
        secure aggregation, groups are counted first, and small groups are left out of the sums.
        """
        if args:  # their names would be lost
            raise TypeError("Give the arguments by name.")
        of = description_of(function)
        words = {"vocabulary": self.vocabulary.fingerprint} if of.has_words else {}
        request: dict[str, Any] = {**payload, **words}
        template = self.bounds(of, of.reply, request)
        if of.seen_by_all:
            return self.clients.call(of.name, template, **request)
        if of.counts_first is None or not self.counts_first:
            return self._sum(of, template, request)
        counted = self.bounds(of, of.counts_first, request)
        if self.least_clients > 1:  # the last axis is that of groups
            shape = [*counted.values()][-1].shape
            shape = (*shape[:-2], shape[-1]) if "moves" in counted else shape
            counted = {**counted, "clients": sums(*shape, most=len(self.clients.names))}
        groups: dict[str, Any] = {"least": self.least, "clients": self.least_clients}
        totals = self._sum(of, counted, request | {"groups": groups})
        groups["counted"] = {name: totals[name] for name in counted if name != "documents"}
        return self._sum(of, template, request | {"groups": groups})

    def ask_once(
        self, function: Callable[Concatenate[Any, P], Any], *args: P.args, **payload: P.kwargs
    ) -> Reply:
        """Ask all clients outside the training rounds; see `ask`."""
        return self.clients.round(0, lambda: self.ask(function, *args, **payload))[0]

    def tell(
        self, function: Callable[Concatenate[Any, P], None], *args: P.args, **payload: P.kwargs
    ) -> None:
        """Let all clients execute a function; nothing is sent."""
        self.clients.tell(function.__name__, vocabulary=self.vocabulary.fingerprint, **payload)

    def bounds(
        self, of: Published, bounds: Callable[..., Template], request: Mapping[str, Any]
    ) -> Template:
        """Return the bounds of a reply to a request; see `published`."""
        documents = {"documents": Announced(self.sizes)} if of.has_documents else {}
        arguments = {"agreement": self, "settings": self.settings, **request}
        return {**documents, **bounds(**{name: arguments[name] for name in arguments_of(bounds)})}

    def _sum(self, of: Published, template: Template, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.persons and of.has_documents:
            template = {
                **template,
                "documents": replace(template["documents"], fewest=of.over.fewest(self, request)),
            }
        total = self.clients.sum(of.name, template, **request)
        if request.get("round") and of.has_documents and not total["documents"]:
            raise NoDocumentsError(
                f"None of {', '.join(self.clients.names)} has a document that counts in round "
                f"{request['round']}; check their data."
            )
        return total

    def loss(self, passes: int = 1) -> Bounds:
        """Return the bounds of a summed loss, bounded by the number of words and passes."""
        most = NATS * passes * self.bound_if_counted(at_most(self.vocabulary.occurrences).sum())
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
