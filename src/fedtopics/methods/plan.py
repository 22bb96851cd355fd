"""What a method's halves are made of: a plan for the server's, a plan and a site for a client's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fedtopics.methods.events import Event
from fedtopics.text.arrivals import Follow
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import TextRules, VocabularyLimits

if TYPE_CHECKING:
    from fedtopics.methods.warm_start import WarmStart

Settings = TypeVar("Settings")


@dataclass(frozen=True)
class Plan(Generic[Settings]):
    """A study as its method sees it.

    Parameters
    ----------
    settings : Settings
        Of the method.
    text : TextRules
    limits : VocabularyLimits
    seed : int
    start : WarmStart, optional
        A model or topics that the training starts from; the server's half alone knows of it.
    """

    settings: Settings
    text: TextRules
    limits: VocabularyLimits
    seed: int
    start: WarmStart | None = None


class Limits(Protocol):
    """What a client's half takes from the client's policy."""

    @property
    def min_documents(self) -> int:
        """A reply sums over at least so many documents."""

    @property
    def min_document_frequency(self) -> int:
        """A word leaves only if so many documents have it."""


@dataclass(frozen=True)
class Site:
    """A client: its documents, its policy, and what its half may use of its computer.

    Parameters
    ----------
    name : str
    corpus : Corpus
        The documents that are there at first.
    policy : Limits
    folder : path, optional
        Where the half keeps what it must know again when the client is restarted.
    notify : function
        Called with an event for the client's own eyes.
    embedding_model : str, optional
        Where this client has the study's model of embeddings: a name or a folder.
    growing : Follow, optional
        Reads the documents that are there now; without it, all are there already.
    """

    name: str
    corpus: Corpus
    policy: Limits
    folder: Path | None = None
    notify: Callable[[Event], None] = lambda _: None
    embedding_model: str | None = None
    growing: Follow | None = None
