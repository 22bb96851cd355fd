"""What happens in a study: a class each, whose attributes are the keys that are written down.

The server's are in `events.jsonl` and go to `on_event`; a client's are for its own operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, dataclass_transform

if TYPE_CHECKING:
    from fedtopics.text.corpus import Corpus

OnEvent = Callable[[dict[str, Any]], None]
"""What users follow a run with; it is called with `Event.plain`, of a run with its times."""


@dataclass_transform(frozen_default=True)
class Event:
    """Something that happened, of a kind; its subclasses are frozen data classes."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        dataclass(frozen=True)(cls)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data; what is None is left out."""
        return {"event": self.kind} | {k: v for k, v in vars(self).items() if v is not None}


# Of a run


class Started(Event, kind="started"):  # a run begins
    study: str  # fingerprint, and that of the model to start from


class Resumed(Started, kind="resumed"):  # a run goes on after an interruption
    begun: float  # when it started, seconds since 1970


class Described(Event, kind="study"):  # the study of the run
    name: str
    fingerprint: str
    settings: Mapping[str, Any]  # by dotted keys


class Continued(Event, kind="continued"):  # the training starts from a model
    model: str  # fingerprint
    method: str
    rounds: int
    vocabulary: str  # whether it keeps its words: "keep" or "agree"


class Listening(Event, kind="listening"):  # the server waits for its clients
    address: str
    clients: Sequence[str]


class VocabularyAgreed(Event, kind="vocabulary"):  # server and clients agree on the words
    words: int
    fingerprint: str
    documents: int
    without_known_word: int  # documents
    training: int | None = None  # documents that are not held back


class Chosen(Event, kind="chosen"):  # a rule chose the method
    method: str
    reason: str


class TrainingStarted(Event, kind="training"):  # the rounds begin
    done: int  # rounds of earlier processes
    rounds: int


class RoundFacts(TypedDict, total=False):
    """What a method says of a round."""

    documents: int
    loss: float
    # Of F-LDA, about its largest topics:
    round: int
    arrived: Mapping[str, int]  # new documents of each client
    threshold: float
    topics: Sequence[Mapping[str, Any]]  # id, words, occurrences, clients
    new: Sequence[int]  # ids
    vanished: Sequence[Mapping[str, Any]]
    coherence: float


class RoundReport(TypedDict, total=False):
    """What an engine says of a round."""

    clients: Sequence[str]  # whose replies count
    missing: Mapping[str, str]  # client to why
    attempts: int
    bytes_sent: int
    bytes_received: int
    waiting: float  # seconds of the server


class RoundEnded(Event, kind="round"):  # a round is done
    round: int
    facts: RoundFacts
    report: RoundReport

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, with the keys of facts and report."""
        return {"event": self.kind, "round": self.round, **self.facts, **self.report}


class Validation(Event, kind="validation"):  # the loss of documents that are held back
    round: int
    loss: float
    documents: int


class Candidate(Event, kind="candidate"):  # a number of clusters was tried
    n_components: int
    agreement: float  # of the clusters of two halves, from 0 (chance) to 1


class SameClusters(Event, kind="same clusters"):  # documents have fewer groups than n_components
    number: int  # of clusters that are the same as another one
    clusters: int


class CheckpointFailed(Event, kind="checkpoint failed"):  # it could not be written; the run goes on
    round: int
    reason: str


class Stopped(Event, kind="stopped"):  # a stop rule ends the training
    round: int
    reason: str


class Finished(Event, kind="finished"):  # the model is written
    received: Sequence[str] | None = None  # clients that have it; of a server on a network


# Of the clients of a server


class Waiting(Event, kind="waiting"):  # a round waits for clients
    round: int
    clients: Sequence[str]  # who is connected
    missing: Mapping[str, str]  # client to its state
    left: float  # seconds until it starts without them, or gives up


class WaitsFor(Event, kind="waits for"):  # of a member: no total for a while
    clients: Mapping[str, str]  # name to state
    seconds: float
    left: float | None  # seconds until it gives up; None if it does not


class StatusChange(Event, kind=""):  # a client comes, goes, or does not take part
    status: Literal["joined", "lost", "declined"]
    client: str
    reason: str = ""

    def plain(self) -> dict[str, Any]:
        """Return it as plain data, an event of the kind that the status names."""
        return {"event": self.status, "client": self.client, "reason": self.reason}


class CaughtUp(Event, kind="caught up"):  # a signed state came in place of decisions
    round: int


class Repeated(Event, kind="repeated"):  # a round is repeated without clients that were lost
    round: int
    missing: Mapping[str, str]  # client to why


class LeftOut(Event, kind="left out"):
    """Clients have no part in what comes before the first round (0), or in what describes a model.

    Of the rounds between, `RoundEnded` says it.
    """

    round: int
    missing: Mapping[str, str]  # client to why


class BadReply(Event, kind="bad reply"):  # a client sent what cannot be used
    client: str
    round: int
    reason: str


class Clipped(Event, kind="clipped"):  # a reply went too far, and counted for less
    client: str
    round: int
    times: float  # as far a document as the others


class Excluded(BadReply, kind="excluded"):
    """A client sent too many bad replies, and takes part no more."""


# Of a client, for its operator


class Offer(Event, kind="offer"):  # what a server's study asks for
    study: Any  # the Study
    leaves: Mapping[str, Mapping[str, str]]  # function to how often, and what leaves
    seen: str  # who sees replies, or sums alone
    policy: str  # what the client's own lets out of it
    known: bool  # it was shown before


class Narrowed(Event, kind="narrowed"):  # a reply's numbers were made smaller, to be masked
    factor: float


class Allowed(Event, kind="allowed"):  # the policy allows the study; nothing has left
    exposure: Any  # what it would show of the documents, as an Exposure


class Joined(Event, kind="joined"):  # the client takes part
    fingerprint: str


class Reconnecting(Event, kind="reconnecting"):  # there is no connection
    reason: str
    seconds: float  # until the next attempt


class CallStarted(Event, kind="call"):  # the server calls a function
    function: str
    round: int
    attempt: int


class Defect(Event, kind="defect"):  # a call raised an error that nobody expected
    function: str
    round: int
    error: str  # its type


class Embedding(Event, kind="embedding"):  # documents get their embeddings
    done: int
    documents: int
    client: str | None = None


class Arrived(Event, kind="arrived"):  # a round takes new documents
    client: str
    round: int
    documents: int
    least: int  # documents below which the client skips a round


class Skipped(Arrived, kind="skipped"):
    """A client has too few new documents for a round."""


class Documents(Event, kind="documents"):  # what was read as a client's documents
    client: str
    documents: int
    empty: int
    source: str  # column, file, and what else tells whether the right ones were read
    words: Sequence[int]  # how many the first documents have

    @classmethod
    def of(cls, client: str, corpus: Corpus) -> Documents:
        """Return what a client says of its documents, to those who have them."""
        source = corpus.source or "where nothing is yet"
        return cls(client, len(corpus), corpus.n_empty, source, corpus.first_words)


class Languages(Event, kind="languages"):  # which ones a client's documents are in
    client: str
    languages: Mapping[str, float]  # share of documents, by a sample
    advice: str  # "" where the study's rules fit them


class Unreadable(Event, kind="unreadable"):  # documents cannot be read now
    reason: str


class AlreadyFinished(Event, kind="already finished"):  # the member is started again
    folder: str  # of the model


class ModelReceived(Event, kind="model"):  # the client has it, and its documents' topics
    folder: str
    documents: int
    unknown: int  # documents without anything that the model knows
