"""What a method is made from: its program from a plan, a client's half from a plan and a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fedtopics.methods.events import Event
from fedtopics.methods.secret import Secret
from fedtopics.privacy import Privacy
from fedtopics.text.arrivals import Follow
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import VocabularyLimits

if TYPE_CHECKING:
    from fedtopics.methods.warm_start import WarmStart

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Plan(Generic[Settings]):
    """A study as its method sees it."""

    settings: Settings
    text: TextRules
    limits: VocabularyLimits
    seed: int
    start: WarmStart | None = None  # what the training starts from, for the program alone
    privacy: Privacy | None = None  # what is promised for each document
    clients: int = 1  # of the study


class Limits(Protocol):
    """What a client's half takes from the client's policy."""

    @property
    def min_documents(self) -> int:
        """Fewest documents that a reply sums over."""

    @property
    def min_document_frequency(self) -> int:
        """Fewest documents that have a word which leaves."""

    @property
    def counts_of_all(self) -> bool:
        """Whether small groups are those of all clients' documents where sums are masked."""


@dataclass(frozen=True)
class Site:
    """A client: its documents, its policy, and what its half may use of its computer."""

    name: str
    corpus: Corpus  # the documents at the start
    policy: Limits
    folder: Path | None = None  # where the half stores what it needs again after a restart
    notify: Callable[[Event], None] = lambda _: None  # with events for the client itself
    embedding_model: str | None = None  # name or folder of the study's model at this client
    growing: Follow | None = None  # reads the documents again where they grow during the study
    secret: Secret | None = None  # of its draws; by default from the study's seed and the name
    masked: bool = False  # whether replies leave in masked sums, of which nobody sees one
