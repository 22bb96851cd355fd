"""Federated methods, one file a paper: the server's half and the client's half side by side."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from fedtopics.methods.client import TopicClient
from fedtopics.methods.gfedntm import GFedNTM, GFedNTMClient
from fedtopics.methods.lda import LDA, LDAClient
from fedtopics.methods.settings import GFedNTMSettings, LDASettings


@dataclass(frozen=True)
class Method:
    """What a client needs of a method."""

    settings: type[Any]
    client: type[TopicClient[Any]]


METHODS = {
    "gfedntm": Method(GFedNTMSettings, GFedNTMClient),
    "lda": Method(LDASettings, LDAClient),
}
VERSIONS = {name: method.client.version for name, method in METHODS.items()}


def what_leaves(method: str, function: str) -> str:
    """Return what a client's function says of itself under "Leaves the client"."""
    half = METHODS[method].client if method in METHODS else None
    text = inspect.getdoc(getattr(half, function, None)) or ""
    _, _, section = text.partition("Leaves the client\n")
    return " ".join(section.partition("\n\n")[0].split())


__all__ = [
    "LDA",
    "METHODS",
    "VERSIONS",
    "GFedNTM",
    "GFedNTMClient",
    "GFedNTMSettings",
    "LDAClient",
    "LDASettings",
    "Method",
    "TopicClient",
    "what_leaves",
]
