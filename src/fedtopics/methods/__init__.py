"""Federated methods, one file a paper: the server's half and the client's half side by side."""

from __future__ import annotations

import inspect

from fedtopics.methods.gfedntm import GFedNTM, GFedNTMClient
from fedtopics.methods.settings import GFedNTMSettings

CLIENT_HALVES: dict[str, type[GFedNTMClient]] = {"gfedntm": GFedNTMClient}


VERSIONS = {name: half.version for name, half in CLIENT_HALVES.items()}


def what_leaves(method: str, function: str) -> str:
    """Return what a client's function says of itself under "Leaves the client"."""
    text = inspect.getdoc(getattr(CLIENT_HALVES.get(method), function, None)) or ""
    _, _, section = text.partition("Leaves the client\n")
    return " ".join(section.partition("\n\n")[0].split())


__all__ = ["VERSIONS", "GFedNTM", "GFedNTMClient", "GFedNTMSettings", "what_leaves"]
