"""Events of a study, one class per kind; the attributes are the keys in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, dataclass_transform

if TYPE_CHECKING:
    from fedtopics.text.corpus import Corpus

OnEvent = Callable[[dict[str, Any]], None]
"""A user's function to follow a run; it gets the dictionaries that `Event.plain` returns."""


@dataclass_transform(frozen_default=True)
class Event:
    """Base of all kinds of events; its subclasses are frozen data classes."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        dataclass(frozen=True)(cls)

    def plain(self) -> dict[str, Any]:
        return {"event": self.kind} | {k: v for k, v in vars(self).items() if v is not None}


# Events of a run


class Started(Event, kind="started"):  # a run begins
    study: str  # fingerprint of the study and of the model to start from


class Resumed(Started, kind="resumed"):  # a run is resumed after an interruption
    begun: float  # when it started, seconds since 1970


class Described(Event, kind="study"):  # the study of the run
    name: str
    fingerprint: str
    settings: Mapping[str, Any]  # values by dotted keys


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
    without_known_word: int  # number of documents
    training: int | None = None  # documents that are not held out
    persons: int | None = None  # of these documents, of each client apart
    halved: int | None = None  # persons of a half of the documents
    few: str = ""  # how many words one client alone and exactly two clients have, for people


class TrainingStarted(Event, kind="training"):  # the rounds begin
    done: int  # number of rounds that earlier processes completed
    rounds: int


class RoundFacts(TypedDict, total=False):
    documents: int
    loss: float
    # Facts of F-LDA, about its largest topics:
    round: int
    arrived: Mapping[str, int]  # new documents of each client
    threshold: float
    topics: Sequence[Mapping[str, Any]]  # id, words, occurrences and clients of each
    new: Sequence[int]  # ids of new topics
    vanished: Sequence[Mapping[str, Any]]
    coherence: float


class RoundReport(TypedDict, total=False):
    clients: Sequence[str]  # clients whose replies count
    missing: Mapping[str, str]  # reasons by client
    attempts: int
    bytes_sent: int
    bytes_received: int


class RoundEnded(Event, kind="round"):  # a round is done
    round: int
    facts: RoundFacts
    report: RoundReport

    def plain(self) -> dict[str, Any]:
        return {"event": self.kind, "round": self.round, **self.facts, **self.report}


class Validation(Event, kind="validation"):  # the loss of held-out documents
    round: int
    loss: float
    documents: int


class Candidate(Event, kind="candidate"):  # a number of topics or clusters was tried
    n_components: int
    score: float  # how far clusters of parts agree beyond chance, or topics of thirds inform


class NumberChosen(Event, kind="number chosen"):  # the best number of topics, and those like it
    n_components: int
    reason: str  # for people: "12; 8 to 14 are about as good"


class SameClusters(Event, kind="same clusters"):  # documents have fewer groups than n_components
    number: int  # number of clusters that equal another one
    clusters: int


class CheckpointFailed(Event, kind="checkpoint failed"):  # it was not written; the run continues
    round: int
    reason: str


class Stopped(Event, kind="stopped"):  # a stop rule ends the training
    round: int
    reason: str


class Finished(Event, kind="finished"):  # the model is written
    received: Sequence[str] | None = None  # clients that have the model; only from a server


class Failed(Event, kind="failed"):  # an error ends the process
    reason: str
    exit_code: int


# Events about the clients of a server


class Waiting(Event, kind="waiting"):  # a round waits for clients
    round: int
    clients: Sequence[str]  # the connected clients
    missing: Mapping[str, str]  # state by client
    left: float  # seconds until the round starts without them, or the run ends
    ends: bool  # whether the run ends then


class WaitsFor(Event, kind="waits for"):  # a member has received no total for a while
    clients: Mapping[str, str]  # state by name
    seconds: float
    left: float | None  # seconds until the member gives up; None if it never does


class Halted(Event, kind="halted"):  # a member stopped the run; all start their commands again
    client: str
    step: int
    reason: str


class StatusChange(Event, kind=""):  # a client connects, disconnects, or does not take part
    status: Literal["joined", "lost", "declined"]
    client: str
    reason: str = ""

    def plain(self) -> dict[str, Any]:
        return {"event": self.status, "client": self.client, "reason": self.reason}


class CaughtUp(Event, kind="caught up"):  # a signed state replaced missing decisions
    round: int


class Repeated(Event, kind="repeated"):  # a round is repeated without clients that were lost
    round: int
    missing: Mapping[str, str]  # reasons by client


class LeftOut(Repeated, kind="left out"):
    """Clients that took no part in the steps before round 1, or in the description of the model."""


class BadReply(Event, kind="bad reply"):  # a client sent an unusable reply
    client: str
    round: int
    reason: str


class Clipped(Event, kind="clipped"):  # an outlying reply got less weight
    client: str
    round: int
    times: float  # distance per document, relative to the other clients


class Excluded(BadReply, kind="excluded"):
    """A client sent too many bad replies and no longer takes part."""


# Events of a client, for its operator


class Offer(Event, kind="offer"):  # the server's study proposal
    study: Any  # the Study
    data_sent: Sequence[Mapping[str, Any]]  # the table of data sent
    seen: str  # whether others see each reply or only sums
    policy: str  # what the client's policy lets it send
    known: bool  # whether it was shown before


class Pending(Event, kind="pending"):  # an update waits until people approve it
    page: str  # file that describes it
    approvals: int
    needed: int
    folder: str  # in which `fedtopics approve` finds it


class Narrowed(Event, kind="narrowed"):  # numbers were reduced to the range that can be masked
    factor: float


class Allowed(Event, kind="allowed"):  # the policy allows the study; no data was sent
    exposure: Any  # an Exposure: what the study would reveal about the documents


class Joined(Event, kind="joined"):  # the client takes part
    fingerprint: str
    folder: str  # of the run


class Reconnecting(Event, kind="reconnecting"):  # the client has no connection
    reason: str
    seconds: float  # until the next attempt


class CallStarted(Event, kind="call"):  # the server calls a function
    function: str
    round: int
    attempt: int


class Defect(Event, kind="defect"):  # a call raised an error that nobody expected
    function: str
    round: int
    error: str  # type of the error


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
    """A client skips a round, as it has too few new documents."""


class Documents(Event, kind="documents"):  # the documents of a client were read
    client: str
    documents: int
    empty: int
    source: str  # column, file and other signs that the right documents were read
    words: Sequence[int]  # number of words in each of the first documents
    whose: str  # number of persons, for people

    @classmethod
    def of(cls, client: str, corpus: Corpus) -> Documents:
        return cls(
            client=client,
            documents=len(corpus),
            empty=corpus.n_empty,
            source=corpus.source or "a place that is still empty",
            words=corpus.first_words,
            whose=corpus.whose,
        )


class Languages(Event, kind="languages"):  # languages of a client's documents
    client: str
    languages: Mapping[str, float]  # share of documents, estimated from a sample
    advice: str  # "" if the study's rules fit them


class Unreadable(Event, kind="unreadable"):  # documents cannot be read at present
    reason: str


class AlreadyFinished(Event, kind="already finished"):  # a member that has finished was started
    folder: str  # of the model


class ModelReceived(Event, kind="model"):  # the client has the model and its documents' topics
    folder: str
    documents: int
    unknown: int  # documents with nothing that the model knows
