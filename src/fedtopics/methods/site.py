"""What a client's half may use of the computer it is on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedtopics.text.arrivals import Follow


@dataclass(frozen=True)
class Workplace:
    """What a client's half may use of the computer it is on, besides the documents there are.

    Parameters
    ----------
    grown : Follow, optional
        Reads the documents that are there now; without it, all are there already.
    folder : path, optional
        Where the half keeps what it must know again when the client is begun anew.
    tell : function
        Called with an event for the client's own eyes.
    embedding_model : str, optional
        Where this client has the study's model of embeddings: a name or a folder.
    """

    grown: Follow | None = None
    folder: Path | None = None
    tell: Callable[[dict[str, Any]], None] = lambda _: None
    embedding_model: str | None = None


HERE = Workplace()
"""Where nothing is kept and nobody is told."""
