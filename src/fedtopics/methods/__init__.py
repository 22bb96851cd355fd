"""Federated methods, one file a paper: the server's half and the client's half side by side."""

from __future__ import annotations

from fedtopics.methods.gfedntm import GFedNTM, GFedNTMClient, GFedNTMSettings

__all__ = ["GFedNTM", "GFedNTMClient", "GFedNTMSettings"]
